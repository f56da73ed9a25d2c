"""`mcp-hub doctor`: look at the configuration, its servers and the machine, and say what to do about what is wrong."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from mcp_hub.cli import BAD_INPUT, FAILED, OK, UNCONFIRMED, json_text
from mcp_hub.cli.report import connect_all
from mcp_hub.cli.startup import add_config_arguments, hide_secrets_of, run_loop, set_up_logging
from mcp_hub.codes import with_code
from mcp_hub.config import LoadedConfig
from mcp_hub.diagnosis import Finding, Section
from mcp_hub.diagnosis.configuration import configuration_section
from mcp_hub.diagnosis.installation import installation_section, machine_section
from mcp_hub.diagnosis.listening import listening_section
from mcp_hub.diagnosis.probes import Machine
from mcp_hub.diagnosis.programs import programs_section
from mcp_hub.diagnosis.servers import examine, server_section
from mcp_hub.diagnosis.sign_ins import sign_ins_section
from mcp_hub.diagnosis.state import files_section, hubs_section, ports_of
from mcp_hub.text import printable

EXAMPLES = """examples:
  mcp-hub doctor             look at everything
  mcp-hub doctor --fix       show what it can repair itself, ask, and do it
  mcp-hub doctor --json      the same facts for a program"""
WIDTH: Final = 120
"""Characters of a line, as long as the terminal is not narrower."""
_STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "red"}
_WORDS: Final = {"ok": "ok", "warn": "warn", "fail": "FAIL"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub doctor [--config F] [--fix [--yes]] [--json]`."""
    parser.epilog = f"{EXAMPLES}\n\n{parser.epilog}"
    add_config_arguments(parser)
    parser.add_argument("--fix", action="store_true", help="repair what can be undone: rights of files, leftovers")
    parser.add_argument("--yes", action="store_true", help="with --fix: do not ask")
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def run(options: argparse.Namespace) -> int:
    """Looks at everything. Returns 1 if anything fails, 3 if a repair was not confirmed."""
    set_up_logging(options.verbose, quiet=True)
    if options.yes and not options.fix:
        print("--yes is for --fix, which repairs something; without it doctor only looks", file=sys.stderr)
        return BAD_INPUT
    report = _Report(as_json=options.json)
    for section in _sections(options, Machine.this()):
        report.take(section)
    return report.end(fix=options.fix, confirmed=options.yes)


def _sections(options: argparse.Namespace, machine: Machine) -> Iterator[Section]:
    yield installation_section(machine)
    section, loaded = configuration_section(options.config, machine)
    yield section
    running, hubs = hubs_section()
    if loaded is not None:
        yield from _sections_of(loaded, ports_of(hubs), machine)
    yield running


def _sections_of(loaded: LoadedConfig, ports: set[int], machine: Machine) -> Iterator[Section]:
    config = loaded.config
    hide_secrets_of(config)
    yield programs_section(config, machine)
    report = run_loop(examine(loaded, connect_all))
    yield server_section(report)
    yield sign_ins_section(config)
    yield listening_section(config, ports)
    yield files_section(config)
    yield machine_section(config, {fact["server"]: fact["code"] for fact in report.servers}, machine)


class _Report:
    """Prints sections as they come, and counts."""

    def __init__(self, *, as_json: bool) -> None:
        self._sections: list[Section] = []
        self._as_json = as_json

    def take(self, section: Section) -> None:
        self._sections.append(section)
        if not self._as_json:
            _print(section)

    def end(self, *, fix: bool, confirmed: bool) -> int:
        """Prints the closing line, and repairs what can be repaired if that is wanted. Returns the exit code."""
        found = [finding for section in self._sections for finding in section.findings]
        failed = sum(finding.level == "fail" for finding in found)
        warned = sum(finding.level == "warn" for finding in found)
        fixable = [finding for finding in found if finding.repair is not None]
        if self._as_json:
            print(json_text(self._facts(failed, warned)))
        else:
            print(_closing_line(found, failed, warned, 0 if fix else len(fixable)))
        if fix and not (done := _repaired(fixable, confirmed=confirmed)):
            return UNCONFIRMED if done is None else FAILED
        left = failed - sum(finding.level == "fail" for finding in fixable) if fix else failed
        return FAILED if left else OK

    def _facts(self, failed: int, warned: int) -> dict[str, Any]:
        sections = [
            {"title": section.title, "findings": [_as_json(finding) for finding in section.findings]}
            for section in self._sections
        ]
        return {"sections": sections, "failed": failed, "warned": warned}


def _as_json(finding: Finding) -> dict[str, Any]:
    repair = None if finding.repair is None else finding.repair.text
    return {"level": finding.level, "about": finding.about, "text": finding.text, "code": finding.code, "fix": repair}


def _closing_line(found: list[Finding], failed: int, warned: int, fixable: int) -> str:
    if not failed and not warned:
        return "All is well."
    problems = f"{failed} problem{'s' * (failed != 1)}, {warned} warning{'s' * (warned != 1)}."
    first = next((one.code for level in ("fail", "warn") for one in found if one.level == level and one.code), None)
    if first is not None:
        problems += f" mcp-hub explain {first} says what to do about the first one."
    return problems + (f" mcp-hub doctor --fix can repair {fixable} of them." if fixable else "")


def _repaired(fixable: list[Finding], *, confirmed: bool) -> bool | None:
    """Shows the repairs, asks, and makes them. Returns whether all succeeded; None if they were not confirmed."""
    repairs = {finding.repair.text: finding.repair for finding in fixable if finding.repair is not None}
    if not repairs:
        print("There is nothing that --fix can repair.", file=sys.stderr)
        return True
    print("\nRepairs:", file=sys.stderr)
    for text in repairs:
        print(f"  {text}", file=sys.stderr)
    if not confirmed and not _is_agreed():
        print("Nothing was changed; --yes confirms.", file=sys.stderr)
        return None
    well = True
    for text, repair in repairs.items():
        try:
            repair.apply()
        except OSError as error:
            well = False
            print(f"failed: {text}: {error.strerror}", file=sys.stderr)
    print("Done." if well else "Some repairs failed.", file=sys.stderr)
    return well


def _is_agreed() -> bool:
    """Asks at a terminal; returns False where there is nobody to ask."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print("Do that? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _print(section: Section) -> None:
    """Prints one section; long lines are folded below their text."""
    from rich.console import Console
    from rich.text import Text

    columns = shutil.get_terminal_size((WIDTH, 24)).columns
    console = Console(width=max(columns, 40), highlight=False, soft_wrap=True)
    console.print(Text(section.title, style="bold"))
    about = min(max((len(printable(one.about)) for one in section.findings), default=0), 24)
    for one in section.findings:
        head = f"  {_WORDS[one.level]:<5} {printable(one.about, 100):<{about}}  "
        lines = _folded(with_code(one.text, one.code), max(min(columns, WIDTH), 40) - len(head))
        line = Text(head)
        line.stylize(_STYLES[one.level], 2, 7)
        line.append(lines[0])
        console.print(line)
        for more in lines[1:]:
            console.print(Text(" " * len(head) + more))
    console.print()


def _folded(text: str, width: int) -> list[str]:
    lines = [
        part
        for line in text.split("\n")
        for part in textwrap.wrap(line, max(width, 20), break_on_hyphens=False, break_long_words=False) or [""]
    ]
    return lines or [""]
