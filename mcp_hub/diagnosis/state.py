"""Checks the hub's own files on this machine, and the running hubs."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from mcp_hub import codes
from mcp_hub.config.listen import UNIX
from mcp_hub.config.models import Config, Server
from mcp_hub.diagnosis import Finding, Repair, Section, fail, ok, warn
from mcp_hub.diagnosis.configuration import closed
from mcp_hub.hub.hub_status import running_hubs, runtime_directory
from mcp_hub.oauth import token_store, with_sign_in
from mcp_hub.oauth.token_store import SignIn, TokenStore, TokenStoreError, token_store_for
from mcp_hub.policy.pins import pins_file
from mcp_hub.policy.trace import CALL_LOG
from mcp_hub.security.access_lists import READ, WRITE, access_list, others_with
from mcp_hub.text import printable
from mcp_hub.upstream import catalog_cache
from mcp_hub.version import VERSION

Json = dict[str, Any]
GROUP_AND_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def files_section(config: Config) -> Section:
    """Returns `doctor`'s findings on the hub's own files."""
    private_directories = {
        "cache": config.cache_dir or catalog_cache.default_directory(),
        "tokens": config.token_dir or token_store.default_directory(),
        "sockets": runtime_directory(),
    }
    pins = pins_file(config)
    writable_files = {
        "records": CALL_LOG.of(config).file,
        "state_file": config.state_file,
        "pins": pins if pins is not None and pins.exists() else None,
    }
    findings = [finding for about, directory in private_directories.items() for finding in _private(about, directory)]
    findings += [
        finding for about, file in writable_files.items() if file is not None for finding in _writable(about, file)
    ]
    return Section("Files of the hub", tuple(findings))


def _private(about: str, directory: Path) -> Iterator[Finding]:
    path_text = printable(str(directory), 500)
    try:
        status = directory.lstat()
    except FileNotFoundError:
        yield from _writable(about, directory)
        return
    except OSError as error:
        yield fail(about, f"{path_text}: {error.strerror}", codes.STATE_NOT_WRITABLE)
        return
    if not stat.S_ISDIR(status.st_mode):
        yield fail(about, f"{path_text} is not a directory", codes.STATE_NOT_WRITABLE)
    elif sys.platform != "win32" and status.st_uid != os.getuid():
        yield fail(about, f"{path_text} belongs to another user (uid {status.st_uid})", codes.STATE_NOT_PRIVATE)
    elif sys.platform != "win32" and status.st_mode & GROUP_AND_OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        text = f"{path_text} is open to others (mode {mode:04o}) and not used"
        yield fail(about, text, codes.STATE_NOT_PRIVATE, closed(directory, GROUP_AND_OTHERS))
    elif users := others_with(access_list(str(directory)) or "", READ | WRITE):
        yield fail(about, f"{path_text} is open to {' and '.join(users)} and not used", codes.STATE_NOT_PRIVATE)
    else:
        open_files = [
            file for file in _files(directory) if sys.platform != "win32" and file.lstat().st_mode & GROUP_AND_OTHERS
        ]
        for file in open_files:
            text = f"{printable(str(file), 500)} is open to others and not used"
            yield fail(about, text, codes.STATE_NOT_PRIVATE, closed(file, GROUP_AND_OTHERS))
        if not open_files:
            yield ok(about, path_text)


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(file for file in directory.iterdir() if file.is_file() and not file.is_symlink())
    except OSError:
        return []


def _writable(about: str, file: Path) -> Iterator[Finding]:
    """Yields a finding on whether a file could be written, without writing it."""
    path_text = printable(str(file), 500)
    parent = next((path for path in file.parents if path.exists()), file.parent)
    if not parent.is_dir():
        yield fail(
            about,
            f"{path_text} cannot be written: {printable(str(parent))} is not a directory",
            codes.STATE_NOT_WRITABLE,
        )
    elif not os.access(file if file.exists() else parent, os.W_OK):
        yield fail(about, f"{path_text} cannot be written by this user", codes.STATE_NOT_WRITABLE)
    elif file.is_dir():
        yield fail(about, f"{path_text} is a directory", codes.STATE_NOT_WRITABLE)
    else:
        yield ok(about, path_text)


# --- hubs that run ---------------------------------------------------------------------------------------------


def hubs_section() -> tuple[Section, list[Json]]:
    """Queries the running hubs. Returns `doctor`'s findings on them, and their facts."""
    left_over_sockets: list[Path] = []
    hubs = list(running_hubs(left_over=left_over_sockets.append))
    findings = [finding for hub in hubs for finding in _hub(hub)]
    for path in left_over_sockets:
        path_text = printable(str(path), 500)
        text = f"{path_text} was left over by a hub that was killed"
        repair = Repair(("rm", str(path)), "nothing: nobody listens at it", path.unlink)
        findings.append(warn(f"hub {path.stem}", text, codes.SOCKET_LEFT_OVER, repair))
    return Section("Hubs that run", tuple(findings or [ok("hubs", "none")])), hubs


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
    for name, code in (("pins_problem", codes.PINS_UNREADABLE), ("call_log_problem", codes.STATE_NOT_WRITABLE)):
        if problem := facts.get(name):
            yield fail(about, printable(str(problem), 2000), code)
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
    addresses = [str(address) for hub in hubs for address in hub.get("serving", ())]
    ports = {urlsplit(url).port for url in addresses if "://" in url}
    return {port for port in ports if port is not None} | {
        address for address in addresses if address.startswith(f"{UNIX}:")
    }


