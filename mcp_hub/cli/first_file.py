"""The first configuration for a user who has no servers yet. It works on this machine without changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from mcp_hub.editing.edit import Edit
from mcp_hub.editing.server_file import ServerFile
from mcp_hub.registry.candidate import choose_offer
from mcp_hub.registry.launch import entry_of, missing_inputs, needed_program
from mcp_hub.registry.sources import Seed

HEAD: Final = """\
# The servers behind the hub. `mcp-hub search` finds others, `mcp-hub add` adds one, `mcp-hub check` says what works.

# Your own Python functions: every function marked with @tool in tools/*.py.
tools_dir: tools

"""
TOOLS: Final = '''\
"""Tools of your own: every function marked with @tool is one. A saved change counts at once."""

from datetime import datetime

from mcp_hub import tool


@tool
def now() -> str:
    """The current date and time of this machine."""
    return datetime.now().astimezone().isoformat(timespec="seconds")
'''
SERVERS: Final = ("time", "memory")
"""Servers of the bundled list that need no inputs, only their launcher."""


async def first_file(path: Path, has_program: Callable[[str], bool]) -> tuple[Edit, ...]:
    """Returns the edits that create the configuration at `path`, and an example of local tools beside it.

    The configuration has those of `SERVERS` whose launcher is installed.
    """
    listings = [listing for name in SERVERS if (listing := await Seed().find(name)) is not None]
    file = ServerFile(path, HEAD.encode())
    for listing in listings:
        offer = choose_offer(listing, has_program)
        program = needed_program(offer)
        if program is not None and has_program(program) and not missing_inputs(offer, {}):
            file.add(listing.short_name, entry_of(offer, {}))
    tools = path.parent / "tools"
    example = () if tools.exists() else (Edit(tools / "example.py", None, TOOLS.encode()),)
    return (Edit(path, None, file.edit().after), *example)
