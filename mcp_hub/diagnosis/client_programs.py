"""Client programs on this machine: whether they start this hub, and how fast."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import IO, Final

import msgspec

from mcp_hub import codes
from mcp_hub.clients import Client, Machine
from mcp_hub.clients.detection import ClientFile, FoundServer, find_client_files, identity_of
from mcp_hub.config.ancestry import VARIABLE, Ancestry
from mcp_hub.config.models import INSTALLERS, MAX_HUB_DEPTH, Config
from mcp_hub.config.package_specs import unwrap_command
from mcp_hub.diagnosis import Finding, Section, fail, ok, warn
from mcp_hub.diagnosis.client_lists import config_of_hub, is_same_file
from mcp_hub.diagnosis.installation import own_command
from mcp_hub.diagnosis.probes import in_parallel, of_desktop
from mcp_hub.protocol.era import HUB_NAME, LATEST_HANDSHAKE
from mcp_hub.text import printable
from mcp_hub.version import VERSION

END_WAIT: Final = 5.0
"""Seconds for a hub to end after its stdin was closed."""
MAX_LINE: Final = 1024 * 1024
MAX_STDERR_LINE: Final = 500


class Start(msgspec.Struct, frozen=True):
    """The result of a trial start."""

    seconds: float
    """Seconds until it answered, ended, or the wait was over."""
    answered: bool
    ended: bool = False
    """Whether it ended without an answer."""
    last_words: str = ""
    """The end of its stderr."""


def start(argv: Sequence[str], environ: Mapping[str, str], config: Path | None, wait: float) -> Start:
    """Starts a hub, waits at most `wait` seconds for an answer to `initialize`, and ends it.

    A hub with this `config` is made to recognise the request as a loop: it answers with an error and starts no servers.
    """
    started_at = time.monotonic()
    ancestry = Ancestry.of([config], {}, MAX_HUB_DEPTH, lambda: None).for_children if config is not None else None
    env = dict(environ) if ancestry is None else {**environ, VARIABLE: ancestry}
    pipe = subprocess.PIPE
    try:
        hub = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True)
    except OSError as error:
        return Start(0.0, False, True, error.strerror or str(error))
    with hub:
        conversation = _Conversation(hub)
        try:
            conversation.ask()
            answered = conversation.answered.wait(wait)
            seconds = time.monotonic() - started_at
        finally:
            has_ended = conversation.end()
        return Start(
            seconds, answered and not conversation.silent, has_ended and conversation.silent, conversation.last_words()
        )


class _Conversation:
    """One request to a process, whose output is read in threads, so that the process never blocks."""

    def __init__(self, hub: subprocess.Popen[bytes]) -> None:
        self._hub = hub
        self.answered = threading.Event()
        """Set when it has answered, or closed its stdout."""
        self.silent = True
        """Whether no answer has come."""
        self._stderr = b""
        self._threads = [
            threading.Thread(target=work, args=(stream,), daemon=True)
            for work, stream in ((self._read_stdout, hub.stdout), (self._read_stderr, hub.stderr))
        ]
        for thread in self._threads:
            thread.start()

    def ask(self) -> None:
        info = {"name": HUB_NAME, "version": VERSION}
        params = {"protocolVersion": LATEST_HANDSHAKE, "capabilities": {}, "clientInfo": info}
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        assert self._hub.stdin is not None
        with contextlib.suppress(OSError):
            self._hub.stdin.write(json.dumps(request).encode() + b"\n")
            self._hub.stdin.flush()

    def _read_stdout(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while line := stream.readline(MAX_LINE):
                if self.silent and _is_answer(line):
                    self.silent = False
                    self.answered.set()
        self.answered.set()

    def _read_stderr(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while chunk := stream.read1(65536):  # type: ignore[attr-defined]  # the pipe is buffered
                self._stderr = (self._stderr + chunk)[-4 * MAX_STDERR_LINE :]

    def end(self) -> bool:
        """Ends the process: closes its stdin, then kills it. Returns whether it had ended by itself before."""
        has_ended = self.answered.is_set() and self.silent
        with contextlib.suppress(OSError):
            if self._hub.stdin is not None:
                self._hub.stdin.close()
        try:
            self._hub.wait(END_WAIT)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                if sys.platform == "win32":
                    self._hub.kill()
                else:
                    os.killpg(self._hub.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._hub.wait(END_WAIT)
        for thread in self._threads:
            thread.join(1)
        return has_ended

    def last_words(self) -> str:
        """Returns the last lines of its stderr."""
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        return " | ".join(printable(line, MAX_STDERR_LINE) for line in lines[-3:])


def _is_answer(line: bytes) -> bool:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and message.get("id") == 1


START_WAIT: Final = 60.0
"""The longest wait for a hub to start, in seconds, unless the limit of its client is shorter."""
_MAX_NAMES: Final = 8


class _HubEntry(msgspec.Struct, frozen=True):
    """One entry of a client that starts a hub."""

    client: Client
    entry: FoundServer
    path: Path


def clients_section(config: Config | None, machine: Machine) -> Section:
    """Returns `doctor`'s findings on the clients of this machine. `config`: that of this hub; None if unusable."""
    files = [file for file in find_client_files(machine) if file.client is not None]
    findings: list[Finding] = []
    entries: list[_HubEntry] = []
    for file in files:
        about = printable(file.name, 60)
        if file.problem is not None:
            findings.append(fail(about, printable(f"{file.path}: {file.problem}", 1000), codes.CLIENT_FILE_BROKEN))
        elif file.hubs and file.client is not None:
            entries += [_HubEntry(file.client, hub, file.path) for hub in file.hubs]
            findings += _duplicates(about, file, config, machine)
        else:
            findings.append(ok(about, f"does not start the hub; {_install_hint(file)}"))
    for row in in_parallel(lambda entry: list(_entry(entry, config, machine)), entries):
        findings += row
    if files and not entries:
        names = ", ".join(printable(file.name) for file in files[:_MAX_NAMES])
        findings.append(warn("clients", f"none of {names} starts the hub", codes.CLIENT_WITHOUT_HUB))
    return Section("Clients", tuple(findings or [ok("clients", "none was found on this machine")]))


