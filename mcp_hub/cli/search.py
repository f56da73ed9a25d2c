"""`mcp-hub search WORD`: find servers in the bundled list and in the registry, with what each of them needs."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from mcp_hub.cli import FAILED, OK, json_text
from mcp_hub.cli.startup import root_egress, run_loop
from mcp_hub.registry import Listing, Offer, Package, RegistryError, UserInput, inputs_of
from mcp_hub.registry.launch import needed_program, transport_of
from mcp_hub.registry.sources import SEED, Found, Seed, registry_of
from mcp_hub.text import printable

SHOWN: Final = 40
"""The maximum number of servers that are printed without `--json`."""
EXAMPLES: Final = """examples:
  mcp-hub search time
  mcp-hub search github --json
  MCP_HUB_REGISTRY=~/registry mcp-hub search weather    a directory of server.json files

environment:
  MCP_HUB_REGISTRY  address or directory of the registry (default: https://registry.modelcontextprotocol.io)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub search WORD [--json]`."""
    parser.add_argument("word", help="part of a name; in the bundled list also of a description")
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def run(options: argparse.Namespace) -> int:
    """Returns 0 if something was found; 1 if nothing was, or the registry could not be asked."""
    listings, problems = run_loop(_search(options.word))
    if options.json:
        print(json_text({"servers": [_facts(listing) for listing in listings], "problems": problems}))
    else:
        for line in _lines(listings[:SHOWN]):
            print(line)
        if len(listings) > SHOWN:
            print(f"\n{len(listings) - SHOWN} more; a longer word finds fewer, --json prints all")
        if usable := [listing for listing in listings[:SHOWN] if listing.offers]:
            which = "the first of them" if usable[0] is listings[0] else "the first that can be used"
            print(f"\nmcp-hub add {_name_to_add(usable[0])} adds {which}")
    for problem in problems:
        print(f"warning: {printable(problem, 1000)}", file=sys.stderr)
    if not listings and not options.json:
        print(f"nothing is called {printable(options.word, 100)!r}", file=sys.stderr)
    return OK if listings else FAILED


async def _search(word: str) -> tuple[list[Listing], list[str]]:
    seed_result = await Seed().search(word)
    try:
        registry_result = await registry_of(os.environ, Path.home(), root_egress(None)).search(word)
    except RegistryError as error:
        registry_result = Found((), (str(error),))
    usable = [listing for listing in registry_result.listings if listing.status != "deleted"]
    found = [*seed_result.listings, *usable]
    return sorted(found, key=lambda listing: _rank(listing, word.casefold())), list(registry_result.problems)


def _rank(listing: Listing, word: str) -> int:
    """Returns how far the name of a server is from a word: 0 if it is the word, 1 if it has it as a part, ...

    What stands before its last slash is who publishes it: nearly every name there begins with `io.github`.
    """
    name = listing.name.rpartition("/")[2].casefold()
    degrees = (name == word, word in re.split(r"[^a-z0-9]+", name), word in name)
    return next((rank for rank, holds in enumerate(degrees) if holds), len(degrees))


def _name_to_add(listing: Listing) -> str:
    return listing.short_name if listing.source == SEED else listing.name


def _facts(listing: Listing) -> dict[str, Any]:
    return {
        "name": _name_to_add(listing),
        "version": _version(listing),
        "title": listing.title,
        "description": listing.description,
        "source": listing.source,
        "status": listing.status,
        "offers": [_offer_facts(offer) for offer in listing.offers],
        "refused": [printable(reason, 500) for reason in listing.refused],
    }


def _offer_facts(offer: Offer) -> dict[str, Any]:
    inputs = [
        {
            "name": item.name,
            "required": item.required,
            "secret": item.secret,
            "default": item.default,
            "choices": list(item.choices),
            "description": item.description,
        }
        for item in inputs_of(offer)
    ]
    facts: dict[str, Any] = {"transport": transport_of(offer), "program": needed_program(offer), "inputs": inputs}
    if isinstance(offer, Package):
        return {"kind": offer.kind, "package": offer.identifier, "version": offer.version, **facts}
    return {"kind": "remote", "url": "".join(_piece_text(piece) for piece in offer.url.pieces), **facts}


def _piece_text(piece: str | UserInput) -> str:
    return f"{{{piece.name}}}" if isinstance(piece, UserInput) else piece


def _version(listing: Listing) -> str | None:
    """Returns the version that would run; None for a remote server."""
    first = listing.offers[0] if listing.offers else None
    return first.version if isinstance(first, Package) else None


def needs_text(listing: Listing) -> str:
    """Returns what the first offer of a listing needs, in words."""
    if not listing.offers:
        return f"cannot be used: {listing.refused[0]}" if listing.refused else "offers nothing to connect to"
    offer = listing.offers[0]
    program = needed_program(offer)
    required = [f"{item.name}{' (secret)' if item.secret else ''}" for item in inputs_of(offer) if item.required]
    return ", ".join([*([program] if program else []), *required]) or "nothing"


def _lines(listings: list[Listing]) -> list[str]:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 160
    lines = []
    for listing in listings:
        status = "" if listing.status == "active" else f"  ({listing.status})"
        transport = transport_of(listing.offers[0]) if listing.offers else "-"
        lines.append(f"{_name_to_add(listing)}  {_version(listing) or '-'}  {transport}  from {listing.source}{status}")
        lines.append(printable(f"    {listing.description}", max(width - 1, 40)).rstrip())
        lines.append(printable(f"    needs: {needs_text(listing)}", max(width - 1, 40)))
    return lines
