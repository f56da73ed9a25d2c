"""A shared server over streamable HTTP asks the clients whose calls it runs, in any pair of eras."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError, types
from mcp.client.client import Client

from tests.fakes.client import PATIENCE, StdioClient, free_port, write_config
from tests.fakes.network import network_hub, sdk
from tests.peers.programs import network_server

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),  # of the handshake era
]

ASKING = str(Path(__file__).parent.parent.parent / "fakes" / "asking_over_http.py")
ERAS = ("handshake", "modern")
PLAIN = ("both", "handshake", "modern", "confused")
"""Names of entries with nothing but a URL, and the eras of their servers."""
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "2+2?"}}], "maxTokens": 5}


@dataclass
class Place:
    """A hub over HTTP in front of the asking server, which has several entries."""

    base: str
    records: Path
    printed: Path
    """The file with the output of the server."""
    process: StdioClient

    def client(self, era: str, person: Person | None = None, path: str = "/mcp") -> Client:
        return sdk(self.base + path, era, **(person.answers if person is not None else {}))


@contextlib.asynccontextmanager
async def running(tmp: Path, **entries: dict[str, Any]) -> AsyncIterator[Place]:
    """Runs a hub with these entries; `path` is appended to the URL of the server, other keys go into the file."""
    port = free_port()
    log = tmp / "asking.log"
    async with network_server([sys.executable, ASKING, str(port)], port, log=log):
        url = f"http://127.0.0.1:{port}/"
        servers = {
            name: {"url": url + entry.get("path", "mcp"), **{key: entry[key] for key in entry if key != "path"}}
            for name, entry in entries.items()
        }
        records = tmp / "records"
        async with network_hub(tmp / "hub", servers, call_log=str(records), watch=False) as (process, base):
            yield Place(base, records, log, process)


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    entries: dict[str, dict[str, Any]] = {name: {"path": name} for name in PLAIN if name != "both"}
    entries |= {"both": {}, "nothing": {"allow": []}, "forms": {"allow": ["elicitation"]}, "one": {"max_questions": 1}}
    async with running(tmp_path_factory.mktemp("asking"), **entries) as started:
        yield started


@dataclass
class Person:
    """The user of a client, who answers every question with a name once `may` is set."""

    name: str
    asked: list[str] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the first question arrives."""
    may: asyncio.Event | None = None
    """The event that must be set before an answer; with None, the answer is immediate."""

    @property
    def answers(self) -> dict[str, Any]:
        """The callbacks for an SDK client."""

        async def elicit(context: Any, params: Any) -> types.ElicitResult:
            await self._hear(params.message)
            return types.ElicitResult(action="accept", content={"name": self.name})

        async def sample(context: Any, params: Any) -> types.CreateMessageResult:
            await self._hear(params.messages[0].content.text)
            content = types.TextContent(type="text", text=self.name)
            return types.CreateMessageResult(role="assistant", content=content, model="none")

        return {"elicitation_callback": elicit, "sampling_callback": sample}

    async def _hear(self, question: str) -> None:
        self.asked.append(question)
        self.came.set()
        if self.may is not None:
            async with asyncio.timeout(PATIENCE):
                await self.may.wait()


async def tool_result(client: Client, tool: str, **arguments: Any) -> Any:
    """Calls a tool; returns its result as JSON, or the code of the error if the call fails."""
    async with asyncio.timeout(PATIENCE):
        try:
            result = await client.call_tool(tool, arguments)
        except MCPError as error:
            return error.error.code
    assert not result.is_error, result
    return json.loads(result.content[0].text)  # type: ignore[union-attr]


def names_in(answer: Any) -> list[str]:
    """Returns the names in the answers to a server, which have another shape in each era."""
    results = [entry["result"] for entry in answer] if isinstance(answer, list) else list(answer.values())
    return [entry["content"].get("name") or entry["content"]["text"] for entry in results]


def refusals_in(answer: Any) -> list[int]:
    """Returns the error codes of the refusals that a server received, or the one that ended the call."""
    return [answer] if isinstance(answer, int) else [entry["error"]["code"] for entry in answer if "error" in entry]


@pytest.mark.parametrize(("era", "server", "path"), list(itertools.product(ERAS, PLAIN, ("/mcp", "/sse"))))
async def test_a_minimal_entry_lets_a_server_send_requests_to_clients_of_both_eras(
    place: Place, era: str, server: str, path: str
) -> None:
    person = Person("Ada")
    async with place.client(era, person, path) as client:
        assert names_in(await tool_result(client, f"{server}__ask")) == ["Ada"]
        sampled = await tool_result(client, f"{server}__ask", method="sampling/createMessage", params=SAMPLING)
        assert names_in(sampled) == ["Ada"]
    assert person.asked == [f"{server} asks: who?", "2+2?"]


