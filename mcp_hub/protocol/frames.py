"""Decodes and encodes JSON without losing anything, and tunes the heap for large messages.

msgspec does the work (unlike orjson it keeps integers beyond 64 bits); what it refuses gets a lenient second
try with the standard library: invalid UTF-8, lone surrogates, NaN. `FrameError` is raised for the rest.

`decode` reads messages of upstreams, `decode_exactly` those of clients. The hub checks these before it forwards them,
so it refuses a message that it could not forward exactly as checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import math
import re
import sys
import time
from collections.abc import Generator, Iterator
from typing import Any, Final, NoReturn, TypeVar

import msgspec

T = TypeVar("T")

Message = dict[str, Any]
"""One decoded JSON-RPC message."""

Raw = msgspec.Raw
"""JSON text that `encode` embeds unchanged."""

_decoder: Final = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder()

_ID: Final = rb'\s*:\s*(-?\d{1,18}|"(?:[^"\\]|\\.){0,256}")'
_ID_VALUE: Final = re.compile(_ID + rb"\s*[,}]")  # the end must be there: a truncated id would be another id
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\]]', re.DOTALL)
_FLAT: Final = rb',\s*"[^"\\]{0,64}"\s*:\s*(?:"[^"\\]{0,256}"|[\w.+-]{1,64})\s*'
_ID_LAST: Final = re.compile(rb',\s*"id"' + _ID + rb"\s*(?:" + _FLAT + rb"){0,8}}\s*\Z")
_METHOD_LAST: Final = re.compile(rb',\s*"method"\s*:\s*"[\w/]{1,256}"\s*(?:' + _FLAT + rb"){0,8}}\s*\Z")
_COLON: Final = re.compile(rb"\s*:")
_BEGINNING: Final = re.compile(rb'\s*(?:\[\s*)?\{\s*"')


LARGE: Final = 32 * 1024
"""Weight (`weighs_more`) from which a value is processed in a thread; below, it takes a few milliseconds."""
PER_VALUE: Final = 16
"""Weight of a value besides its characters: about the cost of visiting it."""


class FrameError(ValueError):
    """The bytes are not JSON, or are nested too deeply."""


class Spent:
    """Total seconds that decoding and encoding large frames has taken in this process."""

    seconds = 0.0


def decode(data: bytes | bytearray | memoryview) -> Any:
    """Decodes a JSON text. Raises FrameError."""
    if len(data) > _HEAP_LARGE:
        return _decode_large(_decode, data)
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode(data)


def _decode_large(decoder: Any, data: bytes | bytearray | memoryview) -> Any:
    _heap.large()
    started_at = time.perf_counter()
    try:
        return decoder(data)
    finally:
        Spent.seconds += time.perf_counter() - started_at


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
    """Decodes like `decode`, but refuses numbers that could not be written again: NaN, Infinity, 1e400.

    Raises:
        FrameError: the text is not JSON, or has such a number.
    """
    if len(data) > _HEAP_LARGE:
        return _decode_large(_decode_exactly, data)
    try:
        return _exact_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, FrameError):
        return _decode_exactly(data)


def _decode_exactly(data: bytes | bytearray | memoryview) -> Any:
    try:
        return _exact_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_leniently(bytes(data), parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise FrameError("nested too deeply") from None


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise FrameError(f"the number {literal[:20]} is too large for a 64-bit float; send it as a string")
    return number


def _no_number(literal: str) -> NoReturn:
    raise FrameError(f"{literal} is not a JSON number; send null or a string")


_exact_decoder: Final = msgspec.json.Decoder(float_hook=_finite)


def encode(value: Any) -> bytes:
    """Encodes a value as one line of UTF-8. Raises FrameError for a value that JSON cannot express."""
    started_at = time.perf_counter()
    try:
        data: bytes = _encoder.encode(value)
        if len(data) > _HEAP_LARGE:
            Spent.seconds += time.perf_counter() - started_at
        return data
    except UnicodeEncodeError:
        return _encode_leniently(value)
    except (TypeError, RecursionError, ValueError, msgspec.EncodeError) as error:  # ValueError: a very long integer
        raise FrameError(str(error)) from None


def _encode_leniently(value: Any) -> bytes:
    # A lone surrogate has no form in UTF-8; the escape \\uXXXX keeps it.
    try:
        return json.dumps(_finite_only(value), ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, RecursionError, ValueError) as error:
        raise FrameError(str(error)) from None


def _finite_only(value: Any) -> Any:
    """Returns a copy that the standard library writes as msgspec does: null for a number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite_only(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite_only(member) for member in value]
    return _finite_only(decode(value)) if isinstance(value, Raw) else value


