"""`mcp-hub doctor`: check the configuration, its servers and the machine, and say how to solve each problem."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from mcp_hub.cli import BAD_INPUT, FAILED, OK, json_text
from mcp_hub.cli.confirmation import Plan, add_confirmation_arguments, confirm
from mcp_hub.cli.report import connect_all
from mcp_hub.cli.startup import add_config_arguments, hide_secrets_of, run_loop, set_up_logging
from mcp_hub.clients import Machine
from mcp_hub.codes import with_code
from mcp_hub.config import LoadedConfig
from mcp_hub.diagnosis import Finding, Section, fail
from mcp_hub.diagnosis.client_programs import clients_section
from mcp_hub.diagnosis.configuration import configuration_section
from mcp_hub.diagnosis.installation import installation_section, machine_section
from mcp_hub.diagnosis.listening import listening_section
from mcp_hub.diagnosis.server_programs import programs_section
from mcp_hub.diagnosis.servers import MAX_PROBLEM, examine, lists_section, server_section
from mcp_hub.diagnosis.state import files_section, hubs_section, ports_of, sign_ins_section
from mcp_hub.errors import ConfigError
from mcp_hub.text import printable

EXAMPLES = """examples:
  mcp-hub doctor             look at everything
  mcp-hub doctor --fix       show what it can repair, ask, and repair it
  mcp-hub doctor --json      the same facts for a program"""
WIDTH: Final = 120
"""The maximum width of a line, in characters; a narrower terminal reduces it."""
_STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "red"}
_LEVEL_NAMES: Final = {"ok": "ok", "warn": "warn", "fail": "FAIL"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub doctor [--config F] [--fix [--yes | --confirm T]] [--json]`."""
    add_config_arguments(parser)
    parser.add_argument(
        "--fix", action="store_true", help="repair what can be undone: permissions of files, leftover sockets"
    )
    add_confirmation_arguments(parser, "the same facts as JSON")


def run(options: argparse.Namespace) -> int:
    """Runs all checks. Returns 1 if anything fails, 3 if a repair was not confirmed, 4 if its preview is stale."""
    set_up_logging(options.verbose, quiet=True)
    if (options.yes or options.confirm) and not options.fix:
        print("--yes and --confirm are for --fix; without it doctor only looks", file=sys.stderr)
        return BAD_INPUT
    report = _Report(as_json=options.json)
    for section in _sections(options, Machine.this()):
        report.take(section)
    return report.end(options)


def _sections(options: argparse.Namespace, machine: Machine) -> Iterator[Section]:
    yield installation_section(machine)
    section, loaded = configuration_section(options.config, options.overlays, machine)
    yield section
    config = loaded.config if loaded is not None else None
    if config is not None:
        hide_secrets_of(config)
    yield programs_section(config, machine)
    running, hubs = hubs_section()
    if loaded is not None:
        yield from _sections_of(loaded, ports_of(hubs), machine)
    yield clients_section(config, machine)
    yield running


def _sections_of(loaded: LoadedConfig, ports: set[int | str], machine: Machine) -> Iterator[Section]:
    config = loaded.config
    lists = Section("Lists", ())
    try:
        report = run_loop(examine(loaded, connect_all))
        servers, lists = server_section(report), lists_section(report)
    except ConfigError as error:  # such as of a record of pins that cannot be read
        text = f"none was started: {printable(str(error), MAX_PROBLEM)}"
        servers = Section("Servers", (fail("servers", text, error.hub_code),))
    yield servers
    yield lists
    yield sign_ins_section(config)
    yield listening_section(config, ports)
    yield files_section(config)
    yield machine_section(config, machine)


