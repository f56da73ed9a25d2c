"""What every command does first: read its options and the configuration, set up the log, make the hub."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mcp_hub.codes import DUPLICATE, FILE_LEFT_OUT, CodedText, code_of, with_code
from mcp_hub.config import LoadedConfig, default_path, user_directory
from mcp_hub.config.config_files import read_document
from mcp_hub.config.dialect import FILE_NAMES
from mcp_hub.config.discovery import NAMED, FoundConfig, find_config, not_trusted
from mcp_hub.config.models import Config
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.config.settings import Exposed
from mcp_hub.errors import ConfigError
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import EngineOptions, read_config
from mcp_hub.observability.records import RecordWriter, log_line
from mcp_hub.policy.selection import EVERYTHING, Selection, select
from mcp_hub.policy.trace import CALL_LOG
from mcp_hub.security.redaction import Redactor
from mcp_hub.text import printable
from mcp_hub.upstream.catalog_cache import CatalogCache

if TYPE_CHECKING:
    from mcp_hub.transport.egress import Egress


def add_selection_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--profile`, `--tool-set` and `--tag`."""
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
    """Adds `--group`, whose meaning differs by command."""
    parser.add_argument("--group", metavar="NAME", action="append", default=[], help=text)


def read_selection(options: argparse.Namespace, config: Config) -> Selection:
    """Returns the selection of the options. Raises ConfigError for unknown names."""
    return select(config, options.profile, options.tool_set, options.tag)


MAX_REPEATS: Final = 10
"""Log lines of one kind that are shown in `REPEAT_WINDOW` seconds; further ones are counted. Lines of one kind have the
same logger, level, unformatted text and first argument, which mostly is the name of a server."""
REPEAT_WINDOW: Final = 1.0
MAX_LINE: Final = 4000
MAX_KINDS: Final = 256
_MAX_TRACEBACK: Final = 200

_Kind = tuple[str, int, str, str]


