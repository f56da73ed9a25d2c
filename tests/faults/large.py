"""Large inputs within the bounds, and how long the loop of the hub is kept by the longest callback of each.

scripts/faults --large [--explain] [WORD OF A CASE ...]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.client import HUB, RpcError, StdioClient, fake, spawned, write_config
from tests.fakes.watched import UNSEEN

MIN_SECONDS = 0.002
"""Seconds; shorter callbacks are not reported, nor are rarely sampled ones up to UNSEEN times as long."""
PATIENCE = 150.0

Json = dict[str, Any]


@dataclass
class Large:
    """One input: the lists and answers of a server, the configuration of the hub, the actions of the client."""

    does: Callable[[StdioClient], Awaitable[None]]
    lists: Json = field(default_factory=dict)
    entry: Json = field(default_factory=dict)
    root: Json = field(default_factory=dict)
    servers: int = 1
    version: str = "2025-11-25"
    again: bool = False
    """Whether the second start, from the cached catalog, is measured."""


def tool(name: str, properties: Json | None = None, **fields: Any) -> Json:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties or {}}, **fields}


def links(number: int, uri: str = "https://example.org/{}") -> Json:
    content = [{"type": "resource_link", "uri": uri.format(n), "name": "x"} for n in range(number)]
    return {"content": content}


async def lists(client: StdioClient) -> None:
    """Reads all lists, page after page."""
    for method in ("tools", "resources", "resources/templates", "prompts"):
        cursor: Json = {}
        while cursor is not None:
            result = await client.request(f"{method}/list", cursor)
            cursor = {"cursor": result["nextCursor"]} if "nextCursor" in result else None  # type: ignore[assignment]


def calls(
    arguments: Json | None = None, name: str = "a0__t", times: int = 1
) -> Callable[[StdioClient], Awaitable[None]]:
    async def does(client: StdioClient) -> None:
        for _ in range(times):
            with contextlib.suppress(RpcError):
                await client.call(name, arguments)

    return does


def asks(method: str, params: Json) -> Callable[[StdioClient], Awaitable[None]]:
    async def does(client: StdioClient) -> None:
        await client.tool_names()
        with contextlib.suppress(RpcError):
            await client.request(method, params)

    return does


def batch(members: str) -> Callable[[StdioClient], Awaitable[None]]:
    async def does(client: StdioClient) -> None:
        client.send_raw(members.encode() + b"\n")
        await client.until(lambda: client.unmatched)

    return does


async def relists(client: StdioClient) -> None:
    await lists(client)
    await client.call("a0__changed")
    await client.call("a0__grow")
    await asyncio.sleep(2)
    await lists(client)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"x": value}
    return value


T = [tool("t"), tool("changed"), tool("grow")]
ANY = {"tools": [tool("t")]}
URL = "https://" + "a.b/c%2e/../" * 50_000
GUARD = {"guard": {"tools": ["t"]}}
FILTER = {"guard": {"filter_results": ["t"]}}
WORDS = "word " * 200_000


def cases() -> dict[str, Callable[[], Large]]:
    """Returns the cases by name. Each is made only when it is needed, as it is large."""
    many = [tool(f"tool_{n}", {"a": {"type": "string"}}, description=f"Does {n}.") for n in range(10_000)]
    text30 = {"content": [{"type": "text", "text": "x y\n" * 7_500_000}]}
    blocks = {"content": [{"type": "text", "text": f"block {n}"} for n in range(100_000)]}
    structured = {"content": [], "structuredContent": {"rows": [{"n": n, "t": "text"} for n in range(300_000)]}}
    search = json.dumps({"results": [{"link": f"https://example.org/{n}", "title": "t"} for n in range(60_000)]})
    return {
        "60 URIs of 600 kB": lambda: Large(
            relists, {"tools": T, "resources": [{"uri": f"https://x/{n}/" + URL, "name": "x"} for n in range(60)]}
        ),
        "10,000 URIs of 1,000 characters": lambda: Large(
            relists,
            {"tools": T, "resources": [{"uri": f"https://x/{n}/" + URL[:980], "name": "x"} for n in range(10_000)]},
            root=GUARD,
            entry={"filters": {"resources": {"deny": ["file://*"]}}},
        ),
        "10,000 tools": lambda: Large(relists, {"tools": [*T, *many[:9_990]]}),
        "10,000 tools of 5 servers": lambda: Large(relists, {"tools": [*T, *many[:9_990]]}, servers=5),
        "10,000 tools, second start": lambda: Large(lists, {"tools": many}, again=True),
        "10,000 tools, screen quarantine": lambda: Large(
            relists, {"tools": [*T, *many[:9_990]]}, root={"screen": "quarantine"}
        ),
        "10,000 tools, pins": lambda: Large(relists, {"tools": [*T, *many[:9_990]]}, root={"pins": "warn"}),
        "10,000 tools, searched": lambda: Large(
            asks("tools/call", {"name": "hub_search", "arguments": {"query": "does tool 77"}}),
            {"tools": many},
            root={"groups": {"g": {"tools": ["a0/*"], "description": "x"}}, "meta_tools": True},
        ),
        "200 schemas of 250 kB": lambda: Large(
            relists,
            {"tools": [*T, *(tool(f"s{n}", {f"p{m}": {"type": "string"} for m in range(9_000)}) for n in range(200))]},
        ),
        "50 descriptions of 1 MB": lambda: Large(
            relists, {"tools": [*T, *(tool(f"d{n}", description=WORDS) for n in range(50))]}
        ),
        "10 descriptions of direction marks": lambda: Large(
            relists, {"tools": [*T, *(tool(f"d{n}", description="\u200e" * 65_536) for n in range(10))]}
        ),
        "10 descriptions of ligatures": lambda: Large(
            relists, {"tools": [*T, *(tool(f"d{n}", description="\ufdfa" * 65_536) for n in range(10))]}
        ),
        "10,000 items 90 levels deep": lambda: Large(
            relists, {"tools": [*T, *(tool(f"d{n}", _meta=deep(90)) for n in range(9_000))]}
        ),
        "one tool of 50 MB": lambda: Large(
            relists, {"tools": [*T, tool("x", {f"p{m}": {} for m in range(2_000_000)})]}
        ),
        "instructions of 10 MB": lambda: Large(lists, {"tools": T, "instructions": WORDS * 10}),
        "instructions of direction marks": lambda: Large(lists, {"tools": T, "instructions": "\u200e" * 65_536}),
        "a call with a schema of 250 kB": lambda: Large(
            calls({"p1": 1}), {"tools": [tool("t", {f"p{m}": {"type": "string"} for m in range(9_000)})]}
        ),
        "a call with an enum of 250 kB": lambda: Large(
            calls({"a": "x"}), {"tools": [tool("t", {"a": {"enum": [f"v{m}" for m in range(25_000)]}})]}
        ),
        "a call with 1,000,000 integers": lambda: Large(
            calls({"a": [1] * 1_000_000}),
            {"tools": [tool("t", {"a": {"type": "array", "items": {"type": "integer"}}})]},
        ),
        "a call with 100,000 lists for integers": lambda: Large(
            calls({"a": [[]] * 100_000}),
            {"tools": [tool("t", {"a": {"type": "array", "items": {"type": "integer"}}})]},
        ),
        "a call with 190,000 short URLs": lambda: Large(calls({"u": ["http://a.b/"] * 190_000}), ANY, root=GUARD),
        "a call with a text of 4 MB of URLs": lambda: Large(calls({"u": "http://a.b/c " * 300_000}), ANY, root=GUARD),
        "a call with 4 MB of words": lambda: Large(calls({"u": "a b " * 1_000_000}), ANY, root=GUARD),
        "a call with 60 URLs of 60 kB": lambda: Large(calls({"u": [URL[:60_000]] * 60}), ANY, root=GUARD),
        "a call with 300,000 arguments": lambda: Large(
            calls({f"a{n}": n for n in range(300_000)}), ANY, entry={"tools": {"t": {"preset": {"x.y": 1}}}}
        ),
        "a call with 300,000 params": lambda: Large(
            asks("tools/call", {"name": "a0__t", **{f"P{n}": n for n in range(300_000)}}), ANY
        ),
        "a call with a name of 60,000 marks": lambda: Large(
            asks("tools/call", {"name": "a0__t", "a" + "\u0315\u0300" * 30_000: 1}), ANY
        ),
        "a call with a URL of 60,000 marks": lambda: Large(
            calls({"u": "https://e.com/a" + "\u0315\u0300" * 30_000}), ANY, root=GUARD
        ),
        "a call 500 levels deep": lambda: Large(calls({"a": deep(500)}), ANY),
        "an unknown tool of 4 MB": lambda: Large(asks("tools/call", {"name": "a0__" + "x" * 4_000_000}), ANY),
        "an unknown resource of 4 MB": lambda: Large(asks("resources/read", {"uri": URL * 6}), ANY, root=GUARD),
        "an unknown prompt of 4 MB": lambda: Large(asks("prompts/get", {"name": URL * 6}), ANY),
        "a batch of 1,300,000 members": lambda: Large(batch("[" + "{}," * 1_300_000 + "{}]"), version="2025-03-26"),
        "a batch of 1,000 members": lambda: Large(
            batch(json.dumps([{"jsonrpc": "2.0", "id": n, "method": "tools/list"} for n in range(1_000)])),
            version="2025-03-26",
        ),
        "a text of 30 MB": lambda: Large(calls(), {**ANY, "result": text30}),
        "a text of 30 MB, shortened": lambda: Large(
            calls(), {**ANY, "result": text30}, entry={"max_result_bytes": 50_000}
        ),
        "a text of 30 MB, truncated": lambda: Large(
            calls(),
            {**ANY, "result": text30},
            entry={"postprocess": {"step": "truncate", "arguments": {"max_chars": 1000}}},
        ),
        "100,000 blocks": lambda: Large(calls(), {**ANY, "result": blocks}),
        "100,000 blocks, shortened": lambda: Large(
            calls(), {**ANY, "result": blocks}, entry={"max_result_bytes": 50_000}
        ),
        "300,000 rows, shortened": lambda: Large(
            calls(),
            {"tools": [tool("t", outputSchema={"type": "object"})], "result": structured},
            entry={"max_result_bytes": 50_000},
        ),
        "300,000 rows": lambda: Large(calls(), {**ANY, "result": structured}),
        "100,000 links": lambda: Large(calls(), {**ANY, "result": links(100_000)}),
        "5,000 links of 2 kB beside 100 templates": lambda: Large(
            calls(),
            {
                **ANY,
                "result": links(5_000, "x:" + "a" * 1_900 + "{}"),
                "templates": [{"uriTemplate": "x:" + "{a}aa" * 15 + f"{n}!", "name": "x"} for n in range(100)],
            },
        ),
        "12 links of 600 kB, filtered": lambda: Large(calls(), {**ANY, "result": links(12, URL + "{}")}, root=FILTER),
        "60,000 links in JSON, filtered": lambda: Large(
            calls(), {**ANY, "result": {"content": [{"type": "text", "text": search}]}}, root=FILTER
        ),
        "100,000 links, filtered": lambda: Large(calls(), {**ANY, "result": links(100_000)}, root=FILTER),
        "an error of 1 MB": lambda: Large(
            calls(),
            {**ANY, "result": {"content": [{"type": "text", "text": "%41\\u0041 " * 90_000}], "isError": True}},
            entry={"env": {"API_TOKEN": "AAAAAAAAAAAA"}},
        ),
        "an error of 30 MB": lambda: Large(
            calls(), {**ANY, "result": {**text30, "isError": True}}, entry={"env": {"API_TOKEN": "AAAAAAAAAAAA"}}
        ),
        "1,000,000 completions": lambda: Large(
            asks(
                "completion/complete",
                {"ref": {"type": "ref/prompt", "name": "a0__greet"}, "argument": {"name": "who", "value": "x"}},
            ),
            {**ANY, "completions": ["value"] * 1_000_000},
        ),
        "10,000 messages before an answer": lambda: Large(
            calls(),
            {
                **ANY,
                "before": [
                    {"method": "notifications/message", "params": {"level": "error", "data": f"{n}"}}
                    for n in range(10_000)
                ],
            },
        ),
        "a message of 30 MB": lambda: Large(
            calls(),
            {
                **ANY,
                "before": [
                    {"method": "notifications/message", "params": {"level": "error", "data": "x y " * 7_500_000}}
                ],
            },
        ),
        "a line of 30 MB on stderr": lambda: Large(
            asks("tools/call", {"name": "a0__stderr", "arguments": {"text": "x" * 4_000_000}}),
            {"tools": [tool("stderr")]},
        ),
    }


@dataclass
class Outcome:
    """Seconds of a callback without its frames, the seconds of its frames, and its stack."""

    seconds: float = 0.0
    frames: float = 0.0
    stack: str = ""


async def measured(case: Large) -> list[Outcome]:
    """Returns the callbacks that blocked the loop, longest first."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        listed, stalls = directory / "lists.json", directory / "stalls"
        listed.write_text(json.dumps(case.lists))
        patient = {"deadlines": {"connect": PATIENCE, "list": PATIENCE}}
        servers = {f"a{n}": fake("--lists", str(listed), **patient, **case.entry) for n in range(case.servers)}
        config = write_config(directory, servers, **{"list_wait": PATIENCE, "expose": "all", **case.root})
        lines: list[str] = []
        for _ in range(1 + case.again):
            stalls.unlink(missing_ok=True)
            env = {"MCP_HUB_STALLS": str(stalls), "MCP_HUB_STALL": str(MIN_SECONDS)}
            async with spawned([*HUB, "serve", "--config", str(config)], env=env) as client:
                client.patience = PATIENCE
                await client.initialize(case.version)
                await case.does(client)
                # What follows is the end of the process, when no client waits.
                lines = stalls.read_text().splitlines() if stalls.exists() else []
    callbacks = [json.loads(line) for line in lines]
    return sorted(
        (Outcome(callback["seconds"], callback["frames"], callback["stack"]) for callback in callbacks),
        key=lambda callback: -callback.seconds,
    )


