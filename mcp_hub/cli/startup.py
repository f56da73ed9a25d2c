"""What every command does first: find and read the configuration, set up logging, make the hub."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from mcp_hub.cli.log import LogHandler
from mcp_hub.config import Loaded, default_path, read_config
from mcp_hub.config.models import Config
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.hub.engine import Hub
from mcp_hub.observability.records import Records
from mcp_hub.policy.selection import EVERYTHING, Selection
from mcp_hub.security.redaction import Redaction
from mcp_hub.upstream.kept import KeptCatalogs, default_directory

T = TypeVar("T")


_handler = LogHandler()
"""The one the process has."""
_known: set[str] = set()
MAX_SECRETS = 10_000
"""Secrets of all configurations that were loaded."""


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """`--config` and `-v`, the same for every command."""
    text = "configuration file (default: $MCP_HUB_CONFIG, ./servers.yaml, or the user's configuration directory)"
    parser.add_argument("--config", metavar="FILE", type=Path, help=text)
    parser.add_argument("-v", "--verbose", action="count", default=0, help="say more on stderr; twice: everything")


def set_up_logging(verbose: int, *, quiet: bool) -> None:
    """Log to stderr: warnings (`quiet`: only errors), with -v what happens, with -vv everything."""
    logger = logging.getLogger("mcp_hub")
    logger.handlers[:] = [_handler]
    logger.propagate = False
    if not logging.root.handlers:
        logging.root.addHandler(_handler)  # for warnings of libraries, which may quote what they were given
    least = logging.ERROR if quiet else logging.WARNING
    logger.setLevel({0: least, 1: logging.INFO}.get(verbose, logging.DEBUG))


def load(options: argparse.Namespace, *, quiet: bool = False, advice: bool = False) -> Config:
    """The configuration the options name. Raises ConfigError; warnings go to stderr, and `advice` too if wanted.

    Whoever wants advice is told of files that are left out as of errors.

    `quiet` is for commands that print themselves what else would be logged of servers.
    """
    return load_with_files(options, quiet=quiet, advice=advice).config


def load_with_files(options: argparse.Namespace, *, quiet: bool = False, advice: bool = False) -> Loaded:
    """Like `load`, with the files that were read."""
    set_up_logging(options.verbose, quiet=quiet)
    path = options.config or default_path(Path.cwd(), os.environ)
    loaded = read_config(path, os.environ)
    keep_secret(loaded.config)
    for warning in (*loaded.warnings, *map(str, loaded.duplicates), *(loaded.advice if advice else ())):
        print(f"warning: {warning}", file=sys.stderr)
    for line in loaded.left_out:
        print(f"{'error' if advice else 'warning'}: {line}; the file is left out", file=sys.stderr)
    return loaded


def keep_secret(config: Config) -> None:
    """The log hides the secrets of this configuration too, besides those it knows."""
    _known.update(secrets_of(config))
    while len(_known) > MAX_SECRETS:
        _known.pop()
    _handler.redaction = Redaction({*_known, *secrets_of(config)})


@contextlib.contextmanager
def recording(config: Config, *, on_stderr: bool) -> Iterator[Records]:
    """Where the log and, if the configuration wants them, the records of calls go while the block runs.

    Records go to the file that is configured and, with `on_stderr`, to stderr.
    """
    calls = config.call_log
    keep_secret(config)
    file = calls.file if calls.enabled else None
    with Records(file, on_stderr and calls.enabled and calls.stderr) as records:
        _handler.records = records
        try:
            yield records
        finally:
            _handler.finish()


def make_hub(
    config: Config,
    selection: Selection = EVERYTHING,
    records: Records | None = None,
    *,
    groups: Iterable[str] = (),
    one_client: bool = False,
) -> Hub:
    """A hub that keeps its catalogs where the configuration says, and records its calls in `records`.

    `groups` are switched on.
    """
    kept = KeptCatalogs(config.cache_dir or default_directory())
    record = records.write if records is not None and config.call_log.enabled else None
    return Hub(config, kept=kept, selection=selection, record=record, groups=groups, one_client=one_client)


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where there is one."""
    if sys.platform != "win32":
        import uvloop

        return uvloop.run(work)
    return asyncio.run(work)
