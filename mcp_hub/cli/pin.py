"""`mcp-hub pin`: record what servers list now as reviewed and accepted. `--diff` shows what differs from the record."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp_hub import codes
from mcp_hub.cli import FAILED, OK, STALE, json_text
from mcp_hub.cli.confirmation import Plan, add_confirmation_arguments, confirm
from mcp_hub.cli.report import connect_all
from mcp_hub.cli.startup import add_config_arguments, load, run_loop
from mcp_hub.config.models import Config
from mcp_hub.diagnosis.servers import FindingRow, screen_findings
from mcp_hub.editing.edit import Edit, read_bytes
from mcp_hub.errors import ConfigError
from mcp_hub.hub import Engine
from mcp_hub.policy.pins import (
    PINS_OF_SERVER,
    PinsByServer,
    listed_parts,
    listed_record,
    merge_pins,
    pin_mode,
    pins_file,
    pins_text,
    read_pins,
)
from mcp_hub.protocol.kinds import Kind
from mcp_hub.security.pinning import PARTS, PinRecord, differences, fingerprint, instructions_difference
from mcp_hub.text import printable
from mcp_hub.upstream import Upstream

MAX_DIFF = 400
"""The maximum number of lines of one item's differences."""
MAX_COMPARED = 2000
"""The maximum number of lines of a definition. Comparing takes time up to the product of both numbers of lines."""


EXAMPLES = """examples:
  mcp-hub pin                  record what all servers list now
  mcp-hub pin github --diff    only show what has changed since
  mcp-hub pin --show --json    the record"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub pin [SERVER ...] [--show | --diff] [--yes | --confirm T] [--json] [--config F]`.

    `--show` and `--diff` change nothing, and so need no confirmation.
    """
    add_config_arguments(parser)
    parser.add_argument(
        "servers", metavar="SERVER", nargs="*", help="only these servers (default: all that are switched on)"
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--show", action="store_true", help="only print what is pinned; connect to no server")
    mode.add_argument(
        "--diff", action="store_true", help="only print the differences from what is pinned; exit 1 if there are any"
    )
    add_confirmation_arguments(parser, "the same facts as JSON")


def run(options: argparse.Namespace) -> int:
    """Returns 0 if all was pinned or nothing differs, 1 if something differs or a server is not available.

    A change that replaces or drops pins has to be confirmed: returns 3 if it is not, 4 if the confirmed preview is out
    of date or the pins have changed meanwhile. Raises ConfigError.
    """
    config = load(options, quiet=True)
    server_ids = [server.id for server in config.servers]
    for name in options.servers:
        if name not in server_ids:
            raise ConfigError(
                f"there is no server {printable(name)!r}; there are: {', '.join(server_ids) or 'none'}",
                codes.NAME_UNKNOWN,
            )
    path = pins_file(config)
    if path is None:
        raise ConfigError("pins need a file: set pins.file")
    recorded = read_pins(path)
    if options.show:
        return _show(path, recorded, options.servers or sorted(recorded), as_json=options.json)
    server_facts, warnings = run_loop(_list_servers(config, recorded, options))
    for facts in () if options.json else server_facts:
        if facts["problem"] is not None:
            print(f"{facts['server']}: unavailable, so nothing changes: {facts['problem']}", file=sys.stderr)
    if options.diff:
        return _print_diff(path, server_facts, as_json=options.json)
    for row in warnings:
        print(f"warning: {row['server']}: {row['kind']} {row['name']}: {row['problem']}", file=sys.stderr)
    forgotten = sorted(recorded.keys() - set(server_ids)) if not options.servers else []
    return _record(config, path, recorded, server_facts, forgotten, options)


Facts = dict[str, Any]
"""`{"server", "problem", "pinned", "differences", "record"}` of one server. `record` is not printed."""


async def _list_servers(
    config: Config, recorded: PinsByServer, options: argparse.Namespace
) -> tuple[list[Facts], list[FindingRow]]:
    """Asks the servers for their lists. Returns the facts of each server, and the findings of the screening."""
    names: list[str] = options.servers
    selected = [server for server in config.servers if server.id in names or (not names and server.enabled)]
    # Pins are off here, as they may hide items.
    servers = tuple(
        PINS_OF_SERVER.changed(server, "off").model_copy(update={"enabled": server.enabled and server in selected})
        for server in config.servers
    )
    async with Engine(config.model_copy(update={"servers": servers})) as hub:
        await connect_all(hub)
        warnings = [] if options.diff else screen_findings(hub)
        return [_compare(hub.upstreams[server.id], recorded.get(server.id)) for server in selected], warnings


def _print_diff(path: Path, server_facts: Sequence[Facts], *, as_json: bool) -> int:
    if as_json:
        print(json_text({"file": str(path), "servers": [_as_json(facts) for facts in server_facts]}))
    for line in () if as_json else _difference_lines(server_facts, with_diffs=True):
        print(line)
    return (
        FAILED if any(facts["problem"] or facts["differences"] or not facts["pinned"] for facts in server_facts) else OK
    )


def _record(
    config: Config,
    path: Path,
    recorded: PinsByServer,
    server_facts: Sequence[Facts],
    forgotten: Sequence[str],
    options: argparse.Namespace,
) -> int:
    """Writes the record, after a confirmation if it replaces or drops pins. Returns the exit code."""
    remaining = {id: pins for id, pins in recorded.items() if id not in forgotten}
    new = {facts["server"]: facts["record"] for facts in server_facts if facts["record"] is not None}
    forgotten_lines = [f"{printable(id)}: no longer in the configuration, is forgotten" for id in forgotten]
    lines = [*_difference_lines(server_facts), *forgotten_lines]
    if forgotten_lines or any(facts["differences"] for facts in server_facts):
        edit = Edit(path, read_bytes(path), pins_text({**remaining, **new}).encode())
        plan = Plan((edit,), notes=tuple(lines))
        if (code := confirm(plan, options, "Record what they list now?")) != OK:
            return code
    elif not options.json:
        print("\n".join(lines), end="\n" if lines else "")
    if not merge_pins(path, new, forgotten, seen=recorded):
        print(f"{printable(str(path))} has changed meanwhile; nothing was pinned. Look again", file=sys.stderr)
        return STALE
    failed = any(facts["problem"] is not None for facts in server_facts)
    if options.json:
        print(
            json_text(
                {"file": str(path), "servers": [_as_json(facts) for facts in server_facts], "forgotten": forgotten}
            )
        )
        return FAILED if failed else OK
    for facts in server_facts:
        if facts["record"] is not None:
            mode = pin_mode(config, next(server for server in config.servers if server.id == facts["server"]))
            hint = "; pins are off for it: set pins to warn or enforce" if mode == "off" else ""
            print(
                f"{facts['server']}: pinned {_count_items(facts['record'])}, {facts['record'].fingerprint[:16]}{hint}"
            )
    return FAILED if failed else OK


def _compare(upstream: Upstream, before: PinRecord | None) -> Facts:
    """Returns what a server lists now, and how that differs from its record."""
    server = upstream.server
    facts: Facts = {"server": server.id, "problem": None, "pinned": before is not None, "differences": []}
    if upstream.error is not None or not server.enabled:
        reason = upstream.error or "it is switched off in the configuration"
        return {**facts, "problem": printable(reason, 2000), "record": None}
    text = upstream.agreement.instructions if upstream.agreement is not None else None
    now = listed_record(upstream)
    if before is not None:
        differing = list(differences(before, listed_parts(upstream)))
        instructions_change = instructions_difference(before, text)
        for difference in differing if instructions_change is None else [*differing, instructions_change]:
            lines = list(
                _diff(
                    _definition(before, difference.kind, difference.name),
                    _definition(now, difference.kind, difference.name),
                )
            )[:MAX_DIFF]
            facts["differences"].append(
                {
                    "kind": difference.kind.unknown if difference.kind is not None else "its",
                    "name": printable(difference.name, 200) if difference.kind is not None else "instructions",
                    "problem": printable(difference.problem),
                    "diff": [printable(line, len(line)) for line in lines],
                }
            )
    return {**facts, "record": now}


def _as_json(facts: Facts) -> Facts:
    """Returns the facts of one server as they are printed."""
    record = facts["record"]
    fields = {key: value for key, value in facts.items() if key != "record"}
    return fields if record is None else {**fields, **_record_summary(record)}


def _record_summary(record: PinRecord) -> Facts:
    return {"fingerprint": record.fingerprint, **{kind.name: len(record.items.get(kind, {})) for kind in PARTS}}


def _difference_lines(server_facts: Iterable[Facts], *, with_diffs: bool = False) -> list[str]:
    """Returns lines on how servers differ from their records, and with `with_diffs` the diffs too."""
    lines = []
    for facts in server_facts:
        if facts["problem"] is None and not facts["pinned"]:
            lines.append(f"{facts['server']}: none of its items is pinned yet")
        for difference in facts["differences"]:
            lines.append(f"{facts['server']}: {difference['kind']} {difference['name']} {difference['problem']}")
            lines += [f"  {line}" for line in difference["diff"]] if with_diffs else []
    return lines


def _definition(pins: PinRecord, kind: Kind | None, name: str) -> Any:
    return pins.instructions if kind is None else pins.items.get(kind, {}).get(name)


def _diff(before: Any, after: Any) -> Iterator[str]:
    old, new = _lines(before), _lines(after)
    if max(len(old), len(new)) > MAX_COMPARED:
        yield f"(too long to compare: {len(old):,} lines pinned, {len(new):,} now)"
        return
    for line in difflib.unified_diff(old, new, "pinned", "now", n=1, lineterm=""):
        if not line.startswith("@@"):
            yield line


def _lines(value: Any) -> list[str]:
    # A long text is one line of JSON. Split at its line ends, it can be compared line by line.
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) if value is not None else ""
    return text.replace("\\n", "\\n\n").splitlines()