def salvage_id(head: bytes, tail: bytes = b"") -> int | str | None:
    """Reads the id of a message that cannot be decoded from its first and last bytes; None if it is not certain.

    Only a top-level id counts. If `head` is the whole message, `tail` may equal it.
    """
    for text, end in _top_level(head):
        if text == b'"id"' and (match := _ID_VALUE.match(head, end)):
            return _read_id(match[1])
    # A JSON string has no unescaped quote, so a match at the end is certainly the last members of the message.
    last_match = _ID_LAST.search(tail) if tail != head else None
    return _read_id(last_match[1]) if last_match is not None else None


def has_method(head: bytes, tail: bytes = b"") -> bool:
    """Returns whether a message that cannot be decoded is certainly no response, as it has a method at its top level.

    `head`, `tail`: as for `salvage_id`.
    """
    if any(text == b'"method"' and _COLON.match(head, end) for text, end in _top_level(head)):
        return True
    return tail != head and _METHOD_LAST.search(tail) is not None


def is_noise(head: bytes, tail: bytes) -> bool:
    """Returns whether a text that cannot be decoded is no message either.

    It does not begin like one, as `[DEBUG] {...}`, or has neither an id nor `"jsonrpc"`. `head`, `tail`: its ends.
    """
    return _BEGINNING.match(head) is None or (salvage_id(head, tail) is None and b'"jsonrpc"' not in head + tail)


def _top_level(head: bytes) -> Iterator[tuple[bytes, int]]:
    """Yields the strings at the top level of an object, each with the position behind it."""
    depth = 0
    for token in _TOKEN.finditer(head):
        text = token[0]
        if text in (b"{", b"["):
            depth += 1
        elif text in (b"}", b"]"):
            depth -= 1
        elif depth == 1:
            yield text, token.end()


def _read_id(data: bytes) -> int | str | None:
    try:
        id_ = decode(data)
    except FrameError:
        return None
    return id_ if isinstance(id_, int | str) else None


def number_of(id_: Any) -> Any:
    """Returns the number that an id stands for, as some servers answer the request 1 with `"1"` or `1.0`; else `id_`.

    The hub numbers its requests, so that such an id of an answer can mean nothing else.
    """
    if isinstance(id_, float) and id_.is_integer():
        return int(id_)
    return int(id_) if isinstance(id_, str) and re.fullmatch("[0-9]{1,18}", id_) else id_


def weighs_more(value: Any, limit: int = LARGE) -> bool:
    """Returns whether a JSON value weighs more than `limit`: its characters, and `PER_VALUE` for every value in it.

    Takes time in proportion to `limit`, however large the value is.
    """
    return _weigh([value], limit) < 0


def weighing(value: Any, limit: int) -> Generator[None, None, bool]:
    """Returns what `weighs_more` returns; yields after every thousand values."""
    return (yield from weight_left(value, limit)) < 0


def weight_left(value: Any, limit: int) -> Generator[None, None, int]:
    """Returns what is left of `limit` after a value, negative if it weighs more; yields after every thousand values."""
    stack = [value]
    remaining = _weigh(stack, limit, _VALUES)
    while stack and remaining >= 0:
        yield
        remaining = _weigh(stack, remaining, _VALUES)
    return remaining


