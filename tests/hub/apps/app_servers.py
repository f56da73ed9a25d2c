"""Servers with apps behind a hub: their tools name `ui://` resources, and say who may call them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.fakes.client import fake

Json = dict[str, Any]
UI = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
"""The capabilities of a client that shows apps."""
APP = "ui://board/app.html"


def tool(name: str, app: str | None = None, visibility: list[str] | None = None, **fields: Any) -> Json:
    """A tool that an app shows, or that says who may call it."""
    ui = {"resourceUri": app, "visibility": visibility}
    ui = {key: value for key, value in ui.items() if value is not None}
    meta = {"_meta": {"ui": ui}} if ui else {}
    return {"name": name, "description": f"does {name}", "inputSchema": {"type": "object"}, **meta, **fields}


def server(
    directory: Path,
    name: str,
    *tools: Json,
    resources: tuple[Json, ...] = (),
    options: tuple[str, ...] = (),
    **entry: Any,
) -> Json:
    """The entry of a server with these tools, whose calls answer with its name."""
    file = directory / f"{name}.json"
    result = {"content": [{"type": "text", "text": f"from {name}"}]}
    file.write_text(json.dumps({"tools": tools, "resources": resources, "templates": [], "result": result}))
    return fake("--lists", str(file), *options, **entry)
