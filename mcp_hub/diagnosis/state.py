"""Checks the hub's own files on this machine, and the running hubs."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from mcp_hub import codes
from mcp_hub.config.listen import UNIX
from mcp_hub.config.models import Config
from mcp_hub.diagnosis import Finding, Repair, Section, fail, ok, warn
from mcp_hub.diagnosis.configuration import closed
from mcp_hub.hub.hub_status import running_hubs, runtime_directory
from mcp_hub.oauth import token_store
from mcp_hub.policy.pins import pins_file
from mcp_hub.policy.trace import CALL_LOG
from mcp_hub.security.access_lists import READ, WRITE, access_list, others_with
from mcp_hub.text import printable
from mcp_hub.upstream import catalog_cache
from mcp_hub.version import VERSION

Json = dict[str, Any]
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def files_section(config: Config) -> Section:
    """Returns `doctor`'s findings on the hub's own files."""
    private = {
        "cache": config.cache_dir or catalog_cache.default_directory(),
        "tokens": config.token_dir or token_store.default_directory(),
        "sockets": runtime_directory(),
    }
    pins = pins_file(config)
    written = {
        "records": CALL_LOG.of(config).file,
        "state_file": config.state_file,
        "pins": pins if pins is not None and pins.exists() else None,
    }
    found = [one for about, directory in private.items() for one in _private(about, directory)]
    found += [one for about, file in written.items() if file is not None for one in _writable(about, file)]
    return Section("Files of the hub", tuple(found))


def _private(about: str, directory: Path) -> Iterator[Finding]:
    shown = printable(str(directory), 500)
    try:
        status = directory.lstat()
    except FileNotFoundError:
        yield from _writable(about, directory)
        return
    except OSError as error:
        yield fail(about, f"{shown}: {error.strerror}", codes.STATE_NOT_WRITABLE)
        return
    if not stat.S_ISDIR(status.st_mode):
        yield fail(about, f"{shown} is not a directory", codes.STATE_NOT_WRITABLE)
    elif sys.platform != "win32" and status.st_uid != os.getuid():
        yield fail(about, f"{shown} belongs to another user (uid {status.st_uid})", codes.STATE_NOT_PRIVATE)
    elif sys.platform != "win32" and status.st_mode & OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        text = f"{shown} is open to others (mode {mode:04o}) and not used"
        yield fail(about, text, codes.STATE_NOT_PRIVATE, closed(directory, OTHERS))
    elif others := others_with(access_list(str(directory)) or "", READ | WRITE):
        yield fail(about, f"{shown} is open to {' and '.join(others)} and not used", codes.STATE_NOT_PRIVATE)
    else:
        open_files = [one for one in _files(directory) if sys.platform != "win32" and one.lstat().st_mode & OTHERS]
        for one in open_files:
            text = f"{printable(str(one), 500)} is open to others and not used"
            yield fail(about, text, codes.STATE_NOT_PRIVATE, closed(one, OTHERS))
        if not open_files:
            yield ok(about, shown)


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(one for one in directory.iterdir() if one.is_file() and not one.is_symlink())
    except OSError:
        return []


def _writable(about: str, file: Path) -> Iterator[Finding]:
    """Yields a finding on whether a file could be written, without writing it."""
    shown = printable(str(file), 500)
    above = next((one for one in file.parents if one.exists()), file.parent)
    if not above.is_dir():
        yield fail(
            about, f"{shown} cannot be written: {printable(str(above))} is not a directory", codes.STATE_NOT_WRITABLE
        )
    elif not os.access(file if file.exists() else above, os.W_OK):
        yield fail(about, f"{shown} cannot be written by this user", codes.STATE_NOT_WRITABLE)
    elif file.is_dir():
        yield fail(about, f"{shown} is a directory", codes.STATE_NOT_WRITABLE)
    else:
        yield ok(about, shown)


# --- hubs that run ---------------------------------------------------------------------------------------------


def hubs_section() -> tuple[Section, list[Json]]:
    """Queries the running hubs. Returns `doctor`'s findings on them, and their facts."""
    left: list[Path] = []
    hubs = list(running_hubs(left_over=left.append))
    found = [one for hub in hubs for one in _hub(hub)]
    for path in left:
        shown = printable(str(path), 500)
        text = f"{shown} was left over by a hub that was killed"
        repair = Repair(("rm", str(path)), "nothing: nobody listens at it", path.unlink)
        found.append(warn(f"hub {path.stem}", text, codes.SOCKET_LEFT_OVER, repair))
    return Section("Hubs that run", tuple(found or [ok("hubs", "none")])), hubs


def _hub(facts: Mapping[str, Any]) -> Iterator[Finding]:
    about = f"hub {facts.get('pid')}"
    if "servers" not in facts:
        yield fail(about, printable(str(facts.get("problem"))), codes.HUB_SILENT)
        return
    serving = ", ".join(map(printable, facts["serving"]))
    yield ok(about, f"serves {printable(str(facts['config']))} on {serving}")
    if facts["version"] != VERSION:
        version = printable(str(facts["version"]), 50)
        yield warn(about, f"it is version {version}, and {VERSION} is installed", codes.HUB_OUTDATED)
    if problem := facts.get("call_log_problem"):
        yield fail(about, printable(str(problem), 2000), codes.STATE_NOT_WRITABLE)
    if facts.get("refused"):
        lines = " | ".join(printable(line, 500) for line in str(facts["refused"]).splitlines()[:5])
        yield warn(about, f"the file as it is now is not in force: {lines}", codes.FILE_NOT_IN_FORCE)
    for server in facts["servers"]:
        if server["problem"] and server["state"] not in ("disabled", "idle"):
            level = warn if server["state"] == "failing" else fail
            text = f"{printable(server['server'])}: {printable(server['problem'], 2000)}"
            yield level(about, text, server.get("code"))


def ports_of(hubs: list[Json]) -> set[int | str]:
    """Returns the ports that hubs listen on, and their Unix sockets as `unix:/path`."""
    served = [str(one) for hub in hubs for one in hub.get("serving", ())]
    ports = {urlsplit(url).port for url in served if "://" in url}
    return {port for port in ports if port is not None} | {one for one in served if one.startswith(f"{UNIX}:")}
