"""The page of all codes, docs/codes.md, made of their table."""

from __future__ import annotations

from typing import Final

from mcp_hub.diagnosis import Remedy, remedies

PAGE: Final = "docs/codes.md"
_GROUPS: Final = {
    "1": "The configuration",
    "2": "Servers that are processes",
    "3": "Servers on a network",
    "4": "Sign-ins and credentials",
    "5": "Listening",
    "6": "The hub's own files, and hubs that run",
    "7": "This machine",
    "8": "Client programs",
    "9": "What servers list",
}
"""First digit of a code -> what these codes are about."""
_BEGINNING: Final = """# Codes

`mcp-hub check`, `mcp-hub doctor` and a hub that refuses to start name a code with what they report. There is one
for each distinct cure, and it never changes its meaning. `mcp-hub explain CODE` prints what stands here. Answers to
clients have [other codes](failures.md#codes-of-failed-calls).

This page is made by `scripts/reference` of `mcp_hub/diagnosis/codes.toml`.
"""


def anchor(code: str) -> str:
    """Returns where the section of a code is, such as `docs/codes.md#hub-201`."""
    return f"{PAGE}#{code.lower()}"


def page() -> str:
    """Returns the whole page as Markdown."""
    parts, group = [_BEGINNING], ""
    for code, remedy in remedies().items():
        if code[4] != group:
            group = code[4]
            parts.append(f"## {_GROUPS[group]}\n")
        parts.append(_section(code, remedy))
    return "\n".join(parts)


def _section(code: str, remedy: Remedy) -> str:
    fix = "" if remedy.fix is None else f" `mcp-hub doctor --fix` {remedy.fix}."
    return f"### {code}\n\n**{remedy.title}.** {remedy.cause} *What to do:* {remedy.cure}{fix}\n"


if __name__ == "__main__":
    print(page(), end="")
