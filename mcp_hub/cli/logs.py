"""`mcp-hub logs`: show the calls of a running hub, and what its servers write to stderr."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from mcp_hub.cli import OK
from mcp_hub.cli.open import add_hub_arguments, chosen_hub, refused
from mcp_hub.text import json_escaped, printable

EXAMPLES = """examples:
  mcp-hub logs                    the last calls, and the last stderr lines of each server
  mcp-hub logs -f                 the same, then new ones until Ctrl-C
  mcp-hub logs -f --server github    only one server
  mcp-hub logs -f --json | jq .   a JSON object per line"""

PATIENCE = 30.0
"""Seconds to wait for the hub's answer without `--follow`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub logs [-f] [--server X] [--config F] [--pid N] [--json]`."""
    parser.add_argument("-f", "--follow", action="store_true", help="continue with new calls and lines, until Ctrl-C")
    parser.add_argument("--server", metavar="NAME", help="only calls to this server and its stderr")
    add_hub_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per line: a record, or a line of stderr")


def run(options: argparse.Namespace) -> int:
    """Prints the stored calls and lines, and with `--follow` new ones. Raises HubError if no hub runs."""
    from mcp_hub.hub.hub_status import ask_hub

    hub, request = chosen_hub(options), {"ask": "logs", "server": options.server, "follow": options.follow}
    count = 0
    since = None
    for answer in ask_hub(hub["pid"], request, patience=None if options.follow else PATIENCE):
        if "since" in answer and "record" not in answer:
            since = answer["since"]
            continue
        text = _text(answer, as_json=options.json)
        if text is None:
            raise refused(answer, hub)
        print(text, flush=True)
        count += 1
    if not count and not options.json and not options.follow:
        text = "no call is kept yet; calls are kept in memory only while somebody watches"
        print(f"{text}, since {printable(str(since))}. `mcp-hub logs -f` watches.", file=sys.stderr)
    return OK


def _text(answer: dict[str, Any], *, as_json: bool) -> str | None:
    """Returns an answer of the hub as a line of text; None if its kind is unknown."""
    if isinstance(record := answer.get("record"), dict):
        from mcp_hub.observability.records import readable_record

        return json_escaped(json.dumps(record, ensure_ascii=False)) if as_json else readable_record(record)
    if "stderr" in answer:
        if as_json:
            return json_escaped(json.dumps({"event": "stderr", **answer}, ensure_ascii=False))
        return f"{printable(str(answer.get('server')), 100)} | {printable(str(answer['stderr']), 1000)}"
    if "dropped" in answer:
        event = {"event": "dropped", "count": answer["dropped"]}
        return json.dumps(event) if as_json else f"… {answer['dropped']} calls came too fast to be shown"
    return None