@pytest.mark.parametrize(("server", "spoken"), [("both", ERAS), ("handshake", ERAS[:1] * 2), ("modern", ERAS[1:] * 2)])
async def test_a_dual_era_server_is_used_in_the_era_of_each_caller(
    place: Place, server: str, spoken: tuple[str, str]
) -> None:
    async with place.client("handshake") as old, place.client("modern") as new:
        for _ in range(2):
            assert (await tool_result(old, f"{server}__era"), await tool_result(new, f"{server}__era")) == spoken


async def test_a_server_that_negotiates_another_era_is_used_in_that_era(place: Place) -> None:
    async with place.client("handshake") as client:
        assert await tool_result(client, "confused__era") == "modern"


@pytest.mark.parametrize("server", ["both", "handshake"])
@pytest.mark.parametrize("eras", list(itertools.combinations_with_replacement(ERAS, 2)), ids="-".join)
async def test_concurrent_callers_receive_only_requests_of_their_own_calls(
    place: Place, server: str, eras: tuple[str, str]
) -> None:
    release = asyncio.Event()
    ada, ben = Person("Ada", may=release), Person("Ben", may=release)
    async with place.client(eras[0], ada) as first, place.client(eras[1], ben) as second:
        answers = [asyncio.ensure_future(tool_result(client, f"{server}__ask", count=2)) for client in (first, second)]
        async with asyncio.timeout(PATIENCE):
            await ada.came.wait()
            await ben.came.wait()  # both calls have a question open
        release.set()
        names_by_call = [names_in(await answer) for answer in answers]
    handshake = [["Ada"] * 2, ["Ben"] * 2]
    assert names_by_call == [names[: len(got)] for names, got in zip(handshake, names_by_call, strict=True)]
    assert (len(ada.asked), len(ben.asked)) == (2, 2)


async def test_a_server_request_outside_a_calls_stream_needs_an_unambiguous_caller(tmp_path: Path) -> None:
    """It is forwarded while only calls of one caller are running, and refused while other callers have calls."""
    ada, ben = Person("Ada", may=asyncio.Event()), Person("Ben")
    assert ada.may is not None
    async with (
        running(tmp_path, up={}) as place,
        place.client("handshake", ada) as first,
        place.client("handshake", ben) as second,
    ):
        answer = asyncio.ensure_future(tool_result(first, "up__aside"))
        async with asyncio.timeout(PATIENCE):
            await ada.came.wait()
        assert refusals_in(await tool_result(second, "up__aside")) == [-32600]
        ada.may.set()
        assert names_in(await answer) == ["Ada"]
    assert (len(ada.asked), len(ben.asked)) == (1, 0)


@pytest.mark.parametrize(("era", "server"), list(itertools.product(ERAS, PLAIN)))
async def test_a_request_that_its_caller_cannot_answer_is_refused_and_reaches_no_other_client(
    place: Place, era: str, server: str
) -> None:
    able, other_era = Person("Ada"), "modern" if era == "handshake" else "handshake"
    async with place.client(other_era, able) as bystander, place.client(era) as unable:
        assert await tool_result(bystander, f"{server}__era")
        assert refusals_in(await tool_result(unable, f"{server}__ask")) in ([-32601], [-32600])
    assert able.asked == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_request_kind_forbidden_by_an_entry_is_neither_declared_nor_forwarded(place: Place, era: str) -> None:
    person = Person("Ada")
    async with place.client(era, person) as client:
        servers = ("both", "forms", "nothing")
        declared = [{*await tool_result(client, f"{server}__declared")} - {"extensions"} for server in servers]
        assert declared[0] >= {"elicitation", "sampling"}
        assert declared[1:] == [{"elicitation"}, set()]
        assert refusals_in(await tool_result(client, "nothing__ask")) in ([-32601], [-32600])
        sampling = await tool_result(client, "forms__ask", method="sampling/createMessage", params=SAMPLING)
        assert refusals_in(sampling) in ([-32601], [-32600])
        assert person.asked == []
        assert names_in(await tool_result(client, "forms__ask")) == ["Ada"]


@pytest.mark.parametrize(("era", "server"), list(itertools.product(ERAS, PLAIN)))
async def test_the_fourth_server_request_of_a_call_is_refused(place: Place, era: str, server: str) -> None:
    person = Person("Ada")
    async with place.client(era, person) as client:
        assert refusals_in(await tool_result(client, f"{server}__ask", count=4)) == [-32600]
        assert len(person.asked) == 3
        assert names_in(await tool_result(client, f"{server}__ask")) == ["Ada"]  # the next call has its own three


