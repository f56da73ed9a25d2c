import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.transport.sse_codec import COMMENT, OversizedEvent, SseEvent, SseParser, encode_event

STREAM = (
    b"\xef\xbb\xbf: hello\r\nevent: endpoint\rdata: /a\r\n\r\n"
    b"id: 7\ndata: x\ndata\ndata:  y\nretry: 50\n\n\r\ndata: z\r\r"
)
EVENTS = [
    SseEvent("endpoint", b"/a", None, None),
    SseEvent("message", b"x\n\n y", "7", 50),
    SseEvent("message", b"z", "7", None),
]


def parse(*chunks: bytes, limit: int = 1_000_000) -> list[SseEvent]:
    parser = SseParser(limit)
    return [event for chunk in chunks for event in parser.feed(chunk)]


def data(*chunks: bytes) -> list[bytes]:
    return [event.data for event in parse(*chunks)]


def reference(text: bytes) -> list[SseEvent]:
    """The specification's algorithm, word for word, over a whole stream."""
    events: list[SseEvent] = []
    lines = re.split(rb"\r\n|\r|\n", text.removeprefix(b"\xef\xbb\xbf"))[:-1]
    kind, buffer, last_id, id_buffer, retry = b"", b"", None, None, None
    for line in lines:
        if not line:
            last_id = id_buffer if id_buffer is not None else last_id
            if buffer:
                name = kind.decode("utf-8", "replace") or "message"
                last_id_text = last_id.decode("utf-8", "replace") if last_id else None
                events.append(SseEvent(name, buffer[:-1], last_id_text, retry))
            kind, buffer, retry = b"", b"", None
            continue
        name, colon, value = line.partition(b":")
        if colon and not name:
            continue
        value = value.removeprefix(b" ")
        if name == b"event":
            kind = value
        elif name == b"data":
            buffer += value + b"\n"
        elif name == b"id" and b"\0" not in value:
            id_buffer = value
        elif name == b"retry" and re.fullmatch(rb"[0-9]{1,15}", value):
            retry = int(value)
    return events


def test_every_kind_of_line_end_byte_order_mark_and_comment_is_understood():
    assert parse(STREAM) == EVENTS


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_events_are_parsed_the_same_in_any_segmentation(size):
    assert parse(*(STREAM[at : at + size] for at in range(0, len(STREAM), size))) == EVENTS


PIECE = st.sampled_from(
    [b"data", b"id", b"event", b"retry", b":", b" ", b"\r", b"\n", b"\r\n", b"\n\n", b"1", b"xy", b"\0", "é".encode()]
)


@given(st.lists(PIECE, max_size=40).map(b"".join), st.booleans(), st.data())
def test_any_bytes_in_any_segmentation_give_the_events_of_the_specification(text, with_mark, draw):
    if with_mark:
        text = b"\xef\xbb\xbf" + text
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    chunks = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    # A final CR may still be half of a CRLF for the reference, never for the events.
    assert parse(*chunks) == reference(text)


@given(st.binary(max_size=200), st.integers(1, 30))
def test_encoded_data_decodes_to_itself_with_lf_line_ends(raw, size):
    encoded = encode_event(raw, event="note", id="e 1")
    chunks = [encoded[at : at + size] for at in range(0, len(encoded), size)]
    assert parse(*chunks) == [SseEvent("note", re.sub(rb"\r\n|\r", b"\n", raw), "e 1", None)]


def test_a_message_is_encoded_without_an_event_line():
    assert encode_event(b'{"id":1}') == b'data: {"id":1}\n\n'


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "a\0b"])
def test_a_name_or_id_of_several_lines_is_refused(bad):
    with pytest.raises(ValueError, match="one line"):
        encode_event(b"", event=bad)
    with pytest.raises(ValueError, match="one line"):
        encode_event(b"", id=bad)


def test_a_keep_alive_comment_is_no_event():
    assert parse(COMMENT, b"data: a\n", COMMENT) == [SseEvent("message", b"a", None, None)]


def test_an_event_without_data_is_not_delivered_but_sets_the_last_id():
    parser = SseParser(100)
    assert parser.feed(b"id: 4\nevent: ping\n\n") == []
    assert parser.last_event_id == "4"


def test_a_priming_event_with_empty_data_is_delivered():
    assert parse(b"id: 4\ndata:\n\n") == [SseEvent("message", b"", "4", None)]


def test_an_event_id_with_nul_is_ignored_and_an_empty_one_clears_the_last_id():
    parser = SseParser(100)
    parser.feed(b"id: 4\n\nid: 5\0\n\n")
    assert parser.last_event_id == "4"
    parser.feed(b"id\n\n")
    assert parser.last_event_id is None


def test_an_event_id_has_no_effect_before_its_event_is_complete():
    parser = SseParser(100)
    parser.feed(b"id: 4\ndata: a\n")
    assert parser.last_event_id is None


def test_a_non_numeric_retry_field_is_ignored():
    parser = SseParser(100)
    parser.feed(b"retry: 20\n\nretry: soon\n\nretry: -1\n\nretry: 1.5\n\n")
    assert parser.retry == 20


def test_an_unfinished_event_at_the_end_of_the_stream_is_not_delivered():
    assert data(b"data: a\n\ndata: b\n") == [b"a"]


def test_data_of_exactly_the_limit_passes():
    assert parse(b"data: " + b"x" * 50 + b"\n\n", limit=50)[0].data == b"x" * 50


@pytest.mark.parametrize("size", [1, 3, 64, 10_000])
@pytest.mark.parametrize("line", [b"data: " + b"x" * 5000, b"data: xxxxxxx\n" * 400 + b":", b"nonsense" * 900])
def test_an_event_above_the_limit_is_reported_by_its_beginning_and_end_and_others_arrive(line, size):
    text = b"data: before\n\nid: 9\n" + line + b"\ndata: TAIL\n\ndata: after\n\n"
    parser = SseParser(100)
    found = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    events = [event for event in found if isinstance(event, SseEvent)]
    errors = [event for event in found if isinstance(event, OversizedEvent)]
    assert [isinstance(event, SseEvent) for event in found] == [True, False, False, True]
    assert [event.data for event in events] == [b"before", b"after"]
    assert [error.tail is None for error in errors] == [True, False]
    assert errors[1].tail is not None
    assert errors[1].tail.endswith(b"data: TAIL")
    assert errors[0].head[:4] == errors[1].head[:4] in (b"data", b"xxxx", b"nons")
    assert len(errors[1].head) <= 4096
    assert events[1].id == "9"


def test_an_endless_line_is_reported_before_it_ends_and_is_not_kept():
    parser = SseParser(1000)
    parser.feed(b"data: ")
    (event,) = parser.feed(b"x" * 2000)
    assert isinstance(event, OversizedEvent)
    for _ in range(1000):
        assert parser.feed(b"x" * 10_000) == []
    assert len(parser._tail) <= 4096
    assert not parser._line.size


@pytest.mark.parametrize("unit", [b"x", b"data: x\n"])
def test_the_time_for_one_large_event_grows_with_its_size_only(unit):
    def seconds(count: int) -> float:
        parser = SseParser(1 << 30)
        parser.feed(b"data: ")
        chunk = unit * 512
        start = time.process_time()
        for _ in range(count):
            parser.feed(chunk)
        events = parser.feed(b"\n\n")
        assert len(events) == 1
        return time.process_time() - start

    small = min(seconds(100) for _ in range(3))
    # Quadratic would be 100 times as long for 10 times the size; a hang bound, not a figure.
    assert seconds(1000) < max(small * 60, 5.0)
