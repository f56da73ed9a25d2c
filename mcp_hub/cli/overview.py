"""`mcp-hub` alone: say what is configured, what is running, and what to do next."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcp_hub.cli import OK, json_text
from mcp_hub.text import printable
from mcp_hub.version import VERSION

Json = dict[str, Any]


def run(options: argparse.Namespace) -> int:
    """Prints the state of the installation. Returns 0, also for a missing or wrong configuration."""
    facts: Json = {
        "version": VERSION,
        "configuration": _configuration(),
        "running": _running(),
        "clients": _clients(),
    }
    facts["next"] = [{"command": command, "does": does} for command, does in _next_steps(facts)]
    print(json_text(facts) if options.json else _text(facts))
    return OK


def _configuration() -> Json:
    """Returns the path of the file that commands use, how many servers it has, and its first problem."""
    from mcp_hub.config.discovery import find_config
    from mcp_hub.errors import ConfigError
    from mcp_hub.hub.composition import read_config

    found = find_config(Path.cwd(), os.environ)
    facts: Json = {"path": None, "servers": 0, "off": 0, "problem": None, "untrusted": None}
    if found.untrusted is not None:
        facts["untrusted"] = str(found.untrusted)
    if found.path is None:
        return facts
    facts["path"] = str(found.path)
    try:
        servers = read_config(found.path, os.environ).config.servers
    except ConfigError as error:
        return {**facts, "problem": str(error).splitlines()[0]}
    return {**facts, "servers": len(servers), "off": sum(not server.enabled for server in servers)}


def _running() -> list[Json]:
    from mcp_hub.hub.hub_status import running_hubs

    return [
        {
            "pid": hub.get("pid"),
            "configuration": hub.get("config"),
            "serving": hub.get("serving", []),
            "tools": hub.get("exposed", {}).get("tools"),
            "problem": hub.get("problem"),
        }
        for hub in running_hubs()
    ]


def _clients() -> list[Json]:
    """Returns the clients of this machine, and whether each starts a hub."""
    from mcp_hub.clients import Machine
    from mcp_hub.clients.detection import find_client_files

    return [
        {"client": file.client.id, "name": file.client.name, "has_hub": bool(file.hubs)}
        for file in find_client_files(Machine.this())
        if file.client is not None
    ]


def _next_steps(facts: Json) -> Iterator[tuple[str, str]]:
    """Yields commands and what they do, the most useful first."""
    configuration = facts["configuration"]
    if any(hub["problem"] is None for hub in facts["running"]):
        yield "mcp-hub open", "shows the hub that is running in the browser"
    if configuration["untrusted"] is not None:
        yield "mcp-hub trust", "shows what the servers.yaml of this directory starts, and asks whether to use it"
    if configuration["path"] is None:
        yield "mcp-hub setup", "finds the servers of your clients, or begins with a first file; shows it and asks"
    else:
        yield "mcp-hub doctor", "looks at the servers and this machine, and says what to do"
        if configuration["problem"] is None:
            yield "mcp-hub tools", "lists what a client sees"
            without_hub = [client["client"] for client in facts["clients"] if not client["has_hub"]]
            if without_hub:
                yield f"mcp-hub install {without_hub[0]}", "puts the hub into that client"
            elif not facts["clients"]:
                yield "mcp-hub serve --http", "serves clients over HTTP"
    yield "mcp-hub help", "lists all commands"


def _text(facts: Json) -> str:
    configuration = facts["configuration"]
    rows = [("configuration", _configuration_text(configuration))]
    if configuration["untrusted"] is not None:
        rows.append(("not used", f"{printable(configuration['untrusted'], 500)}: not trusted as it is now"))
    rows += [("running", _hub_text(hub)) for hub in facts["running"]] or [("running", "no hub")]
    rows.append(("clients", _clients_text(facts["clients"])))
    width = max(len(name) for name, _ in rows)
    lines = [f"mcp-hub {facts['version']}: one MCP server in front of all of yours", ""]
    lines += [f"{name:{width}}  {text}" for name, text in rows]
    commands = max(len(step["command"]) for step in facts["next"])
    lines += ["", "Next:", *(f"  {step['command']:{commands}}  {step['does']}" for step in facts["next"])]
    return "\n".join(lines)


def _configuration_text(configuration: Json) -> str:
    if configuration["path"] is None:
        return "none yet"
    path = printable(configuration["path"], 500)
    if configuration["problem"] is not None:
        return f"{path} cannot be used: {printable(configuration['problem'], 500)}"
    count, off = configuration["servers"], configuration["off"]
    return f"{path}: {count} server{'s' * (count != 1)}" + (f", {off} of them switched off" if off else "")


def _clients_text(clients: list[Json]) -> str:
    with_hub = [client["name"] for client in clients if client["has_hub"]]
    without_hub = [client["name"] for client in clients if not client["has_hub"]]
    texts = [f"in {', '.join(with_hub)}"] if with_hub else []
    texts += [f"not in {', '.join(without_hub)}"] if without_hub else []
    return f"the hub is {'; '.join(texts)}" if texts else "none found on this machine"


def _hub_text(hub: Json) -> str:
    if hub["problem"] is not None:
        return f"hub {hub['pid']}: {printable(str(hub['problem']), 500)}"
    serving = printable(", ".join(hub["serving"]), 500)
    return f"hub {hub['pid']} with {hub['tools']} tools, {serving}; {printable(str(hub['configuration']), 500)}"
