"""JSON in and out: nothing a peer may have meant is lost, nothing hostile does more than fail."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.protocol.frames import FrameError, Raw, decode, encode, has_method, number_of, salvage_id

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_a_message_survives_encoding_and_decoding(value: object) -> None:
    data = encode(value)
    assert b"\n" not in data
    assert decode(data) == value == json.loads(data)


@pytest.mark.parametrize("number", [10**25, -(10**25), 2**64, -(2**63) - 1])
def test_integers_beyond_64_bits_stay_exact(number: int) -> None:
    assert decode(encode({"n": number})) == {"n": number}
    assert decode(str(number).encode()) == number


def test_invalid_utf8_is_read_with_replacement_characters() -> None:
    assert decode(b'{"a":"\xff"}') == {"a": "\ufffd"}


def test_a_lone_surrogate_is_passed_unchanged() -> None:
    value = decode(rb'{"a":"\ud800"}')
    assert value == {"a": "\ud800"}
    assert encode(value) == rb'{"a":"\ud800"}'


def test_a_byte_order_mark_is_tolerated() -> None:
    assert decode(b'\xef\xbb\xbf{"a":1}') == {"a": 1}


def test_not_a_number_is_read_and_written_as_null() -> None:
    value = decode(b'{"a":NaN}')
    assert math.isnan(value["a"])
    assert encode(value) == b'{"a":null}'


@pytest.mark.parametrize("data", [b"", b"{", b"nonsense", b'{"a":}', b"[" * 200_000, b'{"a":' * 200_000])
def test_invalid_json_is_a_frame_error(data: bytes) -> None:
    with pytest.raises(FrameError):
        decode(data)


def test_values_that_json_cannot_express_are_a_frame_error() -> None:
    with pytest.raises(FrameError):
        encode({"a": object()})


def test_serialised_parts_are_embedded_as_they_are() -> None:
    assert encode({"result": Raw(b'{"tools": []}')}) == b'{"result":{"tools": []}}'
    assert json.loads(encode({"result": Raw(b'{"tools": []}'), "id": "\ud800"})) == {
        "result": {"tools": []},
        "id": "\ud800",
    }


@pytest.mark.parametrize(
    ("head", "tail", "found"),
    [
        (b'{"jsonrpc":"2.0","id":17,"result":{"id":3', b'"}}', 17),
        (b'{"jsonrpc":"2.0","id" : "a\\"b","error":{', b'"}}', 'a"b'),
        (b'{"jsonrpc":"2.0","result":{"id":3', b'"}]},"id":42}', 42),
        (b'{"jsonrpc":"2.0","result":{"id":3', b'"id":9}]},"jsonrpc":"2.0"}', None),
        (b'{"result":"x', b"", None),
        (b'{"id":1.5,"result":"x', b"", None),
        (b'{"id":null,"result":"x', b"", None),
    ],
)
def test_the_id_of_an_unreadable_answer_is_found_only_at_its_top_level(head: bytes, tail: bytes, found: object) -> None:
    assert salvage_id(head, tail) == found


@pytest.mark.parametrize(
    ("head", "tail", "found"),
    [
        (b'{"jsonrpc":"2.0","method":"x","params":{"a":"', b'"}}', True),
        (b'{"jsonrpc":"2.0","id":1,"method" :"x","params":{"a":"', b'"}}', True),
        (b'{"params":{"a":"', b'"},"method":"notifications/x","jsonrpc":"2.0"}', True),
        (b'{"jsonrpc":"2.0","id":"method","result":{"method":"', b'","method":"x"}}', False),
        (b'{"jsonrpc":"2.0","id":1,"result":"', b',\\"method\\":\\"x\\"}', False),
    ],
)
def test_the_method_of_an_unreadable_message_is_found_only_at_its_top_level(
    head: bytes, tail: bytes, found: bool
) -> None:
    assert has_method(head, tail) is found


@pytest.mark.parametrize(("id", "meant"), [("1", 1), (1.0, 1), (7, 7), ("x1", "x1"), ("²", "²"), ("9" * 19, "9" * 19)])
def test_an_id_in_another_form_is_the_number_that_it_stands_for(id, meant):
    assert number_of(id) == meant
    assert type(number_of(id)) is type(meant)


@pytest.mark.parametrize("id", [None, 1.5, float("inf"), float("nan"), True, [], {}])
def test_any_other_value_stands_for_no_number(id):
    assert number_of(id) is id