class RepeatFilter:
    """Limits repeated log lines: a few of each kind are shown, the others are counted."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[_Kind, tuple[float, int]] = {}
        """Kind -> (start of its window, lines since)."""

    def admits(self, record: logging.LogRecord) -> bool:
        """Returns whether a record is shown."""
        first = record.args[0] if isinstance(record.args, tuple) and record.args else ""
        kind = (record.name, record.levelno, str(record.msg)[:MAX_LINE], first[:200] if isinstance(first, str) else "")
        if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
            kind = ("", record.levelno, "", "")  # further kinds share one
        started_at, count = self._kinds.get(kind, (self._clock(), 0))
        self._kinds[kind] = started_at, count + 1
        return count < MAX_REPEATS

    def summaries(self, *, all: bool = False) -> list[tuple[int, str]]:
        """Returns (level, text) on the lines that were not shown, for each kind whose window has ended."""
        now, summaries = self._clock(), []
        for kind, (started_at, count) in list(self._kinds.items()):
            if all or now - started_at >= REPEAT_WINDOW:
                del self._kinds[kind]
                if count > MAX_REPEATS:
                    prefix = f"{kind[3]}: " if kind[3] else ""
                    summaries.append((kind[1], f"{prefix}{count - MAX_REPEATS:,} more lines like this: {kind[2]}"))
        return summaries


class LogHandler(logging.Handler):
    """The log on stderr: one line per record, without secrets and control characters, of bounded length.

    It writes through `records` once they are set, which never blocks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.redaction = Redactor()
        self.records: RecordWriter | None = None
        self.timed = False
        """Whether lines begin with the local time and its zone. They do for `serve`, and not for short commands."""
        self._repeats = RepeatFilter()

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line, and the traceback if there is one."""
        try:
            self._say(self._repeats.summaries())
            if self._repeats.admits(record):
                self._line(self._safe(record.levelno, record.getMessage()) + self._traceback(record))
        except Exception as error:
            self._line(f"mcp-hub: error: a line of the log could not be written ({type(error).__name__})")

    def finish(self) -> None:
        """Writes the pending counts, and writes to stderr directly from now on."""
        self._say(self._repeats.summaries(all=True))
        self.records = None

    def _say(self, summaries: list[tuple[int, str]]) -> None:
        for level, text in summaries:
            self._line(self._safe(level, text))

    def _safe(self, level: int, text: str) -> str:
        name = logging.getLevelName(level).lower()
        safe_text = printable(self.redaction.text(text[: 4 * MAX_LINE]), MAX_LINE)
        return log_line(name, safe_text) if self.timed else f"mcp-hub: {name}: {safe_text}"

    def _traceback(self, record: logging.LogRecord) -> str:
        if not record.exc_info:
            return ""
        lines = logging.Formatter().formatException(record.exc_info).splitlines()[-_MAX_TRACEBACK:]
        return "".join(f"\n{printable(self.redaction.text(line[: 4 * MAX_LINE]), MAX_LINE)}" for line in lines)

    def _line(self, text: str) -> None:
        if self.records is not None:
            self.records.line(text)
        elif sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):
                print(text, file=sys.stderr, flush=True)


T = TypeVar("T")


_handler = LogHandler()
"""The log handler of the process."""
_known_secrets: set[str] = set()
MAX_SECRETS = 10_000
"""The maximum number of secrets, over all loaded configurations, that the log hides."""


_CONFIG_HELP: Final = (
    "configuration file (default: $MCP_HUB_CONFIG, ./servers.yaml, or the user's configuration directory); may be "
    "repeated: values of later files win"
)


def add_config_arguments(parser: argparse.ArgumentParser, text: str = _CONFIG_HELP) -> None:
    """Adds `--config`. `options.config` is the first file; `options.overlays` are further ones, whose values win."""
    parser.set_defaults(overlays=[], found=None)
    parser.add_argument("--config", metavar="FILE", type=Path, action=ConfigFiles, help=text)


class ConfigFiles(argparse.Action):
    """Keeps the first file in `config`, and the others in `overlays`."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        """Takes one file."""
        if namespace.config is None:
            namespace.config = values
        else:
            namespace.overlays = [*namespace.overlays, values]


def path_to_edit(options: argparse.Namespace, *, alone: bool = False) -> Path:
    """Returns the configuration file that a command changes: the one in use, else a new one in the user's directory.

    Raises ConfigError if `alone` is set and several files are given.
    """
    if alone and options.overlays:
        raise ConfigError("this command changes one file: name it by a single --config")
    if options.config is not None:
        return Path.cwd() / Path(options.config)
    found = found_config(options)
    if found.path is not None:
        return found.path
    path = user_directory(os.environ) / FILE_NAMES[0]
    if found.untrusted is not None:
        _tell_untrusted(found.untrusted, path)
    return path


def config_path(options: argparse.Namespace) -> Path:
    """Returns the configuration file that a command reads. Raises ConfigError if there is none."""
    return options.config or found_config(options).required(Path.cwd(), os.environ)


def found_config(options: argparse.Namespace, *, told: bool = False) -> FoundConfig:
    """Finds the configuration of a command, once. `NAMED` with `--config`.

    Whether to trust a file of the working directory is asked at a terminal. Without one, or after a no, a line says
    that it is not used. `told`: another process does that.
    """
    if options.config is not None:
        return NAMED
    found: FoundConfig | None = options.found
    if found is not None:
        return found
    found = find_config(Path.cwd(), os.environ)
    if (untrusted := found.untrusted) is not None and not told:
        from mcp_hub.cli.trust import offer

        if offer(untrusted):
            found = FoundConfig(untrusted, is_in_project=True)
        elif found.path is not None:
            _tell_untrusted(untrusted, found.path)
    options.found = found
    return found


def _tell_untrusted(untrusted: Path, used: Path) -> None:
    text = f"{with_code(not_trusted(untrusted))}. Used instead: {printable(str(used), 500)}"
    print(f"warning: {text}", file=sys.stderr)


def set_up_logging(verbose: int, *, quiet: bool) -> None:
    """Logs to stderr: warnings, with -v information, with -vv everything.

    `quiet` is for a command that ends soon: only errors, and no times.
    """
    _handler.timed = not quiet
    logger = logging.getLogger("mcp_hub")
    logger.handlers[:] = [_handler]
    logger.propagate = False
    if not logging.root.handlers:
        logging.root.addHandler(_handler)  # for warnings of libraries, which may quote secrets
    lowest_level = logging.ERROR if quiet else logging.WARNING
    logger.setLevel({0: lowest_level, 1: logging.INFO}.get(verbose, logging.DEBUG))


def load(options: argparse.Namespace, *, quiet: bool = False, advice: bool = False) -> Config:
    """Reads the configuration of the options, and prints its warnings to stderr. Raises ConfigError.

    `quiet` logs only errors, for commands that print the state of servers themselves. `advice` also prints advice, and
    reports files that are left out as errors.
    """
    return load_with_files(options, quiet=quiet, advice=advice).config


def load_with_files(
    options: argparse.Namespace, *, quiet: bool = False, advice: bool = False, told: bool = False, strict: bool = False
) -> LoadedConfig:
    """Does the same as `load`, and also returns the files it read. `told`: another process prints the warnings.

    With `strict`, raises ConfigError after the warnings if there are any.
    """
    set_up_logging(options.verbose, quiet=quiet)
    found = found_config(options, told=told)
    loaded = read_config(config_path(options), os.environ, overlays=options.overlays, found=found)
    hide_secrets_of(loaded.config)
    if told:
        return loaded
    # The table of `check` has the reasons why servers are switched off.
    off_reasons = [
        f": {server.disabled_reason}" for server in loaded.config.servers if advice and server.disabled_reason
    ]
    duplicates = [CodedText(str(duplicate), DUPLICATE) for duplicate in loaded.duplicates]
    for warning in (*loaded.warnings, *duplicates, *(loaded.advice if advice else ())):
        if not str(warning).endswith(tuple(off_reasons)):
            print(f"warning: {with_code(warning)}", file=sys.stderr)
    for line in loaded.left_out:
        text = with_code(f"{line}; the file is left out", FILE_LEFT_OUT)
        print(f"{'error' if advice else 'warning'}: {text}", file=sys.stderr)
    if strict and (messages := loaded.messages):
        text = "with --strict the hub does not start beside the warnings above"
        raise ConfigError(text, code_of(messages[0]) or DUPLICATE)
    return loaded


def root_egress(path: Path | None) -> Egress:
    """Returns the Egress with the `proxy` of a configuration; without one, that of the environment."""
    from mcp_hub.config.egress_settings import EgressSettings
    from mcp_hub.transport.egress import Egress

    try:
        path = path or default_path(Path.cwd(), os.environ)
        tree = read_document(path).tree
        if not isinstance(tree, dict) or tree.get("proxy") is None:
            return Egress.of()  # reads no secrets of servers
        config = read_config(path, os.environ).config
    except ConfigError:
        return Egress.of()
    hide_secrets_of(config)
    return Egress.of(EgressSettings(proxy=config.proxy))


def hide_secrets_of(config: Config) -> None:
    """Makes the log hide the secrets of this configuration and of earlier ones."""
    _known_secrets.update(secrets_of(config))
    while len(_known_secrets) > MAX_SECRETS:
        _known_secrets.pop()
    _handler.redaction = Redactor({*_known_secrets, *secrets_of(config)})


@contextlib.contextmanager
def recording(config: Config, *, on_stderr: bool) -> Iterator[RecordWriter]:
    """Opens the records of calls while the block runs, and writes the log through them.

    Records go to the configured file and, with `on_stderr`, to stderr, unless the configuration switches them off.
    """
    calls = CALL_LOG.of(config)
    hide_secrets_of(config)
    file = calls.file if calls.enabled else None
    with RecordWriter(file, on_stderr and calls.enabled and calls.stderr) as records:
        _handler.records = records
        try:
            yield records
        finally:
            _handler.finish()


UNTRUSTED_NOTE: Final = (
    "The directory in which this hub was started has a configuration that its user has not trusted, so the servers of "
    "that file are missing here. To use them, the user runs `mcp-hub trust` in that directory and restarts the hub."
)
"""For clients of a hub that does not use the configuration of its working directory. It names no path."""


def make_hub(
    config: Config,
    selection: Selection = EVERYTHING,
    records: RecordWriter | None = None,
    *,
    groups: Iterable[str] = (),
    one_client: bool = False,
    expose: Exposed | None = None,
    found: FoundConfig = NAMED,
) -> Engine:
    """Makes a hub with the catalog cache of the configuration, which records its calls in `records`.

    `groups` are switched on. `expose` overrides the configured mode for every client. `found` is how the configuration
    was found.
    """
    record = records.write if records is not None and CALL_LOG.of(config).enabled else None
    options: EngineOptions = {"kept": CatalogCache.of(config), "record": record, "one_client": one_client}
    options["expose"] = expose
    options["note"] = UNTRUSTED_NOTE if found.untrusted is not None else ""
    return Engine(config, selection=selection, groups=groups, **options)


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine, on uvloop except on Windows."""
    if sys.platform != "win32":
        import uvloop

        return uvloop.run(work)
    return asyncio.run(work)
