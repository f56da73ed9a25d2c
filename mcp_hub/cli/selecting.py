"""`--profile`, `--tool-set`, `--tag` and `--group`: what of the configuration a command is about."""

from __future__ import annotations

import argparse

from mcp_hub.config.models import Config
from mcp_hub.policy.selection import Selection, select


def add_selection_arguments(parser: argparse.ArgumentParser) -> None:
    """The three options, the same for every command that has them."""
    parser.add_argument("--profile", metavar="NAME", help="only what this profile of the configuration has")
    parser.add_argument(
        "--tool-set", metavar="NAME", action="append", default=[], help="only the tools of this set (may be repeated)"
    )
    parser.add_argument(
        "--tag",
        metavar="TAG",
        action="append",
        default=[],
        help="only tools with this tag (repeated: any of them)",
    )


def add_group_argument(parser: argparse.ArgumentParser, text: str) -> None:
    """`--group`; each command says what for."""
    parser.add_argument("--group", metavar="NAME", action="append", default=[], help=text)


def chosen(options: argparse.Namespace, config: Config) -> Selection:
    """What the options select. Raises ConfigError for a name the configuration does not have."""
    return select(config, options.profile, options.tool_set, options.tag)
