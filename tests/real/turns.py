"""A user of a real client: a home, a project, servers directly or behind the hub, and turns of the client."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from tests.fakes.client import FAKE
from tests.peers.programs import NODE
from tests.real.client_programs import PROMPT, Client, Json, Place
from tests.real.scripted_provider import Call, ScriptedProvider, offered_tools, results_of

HUB: Final = str(Path(sys.executable).with_name("mcp-hub"))
DIRECT: Final = "direct"
BEHIND: Final = "hub"
WAYS: Final = (DIRECT, BEHIND)
TURN: Final = 90.0
"""Seconds that a turn of a client may take, with its servers."""
GONE: Final = 20.0
"""Seconds in which every process of a turn is gone after the client has ended."""


@dataclass(frozen=True)
class Turn:
    """What a model was offered and told in one turn of a client."""

    requests: tuple[Json, ...]
    code: int | None
    """The client's exit code; None if it did not end in time."""
    output: str
    stragglers: tuple[str, ...]
    """The command lines of processes that were left behind."""

    def offered(self, names: Iterable[str], request: int = 0) -> set[str]:
        """Returns those of the names that tools in a request end with: clients and the hub put servers in front."""
        if not self.requests:
            return set()
        exposed = offered_tools(self.requests[request])
        return {name for name in names if any(tool.endswith(name) for tool in exposed)}

    def mcp_tools(self, servers: Iterable[str]) -> list[str]:
        """Returns the names of all tools of these servers in the first request."""
        marks = [mark for server in servers for mark in (f"mcp__{server}", f"mcp_{server}_", f"{server}_")]
        exposed = offered_tools(self.requests[0]) if self.requests else {}
        return [name for name in exposed if name.startswith(tuple(marks))]

    @property
    def results(self) -> list[str]:
        """The results of all tools, as JSON texts that do not depend on names and paths."""
        last = self.requests[-1] if self.requests else {}
        return [json.dumps(result, sort_keys=True, ensure_ascii=False) for result in results_of(last)]


class User:
    """Works with one client in a directory of the test."""

    def __init__(self, client: Client, directory: Path) -> None:
        self.client = client
        self.provider = ScriptedProvider()
        home, project = directory / "home", directory / "project"
        for path in (home, project):
            path.mkdir(parents=True)
        self.place = Place(home, project, self.provider.url)
        self.config = directory / "servers.json"
        self._shell: dict[str, str] = {}
        self._configured: dict[str, Json] = {}
        self._command: list[str] | None = None

    def has(self, servers: Mapping[str, Json], hub: Mapping[str, Any] | None = None) -> None:
        """Configures the client with these servers; with keys of the hub's configuration, the hub in front of them."""
        self._configured = dict(servers)
        if hub is not None:
            write_hub(self.config, servers, **hub)
            self._configured = {"hub": {"command": HUB, "args": ["serve", "--config", str(self.config)]}}
        self.client.configure(self.place, self._configured)

    def exports(self, **variables: str) -> None:
        """Sets variables of the shell that the client is started from."""
        self._shell.update(variables)

    def answers_questions_with(self, answer: Json) -> bool:
        """Puts a person in front of the client who answers so from now on. Returns False if the client asks nobody."""
        self._command = self.client.command_with_person(self.place, answer)
        return self._command is not None

    @property
    def server_names(self) -> list[str]:
        return list(self._configured)

    @property
    def environment(self) -> dict[str, str]:
        home = self.place.home
        return {
            "PATH": f"{NODE.parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "NO_COLOR": "1",
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "XDG_DATA_HOME": str(home / ".local" / "share"),
            "XDG_STATE_HOME": str(home / ".local" / "state"),
            **self.client.environment(self.place),
            **self._shell,
        }

    def turn(self, *steps: Call, words: Iterable[str] = (PROMPT,), until: Path | None = None) -> Turn:
        """Lets the client answer a prompt, and its model play the steps.

        The client is interrupted, as by Ctrl-C, when a server has recorded a call in the file `until`.
        """

        def has_ended() -> bool:
            return process.poll() is not None

        self.provider.play(steps)
        output = self.place.home.parent / "output"
        with output.open("wb") as stream:
            process = subprocess.Popen(
                self._command or self.client.command(*words),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                cwd=self.place.project,
                env=self.environment,
                start_new_session=True,
            )
            try:
                if until is not None and recorded(until, b'"tools/call"', has_ended):
                    os.killpg(process.pid, signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(TURN)
                code = process.returncode
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        stragglers = tuple(_end_all_of(self.place.home))
        return Turn(tuple(self.provider.requests), code, output.read_text(errors="replace"), stragglers)

    def has_behind_the_hub(self, servers: Mapping[str, Json], **hub: Any) -> None:
        """Puts the hub in front of the servers, as a user has it who does not start it for the first time."""
        self.has(servers, hub)
        self.turn()

    def runs(self, *arguments: str) -> str:
        """Returns what a command of the hub prints for this user."""
        command = [HUB, *arguments]
        done = subprocess.run(
            command, env=self.environment, cwd=self.place.project, capture_output=True, text=True, timeout=TURN
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def close(self) -> None:
        self.provider.close()
        _end_all_of(self.place.home, patience=0)


def recorded(record: Path, what: bytes, is_over: Callable[[], bool]) -> bool:
    """Waits until this is in a record; returns False if what writes it is over, or at the end of a turn."""
    end = time.monotonic() + TURN
    while time.monotonic() < end and not is_over():
        if record.exists() and what in record.read_bytes():
            return True
        time.sleep(0.05)
    return False


def _processes_of(home: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def _end_all_of(home: Path, patience: float = GONE) -> list[str]:
    """Waits until the processes of a user are gone, and ends what stays. Returns the command lines of that."""
    _, alive = psutil.wait_procs(list(_processes_of(home)), patience)
    lines = []
    for process in alive:
        with contextlib.suppress(psutil.Error):
            lines.append(re.sub(r"\s+", " ", " ".join(process.cmdline()))[:200])
            process.kill()
    return lines


def write_hub(config: Path, servers: Mapping[str, Json], **hub: Any) -> None:
    """Writes the configuration of a hub with these servers."""
    config.write_text(json.dumps({**hub, "servers": servers}))
    config.chmod(0o600)


def scripted(*options: str, **entry: Any) -> Json:
    """A server of tests/fakes/upstream.py with these options."""
    return {"command": sys.executable, "args": [FAKE, *options], **entry}


def listing(directory: Path, name: str, **lists: Any) -> Json:
    """A server that lists what `lists` says, and answers as its `results` say."""
    path = directory / f"{name}.json"
    path.write_text(json.dumps(lists))
    return scripted("--lists", str(path))


def tool(name: str, schema: Any = None, **fields: Any) -> Json:
    """A tool that takes a text, unless it has a schema."""
    text = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {
        "name": name,
        "description": f"The tool {name}.",
        "inputSchema": text if schema is None else schema,
        **fields,
    }
