"""Checks the configuration, without connecting to any server."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mcp_hub import codes
from mcp_hub.clients import Machine
from mcp_hub.codes import code_of
from mcp_hub.config import LoadedConfig
from mcp_hub.config.builtin_servers import refuse_over_network
from mcp_hub.config.discovery import NAMED, find_config, not_trusted
from mcp_hub.diagnosis import Finding, Repair, Section, fail, ok, warn
from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import read_config
from mcp_hub.text import printable

MAX_LINE: Final = 2000
_ABOUT: Final = "file"


def configuration_section(
    config_file: Path | None, overlays: Sequence[Path], machine: Machine
) -> tuple[Section, LoadedConfig | None]:
    """Reads the configuration; returns `doctor`'s findings on it, and the configuration if it can be used.

    Args:
        config_file: the file of `--config`; None: the default configuration.
        overlays: further files of `--config`, whose values win.
        machine: the machine whose environment is used.
    """
    findings: list[Finding] = []
    path = config_file
    found = NAMED if config_file is not None else find_config(Path.cwd(), machine.environ)
    if found.untrusted is not None and found.path is not None:
        findings.append(warn(found.untrusted.name, not_trusted(found.untrusted), codes.NOT_TRUSTED))
    try:
        path = config_file or found.required(Path.cwd(), machine.environ)
        loaded = read_config(path, machine.environ, overlays=overlays, found=found)
    except ConfigError as error:
        lines = str(error).splitlines() if len(error.codes) > 1 else [str(error)]
        for line, code in zip(lines, error.codes, strict=False):
            about = _ABOUT if path is None else path.name
            findings.append(fail(about, _printable_text(line), code, _repair(path, code)))
        return Section("Configuration", tuple(findings)), None
    config = loaded.config
    count = len(config.servers)
    findings.append(ok(path.name, f"{printable(str(config.path))}: {count} server{'s' * (count != 1)}"))
    disabled_reasons = tuple(f": {server.disabled_reason}" for server in config.servers if server.disabled_reason)
    findings += [
        warn(path.name, _printable_text(line), code_of(line), _repair(config.path, code_of(line)))
        for line in (*loaded.warnings, *loaded.advice)
        if not (disabled_reasons and line.endswith(disabled_reasons))  # the section of the servers says it
    ]
    findings += [warn(path.name, _printable_text(str(duplicate)), codes.DUPLICATE) for duplicate in loaded.duplicates]
    findings += [fail(path.name, _printable_text(line), codes.FILE_LEFT_OUT) for line in loaded.left_out]
    if config.listen.model_fields_set:
        try:
            refuse_over_network(config)
        except ConfigError as error:
            findings.append(fail("listen", _printable_text(str(error)), error.hub_code))
    return Section("Configuration", tuple(findings)), loaded


def _printable_text(line: str) -> str:
    return "\n".join(printable(part, MAX_LINE) for part in line.splitlines())


def _repair(path: Path | None, code: str | None) -> Repair | None:
    """Returns the repair of a configuration that other users can write to; None for other codes."""
    if code != codes.OPEN_TO_OTHERS or path is None:
        return None
    return next((closed(writable, stat.S_IWGRP | stat.S_IWOTH) for writable in _writable(path)), None)


def _writable(path: Path) -> Iterator[Path]:
    """Yields the file and its directory, each if other users can write to it."""
    for candidate in (path.resolve(), path.resolve().parent):
        mode = candidate.stat().st_mode
        if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
            yield candidate


def closed(path: Path, rights: int) -> Repair:
    """Returns the repair that removes the mode bits `rights` from a file or directory."""
    old_mode = stat.S_IMODE(path.stat().st_mode)
    new_mode = old_mode & ~rights
    back = f"chmod {old_mode:04o} {shlex.quote(str(path))}"
    return Repair(("chmod", f"{new_mode:04o}", str(path)), back, lambda: path.chmod(new_mode))
