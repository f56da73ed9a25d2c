"""Tools whose arguments the SDKs read differently as texts; each writes what it got to the file in the last argument.

The first argument is `fastmcp`, or `sdk` for the class of the SDK of the environment that it runs in.
"""

import json
import sys
from pathlib import Path
from typing import Any

if sys.argv[1] == "fastmcp":
    from fastmcp import FastMCP as Framework
else:
    try:
        from mcp.server.mcpserver import MCPServer as Framework
    except ImportError:
        from mcp.server.fastmcp import FastMCP as Framework

server: Any = Framework("lists")


def _note(value: Any) -> str:
    text = json.dumps(value)
    with Path(sys.argv[2]).open("a") as record:
        record.write(text + "\n")
    return text


@server.tool()
def scrape_list(urls: list[str]) -> str:
    """Takes a list."""
    return _note(urls)


@server.tool()
def scrape_untyped(urls) -> str:  # type: ignore[no-untyped-def]
    """Takes anything; the SDK lists a string."""
    return _note(urls)


@server.tool()
def scrape_text_or_list(urls: str | list[str]) -> str:
    """Takes a text or a list."""
    return _note(urls)


@server.tool()
def scrape_dict_or_text(page: dict[str, Any] | str) -> str:
    """Takes an object or a text."""
    return _note(page)


@server.tool()
def write_text(content: str) -> str:
    """Takes a text and nothing else."""
    return _note(content)


@server.tool()
def send(items: list[dict[str, str]]) -> str:
    """Takes a list of objects."""
    return _note(items)


server.run()
