"""A server that lists what a file says, and the file."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.cli.test_commands import run
from tests.fakes.client import fake, write_config

SCHEMA = {"type": "object", "properties": {"text": {"type": "string", "description": "what to say"}}}
TOOLS = {
    "mail": {"name": "mail", "title": "Mail", "description": "Sends a mail.", "inputSchema": SCHEMA,
             "annotations": {"destructiveHint": True}},
    "look": {"name": "look", "description": "Looks.", "inputSchema": SCHEMA},
    "changed": {"name": "changed", "description": "Says that the lists have changed.", "inputSchema": SCHEMA},
}  # fmt: skip
PROMPT = {"name": "greet", "description": "A greeting.", "arguments": [{"name": "who"}]}


class Changing:
    """`server` is its entry; every change of its lists is made by `say`."""

    def __init__(self, directory: Path, *options: str, **entry: Any) -> None:
        self.directory = directory
        self.file = directory / "lists.json"
        self.lists: dict[str, Any] = {"tools": copy.deepcopy(TOOLS), "prompts": [PROMPT], "instructions": "Be kind."}
        self.server = fake("--lists", str(self.file), *options, **entry)
        self.say()

    def say(self, tools: dict[str, Any] | None = None, **lists: Any) -> None:
        """List these tools (None: no tool changes) and other lists from now on."""
        self.lists |= ({"tools": tools} if tools is not None else {}) | lists
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps({**self.lists, "tools": list(self.lists["tools"].values())}))
        fresh.replace(self.file)

    def changed(self, name: str = "mail", **parts: Any) -> dict[str, Any]:
        """The tools as they were at the beginning, but for parts of one of them."""
        return {**TOOLS, name: {**TOOLS[name], **parts}}

    def config(self, mode: Any = "enforce", **root: Any) -> Path:
        return write_config(self.directory, {"a": self.server}, **{"pins": mode, "list_wait": 20, **root})

    @property
    def pins(self) -> Path:
        return self.directory / "servers.pins.json"

    def pin(self, *options: str, **root: Any) -> subprocess.CompletedProcess[str]:
        """What `mcp-hub pin` says."""
        return run("pin", *options, "--config", str(self.config(**root)))
