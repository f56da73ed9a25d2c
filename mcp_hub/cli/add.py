"""`mcp-hub add WHAT`: show, confirm and try a new server, then add it to the configuration."""

from __future__ import annotations

import argparse
import getpass
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.cli import BAD_INPUT, FAILED, OK, json_text
from mcp_hub.cli.confirmation import Plan, add_confirmation_arguments, ask, can_ask, carry_out, confirm, write
from mcp_hub.cli.startup import (
    add_config_arguments,
    hide_secrets_of,
    path_to_edit,
    root_egress,
    run_loop,
    set_up_logging,
)
from mcp_hub.cli.trial import Trial, server_of, try_servers
from mcp_hub.config.commands import CommandNotFound, child_environment, find_command
from mcp_hub.config.models import Config, Server
from mcp_hub.config.secret_values import is_plain_secret, secret_texts
from mcp_hub.config.variables import VariableScope, has_variable
from mcp_hub.diagnosis.client_lists import config_in, left_out_lines, list_lines, listed_by_client
from mcp_hub.editing.secret_store import KeptSecret, SecretStore
from mcp_hub.editing.server_file import ServerFile
from mcp_hub.errors import ConfigError
from mcp_hub.registry import Package, UserInput
from mcp_hub.registry.bundles import BundleStore, default_directory
from mcp_hub.registry.candidate import ID, Candidate, Finder
from mcp_hub.registry.package_index import PackageIndex
from mcp_hub.registry.sources import registry_of
from mcp_hub.security.redaction import Redactor, is_secret_key
from mcp_hub.text import printable

MAX_VALUES: Final = 100
RELOADS: Final = "A hub that is running takes it over; `mcp-hub status` says if it waits for `mcp-hub reload`."
_PLAIN: Final = Server(id="any", transport="stdio", command="any", namespace="")
"""A server without settings of its own, for the environment that every child process gets."""
EXAMPLES: Final = """examples:
  mcp-hub add time                                      a server of the bundled list
  mcp-hub add filesystem --set directory=~/Documents    with what it needs
  mcp-hub add io.github.owner/server                    a server of the registry (MCP_HUB_REGISTRY)
  mcp-hub add https://mcp.example.com/mcp               a server on a network
  mcp-hub add notes --env KEY=VALUE -- npx -y notes     any command line; --command is the same as --

If a server's README shows `claude mcp add NAME ...` or `codex mcp add NAME ...`, write `mcp-hub add NAME ...`,
without --scope."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub add WHAT [--name N] [--set K=V ...] [--off] [--json] [-- WORD ...]`."""
    text = "name in the bundled list or the registry, or an address; before an address or -- the name of the entry"
    parser.add_argument("words", metavar="WHAT", nargs="+", help=text)
    parser.add_argument("--name", metavar="NAME", help="name of the entry (default: from the server's own name)")
    text = "an input of the server: an argument, a variable or a header (repeated for several)"
    names = ("--set", "--env", "-e")
    parser.add_argument(*names, metavar="NAME=VALUE", dest="values", action="append", default=[], help=text)
    text = "a header of the requests to an address (repeated for several)"
    parser.add_argument("--header", metavar="'NAME: VALUE'", dest="headers", action="append", default=[], help=text)
    parser.add_argument("--url", metavar="URL", help="the address, if WHAT is the name of the entry")
    text = "how to reach an address (default: found out)"
    parser.add_argument("--transport", "-t", choices=["http", "sse", "stdio"], help=text)
    parser.add_argument("--off", action="store_true", help="add it switched off, and start nothing")
    add_confirmation_arguments(parser)
    add_config_arguments(parser)
    text = "the command that starts the server, with all its words; it must come last (-- is the same)"
    parser.add_argument("--command", metavar="WORD", dest="command_line", nargs=argparse.REMAINDER, help=text)