def _count_items(pins: PinRecord) -> str:
    return ", ".join(f"{len(pins.items.get(kind, {}))} {kind.name}" for kind in PARTS)


def _show(path: Path, recorded: Mapping[str, PinRecord], server_ids: Sequence[str], *, as_json: bool) -> int:
    if as_json:
        print(json_text({"file": str(path), "servers": [_record_facts(id, recorded.get(id)) for id in server_ids]}))
        return OK
    if not recorded:
        print("nothing is pinned; `mcp-hub pin` does it", file=sys.stderr)
    for id in server_ids:
        pins = recorded.get(id)
        if pins is None:
            print(f"{printable(id)}: none of its items is pinned")
            continue
        print(f"{printable(id)}: {_count_items(pins)}, {pins.fingerprint[:16]}")
        for item in _record_facts(id, pins)["items"]:
            print(f"  {item['kind']} {printable(item['name'], 200)}  {item['fingerprint'][:16]}")
    return OK


def _record_facts(id: str, pins: PinRecord | None) -> Facts:
    """Returns what is recorded of a server."""
    if pins is None:
        return {"server": id, "pinned": False}
    items = [
        {"kind": kind.unknown, "name": name, "fingerprint": fingerprint(definition) or ""}
        for kind in PARTS
        for name, definition in pins.items.get(kind, {}).items()
    ]
    return {"server": id, "pinned": True, **_record_summary(pins), "items": items}
