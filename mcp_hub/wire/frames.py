"""JSON text to Python values and back, losing nothing a peer may have meant.

msgspec does the work (unlike orjson it keeps integers beyond 64 bits); what it refuses gets a lenient second
try with the standard library: invalid UTF-8, lone surrogates, NaN. `FrameError` is raised for the rest.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

Message = dict[str, Any]
"""One JSON-RPC message as it came."""

Raw = msgspec.Raw
"""JSON text that is already serialised, to be embedded as it is."""

_decoder: Final = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder()

_ID: Final = re.compile(rb'"id"\s*:\s*(-?\d{1,18}(?![\d.eE])|"(?:[^"\\]|\\.){0,256}")')


class FrameError(ValueError):
    """Bytes that are no JSON, or JSON nested too deeply to be read."""


def decode(data: bytes | bytearray | memoryview) -> Any:
    """The value of a JSON text. Raises FrameError."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_leniently(bytes(data))
    except RecursionError:
        raise FrameError("nested too deeply") from None


def _decode_leniently(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig", errors="replace"))
    except RecursionError:
        raise FrameError("nested too deeply") from None
    except ValueError as error:
        raise FrameError(str(error)) from None


def encode(value: Any) -> bytes:
    """JSON text of `value`, UTF-8, on one line. Raises FrameError for what JSON cannot say."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encode_leniently(value)
    except (TypeError, RecursionError, msgspec.EncodeError) as error:
        raise FrameError(str(error)) from None


def _encode_leniently(value: Any) -> bytes:
    # A lone surrogate cannot be UTF-8; as \\uXXXX it arrives as it came.
    try:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=_plain).encode()
    except (TypeError, RecursionError, ValueError) as error:
        raise FrameError(str(error)) from None


def _plain(value: Any) -> Any:
    if isinstance(value, Raw):
        return decode(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def salvage_id(head: bytes, tail: bytes = b"") -> int | str | None:
    """The id of a response whose bytes cannot be decoded, read from its first and last bytes; None if unsure.

    Only a top-level id counts, so the text before the result and the text after it are looked at, no further.
    """
    for part in (
        head.split(b'"result"', 1)[0].split(b'"error"', 1)[0],
        tail.rsplit(b"}", 2)[-2] if tail.count(b"}") >= 2 else b"",
    ):
        match = _ID.search(part)
        if match is not None:
            found = decode(match[1])
            if isinstance(found, int | str):
                return found
    return None
