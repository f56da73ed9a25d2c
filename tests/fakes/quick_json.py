"""`loads` and `dumps` of `json` without its imports, which are most of what a small program takes to start."""

from __future__ import annotations

import _json


class _Reading:
    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict = {}  # noqa: RUF012 - the parser asks for it


_read = _json.make_scanner(_Reading)
_write = _json.make_encoder(None, None, _json.encode_basestring_ascii, None, ": ", ", ", False, False, True)


def loads(text: str | bytes) -> object:
    """The value of a JSON text. Raises ValueError."""
    text = (text.decode() if isinstance(text, bytes) else text).strip()
    try:
        value, end = _read(text, 0)
    except StopIteration:
        raise ValueError("not JSON") from None
    if end != len(text):
        raise ValueError("more than one value")
    return value


def dumps(value: object) -> str:
    """The JSON text of a value, in ASCII."""
    return "".join(_write(value, 0))
