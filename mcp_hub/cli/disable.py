"""`mcp-hub disable SERVER`: switch servers off and keep their entries."""

from __future__ import annotations

import argparse
from typing import Final

from mcp_hub.cli.enable import add_arguments, switch

__all__ = ["add_arguments", "run"]

EXAMPLES: Final = """example:
  mcp-hub disable time fetch"""


def run(options: argparse.Namespace) -> int:
    """Returns 0 when the servers are off. Raises ConfigError if one is not in the file; then none changes."""
    return switch(options, on=False)
