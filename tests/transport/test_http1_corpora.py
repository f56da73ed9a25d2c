"""The listener and the client against what other projects test their readers of HTTP/1.1 with.

Where the hub differs, `corpora/differences.toml` has the case, under the kind of difference that it is.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.transport.http1.client_response import NotHttp
from mcp_hub.transport.http1.heads import BadHead
from tests.transport import corpora, readers
from tests.transport.corpora import Case
from tests.transport.readers import Message, Reading
from tests.transport.test_message_machine import Client, Server, joined

pytestmark = pytest.mark.anyio

CORPORA = ("llhttp", "h11", "gunicorn", "httptools")
KINDS: dict[str, Any] = tomllib.loads((corpora.HERE / "differences.toml").read_text(encoding="utf-8"))
DIFFERS = {case: kind for kind, facts in KINDS.items() for case in facts["cases"]}
BODILESS = (204, 304)


async def reading_of(case: Case) -> Reading:
    return await (readers.listener if case.side == "request" else readers.client)([case.text])


def expected(case: Case) -> Reading:
    """Returns the expectation of the corpus as a `Reading`; `end` is empty if the corpus has none."""
    reading = Reading(end=case.end or "")
    for message in case.messages or ():
        start = message["status"] if case.side == "response" else (message["method"], message["target"])
        headers = [(name, value) for name, value in message["headers"] if name != "content-length"]
        reading.messages.append(
            Message(start, headers, message["body"].encode("latin-1") if message["whole"] else None)
        )
    return reading if case.side == "request" else _of_one(case, reading)


def _of_one(case: Case, expectation: Reading) -> Reading:
    """Adapts an expectation to a client with one request, whose server closes the connection after the text."""
    final = [message for message in expectation.messages if message.start == 101 or message.start >= 200]  # type: ignore[operator]
    reading = Reading(final[:1], expectation.end)
    if not final or expectation.end in ("refused", "switched"):
        return reading
    first = final[0]
    record = (case.messages or ())[expectation.messages.index(first)]
    if first.body is None and not {"content-length", "transfer-encoding"} & {name for name, _ in record["headers"]}:
        first.body = record["body"].encode("latin-1")
        reading.end = "closed"
    elif first.body is not None and (len(final) > 1 or expectation.end == "pending"):
        reading.end = "closed"  # surplus bytes close the connection
    return reading


def difference(case: Case, ours: Reading) -> str:
    """Describes how a reading differs from the corpus; empty if it does not."""
    expectation = expected(case)
    if expectation.end and ours.end != expectation.end:
        return f"it is {ours.end} ({ours.status}) and not {expectation.end}"
    if case.messages is None:
        return ""
    pair = (ours.whole, expectation.whole) if ours.end == "refused" else (ours.messages, expectation.messages)
    return "" if pair[0] == pair[1] else f"{pair[0]} and not {pair[1]}"


@pytest.mark.parametrize("corpus", CORPORA)
async def test_each_corpus_case_is_parsed_as_expected_or_as_a_documented_difference(corpus: str) -> None:
    failures = []
    for case in corpora.cases(corpus):
        name, ours = f"{corpus}: {case.name}", await reading_of(case)
        problem, kind = difference(case, ours), DIFFERS.get(f"{corpus}: {case.name}")
        if bool(problem) != bool(kind):
            failures.append(
                f"{name} [{case.lenient}] {case.text[:200]!r}: {problem or f'no longer differs by {kind!r}'}"
            )
        elif kind and ours.end not in KINDS[kind]["ours"]:
            failures.append(f"{name}: the connection is {ours.end}, which is not {kind!r}")
        elif ours.end == "refused" and case.side == "request" and ours.status not in (400, 431, 501, 505):
            failures.append(f"{name}: refused with {ours.status}")
    assert not failures, "\n".join(failures)


def test_every_difference_names_a_case_once_and_its_reason_is_documented() -> None:
    named = [case for facts in KINDS.values() for case in facts["cases"]]
    case_names = {f"{corpus}: {case.name}" for corpus in CORPORA for case in corpora.cases(corpus)}
    assert len(named) == len(set(named))
    assert set(named) <= case_names
    page = Path("docs/reference/http.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"| `{kind}` |" not in page] == []


@pytest.mark.parametrize("corpus", CORPORA)
def test_each_corpus_case_is_parsed_the_same_byte_by_byte(corpus: str) -> None:
    for case in corpora.cases(corpus):
        unsplit, split = [Server(), Server()] if case.side == "request" else [Client(), Client()]
        for side, pieces in ((unsplit, [case.text]), (split, [bytes([byte]) for byte in case.text])):
            if isinstance(side, Client):
                side("ask")
            for piece in pieces:
                if side.machine.shut:
                    break
                try:
                    side.machine.receive(piece)
                except (BadHead, NotHttp):
                    break
        assert joined(split.sink.told) == joined(unsplit.sink.told), case
        assert split.machine.theirs == unsplit.machine.theirs, case


ORDINARY = {
    *("Content-Encoding: chunked", "Transfer_Encoding: chunked", "Transfer-%45ncoding: chunked"),
    *(f"X: X{blank}Transfer-Encoding: chunked" for blank in "\t \xa0\xff"),
    *("Content-Length: 0{length}", "Content-Length: 00000000000{length}"),
    *("Expect: 100-continue\r\nContent-Length: {length}", "Expect: x 100-continue\r\nContent-Length: {length}"),
}
"""Lines that mean exactly what they say: other header names, other values, numbers with leading zeros."""


@pytest.mark.parametrize("corpus", corpora.HIDING)
async def test_a_line_that_obscures_the_end_of_a_body_closes_the_connection(corpus: str) -> None:
    for line, text in corpora.hiding(corpus):
        ours = await readers.listener([text])
        assert b"/hidden" not in [start[1] for start in (message.start for message in ours.messages)], line  # type: ignore[index]
        if line in ORDINARY:
            assert (ours.end, [message.body for message in ours.messages]) == ("open", [corpora.BODY]), line
        elif line == "Content_Length: {length}":
            assert (ours.end, [message.body for message in ours.messages]) == ("refused", [b""]), line
        else:
            assert (ours.end, ours.messages) == ("refused", []), line


def test_every_corpus_has_its_licence_and_origin() -> None:
    for corpus in (*CORPORA, *corpora.HIDING):
        origin = corpora.read(corpus)["origin"]
        assert origin["repository"].startswith("https://github.com/")
        assert len(origin["commit"]) == 40
        assert (corpora.HERE / f"LICENSE.{corpus}").stat().st_size
