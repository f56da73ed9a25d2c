"""The table of states of HTTP, walked by bytes: every row is taken, and leads where it says."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.transport import http1
from mcp_hub.transport.http1 import (
    BODY,
    DONE,
    ERROR,
    HEAD,
    IDLE,
    MUST_CLOSE,
    REQUESTS,
    RESPONSES,
    SWITCHED,
    MessageMachine,
    RequestMachine,
    ResponseMachine,
)
from mcp_hub.transport.http1.client_response import NotHttp
from mcp_hub.transport.http1.heads import BadHead

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
IN_CHUNKS = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSE = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"
OLD = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
OFFER = b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
JUNK = b"\0\0\0\0"


class Written:
    """A sink that records every event, and answers for the server as its connection does."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.machine: RequestMachine | None = None

    def request_begun(self, head: Any, length: int | None, **facts: bool) -> None:
        self.told.append((head.method, length, facts))

    def response_begun(self, status: int, fields: Any, first: dict[bytes, bytes]) -> None:
        self.told.append((status, fields))

    def body_received(self, piece: bytes) -> None:
        self.told.append(piece)

    def message_ended(self) -> None:
        self.told.append("end")
        if self.machine is not None:
            self.machine.start_next_cycle()


class Server:
    """Runs the steps of a script on a RequestMachine. Each step returns the states of (theirs, ours) after it."""

    def __init__(self) -> None:
        self.sink = Written()
        self.machine = self.sink.machine = RequestMachine(self.sink)

    def __call__(self, step: bytes | str) -> tuple[str, str]:
        machine = self.machine
        if isinstance(step, bytes):
            if machine.theirs is not IDLE or machine.take_known(step) is None:
                try:
                    machine.receive(step)
                except BadHead:
                    assert machine.theirs is ERROR
        elif step == "head":
            machine.responding()
        elif step in ("end", "end, more", "last"):
            machine.note_response(keep=step != "last", more=step == "end, more")
        else:
            {"stop": machine.stop, "fail": machine.fail}[step]()
        return machine.theirs, machine.ours


class Client:
    """Runs the steps of a script on a ResponseMachine."""

    def __init__(self) -> None:
        self.sink = Written()
        self.machine = ResponseMachine(self.sink)

    def __call__(self, step: bytes | str) -> tuple[str, str]:
        machine = self.machine
        if isinstance(step, bytes):
            try:
                machine.receive(step)
            except NotHttp:
                assert machine.theirs is ERROR
        elif step in ("ask", "ask, a part"):
            machine.ask(whole=step == "ask")
        else:
            {"asked": machine.note_body_written, "again": machine.start_next_cycle, "stop": machine.stop}[step]()
        return machine.theirs, machine.ours


Script = list[tuple[bytes | str, str, str]]
"""Steps, and the states of (theirs, ours) after each."""

