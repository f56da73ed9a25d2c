"""`mcp-hub explain`: print what a code means and what to do about it."""

from __future__ import annotations

import argparse
import re
import textwrap

from mcp_hub.cli import OK, json_text
from mcp_hub.config.findings import nearest
from mcp_hub.diagnosis import OF_CALLS, Remedy, remedies
from mcp_hub.errors import ConfigError
from mcp_hub.text import printable

EXAMPLES = """examples:
  mcp-hub explain HUB-201    the cause, and what to do
  mcp-hub explain timeout    the same for the code of a failed call
  mcp-hub explain            all codes with their titles"""
WIDTH = 100
"""The maximum width of a line, in characters; a narrower terminal reduces it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub explain [CODE...] [--json]`."""
    parser.add_argument("code", nargs="*", metavar="CODE", help="a code such as HUB-201, or its number (default: all)")
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def run(options: argparse.Namespace) -> int:
    """Prints cause and remedy of each given code, or the titles of all. Raises ConfigError for an unknown code."""
    from mcp_hub.diagnosis.page import anchor

    by_code = remedies() | remedies(OF_CALLS)
    codes = [_code_of(argument, by_code) for argument in options.code]
    if options.json:
        facts = [
            {"code": code, **{name: getattr(by_code[code], name) for name in Remedy.__struct_fields__}}
            for code in codes or by_code
        ]
        print(json_text([{**fact, "page": anchor(fact["code"])} for fact in facts]))
        return OK
    if not codes:
        for code, remedy in by_code.items():
            print(f"{code}  {remedy.title}")
    for number, code in enumerate(codes):
        print(*[""] * (number > 0), sep="\n", end="\n" if number else "")
        _print(code, by_code[code], anchor(code))
    return OK


def _code_of(argument: str, by_code: dict[str, Remedy]) -> str:
    match = re.fullmatch(r"(?:HUB-?)?(\d{3})", argument.strip(), re.IGNORECASE)
    code = argument.strip().lower() if match is None else f"HUB-{match[1]}"
    if code not in by_code:
        hint = (
            f"did you mean {close}?"
            if (close := nearest(code, remedies(OF_CALLS)))
            else "`mcp-hub explain` lists them all"
        )
        raise ConfigError(f"there is no code {printable(argument, 40)!r}; {hint}")
    return code


def _print(code: str, remedy: Remedy, page: str) -> None:
    import shutil

    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    print(f"{code}: {remedy.title}")
    parts = [("Why", remedy.cause), ("What to do", remedy.cure)]
    if remedy.fix is not None:
        parts.append(("mcp-hub doctor --fix", f"It {remedy.fix}."))
    for title, text in parts:
        print(f"\n{title}:")
        print(textwrap.fill(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))
    print(f"\nMore: {page}")
