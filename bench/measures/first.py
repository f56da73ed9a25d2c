"""The first five minutes: from `pip install` of the wheel to the tools of three well-known servers in a client."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import processes
from bench.client.connection import Lost
from bench.client.stdio import StdioConversation
from bench.plan import Cast
from bench.rows import HUB
from bench.stage import ROOT
from bench.table import Table

PATIENCE = 600.0
"""Seconds that one step may take; a bound against hangs."""
SERVERS = {
    "time": {"command": "uvx", "args": ["mcp-server-time==2026.10.19"]},
    "memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory@2026.8.31"]},
    "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "{home}"]},
}

TABLE = Table.named(
    title="The first five minutes",
    what="Seconds from `pip install WHEEL` into an empty environment, over `mcp-hub setup --yes` with a client that "
    "has three well-known servers of PyPI and npm, to a tools/list over the entry that it has put into the "
    "client. Home and environment are new each time; first with empty caches of pip, uv and npm, then with what "
    "the run before has left there, then so with `uv pip install` in place of pip. CPU: what all of their "
    "processes have taken. Node and uv are installed. It needs the network.",
    columns=tuple(
        (f"{label}: {heading}", f"{step} {figure}", 1)
        for figure, label in (("empty", "nothing cached"), ("full", "all cached"), ("uv", "all cached, uv"))
        for step, heading in (
            ("install", "install, s"),
            ("setup", "setup, s"),
            ("list", "list, s"),
            ("all", "all, s"),
            ("cpu", "CPU s"),
        )
    ),
)


def measure(cast: Cast) -> None:
    """All figures; only of the hub, as nothing else has a setup."""
    if HUB not in [row.name for row in cast.plan.rows]:
        return
    with tempfile.TemporaryDirectory() as directory, cast.noting(HUB):
        wheel = _wheel(Path(directory))
        for turn in range(cast.plan.repeat):
            caches = Path(directory) / f"caches-{turn}"
            for figure in ("empty", "full", "uv"):
                _first_five_minutes(cast, figure, wheel, caches)


def _wheel(directory: Path) -> Path:
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)], dict(os.environ), ROOT)
    return next(directory.glob("*.whl"))


def _first_five_minutes(cast: Cast, figure: str, wheel: Path, caches: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        environ = _environ(home, caches)
        client = home / ".cursor" / "mcp.json"
        client.parent.mkdir()
        client.write_text(json.dumps({"mcpServers": SERVERS}).replace("{home}", directory))
        _run([sys.executable, "-m", "venv", str(home / "venv")], environ, home)
        python = str(home / "venv/bin/python")
        pip = [python, "-m", "pip", "install", "--quiet"]
        uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--python", python]
        times, cpu = [time.perf_counter()], _processor_seconds()
        for argv in (
            [*(uv if figure == "uv" else pip), str(wheel)],
            [str(home / "venv/bin/mcp-hub"), "setup", "--yes"],
        ):
            _run(argv, environ, home)
            times.append(time.perf_counter())
        entry = json.loads(client.read_text())["mcpServers"]["hub"]
        _until_listed([entry["command"], *entry["args"]], environ, home)
        times.append(time.perf_counter())
    cast.add(HUB, f"cpu {figure}", _processor_seconds() - cpu)
    for number, step in enumerate(("install", "setup", "list")):
        cast.add(HUB, f"{step} {figure}", times[number + 1] - times[number])
    cast.add(HUB, f"all {figure}", times[-1] - times[0])


def _processor_seconds() -> float:
    """Returns the processor time of all children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _environ(home: Path, caches: Path) -> dict[str, str]:
    """Returns the environment of a new user; certificates and proxies are the machine's."""
    programs = home / "bin"
    programs.mkdir()
    for name, path in (("uvx", str(Path(sys.executable).with_name("uvx"))), ("npx", shutil.which("npx"))):
        if path is None:
            raise Lost(f"{name} is not installed")
        (programs / name).symlink_to(path)
    inherited = {name: value for name, value in os.environ.items() if "CERT" in name or name.lower().endswith("_proxy")}
    own = {"PIP_CACHE_DIR": "pip", "UV_CACHE_DIR": "uv", "npm_config_cache": "npm"}
    # The hub gives servers their entry's environment and a small base: the caches of launchers lie below the home.
    for name, directory in ((".cache/uv", "uv"), (".npm", "npm")):
        (caches / directory).mkdir(parents=True, exist_ok=True)
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).symlink_to(caches / directory)
    node = str(Path(shutil.which("node") or "/usr/bin/node").parent)
    path = os.pathsep.join([str(programs), node, "/usr/local/bin", "/usr/bin", "/bin"])
    return {
        **inherited,
        **{name: str(caches / subdirectory) for name, subdirectory in own.items()},
        "HOME": str(home),
        "PATH": path,
    }


def _run(argv: Sequence[str], environ: dict[str, str], directory: Path) -> None:
    completed = subprocess.run(
        argv, env=environ, cwd=directory, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    if completed.returncode != 0:
        lines = (completed.stderr.strip() or completed.stdout.strip()).splitlines()
        raise Lost(
            f"{Path(argv[0]).name} {argv[1]} exits with {completed.returncode}: {lines[-1] if lines else 'no word'}"
        )


def _until_listed(argv: Sequence[str], environ: dict[str, str], home: Path) -> None:
    """Starts the hub as the client would, and asks for its tools until every server has given its own."""
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ, cwd=home,
        start_new_session=True,
    )  # fmt: skip
    try:
        conversation = StdioConversation(process, "handshake")
        conversation.open()
        end = time.perf_counter() + PATIENCE
        while {name.partition("__")[0] for name in conversation.tools()} < SERVERS.keys():
            if time.perf_counter() > end:
                raise Lost("not all servers have listed their tools")
            time.sleep(0.01)
        conversation.close()
    finally:
        processes.end(process)