HOUR: Final = 3600
DAY: Final = 24 * HOUR


def sign_ins_section(config: Config) -> Section:
    """Returns `doctor`'s findings on the sign-ins of all servers that are switched on."""
    store = token_store_for(config)
    servers = [server for server in config.servers if server.enabled and server.url is not None]
    findings = [finding for server in servers if (finding := _finding(server, store)) is not None]
    return Section("Sign-ins", tuple(findings or [ok("sign-ins", "no server is signed in to")]))


def _finding(server: Server, store: TokenStore) -> Finding | None:
    """Returns the finding on one server; None for a server without a sign-in."""
    entry = server if server.oauth is not None else with_sign_in(server)
    if entry is None or entry.oauth is None or (server.oauth is None and store.stamp(entry) is None):
        return None
    about = printable(server.id, 100)
    is_automatic = entry.oauth.grant == "client_credentials"
    try:
        sign_in = store.load(entry)
    except TokenStoreError as error:
        return fail(about, printable(str(error), 2000), codes.TOKENS_UNREADABLE)
    if sign_in is None or sign_in.access_token is None:
        if is_automatic:
            return ok(about, "the hub signs in itself when it connects")
        return fail(about, f"nobody has signed in yet; run: mcp-hub login {about}", codes.SIGN_IN_NEEDED)
    return _validity(about, sign_in, is_automatic=is_automatic)


def _validity(about: str, sign_in: SignIn, *, is_automatic: bool) -> Finding:
    if sign_in.expires_at is None:
        return ok(about, "signed in")
    remaining = sign_in.expires_at - time.time()
    renewable = sign_in.refresh_token is not None or is_automatic
    if remaining > 0 and (renewable or remaining > HOUR):
        return ok(about, f"signed in for {_span(remaining)}{', renewed by itself' if renewable else ''}")
    if renewable:
        return ok(about, "expired, renewed by itself when it is needed")
    end_text = f"ends in {_span(remaining)}" if remaining > 0 else f"has expired {_span(-remaining)} ago"
    text = f"the sign-in {end_text}; run: mcp-hub login {about}"
    return warn(about, text, codes.SIGN_IN_NEEDED) if remaining > 0 else fail(about, text, codes.SIGN_IN_NEEDED)


def _span(seconds: float) -> str:
    if seconds < HOUR:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR:.0f} h" if seconds < 2 * DAY else f"{seconds / DAY:.0f} days"
