"""Starts a hub as a client program would, and waits for its answer to `initialize`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

from mcp_hub.config.ancestry import VARIABLE, Ancestry
from mcp_hub.config.models import MAX_HUB_DEPTH
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
