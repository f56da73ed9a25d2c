"""What every command does first: find and read the configuration, set up logging, make the hub."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from mcp_hub.config import default_path, read_config
from mcp_hub.config.models import Config
from mcp_hub.hub import Hub
from mcp_hub.kept import KeptCatalogs, default_directory
from mcp_hub.policy.selection import EVERYTHING, Selection
from mcp_hub.text import printable

T = TypeVar("T")


class _Escaping(logging.Formatter):
    """One line per record, nothing in it that could steer a terminal; tracebacks of our own stay readable."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"mcp-hub: {record.levelname.lower()}: {printable(record.getMessage(), 4000)}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """`--config` and `-v`, the same for every command."""
    text = "configuration file (default: $MCP_HUB_CONFIG, ./servers.yaml, or the user's configuration directory)"
    parser.add_argument("--config", metavar="FILE", type=Path, help=text)
    parser.add_argument("-v", "--verbose", action="count", default=0, help="say more on stderr; twice: everything")


def set_up_logging(verbose: int, *, quiet: bool) -> None:
    """Log to stderr: warnings (`quiet`: only errors), with -v what happens, with -vv everything."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Escaping())
    logger = logging.getLogger("mcp_hub")
    logger.handlers[:] = [handler]
    logger.propagate = False
    least = logging.ERROR if quiet else logging.WARNING
    logger.setLevel({0: least, 1: logging.INFO}.get(verbose, logging.DEBUG))


def load(options: argparse.Namespace, *, quiet: bool = False) -> Config:
    """The configuration the options name. Raises ConfigError; warnings go to stderr.

    `quiet` is for commands that print themselves what else would be logged of servers.
    """
    set_up_logging(options.verbose, quiet=quiet)
    path = options.config or default_path(Path.cwd(), os.environ)
    loaded = read_config(path, os.environ)
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return loaded.config


def make_hub(config: Config, selection: Selection = EVERYTHING) -> Hub:
    """A hub that keeps its catalogs where the configuration says."""
    return Hub(config, kept=KeptCatalogs(config.cache_dir or default_directory()), selection=selection)


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where there is one."""
    if sys.platform != "win32":
        import uvloop

        return uvloop.run(work)
    return asyncio.run(work)