def run(options: argparse.Namespace) -> int:
    """Returns 0 when it was added, 1 if it does not work, 2 if inputs are missing, 3 or 4 if not confirmed.

    Raises:
        ConfigError: there is no such server, or the file cannot be edited.
        RegistryError: the registry cannot be used.
    """
    set_up_logging(options.verbose, quiet=True)
    file = ServerFile.open(path_to_edit(options, alone=True))
    candidate = run_loop(_find(options))
    if (bundle := candidate.bundle) is not None:
        code = _download(bundle, candidate, options)
        if code != OK:
            return code
        offer = run_loop(BundleStore(default_directory(), root_egress(options.config)).get(bundle, Path.home()))
        candidate = msgspec.structs.replace(candidate, offer=offer)
    values = _complete(candidate, _values(_assignments(options), candidate), interactive=can_ask() and not options.json)
    if missing := candidate.missing(values):
        return _report_missing(candidate, missing, as_json=options.json)
    addition = Addition(candidate, values, file)
    if addition.is_there:
        print(f"{candidate.id} is in {printable(str(file.path))} already", file=sys.stderr)
        return OK
    command = ["mcp-hub", "add", candidate.id]
    if options.off:
        code = carry_out(addition.plan(on=False), options, command)
        if code == OK and not options.json:
            print(_switched_off_text(candidate.id))
        return code
    # Errors are raised before the user is asked.
    server = server_of(candidate.id, candidate.entry(values))
    hide_secrets_of(Config(servers=(server,)))
    plan = addition.plan(on=True)
    for edit in plan.edits:
        edit.check()
    code = confirm(plan, options, "Start it once to see what it offers, and add it?")
    if code != OK:
        return code
    return _try_and_write(addition, server, options, command)


def _download(bundle: Package, candidate: Candidate, options: argparse.Namespace) -> int:
    """Asks before a bundle is downloaded, as its command line is known only afterwards. Returns an exit code."""
    if BundleStore(default_directory()).has(bundle):
        return OK
    note = f"It is a bundle: {bundle.identifier} (SHA-256 {bundle.sha256})"
    facts = {"server": candidate.id, "download": bundle.identifier, "sha256": bundle.sha256}
    command = ("download", bundle.identifier, str(bundle.sha256))
    plan = Plan(commands=(command,), notes=(candidate.origin, note), facts=facts)
    code = confirm(plan, options, "Download and unpack it, to see what it would run?")
    options.confirm = None  # the command line is confirmed later, by another token
    return code


def _try_and_write(addition: Addition, server: Server, options: argparse.Namespace, command: list[str]) -> int:
    path = addition.file.path
    listed_before = listed_by_client(path)
    trial = run_loop(try_servers([server], config_in(path) or Config()))[0]
    if not options.json:
        print("\n" + "\n".join(trial.lines()), flush=True)
    on = _decide(trial, options)
    plan = addition.plan(on=bool(on))
    if on is not None and (code := write(plan, command)) != OK:
        return code
    name = printable(addition.candidate.id, 100)
    if options.json:
        print(json_text({**plan.as_json(), "trial": trial.as_json(), "enabled": bool(on), "done": on is not None}))
    elif on is None:
        print(f"nothing was written; --off adds {name} all the same, switched off", file=sys.stderr)
    elif on:
        print(f"\nadded {name} to {printable(str(plan.edits[0].path))}. {RELOADS}")
        for line in (*list_lines(listed_before, listed_by_client(path)), *left_out_lines(path, server.id)):
            print(line)
        if trial.wants_sign_in:
            print(f"Sign in to it: mcp-hub login {shlex.quote(name)}")
    else:
        print(_switched_off_text(addition.candidate.id))
    return FAILED if on is None else OK


def _switched_off_text(id: str) -> str:
    name = printable(id, 100)
    return f"\nadded {name}, switched off; to switch it on: mcp-hub enable {shlex.quote(name)}"


def _decide(trial: Trial, options: argparse.Namespace) -> bool | None:
    """Returns whether to switch the server on; None if it must not be added.

    A server that fails is not added, unless only its sign-in is missing. A server that the screening flags is switched
    on only by a person at a terminal.
    """
    if trial.problem is not None:
        return True if trial.wants_sign_in else None
    if not options.json and can_ask() and not options.yes:
        return ask("Switch it on?")
    return not trial.findings


