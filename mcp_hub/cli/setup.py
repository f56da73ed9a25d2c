"""`mcp-hub setup`: import the servers of your clients, or make a first configuration, and install the hub in them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.cli import FAILED, OK, STALE, json_text
from mcp_hub.cli.add import has_program
from mcp_hub.cli.confirmation import Plan, add_confirmation_arguments, ask, can_ask, confirm, write
from mcp_hub.cli.startup import add_config_arguments, hide_secrets_of, path_to_edit, run_loop, set_up_logging
from mcp_hub.cli.trial import Trial, try_servers
from mcp_hub.clients import Client, Machine
from mcp_hub.clients.detection import FoundServer, find_client_files
from mcp_hub.clients.imports import ImportedServer, plan_import, shown_words
from mcp_hub.clients.installs import Installation, hub_command, named_file, plan_install, project_notes
from mcp_hub.clients.table import BY_ID, client_named
from mcp_hub.config.models import Config
from mcp_hub.diagnosis.client_lists import list_lines, listed_by_client
from mcp_hub.editing import EditRefused
from mcp_hub.editing.edit import Edit, StaleEdit
from mcp_hub.editing.journal import Journal
from mcp_hub.editing.secret_store import SecretStore
from mcp_hub.editing.server_file import ServerFile
from mcp_hub.hub.composition import read_config
from mcp_hub.registry.candidate import choose_offer
from mcp_hub.registry.launch import entry_of, missing_inputs, needed_program
from mcp_hub.registry.sources import Seed
from mcp_hub.security.redaction import Redactor
from mcp_hub.text import printable

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


COMMAND: Final = ("mcp-hub", "setup")
EXAMPLES: Final = """examples:
  mcp-hub setup                     all clients of this machine
  mcp-hub setup cursor vscode       only these two
  mcp-hub setup .mcp.json           the servers of a project's file, and no client
  mcp-hub setup --switch-off        clients start the hub, and no longer their own servers
  mcp-hub setup --only cursor=time  Cursor gets this server, by a profile of the configuration
  mcp-hub undo                      restores the files"""
LAUNCHERS: Final = {"npx": "Node", "uvx": "uv", "docker": "Docker", "dnx": ".NET"}
SWITCH_OFF: Final = "Switch off in the clients what then comes through the hub? `mcp-hub undo` takes it back."
NAME_WIDTH: Final = 40
"""The maximum width of the column of names, in characters. A longer name makes only its own line longer."""
SHOWN_PROBLEM: Final = 600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub setup [CLIENT|FILE ...] [--switch-off] [--json] [--config F]`."""
    text = f"only these clients ({', '.join(BY_ID)}), and files of servers (default: all clients)"
    parser.add_argument("sources", metavar="WHAT", nargs="*", help=text)
    text = "also switch off in the clients the servers that the hub serves (or remove them, if a client has no switch)"
    parser.add_argument("--switch-off", action=argparse.BooleanOptionalAction, help=f"{text}; asked at a terminal")
    text = "which servers a client gets, as CLIENT=SERVER,SERVER (may be repeated); all that it has not switched off"
    parser.add_argument("--only", metavar="CHOICE", action="append", default=[], help=text)
    add_confirmation_arguments(parser)
    add_config_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Returns 0 when all is set up, 1 if no new server works, 3 without a confirmation, 4 after a stale preview.

    Raises:
        EditRefused: a file cannot be read or edited.
    """
    set_up_logging(options.verbose, quiet=True)
    setup = Setup(Path(path_to_edit(options)).absolute(), Machine.this(), options)
    if not options.json:
        print("\n".join(setup.lines()), flush=True)
    if setup.asks_to_switch_off():
        options.switch_off = ask(SWITCH_OFF, default=True)
        setup.plan_installs()
    plan = setup.plan()
    if plan.empty:
        return setup.end(plan, [])
    for edit in plan.edits:
        edit.check()  # errors are raised before the user is asked
    code = confirm(plan, options, setup.question())
    return setup.carry_out(plan) if code == OK else code


class Setup:
    """One run of the command: what it finds, plans and does."""

    def __init__(self, path: Path, machine: Machine, options: argparse.Namespace) -> None:
        self._path = path
        self._machine = machine
        self._options = options
        self._files = [named_file(name, machine) for name in options.sources] or find_client_files(machine)
        self._target = ServerFile.open(path)
        self._import_plan = plan_import(self._files, self._target, SecretStore.of_user(), machine)
        self._first: tuple[Edit, ...] = ()
        if self._target.content is None and not self._import_plan.added:
            self._first = run_loop(first_file(path, has_program))
        self._notes = [*self._import_plan.notes, *([] if options.sources else project_notes(machine))]
        self._later_notes: list[str] = []
        self._overlays = [Path(overlay).absolute() for overlay in options.overlays]
        self._command = hub_command(path, *self._overlays)
        self._profiles = {} if self._first else self._planned_profiles()
        self.plan_installs()

    def plan_installs(self) -> None:
        """Plans the changes of the clients' files."""
        self._installs = list(self._planned_installs(self._served()))

    def _planned_profiles(self) -> dict[str, list[str]]:
        """Adds to the configuration a profile for each client that does not get all servers.

        Returns the servers by the id of the client, which is the name of its profile.
        """
        rows = {row.found.identity: row for row in self._import_plan.servers if row.action in ("add", "same")}
        ids, chosen = list(self._target.entries), dict(map(self._choice, self._options.only))
        profiles: dict[str, list[str]] = {}
        for file in self._files:
            if file.client is None:
                continue
            client = file.client.id
            # What is on in another client stays off in this one.
            found = [(server, rows.get(server.identity)) for server in file.servers if not server.on]
            off = {row.id for server, row in found if row is not None and row.found.on and row.found is not server}
            has_own = any(hub.command_line[-2:] == ("--profile", client) for hub in file.hubs)
            if self._target.has_profile(client):
                if client in chosen:
                    text = f"there is a profile {client!r} already; change it there"
                    raise EditRefused(f"{printable(str(self._path))}: {text}")
                if has_own or off:
                    profiles[client] = []
                    if self._import_plan.added:
                        self._notes.append(f"{file.name} gets what is new when profiles.{client}.tools names it")
            elif client in chosen or off:
                profiles[client] = chosen.get(client) or [id for id in ids if id not in off]
                self._target.add_profile(client, profiles[client])
                names = printable(", ".join(profiles[client]) or "no server", 500)
                reason = f", as it has switched off {printable(', '.join(sorted(off)), 300)}" if off else ""
                self._notes.append(f"{file.name} gets {names}{reason} (profiles.{client} of the configuration)")
        if profiles:
            edits = (*self._import_plan.edits[:-1], self._target.edit())
            self._import_plan = msgspec.structs.replace(self._import_plan, edits=edits)
        return profiles

    def _choice(self, text: str) -> tuple[str, list[str]]:
        """Reads one `--only`. Raises EditRefused."""
        name, equals, servers = text.partition("=")
        ids = [id.strip() for id in servers.split(",") if id.strip()]
        unknown = [id for id in ids if id not in self._target.entries]
        if not equals or not ids or unknown:
            known = printable(", ".join(self._target.entries), 500) or "none"
            raise EditRefused(f"--only {printable(text, 100)}: write CLIENT=SERVER,SERVER; servers are: {known}")
        return client_named(name).id, ids

    def asks_to_switch_off(self) -> bool:
        """Returns whether the person is to be asked if the clients' own entries are switched off."""
        options = self._options
        is_open = options.switch_off is None and not (options.json or options.yes or options.confirm)
        return is_open and can_ask() and self._originals_on()

    @property
    def _clients(self) -> Iterator[Client]:
        """The clients that get the hub: those whose file can be read."""
        for file in self._files:
            if file.client is not None and file.problem is None:
                yield file.client

    def _served(self) -> list[FoundServer]:
        return [row.found for row in self._import_plan.servers if row.action in ("add", "same")]

    def _planned_installs(self, served: Sequence[FoundServer]) -> Iterator[Installation]:
        originals = served if self._options.switch_off else None
        for client in self._clients:
            try:
                profile = ("--profile", client.id) if client.id in self._profiles else ()
                yield plan_install(client, self._machine, (*self._command, *profile), originals)
            except EditRefused as error:
                self._notes.append(f"{client.name} is left as it is: {error}")

    def _config_edits(self) -> tuple[Edit, ...]:
        return self._first or self._import_plan.edits

    def plan(self) -> Plan:
        """Returns all that would be written."""
        facts = {
            "file": str(self._path),
            "servers": [row.as_json() | {"needs": self._needs(row)} for row in self._import_plan.servers],
            "clients": list(self._client_facts()),
            "left_out": [printable(note, 1000) for note in self._notes],
        }
        edits = (*self._config_edits(), *(install.edit for install in self._installs))
        return Plan(edits, self._commands(), self._import_plan.keyring, facts=facts)

    def _client_facts(self) -> Iterator[dict[str, Any]]:
        for install in self._installs:
            file, edit = install.file, install.edit
            client = file.client
            if client is not None:
                facts = {"client": client.id, "file": str(file.path), "changes": edit.changes}
                yield facts | {"switched_off": list(install.switched_off)}

    def _commands(self) -> tuple[tuple[str, ...], ...]:
        """Returns the command lines that the check will start: those of new servers that are on."""
        rows = [row.found for row in self._import_plan.added if row.found.on and "url" not in row.found.values]
        commands = [tuple(Redactor().text(argument) for argument in shown_words(server)) for server in rows]
        if self._first:
            entries = ServerFile(self._path, self._first[0].after).entries.values()
            commands += [(str(entry.values["command"]), *map(str, entry.values["args"])) for entry in entries]
            commands.append((sys.executable, "-P", "-m", "mcp_hub.servers", "local", str(self._path.parent / "tools")))
        return tuple(commands)

    def question(self) -> str:
        """Returns the question of the confirmation."""
        names = [install.file.name for install in self._installs if install.edit.changes]
        into = f" and put the hub into {_join(names)}" if names else ""
        starts = (
            ", start the servers once to see that they work," if self._commands() or self._import_plan.added else ""
        )
        return f"Write this{starts}{into}?".replace(",?", "?")

    def lines(self) -> Iterator[str]:
        """Yields what was found, as a table that fits any width."""
        names = [file.name for file in self._files]
        yield f"Looked at: {_join(names)}." if names else "No client that the hub knows was found on this machine."
        width = _width(row.id for row in self._import_plan.servers)
        for row in self._import_plan.servers:
            if row.action == "hub":
                yield f"\n{printable(row.id, 60):{width}}starts a hub, from {', '.join(row.sources)}"
                continue
            state = {"add": "new", "same": f"same as {row.same_as}", "broken": "not usable"}[row.action]
            state += "" if row.found.on else ", off"
            sources = ", ".join(row.sources)
            yield ""
            yield f"{printable(row.id, 60):{width}}{printable(state, 80)}, from {printable(sources, 300)}"
            yield f"  runs   {Redactor().text(printable(' '.join(shown_words(row.found)), 2000))}"
            if row.inherits:
                yield f"  gets   {', '.join(row.inherits)}, as it does from {sources}"
            for need in self._needs(row):
                yield f"  needs  {need}"
            if row.reason and row.action == "broken":
                yield f"  note   {printable(row.reason, SHOWN_PROBLEM)}"
        if self._first:
            yield "There are no servers yet: this is a first configuration, which works as it is."
        elif self._files and not self._import_plan.servers:
            yield "There are no servers in their files."
        yield from (f"note: {printable(note, 1000)}" for note in self._notes)
        if self._originals_on() and not self._options.switch_off and not self.asks_to_switch_off():
            yield "note: the clients still start their own servers beside the hub; --switch-off stops that"
        yield ""

    def _needs(self, row: ImportedServer) -> list[str]:
        """Returns what a new server needs to work: its launcher, missing values, places for its secrets."""
        needs: list[str] = []
        if row.action != "add":
            return needs
        program = row.found.command_line[0] if "url" not in row.found.values else ""
        if program in LAUNCHERS:
            state = "downloads it at its first start" if has_program(program) else "is not installed here"
            needs.append(f"{LAUNCHERS[program]}: {program} {state}")
        elif program and Path(program).name == program and not has_program(program):
            needs.append(f"{printable(program, 100)}, which was not found on this machine")
        if row.found.problem and row.found.on:
            needs.append(printable(row.found.problem, SHOWN_PROBLEM))
        if row.secrets:
            location = "the keyring" if self._import_plan.keyring else "a file that only you can read"
            needs.append(f"its secrets ({', '.join(row.secrets)}), which go into {location}")
        return needs

    def _originals_on(self) -> bool:
        """Returns whether a client itself starts a server that the hub starts too."""
        served = {server.identity for server in self._served() if server.on}
        return any(
            server.on and not server.is_hub and server.identity in served
            for file in self._files
            if file.client is not None
            for server in file.servers
        )

    def carry_out(self, plan: Plan) -> int:
        """Writes the configuration, checks its new servers, and puts the hub into the clients."""
        journal = Journal.of_user()
        config_plan = msgspec.structs.replace(plan, edits=self._config_edits(), commands=())
        code = write(config_plan, COMMAND, journal)
        if code != OK:
            return code
        try:
            trials = self._check_and_plan()
            client_edits = tuple(install.edit for install in self._installs)
            if config_plan.empty:
                code = write(Plan(client_edits), COMMAND, journal)
            else:
                journal.extend(client_edits)  # one undo takes back all
        except (KeyboardInterrupt, EditRefused, StaleEdit) as error:
            if not config_plan.empty:
                message = f"{printable(str(self._path))} is written, and no client was changed"
                print(f"\n{message}: mcp-hub setup goes on from there, mcp-hub undo takes it back", file=sys.stderr)
            if not isinstance(error, StaleEdit):
                raise
            print(error, file=sys.stderr)
            return STALE
        return self.end(plan, trials) if code == OK else code

    def _check_and_plan(self) -> list[Trial]:
        """Starts the new servers once. If none works, no client is changed; one that fails stays on in the clients."""
        config = read_config(self._path, os.environ, overlays=self._overlays).config
        hide_secrets_of(config)
        trials = run_loop(self._check(config))
        working = {trial.id for trial in trials if trial.problem is None or trial.wants_sign_in}
        if trials and not working:
            self._later_notes.append("none of the servers works, so the clients were left as they are")
            self._installs = []
        elif self._options.switch_off and len(working) < len(trials):
            failed = {trial.id for trial in trials} - working
            served = [row.found for row in self._import_plan.servers if row.id not in failed]
            self._installs = list(self._planned_installs(served))
        return trials

    def _new_ids(self) -> set[str]:
        """Returns the servers whose command lines were shown."""
        if self._first:
            return {*ServerFile(self._path, self._first[0].after).entries, "local"}
        return {row.id for row in self._import_plan.added}

    async def _check(self, config: Config) -> list[Trial]:
        """Starts the new servers, and stores their lists in the catalog cache for the hub."""
        new = self._new_ids()
        servers = [server for server in config.servers if server.id in new and server.enabled]
        if not servers:
            return []
        return await try_servers(servers, config)

    def end(self, plan: Plan, trials: Sequence[Trial]) -> int:
        """Prints what was done and what comes next. Returns the exit code."""
        failed = bool(trials) and all(trial.problem is not None and not trial.wants_sign_in for trial in trials)
        if self._options.json:
            checked = [trial.as_json() for trial in trials]
            print(json_text({**plan.as_json(), "checked": checked, "done": True}))
        else:
            print("\n".join(self._closing_lines(plan, trials)))
        return FAILED if failed else OK

    def _closing_lines(self, plan: Plan, trials: Sequence[Trial]) -> Iterator[str]:
        if trials:
            yield ""
        width = _width(trial.id for trial in trials)
        yield from (line for trial in trials for line in _trial_lines(trial, width))
        changed = [install.file.name for install in self._installs if install.edit.changes]
        if plan.empty:
            yield "All of this is set up already; nothing was changed."
        else:
            yield ""
            yield f"The servers are in {printable(str(self._path))}."
        if changed:
            yield f"The hub is in {_join(changed)}: restart {'it' if len(changed) == 1 else 'them'} to see its tools."
        yield from list_lines({}, listed_by_client(self._path))
        for install in self._installs:
            if install.switched_off:
                yield f"Switched off in {install.file.name}: {printable(', '.join(install.switched_off), 500)}."
        if not plan.empty:
            yield from (f"note: {printable(note, 1000)}" for note in self._later_notes)
        yield ""
        yield "Next:"
        for trial in trials:
            if trial.wants_sign_in:
                yield f"  mcp-hub login {printable(trial.id, 100)}  signs in to it"
        yield "  mcp-hub tools   lists the tools that a client sees"
        yield "  mcp-hub doctor  looks at the servers and this machine, and says what to do"
        if not plan.empty:
            yield "  mcp-hub undo    takes all of this back"


def _width(names: Iterable[str]) -> int:
    return min(max((len(printable(name, 60)) for name in names), default=0), NAME_WIDTH) + 2


def _trial_lines(trial: Trial, width: int) -> Iterator[str]:
    if trial.problem is not None:
        yield f"{printable(trial.id, 60):{width}}failed: {printable(trial.problem, SHOWN_PROBLEM)}"
        return
    count = len(trial.tools)
    yield f"{printable(trial.id, 60):{width}}works: {count} tool{'s' * (count != 1)}"
    for finding in trial.findings:
        yield f"  warning: {finding['kind']} {finding['name']}: {finding['problem']}"


def _join(names: Sequence[str]) -> str:
    texts = [printable(name, 200) for name in names]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}" if texts else ""
