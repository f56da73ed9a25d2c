"""A server on FastMCP as most are written: 25 functions, no annotations. `python ordinary_server.py NAME`."""

from __future__ import annotations

import sys
from typing import Any

from fastmcp import FastMCP

VERBS = ("create", "update", "delete", "get", "list")
NOUNS = ("ticket", "project", "person", "comment", "label")


def made(verb: str, noun: str) -> Any:
    def act(name: str, note: str = "") -> str:
        return f"{verb} {noun} {name}"

    return act


server = FastMCP(sys.argv[1])
for verb in VERBS:
    for noun in NOUNS:
        server.tool(name=f"{verb}_{noun}", description=f"{verb.title()} a {noun} of a team.")(made(verb, noun))

if __name__ == "__main__":
    server.run(show_banner=False)