class Addition(msgspec.Struct, frozen=True):
    """A candidate, the values of its inputs, and the configuration file to add it to."""

    candidate: Candidate
    values: Mapping[str, str]
    file: ServerFile

    @property
    def is_there(self) -> bool:
        """Whether the file has this entry already, on or off."""
        entry = self.file.entries.get(self.candidate.id)
        if entry is None:
            return False
        return {name: value for name, value in entry.values.items() if name != "enabled"} == self._entry()[0]

    def _entry(self) -> tuple[dict[str, Any], list[KeptSecret]]:
        """Returns the entry as it is written, and the secrets that it refers to."""
        references, secrets = dict(self.values), []
        store = SecretStore.of_user()
        for name, value in self.values.items():
            if is_secret(self.candidate, name, value):
                secrets.append(store.place(self.candidate.id, name, value))
                references[name] = secrets[-1].reference
        entry, others = store.without_secrets(self.candidate.id, self.candidate.entry(references))
        return entry, [*secrets, *(secret for _, secret in others)]

    def plan(self, *, on: bool) -> Plan:
        """Returns the plan that adds the entry. Its secrets go into the keyring or a private file."""
        candidate = self.candidate
        entry, secrets = self._entry()
        file = self.file.fresh()
        file.add(candidate.id, entry if on else {**entry, "enabled": False})
        argv = (str(entry["command"]), *map(str, entry["args"])) if "command" in entry else None
        redaction = Redactor(secret_texts(entry))
        notes = [*([candidate.origin] if candidate.origin else []), *candidate.notes]
        if argv is None:
            notes.append(f"It connects to {printable(redaction.text(str(entry['url'])), 500)}")
        return Plan(
            edits=(file.edit(), *(secret.edit for secret in secrets if secret.edit is not None)),
            commands=(tuple(map(redaction.text, argv)),) if argv is not None and on else (),
            secrets=tuple(secret.keyring for secret in secrets if secret.keyring is not None),
            notes=tuple(notes),
            facts={"server": candidate.id, "registry": candidate.registry},
        )


def is_secret(candidate: Candidate, name: str, value: str) -> bool:
    """Returns whether a value is a secret to store outside of the configuration. A `${VARIABLE}` is not."""
    scope = VariableScope(os.environ, Path.home(), Path.cwd())
    if has_variable(value, scope) or not value:
        return False
    is_declared_secret = any(item.secret for item in candidate.inputs if item.name == name)
    return is_declared_secret or is_secret_key(name) or is_plain_secret(name, value, scope)


async def _find(options: argparse.Namespace) -> Candidate:
    environment = child_environment(_PLAIN, os.environ, Path.home())  # what npx and uvx see when the hub starts them
    egress = root_egress(options.config)
    index = PackageIndex(environment, Path.home(), egress)
    finder = Finder(lambda: registry_of(os.environ, Path.home(), egress), index, has_program)
    target, url = _target_and_url(options)
    if options.command_line is not None:
        candidate = await finder.of_command(target, _command_line(options.command_line))
    elif url is not None:
        candidate = msgspec.structs.replace(await finder.of_url(url), transport=options.transport)
        if target != url:
            candidate = msgspec.structs.replace(candidate, id=target)
    else:
        candidate = await finder.of_name(target)
    candidate = msgspec.structs.replace(candidate, id=options.name or candidate.id)
    if not ID.fullmatch(candidate.id):
        raise ConfigError(
            f"{printable(candidate.id, 100)!r} cannot be a name: letters, digits, '-', '_' and '.' make one"
        )
    return candidate


def _target_and_url(options: argparse.Namespace) -> tuple[str, str | None]:
    """Returns the server to add (or the name of its entry), and its address if it has one. Raises ConfigError."""
    target, *extra = options.words
    if options.url is not None:
        extra.append(options.url)
    if extra and options.command_line is not None:
        raise ConfigError("before a command line is only the name of the entry: mcp-hub add NAME -- COMMAND ...")
    if extra and (len(extra) > 1 or "://" not in extra[0]):
        command = printable(" ".join([target, "--", *extra]), 500)
        raise ConfigError(f"write a command line behind --, and options before it: mcp-hub add {command}")
    url = extra[0] if extra else target if "://" in target and options.command_line is None else None
    if url is None and (options.headers or options.transport in ("http", "sse")):
        raise ConfigError("--header, and --transport http or sse, are for an address: mcp-hub add NAME URL")
    if url is not None and options.transport == "stdio":
        raise ConfigError("--transport stdio is for a command line: mcp-hub add NAME -- COMMAND ...")
    if url is not None and not url.startswith(("https://", "http://")):
        raise ConfigError(f"{printable(url, 200)!r} is not an address that begins with https:// or http://")
    return target, url


