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
from mcp_hub.cli import FAILED, OK
from mcp_hub.cli.report import connect_all
from mcp_hub.cli.startup import add_config_arguments, load, run_loop
from mcp_hub.config.models import Config
from mcp_hub.diagnosis.servers import screen_findings
from mcp_hub.errors import ConfigError
from mcp_hub.hub.engine import Engine
from mcp_hub.policy.pins import PINS_OF_SERVER, PinsByServer, pin_mode, pins_file, read_pins, write_pins
from mcp_hub.protocol.kinds import Kind
from mcp_hub.security.pinning import PARTS, PinRecord, differences, fingerprint, instructions_difference, record_of
from mcp_hub.text import printable
from mcp_hub.upstream import Upstream

MAX_DIFF = 400
"""Lines of the differences of one item."""
MAX_COMPARED = 2000
"""Lines of one definition. Comparing takes time up to the product of both."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub pin [SERVER ...] [--show | --diff] [--config F]`."""
    add_config_arguments(parser)
    parser.add_argument("servers", metavar="SERVER", nargs="*", help="only these servers (default: all that are on)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="only print what is pinned; no server is asked")
    what.add_argument("--diff", action="store_true", help="only print what differs from what is pinned; 1 if it does")


def run(options: argparse.Namespace) -> int:
    """Returns 0 if all was pinned or nothing differs, 1 if something differs or a server is not available."""
    config = load(options, quiet=True)
    known = [server.id for server in config.servers]
    for name in options.servers:
        if name not in known:
            raise ConfigError(
                f"there is no server {printable(name)!r}; there are: {', '.join(known) or 'none'}", codes.NAME_UNKNOWN
            )
    path = pins_file(config)
    if path is None:
        raise ConfigError("pins need a file: set pins.file")
    recorded = read_pins(path)
    if options.show:
        return _show(recorded, options.servers or sorted(recorded))
    return run_loop(_pin(config, path, recorded, options.servers, write=not options.diff))


async def _pin(config: Config, path: Path, recorded: PinsByServer, named: Sequence[str], *, write: bool) -> int:
    # Servers are asked without pins, as these may hide items.
    wanted = [one for one in config.servers if one.id in named or (not named and one.enabled)]
    asked = tuple(
        PINS_OF_SERVER.changed(one, "off").model_copy(update={"enabled": one.enabled and one in wanted})
        for one in config.servers
    )
    now: PinsByServer = {}
    failed = differs = False
    async with Engine(config.model_copy(update={"servers": asked})) as hub:
        await connect_all(hub)
        warnings = screen_findings(hub)
        for server in wanted:
            upstream = hub.upstreams[server.id]
            if upstream.error is not None or not server.enabled:
                failed = True
                reason = upstream.error or "it is switched off in the configuration"
                print(f"{server.id}: not there, nothing changes: {printable(reason, 2000)}", file=sys.stderr)
                continue
            text = upstream.agreement.instructions if upstream.agreement is not None else None
            now[server.id] = record_of(_items(upstream), text)
            differs = _print_differences(server.id, recorded.get(server.id), upstream, text, whole=not write) or differs
    for row in warnings if write else ():
        print(f"warning: {row['server']}: {row['kind']} {row['name']}: {row['problem']}", file=sys.stderr)
    if not write:
        return FAILED if differs or failed else OK
    known = {server.id for server in config.servers}
    for id in recorded.keys() - known if not named else ():
        print(f"{printable(id)}: no longer in the configuration, forgotten")
    kept = {id: one for id, one in recorded.items() if named or id in known}
    write_pins(path, {**kept, **now})
    for id, one in now.items():
        mode = pin_mode(config, next(server for server in config.servers if server.id == id))
        hint = "; pins are off for it: set pins to warn or enforce" if mode == "off" else ""
        print(f"{id}: pinned {_count_items(one)}, {one.fingerprint[:16]}{hint}")
    return FAILED if failed else OK


def _print_differences(id: str, before: PinRecord | None, upstream: Upstream, text: str | None, *, whole: bool) -> bool:
    """Prints how a server differs from the record, with `whole` also the texts. Returns whether it differs."""
    if before is None:
        print(f"{id}: nothing of it is pinned yet")
        return True
    found = list(differences(before, _items(upstream)))
    said = instructions_difference(before, text)
    if said is not None:
        found.append(said)
    now = record_of(_items(upstream), text)
    for one in found:
        word = f"{one.kind.unknown} {printable(one.name, 200)}" if one.kind is not None else "its instructions"
        print(f"{id}: {word} {printable(one.problem)}")
        if whole:
            old, new = _of(before, one.kind, one.name), _of(now, one.kind, one.name)
            for line in list(_diff(old, new))[:MAX_DIFF]:
                print(f"  {printable(line, 2000)}")
    return bool(found)


def _of(pins: PinRecord, kind: Kind | None, name: str) -> Any:
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
    # A long text is one line of JSON. Broken at its line ends it can be compared.
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) if value is not None else ""
    return text.replace("\\n", "\\n\n").splitlines()


def _items(upstream: Upstream) -> Iterable[tuple[Kind, Any]]:
    return [(kind, wire) for kind in PARTS for wire in upstream.lists.items.get(kind, ())]


def _count_items(one: PinRecord) -> str:
    return ", ".join(f"{len(one.items.get(kind, {}))} {kind.name}" for kind in PARTS)


def _show(recorded: Mapping[str, PinRecord], wanted: Sequence[str]) -> int:
    if not recorded:
        print("nothing is pinned; `mcp-hub pin` does it", file=sys.stderr)
    for id in wanted:
        one = recorded.get(id)
        if one is None:
            print(f"{printable(id)}: nothing of it is pinned")
            continue
        print(f"{printable(id)}: {_count_items(one)}, {one.fingerprint[:16]}")
        for kind in PARTS:
            for name, definition in one.items.get(kind, {}).items():
                print(f"  {kind.unknown} {printable(name, 200)}  {(fingerprint(definition) or '')[:16]}")
    return OK
