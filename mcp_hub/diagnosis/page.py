"""Generates docs/codes.md and the pages behind its links from the table of codes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from mcp_hub.diagnosis import OF_CALLS, Remedy, remedies

INDEX: Final = "docs/codes.md"
PAGES: Final[Mapping[str, tuple[str, str]]] = {
    "codes-configuration": ("Codes of the configuration", "1"),
    "codes-servers": ("Codes of servers", "2349"),
    "codes-hub": ("Codes of the hub and its machine", "5678"),
}
"""Page in docs/reference -> its title, and the first digits of its codes."""
_GROUPS: Final = {
    "1": "The configuration",
    "2": "Servers that are processes",
    "3": "Servers on a network",
    "4": "Sign-ins and credentials",
    "5": "Listening",
    "6": "Running hubs and their files",
    "7": "This machine",
    "8": "Client programs",
    "9": "What servers list",
}
"""First digit of a code -> what these codes are about."""
_BEGINNING: Final = """# Codes

`mcp-hub check`, `mcp-hub doctor`, `mcp-hub status` and a hub that refuses to start report problems with a code.
`mcp-hub explain HUB-201` prints the cause and what to do. The links below lead to the same text. A code never
changes its meaning.

The results of failed calls have [other codes](failures.md#codes-of-failed-calls). If you know the symptom but no code,
begin with [When it does not work](operate.md#when-it-does-not-work).

{groups}

`scripts/reference` generates this page and the pages behind its links from `mcp_hub/diagnosis/codes.toml`.
"""
_BEGINNING_OF_PAGE: Final = """# {title}

This page has the cause and the cure of each code. [All codes](../codes.md) lists the titles.
"""


def anchor(code: str) -> str:
    """Returns the path and anchor of a code's section, such as `docs/reference/codes-servers.md#hub-201`."""
    if code in remedies(OF_CALLS):
        return "docs/failures.md#codes-of-failed-calls"
    return f"docs/reference/{_page_of(code)}.md#{code.lower()}"


def pages() -> Iterator[tuple[str, str]]:
    """Yields the path of each page in the repository, and its text as Markdown."""
    yield INDEX, _index()
    for name, (title, digits) in PAGES.items():
        sections = (f"### {code}\n\n{_paragraph(remedy)}\n" for code, remedy in remedies().items() if code[4] in digits)
        yield f"docs/reference/{name}.md", "\n".join([_BEGINNING_OF_PAGE.format(title=title), *sections])


def _page_of(code: str) -> str:
    return next(name for name, (_, digits) in PAGES.items() if code[4] in digits)


def _index() -> str:
    links = (f"[HUB-{digit}nn: {title}](#{_heading_anchor(title)})" for digit, title in _GROUPS.items())
    parts, group = [_BEGINNING.format(groups=" ·\n".join(links))], ""
    for code, remedy in remedies().items():
        if code[4] != group:
            group = code[4]
            parts.append(f"\n## {_GROUPS[group]}\n\n| code | means |\n|---|---|\n")
        address = anchor(code).removeprefix("docs/")
        parts.append(f"| [{code}]({address}) | {remedy.title} |\n")
    return "".join(parts)


def _heading_anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _paragraph(remedy: Remedy) -> str:
    fix = "" if remedy.fix is None else f" `mcp-hub doctor --fix` {remedy.fix}."
    return f"**{remedy.title}.** {remedy.cause} *What to do:* {remedy.cure}{fix}"