OF_THE_SERVER: dict[str, Script] = {
    "a request and its response": [(GET[:5], HEAD, IDLE), (GET[5:], DONE, HEAD), ("end", IDLE, IDLE)],
    "a body and a stream": [
        *((POST[:-2], BODY, HEAD), (POST[-2:], DONE, HEAD), ("head", DONE, BODY), ("end", IDLE, IDLE)),
    ],
    "a known head": [(POST, DONE, HEAD), ("end", IDLE, IDLE), (POST, DONE, HEAD), ("end", IDLE, IDLE)],
    "pipelined": [
        *((GET + GET, DONE, HEAD), ("head", DONE, BODY), (GET, DONE, BODY), ("end, more", DONE, HEAD)),
        *((GET[:5], HEAD, HEAD), ("end, more", HEAD, HEAD), ("end", HEAD, DONE), (GET[5:], DONE, HEAD)),
        *(("end", IDLE, IDLE),),
    ],
    "answered before its end": [
        *((POST[:-2], BODY, HEAD), ("end", BODY, DONE), (POST[-2:] + GET[:5], HEAD, IDLE), (GET[5:], DONE, HEAD)),
    ],
    "the last request": [(CLOSE, MUST_CLOSE, HEAD), (GET, MUST_CLOSE, HEAD), ("last", MUST_CLOSE, MUST_CLOSE)],
    "an offer behind the last request": [(OLD + OFFER, MUST_CLOSE, HEAD), ("last", MUST_CLOSE, MUST_CLOSE)],
    "the last request of HTTP/1.0": [
        (OLD + OLD[:5], MUST_CLOSE, HEAD),
        ("head", MUST_CLOSE, BODY),
        ("last", *2 * [MUST_CLOSE]),
    ],
    "the last response": [(GET, DONE, HEAD), ("last", MUST_CLOSE, MUST_CLOSE), ("stop", MUST_CLOSE, MUST_CLOSE)],
    "an offer to upgrade": [(OFFER[:30], HEAD, IDLE), (OFFER[30:], DONE, HEAD), (OFFER + GET, DONE, HEAD)],
    "a tunnel": [(b"CONNECT x:1 HTTP/1.1\r\n\r\n", ERROR, IDLE)],
    "junk at once": [(JUNK, ERROR, IDLE), ("stop", ERROR, IDLE), ("fail", ERROR, IDLE)],
    "junk in a head": [(GET[:5], HEAD, IDLE), (JUNK, ERROR, IDLE)],
    "junk in a body": [(IN_CHUNKS, BODY, HEAD), (JUNK, ERROR, HEAD), ("end", ERROR, DONE)],
    "junk behind a request": [(GET, DONE, HEAD), (JUNK, ERROR, HEAD)],
    "refused at once": [("fail", ERROR, IDLE)],
    "refused behind a request": [(GET, DONE, HEAD), ("fail", ERROR, HEAD), ("end", ERROR, DONE)],
    "stopped at once": [("stop", MUST_CLOSE, IDLE)],
    "stopped in a head": [(GET[:5], HEAD, IDLE), ("stop", MUST_CLOSE, IDLE)],
    "stopped in a body": [(IN_CHUNKS, BODY, HEAD), ("stop", MUST_CLOSE, HEAD)],
    "stopped behind a request": [(GET, DONE, HEAD), ("stop", MUST_CLOSE, HEAD), ("end", MUST_CLOSE, DONE)],
}
OF_THE_CLIENT: dict[str, Script] = {
    "a request and its response": [
        ("ask", HEAD, DONE),
        (OK[:-2], BODY, DONE),
        (OK[-2:], DONE, DONE),
        ("again", IDLE, IDLE),
    ],
    "a body in pieces": [("ask, a part", HEAD, BODY), ("asked", HEAD, DONE), (OK, DONE, DONE), ("again", IDLE, IDLE)],
    "answered before its end": [("ask, a part", HEAD, BODY), (OK, DONE, BODY), ("again", DONE, BODY)],
    "100 first": [("ask", HEAD, DONE), (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, DONE, DONE)],
    "the last response": [
        ("ask", HEAD, DONE),
        (LAST, MUST_CLOSE, DONE),
        (OK, MUST_CLOSE, DONE),
        ("again", MUST_CLOSE, DONE),
    ],
    "to the end": [("ask", HEAD, DONE), (b"HTTP/1.1 200 OK\r\n\r\n{}", BODY, DONE), ("stop", MUST_CLOSE, DONE)],
    "another protocol": [
        *(("ask", HEAD, DONE), (b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", SWITCHED, DONE)),
        *((JUNK, SWITCHED, DONE), ("again", SWITCHED, DONE), ("stop", SWITCHED, DONE)),
    ],
    "a response too many": [("ask", HEAD, DONE), (OK + OK + OK, MUST_CLOSE, DONE), ("again", MUST_CLOSE, DONE)],
    "junk at once": [(JUNK, ERROR, IDLE), (JUNK, ERROR, IDLE), ("stop", ERROR, IDLE)],
    "junk for a head": [("ask", HEAD, DONE), (JUNK, ERROR, DONE)],
    "junk in a body": [("ask", HEAD, DONE), (b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\nzz", ERROR, DONE)],
    "junk behind a response": [
        ("ask", HEAD, DONE),
        (OK, DONE, DONE),
        (JUNK, MUST_CLOSE, DONE),
        (JUNK, MUST_CLOSE, DONE),
    ],
    "stopped at once": [("stop", MUST_CLOSE, IDLE), ("stop", MUST_CLOSE, IDLE)],
    "stopped before the response": [("ask", HEAD, DONE), ("stop", MUST_CLOSE, DONE)],
    "stopped behind it": [("ask", HEAD, DONE), (OK, DONE, DONE), ("stop", MUST_CLOSE, DONE)],
}


def run(side: Server | Client, script: Script) -> None:
    for step, *states in script:
        assert [*side(step)] == states, step


@pytest.mark.parametrize("name", OF_THE_SERVER)
def test_a_server_follows_its_script(name: str) -> None:
    run(Server(), OF_THE_SERVER[name])


@pytest.mark.parametrize("name", OF_THE_CLIENT)
def test_a_client_follows_its_script(name: str) -> None:
    run(Client(), OF_THE_CLIENT[name])


class Row(dict[str, str]):
    """A row of a table that records the keys that are looked up."""

    def __init__(self, row: dict[str, str]) -> None:
        super().__init__(row)
        self.taken: set[str] = set()

    def __getitem__(self, event: str) -> str:
        self.taken.add(event)
        return super().__getitem__(event)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Row]]:
    """Replaces both tables by rows that record their look-ups."""
    requests, responses = ({state: Row(row) for state, row in table.items()} for table in (REQUESTS, RESPONSES))
    monkeypatch.setattr(http1, "REQUESTS", requests)
    monkeypatch.setattr(http1, "RESPONSES", responses)
    for machine, read, written in ((RequestMachine, requests, responses), (ResponseMachine, responses, requests)):
        monkeypatch.setattr(machine, "read", read)
        monkeypatch.setattr(machine, "written", written)
    return {"requests": requests, "responses": responses}


def test_the_scripts_cover_every_row_of_both_state_tables(rows: dict[str, dict[str, Row]]) -> None:
    for script in OF_THE_SERVER.values():
        run(Server(), script)
    for script in OF_THE_CLIENT.values():
        run(Client(), script)
    never = {
        (name, state, event)
        for name, table in rows.items()
        for state, row in table.items()
        for event in row.keys() - row.taken
    }
    assert never == set()


def test_every_state_is_reachable_and_a_closed_half_stays_closed() -> None:
    for table in (REQUESTS, RESPONSES):
        reached = {IDLE}
        for _ in table:
            reached |= {state for state_before in reached for state in table[state_before].values()}
        assert reached == set(table)
        for state in (MUST_CLOSE, SWITCHED, ERROR):
            assert set(table.get(state, {}).values()) <= {state}


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    positions = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[start:end] for start, end in itertools.pairwise([0, *positions, len(data)]) if start < end]


def joined(events: list[Any]) -> list[Any]:
    """Returns the events with the pieces of each body joined."""
    joined_events: list[Any] = []
    for event in events:
        if isinstance(event, bytes) and joined_events and isinstance(joined_events[-1], bytes):
            joined_events[-1] += event
        else:
            joined_events.append(event)
    return joined_events


CUTS = st.lists(st.integers(0, 1000), max_size=6)
TEXTS = st.lists(
    st.sampled_from([GET, POST, IN_CHUNKS + b"2\r\n{}\r\n0\r\n\r\n", CLOSE, OLD, OFFER, b"\r\n"]), max_size=5
)
ANSWERS = st.sampled_from(
    [OK, LAST, OK + OK, b"HTTP/1.1 103 X\r\n\r\n" + OK, b"HTTP/1.1 204 X\r\n\r\n", OK + JUNK, JUNK]
)


@given(TEXTS, CUTS)
def test_requests_are_parsed_the_same_in_any_segmentation(texts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(texts)
    unsplit, split = Server(), Server()
    for side, parts in ((unsplit, [data] if data else []), (split, pieces(data, cuts))):
        for part in parts:
            if not side.machine.shut:
                side.machine.receive(part)
    assert joined(split.sink.told) == joined(unsplit.sink.told)
    assert (split.machine.theirs, split.machine.ours) == (unsplit.machine.theirs, unsplit.machine.ours)


@given(ANSWERS, CUTS)
def test_a_response_is_parsed_the_same_in_any_segmentation(data: bytes, cuts: list[int]) -> None:
    unsplit, split = Client(), Client()
    for side, parts in ((unsplit, [data]), (split, pieces(data, cuts))):
        side("ask")
        for part in parts:
            side(part)
    assert joined(split.sink.told) == joined(unsplit.sink.told)
    assert (split.machine.theirs, split.machine.start_next_cycle()) == (
        unsplit.machine.theirs,
        unsplit.machine.start_next_cycle(),
    )


STEPS = st.one_of(st.sampled_from([GET, POST, CLOSE, OK, LAST, JUNK, GET[:5], OK[:-2], OK[-2:]]), st.binary(max_size=9))


@pytest.mark.parametrize("side", [Server, Client])
@given(steps=st.lists(STEPS, max_size=6))
def test_a_closed_half_keeps_its_state_for_any_bytes(side: Any, steps: list[bytes]) -> None:
    peer = side()
    machine: MessageMachine = peer.machine
    if side is Client:
        peer("ask")
    for step in steps:
        shut, before = machine.shut, machine.theirs
        if shut and side is Server:
            break  # a server's connection discards what comes then
        peer(step)
        assert machine.theirs in machine.read
        assert not shut or machine.theirs is before
        if machine.theirs is DONE and machine.ours is HEAD:
            machine.note_response(keep=True, more=False)  # type: ignore[attr-defined]
            assert machine.theirs is IDLE