def _install_hint(file: ClientFile) -> str:
    return f"mcp-hub install {file.client.id} puts it there" if file.client is not None else "mcp-hub install"


def _duplicates(about: str, file: ClientFile, config: Config | None, machine: Machine) -> Iterator[Finding]:
    """Yields a finding for each server that a client starts itself although the hub serves it."""
    servers = [server for server in config.servers if server.enabled] if config else []
    server_ids = {identity_of(server, machine.environ): server.id for server in servers}
    for server in file.servers:
        if server.on and not server.is_hub and server.identity is not None and server.identity in server_ids:
            served_as = printable(server_ids[server.identity])
            text = f"{printable(server.id)} is started directly too; the hub serves it as {served_as}"
            yield warn(about, text, codes.CLIENT_DUPLICATES)


def _entry(hub_entry: _HubEntry, config: Config | None, machine: Machine) -> Iterator[Finding]:
    about = printable(hub_entry.client.name, 60)
    server = hub_entry.entry.server
    location = f"{printable(hub_entry.entry.id)} in {printable(str(hub_entry.path), 300)}"
    if not hub_entry.entry.on:
        yield warn(about, f"{location} is switched off", codes.CLIENT_HUB_OFF)
        return
    if server is None or server.command is None:
        return
    environ = of_desktop(machine) if hub_entry.client.short_path else dict(machine.environ)
    environ |= {name: value.get_secret_value() for name, value in server.env.items()}
    program = shutil.which(server.command, path=environ.get("PATH"))
    if program is None:
        text = f"{location} starts {printable(server.command, 300)}, which {hub_entry.client.name} cannot find"
        yield fail(about, f"{text}; this hub is {printable(str(own_command()), 300)}", codes.CLIENT_COMMAND_MISSING)
        return
    config_path = config_of_hub(server, environ)
    if isinstance(config_path, str):
        yield fail(about, f"{location} {config_path}", codes.CLIENT_CONFIGURATION)
        return
    if unwrap_command(server.command, server.args)[0] in INSTALLERS:
        name = printable(PureWindowsPath(server.command).name)
        yield ok(about, f"{location} starts the hub by {name}, which may download; that was not tried")
        return
    argv = (program, *server.args)
    limit = hub_entry.client.start_limit
    result = start(argv, environ, config_path, min(limit or START_WAIT, START_WAIT))
    yield _started(
        about,
        location,
        result,
        limit,
        is_same_config=config is None or config.path is None or is_same_file(config_path, config.path),
    )


def _started(about: str, location: str, result: Start, limit: float | None, *, is_same_config: bool) -> Finding:
    if result.answered:
        limit_text = f" (its limit: {limit:g} s)" if limit is not None else ""
        difference = "" if is_same_config else ", with another configuration"
        text = f"{location} starts the hub in {result.seconds:.1f} s{limit_text}{difference}"
        if limit is not None and result.seconds > limit / 2:
            return warn(about, text, codes.CLIENT_START_SLOW)
        return ok(about, text)
    last_words = f"; its last words: {result.last_words}" if result.last_words else ""
    if result.ended:
        text = f"{location} does not start the hub: it ended without an answer{last_words}"
        return fail(about, text, codes.CLIENT_START_FAILED)
    text = f"{location} starts a hub that did not answer within {result.seconds:.0f} s{last_words}"
    return fail(about, text, codes.CLIENT_START_SLOW)
