"""`mcp-hub reload`: have a running hub read its configuration again."""

from __future__ import annotations

import argparse
from typing import Any

from mcp_hub.cli import FAILED, OK, json_text
from mcp_hub.cli.open import add_hub_arguments, matching_hubs, refused
from mcp_hub.text import printable

EXAMPLES = """examples:
  mcp-hub reload                    the hub that is running
  mcp-hub reload --config F         the one that serves this file"""

PATIENCE = 60.0
"""Seconds to wait until a hub has read its files and started what is new."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub reload [--config F] [--pid N] [--json]`."""
    add_hub_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print what each hub did as JSON")


def run(options: argparse.Namespace) -> int:
    """Returns 1 if a hub keeps its previous configuration. Raises HubError if no hub runs or one does not answer."""
    from mcp_hub.hub.hub_status import ask_hub

    outcomes: list[dict[str, Any]] = []
    for hub in matching_hubs(options):
        answer = next(ask_hub(hub["pid"], {"ask": "reload"}, patience=PATIENCE), {})
        if "generation" not in answer:
            raise refused(answer, hub)
        outcomes.append({"pid": hub["pid"], "changed": answer.get("changed"), "problem": answer.get("problem")})
    if options.json:
        print(json_text(outcomes))
    for outcome in outcomes if not options.json else ():
        if outcome["problem"] is not None:
            print(f"hub {outcome['pid']} keeps its configuration: {printable(str(outcome['problem']), 4000)}")
        else:
            sentences = "; ".join(map(str, outcome["changed"] or ()))
            print(f"hub {outcome['pid']} has read its configuration again: {printable(sentences, 4000)}")
    return FAILED if any(outcome["problem"] is not None for outcome in outcomes) else OK
