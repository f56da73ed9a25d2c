"""The optional extras of the distribution, whether they are installed, and access to the keyring, one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Final, Literal, TypeVar

from mcp_hub import codes
from mcp_hub.codes import CodedText

T = TypeVar("T")

DISTRIBUTION: Final = "mcp-hub-gateway"
Extra = Literal["web", "browser", "oauth", "verify", "keyring", "otel", "search", "code_mode", "store"]
_PACKAGES: Final[Mapping[Extra, tuple[str, ...]]] = {
    "web": ("markitdown",),
    "browser": ("playwright",),
    # mcp_types comes with mcp 2; AgentScope requires an older mcp, without it.
    "oauth": ("httpx2", "mcp", "mcp_types"),
    "verify": ("fastmcp", "httpx2"),
    "keyring": ("keyring",),
    "otel": ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"),
    "search": ("numpy", "safetensors", "tokenizers"),
    "code_mode": ("pydantic_monty",),
    "store": ("redis",),
}
"""Extra -> the packages of it that are imported."""
OF_BUILTINS: Final[Mapping[str, Extra]] = {"web": "web", "browser": "browser"}
"""Built-in server -> the extra that it needs. The others need none."""


def missing(extra: Extra) -> CodedText | None:
    """Returns what to tell the user if an extra is not installed, else None. It imports nothing of the extra."""
    if all(_is_there(package) for package in _PACKAGES[extra]):
        return None
    text = f"it needs the extra '{extra}', which is not installed; run: pip install '{DISTRIBUTION}[{extra}]'"
    return CodedText(text, codes.EXTRA_MISSING)


def default_model_there() -> bool:
    """Returns whether the package with the default search model is installed; it is not available on all platforms."""
    return _is_there("wordllama")


def _is_there(package: str) -> bool:
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return False
    # A directory of that name in the working directory is a package without a file, not the package of the extra.
    return spec is not None and spec.origin is not None


WAIT: Final = 60.0
"""Seconds for one access, as the user may have to unlock the keyring first."""
_NO_BACKEND: Final = (
    "there is no keyring here; install or unlock one (on Linux: GNOME Keyring or KWallet), or name a backend in "
    "the environment variable PYTHON_KEYRING_BACKEND"
)


class KeyringError(Exception):
    """The keyring cannot be used. `str()` says why and what to do. It quotes no secret.

    The keyring is Keychain, Credential Locker, Secret Service, KWallet, or what PYTHON_KEYRING_BACKEND names. The
    package is imported with the first access, as its search for backends takes a good part of a second.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.code = codes.code_of(reason) or codes.KEYRING_UNUSABLE


def read_secret(service: str, username: str) -> str | None:
    """Returns a secret; None if there is none. Raises KeyringError."""
    require_keyring()
    import keyring

    return _run_bounded(lambda: keyring.get_password(service, username))


def write_secret(service: str, username: str, secret: str) -> None:
    """Stores a secret. Raises KeyringError."""
    require_keyring()
    import keyring

    _run_bounded(lambda: keyring.set_password(service, username, secret))


def delete_secret(service: str, username: str) -> None:
    """Deletes a secret if there is one. Raises KeyringError."""
    require_keyring()
    import keyring
    from keyring.errors import PasswordDeleteError

    def delete() -> None:
        if keyring.get_password(service, username) is None:
            return
        try:
            keyring.delete_password(service, username)
        except PasswordDeleteError:
            raise KeyringError("the keyring does not let the entry be deleted") from None

    _run_bounded(delete)


def require_keyring() -> None:
    """Raises KeyringError if `keyring` is not installed or its backend cannot be loaded."""
    if (reason := missing("keyring")) is not None:
        raise KeyringError(reason)
    try:
        import keyring

        keyring.get_keyring()
    except Exception as error:
        raise KeyringError(f"the keyring cannot be loaded ({type(error).__name__})") from None


def _run_bounded(access: Callable[[], T]) -> T:
    """Runs `access()` in a thread and waits at most `WAIT` seconds, as a locked keyring may never answer."""
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
    raise _as_keyring_error(failures[0]) if failures else KeyringError(f"the keyring did not answer within {WAIT:g} s")


def _as_keyring_error(error: BaseException) -> KeyringError:
    from keyring.errors import KeyringLocked, NoKeyringError

    if isinstance(error, KeyringError):
        return error
    if isinstance(error, NoKeyringError):
        return KeyringError(_NO_BACKEND)
    if isinstance(error, KeyringLocked):
        return KeyringError("the keyring is locked; unlock it")
    return KeyringError(f"the keyring failed ({type(error).__name__})")
