"""`mcp-hub disable SERVER`: switch a server off and keep its entry."""

from __future__ import annotations

import argparse
from typing import Final

from mcp_hub.cli.enable import add_arguments, switch

__all__ = ["add_arguments", "run"]

EXAMPLES: Final = """example:
  mcp-hub disable time"""


def run(options: argparse.Namespace) -> int:
    """Returns 0 when the server is off. Raises ConfigError if the server is not in the file."""
    return switch(options, on=False)
