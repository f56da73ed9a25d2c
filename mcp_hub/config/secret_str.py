"""A text that is not shown."""

from __future__ import annotations

from typing import Final

_STARS: Final = "**********"


class SecretStr:
    """Shows itself as stars; whoever needs the text asks for it by name."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def get_secret_value(self) -> str:
        """The text itself."""
        return self._text

    def __str__(self) -> str:
        return _STARS if self._text else ""

    def __repr__(self) -> str:
        return f"SecretStr('{self}')"

    def __len__(self) -> int:
        return len(self._text)

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, SecretStr) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)
