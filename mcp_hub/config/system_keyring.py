"""The system's keyring: Keychain, Credential Locker, Secret Service, KWallet, or what PYTHON_KEYRING_BACKEND names.

`keyring` is imported when the first secret is asked for: looking for backends takes a good part of a second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from mcp_hub.config.extras import missing

T = TypeVar("T")

WAIT: Final = 60.0
"""Seconds for one access: the user may have to unlock the keyring first."""
_NO_BACKEND: Final = (
    "there is no keyring here; install or unlock one (on Linux: GNOME Keyring or KWallet), or name a backend in "
    "the environment variable PYTHON_KEYRING_BACKEND"
)


class KeyringFailed(Exception):
    """The keyring cannot be used. `str()` says why and what to do, and quotes no secret."""


def read_secret(service: str, username: str) -> str | None:
    """What is kept there; None if nothing is. Raises KeyringFailed."""
    import_first()
    import keyring

    return _bounded(lambda: keyring.get_password(service, username))


def write_secret(service: str, username: str, secret: str) -> None:
    """Keep it. Raises KeyringFailed."""
    import_first()
    import keyring

    _bounded(lambda: keyring.set_password(service, username, secret))


def delete_secret(service: str, username: str) -> None:
    """Forget it; nothing happens where nothing is kept. Raises KeyringFailed."""
    import_first()
    import keyring
    from keyring.errors import PasswordDeleteError

    def delete() -> None:
        if keyring.get_password(service, username) is None:
            return
        try:
            keyring.delete_password(service, username)
        except PasswordDeleteError:
            raise KeyringFailed("the keyring does not let the entry be deleted") from None

    _bounded(delete)


def import_first() -> None:
    """Raises KeyringFailed if `keyring` is not installed, or the backend that is named cannot be loaded."""
    if (lacking := missing("keyring")) is not None:
        raise KeyringFailed(lacking)
    try:
        import keyring

        keyring.get_keyring()
    except Exception as error:
        raise KeyringFailed(f"the keyring cannot be loaded ({type(error).__name__})") from None


def _bounded(access: Callable[[], T]) -> T:
    """`access()` in a thread of its own, as a locked keyring or a dead bus answers never."""
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(access())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="keyring", daemon=True)
    thread.start()
    thread.join(WAIT)
    if results:
        return results[0]
    raise _explained(failures[0]) if failures else KeyringFailed(f"the keyring did not answer within {WAIT:g} s")


def _explained(error: BaseException) -> KeyringFailed:
    from keyring.errors import KeyringLocked, NoKeyringError

    if isinstance(error, KeyringFailed):
        return error
    if isinstance(error, NoKeyringError):
        return KeyringFailed(_NO_BACKEND)
    if isinstance(error, KeyringLocked):
        return KeyringFailed("the keyring is locked; unlock it")
    return KeyringFailed(f"the keyring failed ({type(error).__name__})")