def _command_line(argv: list[str]) -> list[str]:
    """Checks a command line for common mistakes, and returns it. Raises ConfigError."""
    if not argv:
        raise ConfigError("the command line is missing; write it behind --: mcp-hub add NAME -- uvx mcp-server-time")
    if len(argv[0].split()) > 1 and not has_program(argv[0]):
        raise ConfigError(f"write a command line without quotes: mcp-hub add NAME -- {printable(argv[0], 500)}")
    if argv[-1] in ("--yes", "--off", "--json"):
        print(
            f"note: {argv[-1]} is a word of the command; to give it to mcp-hub, write it before the command line",
            file=sys.stderr,
        )
    return argv


def _assignments(options: argparse.Namespace) -> list[str]:
    """Returns the inputs that the user gives, each as NAME=VALUE. Raises ConfigError."""
    assignments = list(options.values)
    for line in options.headers:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ConfigError("--header needs 'NAME: VALUE'")
        assignments.append(f"{name.strip()}={value.strip()}")
    return assignments


def has_program(name: str) -> bool:
    """Returns whether a program is installed where the hub would look for it."""
    try:
        find_command(name, child_environment(_PLAIN, os.environ, Path.home())["PATH"], None)
    except CommandNotFound:
        return False
    return True


def _values(assignments: list[str], candidate: Candidate) -> dict[str, str]:
    """Reads texts `NAME=VALUE`. Values of a repeated name become the lines of one value. Raises ConfigError."""
    values: dict[str, str] = {}
    if len(assignments) > MAX_VALUES:
        raise ConfigError(f"--set was given more than {MAX_VALUES} times")
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError("--set needs NAME=VALUE")
        value = _in_home(value)
        values[name] = f"{values[name]}\n{value}" if name in values else value
    candidate.check(values)
    return values


def _in_home(value: str) -> str:
    return str(Path.home()) + value[1:] if value == "~" or value.startswith("~/") else value


def _complete(candidate: Candidate, values: dict[str, str], *, interactive: bool) -> dict[str, str]:
    """Returns `values`, and, if `interactive`, what the user answers at the terminal for missing inputs."""
    if not interactive:
        return values
    values = dict(values)
    for item in candidate.missing(values):
        values[item.name] = _ask_value(item)
    candidate.check(values)
    return {name: value for name, value in values.items() if value}


def _ask_value(item: UserInput) -> str:
    choices = f" ({'/'.join(item.choices)})" if item.choices else ""
    about = printable(f"{item.name}: {item.description}{choices}" if item.description else f"{item.name}{choices}", 400)
    if item.secret or is_secret_key(item.name):
        return getpass.getpass(f"{about} (not shown): ", sys.stderr).strip()
    lines: list[str] = []
    while True:
        ending = " (several: one a line, then an empty line)" if item.repeated else ""
        print(f"{about}{ending}: " if not lines else "  ", end="", file=sys.stderr, flush=True)
        line = _in_home(sys.stdin.readline().strip())
        if line:
            lines.append(line)
        if not line or not item.repeated or len(lines) >= MAX_VALUES:
            return "\n".join(lines)


def _report_missing(candidate: Candidate, missing: tuple[UserInput, ...], *, as_json: bool) -> int:
    if as_json:
        facts = [{"name": item.name, "secret": item.secret, "description": item.description} for item in missing]
        print(json_text({"server": candidate.id, "missing": facts, "done": False}))
    print(f"{candidate.id} needs values from you; nothing was written. Give them by --set:", file=sys.stderr)
    for item in missing:
        print(printable(f"  --set {item.name}=VALUE  {item.description}".rstrip(), 500), file=sys.stderr)
    return BAD_INPUT