async def table(chosen: list[str], explain: bool) -> None:
    print("| input | longest callback | its frames | callbacks over 20 ms |\n|---|---|---|---|", flush=True)
    for name, case in cases().items():
        if chosen and not any(pattern in name for pattern in chosen):
            continue
        try:
            async with asyncio.timeout(PATIENCE):
                outcomes = await measured(case())
        except Exception as error:
            print(f"| {name} | failed: {error!r:.200} |", flush=True)
            continue
        worst = outcomes[0] if outcomes else Outcome()
        over = sum(outcome.seconds > 0.02 for outcome in outcomes)
        longest = f"{worst.seconds * 1000:.0f} ms" if outcomes else f"at most {MIN_SECONDS * UNSEEN * 1000:.0f} ms"
        print(f"| {name} | {longest} | {worst.frames * 1000:.0f} ms | {over} |", flush=True)
        if explain:
            for outcome in outcomes[:3]:
                if outcome.seconds > 0.02:
                    print(f"--- {outcome.seconds} s, frames {outcome.frames}\n" + outcome.stack[-1500:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="*", help="words of the cases to measure (default: all)")
    parser.add_argument("--explain", action="store_true", help="show where the longest callbacks were")
    options = parser.parse_args()
    asyncio.run(table(options.case, options.explain))


if __name__ == "__main__":
    main()
