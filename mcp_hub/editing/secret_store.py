"""Stores the secrets that a configuration refers to: in the system's keyring, or in private files of this user."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.config.extras import KeyringError, delete_secret, missing, read_secret, write_secret
from mcp_hub.config.fields import FieldValue
from mcp_hub.config.findings import KeyPath
from mcp_hub.config.secret_values import SecretSpan, find_plain_secrets
from mcp_hub.config.variables import MAX_SECRET_FILE, VariableScope, expand
from mcp_hub.editing import EditRefused
from mcp_hub.editing.edit import Edit, read_bytes
from mcp_hub.editing.journal import refuse_git_work_tree
from mcp_hub.text import printable

SERVICE: Final = "mcp-hub"
"""The service name in the keyring."""
_SAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


class KeyringSecret(msgspec.Struct, frozen=True):
    """A secret to put into the keyring when the plan is confirmed."""

    user: str
    value: str


class KeptSecret(msgspec.Struct, frozen=True):
    """The reference to a secret, and where it is stored. It is stored when the command's plan is confirmed."""

    reference: str
    """`${keyring:mcp-hub/github.TOKEN}` or `${file:/home/me/.local/share/mcp-hub/secrets/github.TOKEN}`."""
    keyring: KeyringSecret | None = None
    edit: Edit | None = None


class SecretStore:
    """Finds a place for each secret of an entry: in the keyring of the user, or in a private file."""

    def __init__(self, directory: Path, *, in_keyring: bool) -> None:
        self._directory = directory
        self._in_keyring = in_keyring
        self._assigned: dict[str, str] = {}

    @classmethod
    def of_user(cls) -> SecretStore:
        """Returns the store of this user: the keyring if it works, else private files."""
        import platformdirs

        directory = Path(platformdirs.user_data_dir("mcp-hub", appauthor=False)) / "secrets"
        return cls(directory, in_keyring=_has_keyring())

    def place(self, server: str, name: str, value: str) -> KeptSecret:
        """Returns the place of a secret of a server. Another secret of the same name is never replaced.

        Raises:
            EditRefused: its file would be in a Git work tree, or the keyring cannot be read.
        """
        base = _SAFE.sub("-", f"{server}.{name}").strip("-.") or "secret"
        user, number = base, 1
        while (stored := self._stored_value(user)) not in (None, value):
            number += 1
            user = f"{base}-{number}"
        self._assigned[user] = value
        if self._in_keyring:
            return KeptSecret(
                f"${{keyring:{SERVICE}/{user}}}", None if stored is not None else KeyringSecret(user, value)
            )
        refuse_git_work_tree(self._directory)
        path = self._directory / user
        edit = None if stored is not None else Edit(path, None, _content(value), secret=True)
        return KeptSecret(f"${{file:{path}}}", None, edit)

    def without_secrets(
        self, server: str, values: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[tuple[str, KeptSecret]]]:
        """Returns an entry that refers to its secrets, and the secrets by name. The hub reads the same values from it.

        Raises:
            EditRefused: a secret cannot be stored.
        """
        secrets: list[tuple[str, KeptSecret]] = []
        clean = copy.deepcopy(dict(values))
        for at, text, spans in _plain_secrets(values):
            name = str(at[-1]) if len(at) > 1 and isinstance(at[-1], str) else "-".join(map(str, at))
            pieces: list[str] = []
            end = 0
            for number, (start, stop) in enumerate(spans):
                key = name if number == 0 else f"{name}-{number + 1}"
                secrets.append((key, self.place(server, key, expand(text[start:stop], _SCOPE))))
                pieces += text[end:start], secrets[-1][1].reference
                end = stop
            _put(clean, at, "".join((*pieces, text[end:])))
        return clean, secrets

    def _stored_value(self, user: str) -> str | None:
        if user in self._assigned:
            return self._assigned[user]
        if self._in_keyring:
            try:
                return read_secret(SERVICE, user)
            except KeyringError as error:
                raise EditRefused(f"the keyring cannot be read: {error}") from None
        content = read_bytes(self._directory / user)
        if content is None:
            return None
        return content.decode("utf-8-sig", "replace").removesuffix("\n").removesuffix("\r")


_SCOPE: Final = VariableScope({}, Path("/"), Path("/"))
"""The forms of variables of the hub's own file."""


def _content(value: str) -> bytes:
    """Returns the content of a file from which `${file:...}` reads exactly this value. Raises EditRefused."""
    ending = value[-1:] if value.endswith(("\n", "\r")) else ""
    beginning = "\ufeff" if value.startswith("\ufeff") else ""
    try:
        content = f"{beginning}{value}{ending}".encode()
    except UnicodeEncodeError:
        raise EditRefused("a secret is not text that a file can hold; nothing was written") from None
    if len(content) > MAX_SECRET_FILE:
        raise EditRefused(f"a secret is larger than {MAX_SECRET_FILE // 1024} KiB; nothing was written")
    return content


def hidden(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an entry with `***` in place of its secrets."""
    clean = copy.deepcopy(dict(values))
    for at, text, spans in _plain_secrets(values):
        for start, stop in reversed(spans):
            text = f"{text[:start]}***{text[stop:]}"
        _put(clean, at, text)
    return clean


def _plain_secrets(values: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str, list[SecretSpan]]]:
    return find_plain_secrets({name: FieldValue(value, (name,)) for name, value in values.items()}, _SCOPE)


def _put(values: Any, at: KeyPath, text: str) -> None:
    for part in at[:-1]:
        values = values[part]
    values[at[-1]] = text


def _has_keyring() -> bool:
    if missing("keyring") is not None:
        return False
    try:
        read_secret(SERVICE, "is-there-a-keyring")
    except KeyringError:
        return False
    return True


def keep_in_keyring(secrets: Iterable[KeyringSecret]) -> None:
    """Writes secrets into the keyring, all or none. Raises EditRefused."""
    done: list[str] = []
    try:
        for secret in secrets:
            write_secret(SERVICE, secret.user, secret.value)
            done.append(secret.user)
    except KeyringError as error:
        forget_in_keyring(done)
        raise EditRefused(f"the secret {printable(secret.user)} cannot be kept: {error}; nothing was written") from None


def forget_in_keyring(users: Iterable[str]) -> list[str]:
    """Deletes secrets from the keyring. Returns a sentence for each that stays."""
    problems = []
    for user in users:
        try:
            delete_secret(SERVICE, user)
        except KeyringError as error:
            problems.append(f"{SERVICE}/{printable(user)} stays in the keyring: {error}")
    return problems
