"""`mcp-hub update [SERVER ...]`: find newer versions of pinned servers, and compare their tools first."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.cli import FAILED, OK, json_text
from mcp_hub.cli.add import RELOADS
from mcp_hub.cli.confirmation import Plan, add_confirmation_arguments, ask, can_ask, confirm, write
from mcp_hub.cli.startup import add_config_arguments, load, path_to_edit, run_loop
from mcp_hub.cli.trial import Trial, changes_between, try_servers
from mcp_hub.config.egress_settings import EgressSettings
from mcp_hub.config.models import Config, Server
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.diagnosis.servers import FindingRow
from mcp_hub.editing.server_file import ServerFile
from mcp_hub.registry.sources import registry_of
from mcp_hub.registry.updates import Unknown, Update, UpdateFinder
from mcp_hub.security.redaction import Redactor
from mcp_hub.text import printable
from mcp_hub.transport.egress import Egress

EXAMPLES: Final = """examples:
  mcp-hub update            everything that is pinned
  mcp-hub update time       one server
  mcp-hub update --pin      what is not pinned too, such as imported entries: to the newest version of now
  mcp-hub update --yes      write what works without asking

The newest versions are those that npx and uvx would take: by npm_config_registry or ~/.npmrc, UV_DEFAULT_INDEX or
uv.toml, in the environment of the server. Servers of the registry have the version that the registry names."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub update [SERVER ...] [--pin] [--yes | --confirm TOKEN] [--json] [--config F]`."""
    parser.add_argument(
        "servers", metavar="SERVER", nargs="*", help="only these servers (default: all that are switched on)"
    )
    text = "also pin packages that have no pinned version, to the newest one"
    parser.add_argument("--pin", action="store_true", help=text)
    add_confirmation_arguments(parser)
    add_config_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Returns 0 when all is up to date or was updated, 1 if a server could not be updated, 3 without a confirmation.

    Raises:
        ConfigError: the configuration is not valid, or a server is not in the file.
    """
    file = ServerFile.open(path_to_edit(options, alone=True))
    config = load(options, quiet=True)
    servers = {server.id: server for server in config.servers}
    selected_ids = options.servers or [id for id in file.entries if id in servers and servers[id].enabled]
    for id in options.servers:
        file.entry(id)
    egress = Egress.of(EgressSettings(proxy=config.proxy))
    home = Path.home()
    finder = UpdateFinder(
        file, lambda: registry_of(os.environ, home, egress), os.environ, home, egress, pin=options.pin
    )
    outcomes = run_loop(finder.find([servers[id] for id in selected_ids if id in servers]))
    updates = [outcome for outcome in outcomes if isinstance(outcome, Update)]
    unknown = [outcome for outcome in outcomes if isinstance(outcome, Unknown)]
    for item in unknown:
        print(f"{printable(item.id, 100)}: {item.why}", file=sys.stderr)
    if not updates:
        if options.json:
            print(json_text({"updates": [], "done": not unknown, **_unknown_facts(unknown)}))
        else:
            print("nothing that is pinned has a newer version" + ("" if options.pin else "; --pin pins what is not"))
        return FAILED if unknown else OK
    plan = _plan(file, updates, [*_commands(updates, servers, Redactor(secrets_of(config)))])
    plan = msgspec.structs.replace(plan, facts={**plan.facts, **_unknown_facts(unknown)})
    code = confirm(plan, options, "Start the versions of now and the newer ones, to compare what they offer?")
    if code != OK:
        return code
    return _compare_and_write(file, config, updates, servers, options) or (FAILED if unknown else OK)


def _compare_and_write(
    file: ServerFile, config: Config, updates: Sequence[Update], servers: dict[str, Server], options: argparse.Namespace
) -> int:
    ids = list(dict.fromkeys(update.id for update in updates))
    updated = [_updated_server(servers[id], [update for update in updates if update.id == id]) for id in ids]
    current_trials = run_loop(try_servers([servers[id] for id in ids], config))
    newer_trials = run_loop(try_servers(updated, config))
    facts = []
    for before, after in zip(current_trials, newer_trials, strict=True):
        lines = list(_difference(before, after))
        facts.append({**after.as_json(), "changes": lines})
        if not options.json:
            print(f"\n{printable(after.id, 100)}:", *(f"  {line}" for line in lines), sep="\n", flush=True)
    interactive = not options.json and can_ask() and not options.yes
    working = {
        after.id
        for before, after in zip(current_trials, newer_trials, strict=True)
        if _is_good(before, after, interactive=interactive)
    }
    plan = _plan(file, [update for update in updates if update.id in working], [])
    is_accepted = bool(working) and (not interactive or ask("Update?"))
    if is_accepted and (code := write(plan, ["mcp-hub", "update", *sorted(working)])) != OK:
        return code
    if options.json:
        print(json_text({**plan.as_json(), "trials": facts, "done": is_accepted}))
    elif is_accepted:
        print(f"\nupdated {printable(', '.join(sorted(working)), 1000)}; `mcp-hub undo` takes it back. {RELOADS}")
    else:
        print("\nnothing was written", file=sys.stderr)
    return OK if is_accepted and len(working) == len(ids) else FAILED


def _is_good(before: Trial, after: Trial, *, interactive: bool) -> bool:
    """Returns whether a newer version may be written. New findings of the screening need a person at a terminal."""
    return after.problem is None and (interactive or not _new_findings(before, after))


def _new_findings(before: Trial, after: Trial) -> list[FindingRow]:
    return [row for row in after.findings if row not in before.findings]


def _difference(before: Trial, after: Trial) -> Iterator[str]:
    """Yields lines on how the newer version differs from the pinned one."""
    if after.problem is not None:
        yield f"the newer version fails, so that the pinned one stays: {printable(after.problem, 1500)}"
        return
    if before.problem is not None:
        yield f"the pinned version fails: {printable(before.problem, 1500)}"
        yield from after.lines()
        return
    yield from list(changes_between(before.record, after.record)) or ["it offers the same as before"]
    for row in _new_findings(before, after):
        yield f"warning: {row['kind']} {row['name']}: {row['problem']}; only a person at a terminal accepts it"


def _updated_server(server: Server, updates: Sequence[Update]) -> Server:
    argv = [server.command or "", *server.args]
    for update in updates:
        argv[update.position] = update.becomes
    return server.model_copy(update={"command": argv[0], "args": tuple(argv[1:])})


def _commands(updates: Sequence[Update], servers: dict[str, Server], redaction: Redactor) -> Iterator[tuple[str, ...]]:
    for id in dict.fromkeys(update.id for update in updates):
        for server in (servers[id], _updated_server(servers[id], [update for update in updates if update.id == id])):
            yield tuple(map(redaction.text, (server.command or "", *server.args)))


def _plan(file: ServerFile, updates: Sequence[Update], commands: Sequence[tuple[str, ...]]) -> Plan:
    edited = file.fresh()
    for update in updates:
        edited.put(update.word, update.becomes)
    facts: dict[str, Any] = {
        "updates": [
            {"server": update.id, "package": update.package, "version": update.version, "newer": update.newer}
            for update in updates
        ]
    }
    notes = tuple(f"{update.id}: {update.package} {update.version} -> {update.newer}" for update in updates)
    return Plan((edited.edit(),), tuple(commands), notes=notes, facts=facts)


def _unknown_facts(unknown: Sequence[Unknown]) -> dict[str, Any]:
    return {"unknown": [{"server": item.id, "why": item.why} for item in unknown]}
