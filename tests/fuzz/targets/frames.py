"""JSON in and out: any bytes are a value or a FrameError, and a value comes back as it went out."""

from __future__ import annotations

import json
import math
from typing import Any

from mcp_hub.protocol.frames import FrameError, decode, decode_exactly, encode, salvage_id
from tests.fuzz.supply import Supply

TOKENS = (
    *(
        b'{"jsonrpc":"2.0",',
        b'"id":',
        b'"id":1,',
        b'"\\u0069d":2,',
        b'"ID":3,',
        b'"result":',
        b'"error":',
        b'"method":',
    ),
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"null", b"true", b"NaN", b"-Infinity", b"1e400", b"9" * 20),
    *(b"\\ud800", b"\xff", b"\xc0\xaf", b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b'"__proto__":', b"[" * 50, b"1.0"),
)
SEEDS = (
    b'\x00{"jsonrpc":"2.0","id":7,"result":{"id":8,"a":[1,2.5,"\\u00e9",null]}}',
    b'\x05{"jsonrpc":"2.0","result":{"id":3,"x":"\\"id\\":4}"},"id":"seven"}',
    b'\x00{"a":1,"a":2,"\\u0061":3}',
    b'\x00{"a":1e400,"b":NaN}',
)


def target(data: bytes) -> None:
    supply = Supply(data)
    size, text = supply.below(256), supply.rest()
    try:
        value = decode(text)
    except FrameError:
        salvaged = salvage_id(text[:size], text[-size:])
        assert salvaged is None or isinstance(salvaged, int | str)
        assert _exact(text) is FrameError, "what cannot be read can be read exactly"
        return
    again = decode(encode(value))
    assert _same(again, _finite(value)), "a value changed on its way out and in"
    assert b"\n" not in encode(value)
    exact = _exact(text)
    if exact is FrameError:
        assert _has_no_number(text), "what is exact was refused"
    else:
        assert _same(exact, value)
        assert _all_finite(value), "a number that no JSON can say was taken for exact"
    if isinstance(value, dict):
        salvaged = salvage_id(text[:size], text[-size:] if len(text) > size else b"")
        assert salvaged is None or any(_same(salvaged, message_id) for message_id in _ids(text)), (
            "an id that is not the message's"
        )


def _exact(text: bytes) -> Any:
    try:
        return decode_exactly(text)
    except FrameError:
        return FrameError


def _ids(text: bytes) -> list[Any]:
    """Every top-level id of a JSON text, by the standard library."""
    ids: list[Any] = []

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        ids[:] = [value for key, value in members if key == "id"]  # the outermost object is the last to end
        return dict(members)

    json.loads(text.decode("utf-8-sig", "replace"), object_pairs_hook=pairs)
    return ids


def _has_no_number(text: bytes) -> bool:
    """Whether NaN, Infinity or a number as large stands anywhere, in a member that is overwritten later too."""
    numbers: list[float] = []

    def note(written: str) -> float:
        numbers.append(float(written))
        return numbers[-1]

    json.loads(text.decode("utf-8-sig", "replace"), parse_float=note, parse_constant=note)
    return not all(map(math.isfinite, numbers))


def _finite(value: Any) -> Any:
    """Returns the value as JSON can represent it: numbers that are not finite become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return {key: _finite(item) for key, item in value.items()} if isinstance(value, dict) else value


def _all_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list | dict):
        return all(_all_finite(item) for item in (value.values() if isinstance(value, dict) else value))
    return True


def _same(first: Any, second: Any) -> bool:
    """Equal, and of the same types: True is not 1, and 1 is not 1.0."""
    if type(first) is not type(second):
        return False
    if isinstance(first, list):
        return len(first) == len(second) and all(map(_same, first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)
    return bool(first == second)
