"""JSON text to Python values and back, losing nothing a peer may have meant.

msgspec does the work (unlike orjson it keeps integers beyond 64 bits); what it refuses gets a lenient second
try with the standard library: invalid UTF-8, lone surrogates, NaN. `FrameError` is raised for the rest.

What an upstream says is read by `decode`. What a client says is read by `decode_exactly`: it is checked before it is
sent on, and what cannot be sent on as it was checked is refused.
"""

from __future__ import annotations

import json
import math
import re
import time
from typing import Any, Final, NoReturn

import msgspec

from mcp_hub.protocol import heap

Message = dict[str, Any]
"""One JSON-RPC message as it came."""

Raw = msgspec.Raw
"""JSON text that is already serialised, to be embedded as it is."""

_decoder: Final = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder()

_ID: Final = rb'\s*:\s*(-?\d{1,18}|"(?:[^"\\]|\\.){0,256}")'
_ID_VALUE: Final = re.compile(_ID + rb"\s*[,}]")  # an id that is cut off is another id
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\]]', re.DOTALL)
_FLAT: Final = rb',\s*"[^"\\]{0,64}"\s*:\s*(?:"[^"\\]{0,256}"|[\w.+-]{1,64})\s*'
_ID_LAST: Final = re.compile(rb',\s*"id"' + _ID + rb"\s*(?:" + _FLAT + rb"){0,8}}\s*\Z")


LARGE: Final = 32 * 1024
"""Weight (`weighs_more`) of a value from which on it is worked on in a thread; what is below takes some ms."""
PER_VALUE: Final = 16
"""What a value weighs besides its characters: about what it costs to look at it."""


class FrameError(ValueError):
    """Bytes that are no JSON, or JSON nested too deeply to be read."""


class Spent:
    """Seconds that decoding and encoding large frames has taken in this process, which grows with their size."""

    seconds = 0.0


def decode(data: bytes | bytearray | memoryview) -> Any:
    """The value of a JSON text. Raises FrameError."""
    return _decode(data) if len(data) <= heap.LARGE else _large(_decode, data)


def _large(read: Any, data: bytes | bytearray | memoryview) -> Any:
    heap.large()
    began = time.perf_counter()
    try:
        return read(data)
    finally:
        Spent.seconds += time.perf_counter() - began


def _decode(data: bytes | bytearray | memoryview) -> Any:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_leniently(bytes(data))
    except RecursionError:
        raise FrameError("nested too deeply") from None


def _decode_leniently(data: bytes, **reading: Any) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig", errors="replace"), **reading)
    except FrameError:
        raise
    except RecursionError:
        raise FrameError("nested too deeply") from None
    except ValueError as error:
        raise FrameError(str(error)) from None


def decode_exactly(data: bytes | bytearray | memoryview) -> Any:
    """Like `decode`, but FrameError also for numbers that could not be written again: NaN, Infinity, 1e400."""
    return _decode_exactly(data) if len(data) <= heap.LARGE else _large(_decode_exactly, data)


def _decode_exactly(data: bytes | bytearray | memoryview) -> Any:
    try:
        return _exact_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_leniently(bytes(data), parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise FrameError("nested too deeply") from None


def _finite(written: str) -> float:
    number = float(written)
    return number if math.isfinite(number) else _no_number(written)


def _no_number(written: str) -> NoReturn:
    raise FrameError(f"the number {written[:20]} is larger than numbers can be")


_exact_decoder: Final = msgspec.json.Decoder(float_hook=_finite)


def encode(value: Any) -> bytes:
    """JSON text of `value`, UTF-8, on one line. Raises FrameError for what JSON cannot say."""
    began = time.perf_counter()
    try:
        data: bytes = _encoder.encode(value)
        if len(data) > heap.LARGE:
            Spent.seconds += time.perf_counter() - began
        return data
    except UnicodeEncodeError:
        return _encode_leniently(value)
    except (TypeError, RecursionError, msgspec.EncodeError) as error:
        raise FrameError(str(error)) from None


def _encode_leniently(value: Any) -> bytes:
    # A lone surrogate cannot be UTF-8; as \\uXXXX it arrives as it came.
    try:
        return json.dumps(_finite_only(value), ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, RecursionError, ValueError) as error:
        raise FrameError(str(error)) from None


def _finite_only(value: Any) -> Any:
    """A copy that the standard library writes as msgspec would: null for what is no finite number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite_only(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite_only(one) for one in value]
    return _finite_only(decode(value)) if isinstance(value, Raw) else value


def salvage_id(head: bytes, tail: bytes = b"") -> int | str | None:
    """The id of a message whose bytes cannot be decoded, read from its first and last bytes; None if unsure.

    Only a top-level id counts. Where `head` has the whole message, `tail` may be the same.
    """
    depth = 0
    for token in _TOKEN.finditer(head):
        text = token[0]
        if text in (b"{", b"["):
            depth += 1
        elif text in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and text == b'"id"' and (found := _ID_VALUE.match(head, token.end())):
            return _read_id(found[1])
    # No unescaped quote stands inside of a text, so what looks like the last members of the message is them.
    last = _ID_LAST.search(tail) if tail != head else None
    return _read_id(last[1]) if last is not None else None


def _read_id(written: bytes) -> int | str | None:
    try:
        found = decode(written)
    except FrameError:
        return None
    return found if isinstance(found, int | str) else None


def weighs_more(value: Any, most: int = LARGE) -> bool:
    """Whether a JSON value has more than `most` characters, each value in it counting `PER_VALUE`.

    Takes time in proportion to `most`, however large the value is.
    """
    left, waiting = most, [value]
    while waiting:
        one = waiting.pop()
        kind = type(one)
        left -= PER_VALUE
        if kind is str:
            left -= len(one)
        elif kind is list:
            if len(one) * PER_VALUE > left:
                return True
            waiting += one
        elif kind is dict:
            if len(one) * PER_VALUE > left:
                return True
            left -= sum(map(len, one))
            waiting += one.values()
        if left < 0:
            return True
    return False
