"""The clean corpus: what real servers say of themselves. As a program: what the screen makes of it."""

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
from mcp_hub.security.screening import Flag, flags_of_instructions, flags_of_item, foreign_names, is_distinct
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


def _more() -> dict[str, Entry]:
    """Servers that the catalogue has no call for; none of them opens a browser to list what it has."""
    cli = installed(NPM / "@playwright" / "mcp" / "cli.js")
    return {
        "playwright": {"command": installed(NODE), "args": [cli, "--headless", "--isolated"]},
        "web": {"builtin": "web"},
        "browser": {"builtin": "browser"},
    }


@contextlib.asynccontextmanager
async def clean_corpus(directory: Path) -> AsyncIterator[list[Said]]:
    """Everything the real servers list and say, each of them started for it. Fails where one is not there."""
    async with real_servers(directory, SERVERS) as place:
        path = place.tmp / "clean.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps({"servers": {n: SERVERS_BY_NAME[n].entry(place) for n in SERVERS} | _more()}))
        async with Engine(load_config(path)) as hub:
            await connect_all(hub)
            absent = {one.server.id: one.error for one in hub.upstreams.values() if one.error is not None}
            if absent:
                raise RuntimeError(f"not there: {absent}; run scripts/peers")
            yield list(_said(hub))


def _said(hub: Engine) -> Iterator[Said]:
    for id, upstream in hub.upstreams.items():
        for kind in KINDS:
            for wire in upstream.lists.items.get(kind, ()):
                yield Said(id, kind, str(wire.get(kind.name_key)), wire)
        if upstream.agreement is not None and upstream.agreement.instructions:
            yield Said(id, None, "instructions", upstream.agreement.instructions)


def flags(said: Said, corpus: list[Said]) -> tuple[Flag, ...]:
    """All the screen finds in one of them, beside the others."""
    if said.kind is None:
        return flags_of_instructions(said.value)
    own = {one.name for one in corpus if one.server == said.server and one.kind is TOOLS}
    others = {one.name for one in corpus if one.server != said.server and one.kind is TOOLS} - own
    distinct = {name for name in others if is_distinct(name)}
    return (*flags_of_item(said.kind, said.value), *foreign_names(said.kind, said.value, distinct, others - distinct))


async def _main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        os.environ.setdefault("FASTMCP_CHECK_FOR_UPDATES", "off")
        async with clean_corpus(Path(directory)) as corpus:
            found = [(one, flag) for one in corpus for flag in flags(one, corpus)]
    for one, flag in found:
        kind = one.kind.unknown if one.kind is not None else "its"
        print(f"{one.server}: {kind} {printable(one.name, 80)}: {flag.rule} in {flag.where}: {printable(flag.excerpt)}")
    flagged = len({(one.server, one.kind, one.name) for one, _ in found})
    tools = sum(one.kind is TOOLS for one in corpus)
    servers = len({one.server for one in corpus})
    print(f"{flagged} of {len(corpus)} flagged ({flagged / len(corpus):.1%}): {servers} servers, {tools} tools", end="")
    print(f", {len(corpus) - tools} resources, templates, prompts and instructions")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