@pytest.mark.parametrize("era", ERAS)
async def test_max_questions_of_an_entry_limits_the_server_requests_of_a_call(place: Place, era: str) -> None:
    person = Person("Ada")
    async with place.client(era, person) as client:
        assert refusals_in(await tool_result(client, "one__ask", count=2)) == [-32600]
    assert len(person.asked) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_too_many_server_requests_at_once_are_all_refused(place: Place, era: str) -> None:
    person = Person("Ada")
    async with place.client(era, person) as client:
        assert await tool_result(client, "modern__at_once", count=4) == -32600
        assert person.asked == []
        assert names_in(await tool_result(client, "modern__at_once", count=3)) == ["Ada"] * 3


@pytest.mark.parametrize(("era", "server"), list(itertools.product(ERAS, PLAIN)))
async def test_a_server_request_of_65_kib_is_refused_and_one_of_63_is_forwarded(
    place: Place, era: str, server: str
) -> None:
    person = Person("Ada")

    def question(size: int) -> dict[str, Any]:
        return {"message": "x" * size * 1024, "requestedSchema": {"type": "object", "properties": {}}}

    async with place.client(era, person) as client:
        assert refusals_in(await tool_result(client, f"{server}__ask", params=question(65))) == [-32600]
        assert person.asked == []
        assert names_in(await tool_result(client, f"{server}__ask", params=question(63))) == ["Ada"]


async def test_a_server_request_in_a_modern_session_reaches_no_modern_client(place: Place) -> None:
    """The modern era has no requests of servers; the call that it comes with goes on."""
    person = Person("Ada")
    async with place.client("modern", person) as client, asyncio.timeout(PATIENCE):
        result = await client.call_tool("modern__stray", {})
    assert "did not wait" in str(result.content)
    assert person.asked == []


async def records_of(place: Place, client: Client, name: str, count: int) -> list[dict[str, Any]]:
    """Returns the call records of a tool, once there are `count` of them."""
    async with asyncio.timeout(PATIENCE):
        while True:
            lines = map(json.loads, place.records.read_text().splitlines() if place.records.exists() else ())
            if len(records := [line for line in lines if line.get("name") == name]) >= count:
                return records
            await client.list_tools()


async def test_a_call_record_lists_its_server_requests(tmp_path: Path) -> None:
    person = Person("Ada")
    async with running(tmp_path, up={"path": "handshake"}) as place, place.client("handshake", person) as client:
        await tool_result(client, "up__ask", count=4)
        await tool_result(client, "up__ask", method="sampling/createMessage", params=SAMPLING)
        first, second = (line["questions"] for line in await records_of(place, client, "up__ask", 2))
    assert [entry["outcome"] for entry in first] == ["accept"] * 3 + ["refused"]
    assert "max_questions" in first[-1]["reason"]
    assert second == [{"method": "sampling/createMessage", "outcome": "answered"}]


async def test_an_unused_era_session_is_closed(tmp_path: Path) -> None:
    async with running(tmp_path, up={"idle": 0.5}) as place:
        async with place.client("handshake") as old:
            assert await tool_result(old, "up__era") == "handshake"
        async with place.client("modern") as new, asyncio.timeout(PATIENCE):
            while "a session has ended" not in place.printed.read_text():
                assert await tool_result(new, "up__era") == "modern"
        async with place.client("handshake") as old:
            assert await tool_result(old, "up__era") == "handshake"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("path", ["mcp", "handshake"])
async def test_an_open_server_request_survives_a_reload(tmp_path: Path, era: str, path: str) -> None:
    """The entry is unchanged at first, and then forbids the open request: that holds from the next call on."""
    person = Person("Ada", may=asyncio.Event())
    assert person.may is not None
    async with running(tmp_path, up={"path": path}) as place, place.client(era, person) as client:
        answer = asyncio.ensure_future(tool_result(client, "up__ask"))
        async with asyncio.timeout(PATIENCE):
            await person.came.wait()
        directory = tmp_path / "hub"
        servers = json.loads((directory / "servers.json").read_text())["servers"]
        narrowed = {**servers["up"], "allow": []}
        for count, entry in enumerate((servers["up"], narrowed), 1):
            write_config(directory, {"up": entry, "more": servers["up"]}, watch=False)
            place.process.process.send_signal(signal.SIGHUP)
            await place.process.until(lambda n=count: place.process.stderr.count(b"servers.json again") >= n)
        person.may.set()
        assert names_in(await answer) == ["Ada"]
        assert refusals_in(await tool_result(client, "up__ask")) in ([-32601], [-32600])
    assert len(person.asked) == 1
