"""A FastMCP server with 25 tools without annotations, over stdio: `many_tools.py NAME [SECONDS]` until it starts."""

import sys
import time
from itertools import product

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError

name, seconds = sys.argv[1], float((sys.argv[2:] or ["0"])[0])
server = FastMCP(name)


@server.tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@server.tool
def close(ticket: str) -> str:
    """Close a ticket."""
    raise ToolError(f"there is no ticket {ticket}")


def entry(number: int, note: str = "") -> str:
    return f"{number} {note}"


NAMES = list(product(("open", "move", "show", "name", "sort"), ("ticket", "order", "user", "page", "team")))
for verb, noun in NAMES[:23]:
    server.tool(entry, name=f"{verb}_{noun}", description=f"{verb.title()} a {noun} of {name}.")

if __name__ == "__main__":
    time.sleep(seconds)  # what is slow to start
    server.run(show_banner=False)