def finished(steps: Generator[None, None, T]) -> T:
    """Runs a generator to its end in one go and returns what it returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


_VALUES: Final = 1000


def _weigh(stack: list[Any], remaining: int, number: int = sys.maxsize) -> int:
    """Takes at most `number` values off `stack`; returns the weight that is left, negative if it is used up."""
    for _ in range(number):
        if not stack:
            break
        value = stack.pop()
        kind = type(value)
        remaining -= PER_VALUE
        if kind is str:
            remaining -= len(value)
        elif kind is list:
            if len(value) * PER_VALUE > remaining:
                return -1
            stack += value
        elif kind is dict:
            if len(value) * PER_VALUE > remaining:
                return -1
            remaining -= sum(map(len, value))
            stack += value.values()
        if remaining < 0:
            break
    return remaining


# --- heap ------------------------------------------------------------------------------------------------------
# A message of a megabyte passes through half a dozen buffers of its size. glibc returns each to the kernel as soon as
# it is free, and the kernel maps and clears new pages for the next one, which takes half of the time of such a message.
# So memory of large messages is kept for the next one for some seconds.
#
# A full garbage collection visits every value of every live message and list at once: 25 ms for a result of 300,000
# rows, 170 ms for lists of 50 MB. So none runs while large messages pass, and large lists, which stay and have no
# cycles, are excluded from all collections.
#
# A replaced generation and a lost connection are garbage in cycles: 100 to 1,000 objects each. Imported modules, which
# are most of the live objects, are excluded too, so that a full collection is cheap, can run often and finds little.

_HEAP_LARGE: Final = 256 * 1024
"""Bytes from which a message counts as large."""
HEAP_KEPT: Final = 5.0
"""Seconds after the last large message before memory is returned to the kernel."""
HEAP_MOST: Final = 64 * 1024 * 1024
"""The most bytes of free memory that are kept."""
UNCOLLECTED: Final = 60.0
"""Seconds of large messages after which a full collection is allowed nevertheless."""
MOST_SETTLED: Final = 100
"""The most times that `settle` has an effect, as garbage that exists at that time is never freed."""
_SERVING: Final = (5_000, 1, 0)
"""Thresholds of the garbage collector of a hub at work: all garbage is collected after 20,000 objects, or later if more
than four times as many are alive."""
_NEVER: Final = 1_000_000_000
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MMAP_MOST: Final = 32 * 1024 * 1024
"""The largest value that glibc accepts; a larger buffer is always mapped and unmapped."""


class _Heap:
    """Tunes the heap of the process, but only after `own`: the hub may run inside another program."""

    def __init__(self) -> None:
        self._own = False
        """Whether the process is the hub's own."""
        self._unset = False
        """Whether the process is the hub's own, and the settings of glibc have not been changed yet."""
        self._thresholds: tuple[int, int, int] | None = None
        """The usual thresholds of the garbage collector while full collections are off; None: they are on."""
        self._held_since = 0.0
        self._settle_count = 0
        self._allocator: Any = None
        """The C library; None if it has no such settings, or before the first large message."""
        self._last = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that has scheduled `_give_back`."""

    def own(self) -> None:
        """Allows tuning: the process is the hub's own."""
        self._own = self._unset = True

    def freeze_imports(self) -> None:
        """Excludes imported modules from garbage collections, and makes these frequent. Call it before a hub exists."""
        if self._own:
            gc.freeze()
            gc.set_threshold(*_SERVING)

    def settle(self) -> None:
        """Excludes all live objects from garbage collections. Call it after large lists have arrived."""
        if self._own and self._settle_count < MOST_SETTLED:
            self._settle_count += 1
            gc.freeze()

    def _hold_collector(self) -> None:
        self._thresholds, self._held_since = gc.get_threshold(), time.monotonic()
        gc.set_threshold(*self._thresholds[:2], _NEVER)

    def _release_collector(self) -> None:
        if self._thresholds is not None:
            gc.set_threshold(*self._thresholds)
            self._thresholds = None

    def large(self) -> None:
        """Keeps the memory of a large message for the next one. Never raises."""
        self._last = time.monotonic()
        if self._unset:
            self._unset = False
            self._allocator = _allocator()
            if self._allocator is not None:
                self._allocator.mallopt(_M_TRIM_THRESHOLD, HEAP_MOST)
                self._allocator.mallopt(_M_MMAP_THRESHOLD, _MMAP_MOST)
        if self._own and self._loop is None:
            with contextlib.suppress(RuntimeError):  # no loop runs in this thread
                self._loop = asyncio.get_running_loop()
                self._loop.call_later(HEAP_KEPT, self._give_back)
                self._hold_collector()

    def _give_back(self) -> None:
        loop, self._loop = self._loop, None
        waited = time.monotonic() - self._last
        if waited < HEAP_KEPT and loop is not None:
            self._loop = loop
            loop.call_later(HEAP_KEPT - waited, self._give_back)
            if self._thresholds is None:
                self._hold_collector()
            elif self._last - self._held_since > UNCOLLECTED:
                self._release_collector()  # until this runs again
            return
        self._release_collector()
        if self._allocator is not None:
            self._allocator.malloc_trim(0)


def _allocator() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes

        library = ctypes.CDLL(None)
        return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
    except (ImportError, OSError):
        return None


_heap: Final = _Heap()
own_heap: Final = _heap.own
freeze_imports: Final = _heap.freeze_imports
large_heap: Final = _heap.large
settle_heap: Final = _heap.settle
