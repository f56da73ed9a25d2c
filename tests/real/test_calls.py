"""What a model is told of its calls: results of every kind, questions with nobody there, changes, cancellation."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fakes.client import FAKE
from tests.real.client_programs import Client, Json
from tests.real.conftest import Report
from tests.real.scripted_provider import Call
from tests.real.turns import BEHIND, DIRECT, WAYS, Turn, User, listing, scripted, tool

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAFElEQVR4nGNk+M+ABzDhkxxZ0gANGAEPPOTYuAAAAABJRU5ErkJggg=="
ASKING = str(Path(FAKE).with_name("asking.py"))
_OUTPUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


RESULTS: dict[str, Json] = {
    "give_text": {"content": [_text("TEXT-MARK")]},
    "give_several": {"content": [_text("FIRST-MARK"), _text("SECOND-MARK")]},
    "give_nothing": {"content": []},
    "give_image": {"content": [_text("IMAGE-MARK"), {"type": "image", "data": PNG, "mimeType": "image/png"}]},
    "give_audio": {"content": [_text("AUDIO-MARK"), {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}]},
    "give_structure": {"content": [_text("BESIDE-MARK")], "structuredContent": {"n": 42}},
    "give_structure_alone": {"content": [], "structuredContent": {"n": 4343}},
    "give_wrong_structure": {"content": [_text("WRONG-MARK")], "structuredContent": {"n": "none"}},
    "give_failure": {"content": [_text("FAILURE-MARK")], "isError": True},
    "give_link": {
        "content": [
            _text("LINK-MARK"),
            {"type": "resource_link", "uri": "x://linked", "name": "linked", "mimeType": "text/plain"},
        ]
    },
    "give_document": {
        "content": [{"type": "resource", "resource": {"uri": "x://d", "mimeType": "text/plain", "text": "DOC-MARK"}}]
    },
    "give_bytes": {
        "content": [
            _text("BYTES-MARK"),
            {"type": "resource", "resource": {"uri": "x://b", "mimeType": "application/pdf", "blob": "JVBERi0="}},
        ]
    },
    "give_letters": {"content": [_text('LETTERS-MARK ü 汉 \u202e 🎉 \\ " \t end')]},
    "give_long_text": {"content": [_text("LONG-MARK " + "lorem ipsum dolor\n" * 60_000 + "LONG-END")]},
}
"""Fourteen kinds; `fail` is an error of the protocol, `crash` the end of the server in a call."""
STRUCTURED = {name: {"outputSchema": _OUTPUT} for name in RESULTS if "structure" in name}


ASKING_SERVER: dict[str, Json] = {"asking": {"command": sys.executable, "args": [ASKING]}}
QUESTIONS: dict[str, Json] = {
    "elicitation/create": {
        "message": "Which colour?",
        "requestedSchema": {"type": "object", "properties": {"colour": {"type": "string"}}},
    },
    "sampling/createMessage": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Which colour?"}}],
        "maxTokens": 10,
    },
    "roots/list": {},
}
SERVER = "giving"
_ANSWER = re.compile(r'action[\\":\s]+(\w+)|code[\\":\s]+(-\d+)')
_ROOT = re.compile(r'uri[\\":\s]+(file:).*?/(project)\b')
# The names of servers, and what is another one in each turn.
_DIFFERS = re.compile(
    rf"mcp_+(?:hub_+)?(?:{SERVER}_+)?|hub/|{SERVER}(?:__|/)|(?<=from )(?:hub|{SERVER})\b"
    r"|Wall time: [\d.]+|/[^\s\"]*/(?:home|project)/[^\s\"]*|call_\d+"
)


def _comparable(result: str) -> str:
    return _DIFFERS.sub("", result)


def both_ways(user: Callable[[str], User], servers: dict[str, Json], *steps: Call) -> dict[str, Turn]:
    """Lets the client do one turn directly, and one behind a hub that it has started before."""
    user(DIRECT).has(servers)
    user(BEHIND).has_behind_the_hub(servers)
    return {way: user(way).turn(*steps) for way in WAYS}


def test_results_of_every_kind_reach_the_model_as_they_do_directly(
    user: Callable[[str], User], report: Report, tmp_path: Path
) -> None:
    names = [*RESULTS, "fail"]
    tools = [tool(name, **STRUCTURED.get(name, {})) for name in names]
    servers = {SERVER: listing(tmp_path, SERVER, tools=tools, results=RESULTS)}
    turns = both_ways(user, servers, *[Call(name) for name in names])
    direct, hub = ([_comparable(result) for result in turns[way].results] for way in WAYS)
    # Gemini CLI drops structured content that has no text beside it, so the hub adds one.
    hub = ["{}" if bare == "{}" and "4343" in result else result for bare, result in zip(direct, hub, strict=True)]
    assert any("4343" in result for result in turns[BEHIND].results)
    report(f"{len(names)} kinds of results: alike", "-", direct == hub)
    assert direct == hub
    assert len(hub) >= len(names)


def test_a_server_that_ends_in_a_call_is_there_for_the_next(user: Callable[[str], User], report: Report) -> None:
    turns = both_ways(
        user, {"ending": scripted()}, Call("crash"), Call("add", {"a": 20, "b": 22}, thinks=1), Call("fail")
    )
    called = {way: "-32050" in turn.results[-1] for way, turn in turns.items()}
    report("a server ends in a call: the next call reaches it", called[DIRECT], called[BEHIND])
    assert called[BEHIND]


@pytest.mark.parametrize("method", QUESTIONS)
def test_a_question_with_nobody_there_is_answered_as_it_is_directly(
    user: Callable[[str], User], report: Report, method: str
) -> None:
    turns = both_ways(user, ASKING_SERVER, Call("ask", {"method": method, "params": QUESTIONS[method]}))
    answer = _ROOT if method == "roots/list" else _ANSWER  # Codex answers with no roots, which is no answer to servers
    answers = {way: answer.findall(turn.results[0]) for way, turn in turns.items()}
    report(f"`{method}` with nobody there: answer", *("".join(map("".join, answers[way])) or "none" for way in WAYS))
    assert answers[DIRECT] == answers[BEHIND]
    assert answers[BEHIND] or answer is _ROOT
    assert [turn.code for turn in turns.values()] == [0, 0]


def test_an_answer_of_a_person_reaches_the_server(user: Callable[[str], User], report: Report) -> None:
    user(DIRECT).has(ASKING_SERVER)
    user(BEHIND).has_behind_the_hub(ASKING_SERVER)
    question = {"method": "elicitation/create", "params": QUESTIONS["elicitation/create"]}
    heard = {}
    for way in WAYS:
        if not user(way).answers_questions_with({"action": "accept", "content": {"colour": "blue"}}):
            report("a question with a person there: the answer arrives", "nobody is asked", "nobody is asked")
            return
        (result,) = user(way).turn(Call("ask", question)).results
        heard[way] = "accept" in result and "blue" in result
    report("a question with a person there: the answer arrives", heard[DIRECT], heard[BEHIND])
    assert heard == {DIRECT: True, BEHIND: True}


@pytest.mark.parametrize("choice", ["once", "no"])
def test_a_call_to_confirm_is_made_if_the_person_allows_it(
    user: Callable[[str], User], report: Report, tmp_path: Path, choice: str
) -> None:
    record = tmp_path / "record"
    one = user(BEHIND)
    one.has_behind_the_hub({"guarded": scripted("--record", str(record))}, confirm=["add"])
    if not one.answers_questions_with({"action": "accept", "content": {"allow": choice}}):
        report(f"a call to confirm, the person says {choice!r}: is made", "-", "nobody is asked")
        return
    turn = one.turn(Call("add", {"a": 20, "b": 22}), Call("echo", {"text": "still here"}))
    made = b'"add"' in record.read_bytes()
    report(f"a call to confirm, the person says {choice!r}: is made", "-", made)
    assert made == (choice == "once") == ("42" in turn.results[0])
    assert "still here" in turn.results[-1]


def test_a_call_that_nobody_confirms_is_not_made_and_the_turn_goes_on(
    user: Callable[[str], User], report: Report, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    user(BEHIND).has_behind_the_hub({"guarded": scripted("--record", str(record))}, confirm=["add"])
    turn = user(BEHIND).turn(Call("add", {"a": 20, "b": 22}), Call("echo", {"text": "still here"}))
    report("a call to confirm with nobody there: is made", "-", b'"add"' in record.read_bytes())
    assert b'"add"' not in record.read_bytes()
    assert "still here" in turn.results[-1]
    assert turn.code == 0


def test_a_tool_that_appears_in_a_turn_can_be_called_in_it(user: Callable[[str], User], report: Report) -> None:
    steps = [Call("grow", {"name": "grown"}), Call("echo", {"text": "x"}, thinks=3), Call("grown")]
    turns = both_ways(user, {"growing": scripted()}, *steps)
    called = {way: any("called grown" in result for result in turn.results) for way, turn in turns.items()}
    report("a tool that appears in a turn: is called", called[DIRECT], called[BEHIND])
    assert called[DIRECT] <= called[BEHIND]


def test_a_tool_that_leaves_in_a_turn_is_offered_no_longer_than_directly(
    user: Callable[[str], User], report: Report
) -> None:
    steps = [Call("grow", {"name": "pid", "definition": "gone"}), Call("echo", thinks=3), Call("pid")]
    turns = both_ways(user, {"shrinking": scripted()}, *steps)
    offered = {way: bool(turn.offered(["pid"], 2)) for way, turn in turns.items()}
    report("a tool that leaves in a turn: is still offered", offered[DIRECT], offered[BEHIND])
    assert all(turn.offered(["pid"]) for turn in turns.values())
    assert offered[BEHIND] <= offered[DIRECT]
    assert [turn.code for turn in turns.values()] == [0, 0]


def test_an_interrupted_call_is_cancelled_and_leaves_no_process(
    user: Callable[[str], User], report: Report, tmp_path: Path
) -> None:
    cancelled = {}
    for way in WAYS:
        record = tmp_path / f"{way}.record"
        servers = {"patient": scripted("--record", str(record))}
        user(way).has(servers, None if way == DIRECT else {})
        user(way).turn()
        record.unlink(missing_ok=True)
        turn = user(way).turn(Call("sleep", {"seconds": 600}), until=record)
        assert b'"tools/call"' in record.read_bytes()
        assert not turn.stragglers
        cancelled[way] = b"notifications/cancelled" in record.read_bytes()
    report("an interrupted call: a cancellation reaches the server", cancelled[DIRECT], cancelled[BEHIND])
    assert cancelled[DIRECT] <= cancelled[BEHIND]


def test_two_clients_at_once_share_a_configuration_and_its_cache(
    user: Callable[[str], User], client: Client, report: Report, tmp_path: Path
) -> None:
    servers = {"shared": scripted()}
    pair = [user("one"), user("other")]
    for one in pair:
        one.has(servers, {"cache_dir": str(tmp_path / "cache")})
        one.turn()
    with ThreadPoolExecutor(2) as threads:
        turns = list(threads.map(lambda one: one.turn(Call("echo", {"text": "MARK"})), pair))
    answered = sum("MARK" in "".join(turn.results) for turn in turns)
    report("two clients at once: answered", "-", f"{answered} of 2")
    assert answered == 2
    assert not [turn.stragglers for turn in turns if turn.stragglers]
