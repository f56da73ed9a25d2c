"""The text in bytes of the web: which encoding they really are in, and never a failure over a single bad byte."""

from __future__ import annotations

import codecs
import re
from typing import Final

_BOMS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_SUPERSETS: Final = {
    "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949", "shift_jis": "cp932", "big5": "big5hkscs",
}  # fmt: skip
"""What pages declare, and what browsers read it as (the table of the encoding standard)."""
_REFUSED: Final = frozenset({"utf-7", "utf-32", "utf-32-le", "utf-32-be"})
"""Encodings no browser reads; the first one has hidden markup from filters."""
_HEAD: Final = 4096
"""Bytes in which a page declares its encoding; the standard says 1024."""
_DECLARED: Final = re.compile(
    rb"""<(?:meta\b[^>]{0,400}?charset|\?xml\b[^>]{0,200}?encoding)\s*=\s*["']?\s*([\w.:-]{1,40})""", re.I
)
_SAMPLE: Final = 64 * 1024


def decoded(data: bytes, declared: str | None, *, markup: bool) -> str:
    """The text of `data`: by its byte order mark, else as `declared` outside, else as it says itself, else as it looks.

    `declared`: from `Content-Type`. `markup`: HTML or XML, which may name its encoding. What cannot be decoded
    becomes U+FFFD.
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    found = _known(declared)
    if found is None and markup and (match := _DECLARED.search(data[:_HEAD])) is not None:
        found = _known(match[1].decode("ascii", "replace"))
        if found is not None and found.startswith("utf-16"):
            found = "utf-8"  # it was readable as ASCII, so it is not what it says
    if found is not None:
        return data.decode(found, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode(_guessed(data), "replace")


def _known(name: str | None) -> str | None:
    """The codec for a declared name, None if there is no such text encoding."""
    try:
        codec = codecs.lookup((name or "").strip().strip("\"'"))
    except (LookupError, ValueError):
        return None
    if codec.name in _REFUSED or not getattr(codec, "_is_text_encoding", True):
        return None
    return _SUPERSETS.get(codec.name, codec.name)


def _guessed(data: bytes) -> str:
    from charset_normalizer import from_bytes

    best = from_bytes(data[:_SAMPLE]).best()
    return best.encoding if best is not None else "cp1252"
