"""A backend of `keyring` that works without a desktop: a JSON file, named by $TEST_KEYRING.

`PYTHON_KEYRING_BACKEND=tests.oauth.file_keyring.FileKeyring` makes it the system's.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError

BACKEND = f"{__name__}.FileKeyring"


class FileKeyring(KeyringBackend):
    """Locked while a file of the same name with `.locked` behind it is there."""

    priority = 1

    @property
    def _path(self) -> Path:
        path = Path(os.environ["TEST_KEYRING"])
        if path.with_suffix(".locked").exists():
            raise KeyringLocked("locked")
        return path

    def _entries(self) -> dict[str, str]:
        return json.loads(self._path.read_text()) if self._path.exists() else {}

    def get_password(self, service: str, username: str) -> str | None:
        return self._entries().get(f"{service}\n{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._path.write_text(json.dumps({**self._entries(), f"{service}\n{username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        entries = self._entries()
        if entries.pop(f"{service}\n{username}", None) is None:
            raise PasswordDeleteError
        self._path.write_text(json.dumps(entries))
