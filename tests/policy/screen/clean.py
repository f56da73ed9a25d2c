"""The clean corpus: the items and the instructions of real servers. As a program, it prints their flags."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_hub.cli.report import connect_all
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import load_config
from mcp_hub.protocol.kinds import KINDS, TOOLS, Kind
from mcp_hub.security.screening import Flag, flags_of_instructions, flags_of_item, foreign_names
from mcp_hub.text import printable
from tests.peers.catalogue import SERVERS_BY_NAME, Entry, real_servers
from tests.peers.programs import NODE, NPM, installed

SERVERS = ("everything_stdio", "filesystem", "memory", "time", "fetch", "git", "fastmcp_stdio")


@dataclass(frozen=True)
class Said:
    """One item, or the instructions of a server (`kind` None)."""

    server: str
    kind: Kind | None
    name: str
    value: Any


def _further_servers() -> dict[str, Entry]:
    """Servers that the catalogue has no call for; none of them opens a browser to list what it has."""
    cli = installed(NPM / "@playwright" / "mcp" / "cli.js")
    return {
        "playwright": {"command": installed(NODE), "args": [cli, "--headless", "--isolated"]},
        "web": {"builtin": "web"},
        "browser": {"builtin": "browser"},
    }


@contextlib.asynccontextmanager
async def clean_corpus(directory: Path) -> AsyncIterator[list[Said]]:
    """Starts the real servers and yields all their items and instructions. Fails if one of them does not start."""
    async with real_servers(directory, SERVERS) as environment:
        path = environment.tmp / "clean.json"
        path.touch(mode=0o600)
        path.write_text(
            json.dumps({"servers": {n: SERVERS_BY_NAME[n].entry(environment) for n in SERVERS} | _further_servers()})
        )
        async with Engine(load_config(path)) as hub:
            await connect_all(hub)
            absent = {
                upstream.server.id: upstream.error for upstream in hub.upstreams.values() if upstream.error is not None
            }
            if absent:
                raise RuntimeError(f"not there: {absent}; run scripts/peers")
            yield list(_items_of(hub))


def _items_of(hub: Engine) -> Iterator[Said]:
    for id, upstream in hub.upstreams.items():
        for kind in KINDS:
            for wire in upstream.lists.items.get(kind, ()):
                yield Said(id, kind, str(wire.get(kind.name_key)), wire)
        if upstream.agreement is not None and upstream.agreement.instructions:
            yield Said(id, None, "instructions", upstream.agreement.instructions)


def flags(item: Said, corpus: list[Said]) -> tuple[Flag, ...]:
    """Returns the flags of one item of the corpus, screened beside the items of the other servers."""
    if item.kind is None:
        return flags_of_instructions(item.value)
    own = {entry.name for entry in corpus if entry.server == item.server and entry.kind is TOOLS}
    foreign = {entry.name for entry in corpus if entry.server != item.server and entry.kind is TOOLS} - own
    return (*flags_of_item(item.kind, item.value), *foreign_names(item.kind, item.value, foreign))


async def _main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        os.environ.setdefault("FASTMCP_CHECK_FOR_UPDATES", "off")
        async with clean_corpus(Path(directory)) as corpus:
            flagged_items = [(item, flag) for item in corpus for flag in flags(item, corpus)]
    for item, flag in flagged_items:
        kind = item.kind.unknown if item.kind is not None else "its"
        print(
            f"{item.server}: {kind} {printable(item.name, 80)}: {flag.rule} in {flag.where}: {printable(flag.excerpt)}"
        )
    flagged = len({(item.server, item.kind, item.name) for item, _ in flagged_items})
    tools = sum(item.kind is TOOLS for item in corpus)
    servers = len({item.server for item in corpus})
    print(f"{flagged} of {len(corpus)} flagged ({flagged / len(corpus):.1%}): {servers} servers, {tools} tools", end="")
    print(f", {len(corpus) - tools} resources, templates, prompts and instructions")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
