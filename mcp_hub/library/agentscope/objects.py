"""What servers say, as objects: nothing is lost, and both spellings of a field are there."""

from __future__ import annotations

import re
from typing import Any, Final

_ABSENT: Final[dict[str, Any]] = {
    "annotations": None,
    "content": (),
    "description": None,
    "execution": None,
    "icons": None,
    "isError": False,
    "mimeType": None,
    "outputSchema": None,
    "size": None,
    "structuredContent": None,
    "title": None,
    "_meta": None,
}
"""What fields mean that may be missing."""
_NEXT_WORD: Final = re.compile(r"_([a-z])")


class McpObject(dict[str, Any]):
    """A dict as it came over the wire, whose fields are attributes too: `result.isError`, `result.is_error`.

    The names are those of both generations of the MCP SDK; `meta` is `_meta`. Inside of lists and objects it goes on.
    """

    def __getattr__(self, name: str) -> Any:
        for key in (name, "_meta" if name == "meta" else _NEXT_WORD.sub(lambda word: word[1].upper(), name)):
            if key in self:
                return objects(self[key])
            if key in _ABSENT:
                return [] if key == "content" else _ABSENT[key]
        raise AttributeError(f"it has no {name!r}; it has: {', '.join(self)}")

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """A plain copy; what the SDK's models take as options makes no difference."""
        return _plain(self)  # type: ignore[no-any-return]


def objects(value: Any) -> Any:
    """A JSON value with every object in it as an McpObject."""
    if isinstance(value, dict):
        return value if isinstance(value, McpObject) else McpObject(value)
    return [objects(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