class _Report:
    """Prints each section as soon as it is complete, and counts the findings."""

    def __init__(self, *, as_json: bool) -> None:
        self._sections: list[Section] = []
        self._as_json = as_json

    def take(self, section: Section) -> None:
        if not section.findings:
            return
        self._sections.append(section)
        if not self._as_json:
            _print(section)

    def end(self, options: argparse.Namespace) -> int:
        """Prints the closing line, and with `--fix` makes the repairs. Returns the exit code."""
        findings = [finding for section in self._sections for finding in section.findings]
        failed = sum(finding.level == "fail" for finding in findings)
        warned = sum(finding.level == "warn" for finding in findings)
        fixable = [finding for finding in findings if finding.repair is not None]
        if not self._as_json:
            line = _closing_line(findings, failed, warned, 0 if options.fix else len(fixable))
            print("\n".join(_wrap(line, _columns())), flush=True)
        code = _repair(fixable, options) if options.fix else OK
        if self._as_json and code in (OK, FAILED):
            print(json_text({**self._facts(failed, warned), "repaired": options.fix and code == OK}))
        if code != OK:
            return code
        unrepaired = failed - sum(finding.level == "fail" for finding in fixable) if options.fix else failed
        return FAILED if unrepaired else OK

    def _facts(self, failed: int, warned: int) -> dict[str, Any]:
        sections = [
            {"title": section.title, "findings": [_as_json(finding) for finding in section.findings]}
            for section in self._sections
        ]
        return {"sections": sections, "failed": failed, "warned": warned}


def _as_json(finding: Finding) -> dict[str, Any]:
    repair = None if finding.repair is None else list(finding.repair.command)
    return {"level": finding.level, "about": finding.about, "text": finding.text, "code": finding.code, "fix": repair}


def _closing_line(findings: list[Finding], failed: int, warned: int, fixable: int) -> str:
    if not failed and not warned:
        return "All is well."
    problems = f"{failed} problem{'s' * (failed != 1)}, {warned} warning{'s' * (warned != 1)}."
    first = next(
        (finding.code for level in ("fail", "warn") for finding in findings if finding.level == level and finding.code),
        None,
    )
    if first is not None:
        problems += f" mcp-hub explain {first} says what to do about the first one."
    return problems + (f" mcp-hub doctor --fix can repair {fixable} of them." if fixable else "")


def _repair(fixable: list[Finding], options: argparse.Namespace) -> int:
    """Shows the repairs, asks for confirmation, and makes them. Returns OK, FAILED, UNCONFIRMED or STALE."""
    repairs = {finding.repair.command: finding.repair for finding in fixable if finding.repair is not None}
    if not repairs:
        print("There is nothing that --fix can repair.", file=sys.stderr)
        return OK
    notes = tuple(f"To go back: {repair.back}" for repair in repairs.values())
    code = confirm(Plan(commands=tuple(repairs), notes=notes), options, "Repair that?")
    if code != OK:
        return code
    for command, repair in repairs.items():
        try:
            repair.apply()
        except OSError as error:
            print(f"failed: {printable(shlex.join(command))}: {error.strerror}", file=sys.stderr)
            code = FAILED
    print("repaired" if code == OK else "not all could be repaired", file=sys.stderr)
    return code


def _columns() -> int:
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        return WIDTH
    return max(min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH), 40)


def _print(section: Section) -> None:
    """Prints one section; long lines are folded below their text."""
    from rich.console import Console
    from rich.text import Text

    columns = _columns()
    console = Console(width=columns, highlight=False, soft_wrap=True)
    console.print(Text(section.title, style="bold"))
    about_width = min(max((len(printable(finding.about)) for finding in section.findings), default=0), 24)
    for finding in section.findings:
        prefix = f"  {_LEVEL_NAMES[finding.level]:<5} {printable(finding.about, 100):<{about_width}}  "
        lines = _wrap(with_code(finding.text, finding.code), columns - len(prefix))
        line = Text(prefix)
        line.stylize(_STYLES[finding.level], 2, 7)
        line.append(lines[0])
        console.print(line)
        for continuation in lines[1:]:
            console.print(Text(" " * len(prefix) + continuation))
    console.print()


def _wrap(text: str, width: int) -> list[str]:
    lines = [
        part
        for line in text.split("\n")
        for part in textwrap.wrap(line, max(width, 20), break_on_hyphens=False, break_long_words=False) or [""]
    ]
    return lines or [""]
