"""Starts the programs of the tests that import much from warm interpreters: `install()`.

A start costs a fork in place of the imports (a hub: 0.3 s of processor time, the server `browser`: 0.6 s, a command
that needs the SDK: 1.3 s). What comes is a child of this process as any other: `subprocess` and asyncio wait for it and
signal it as they always do. Programs that are not known here, options of `subprocess` that only an exec can honour and
systems but Linux are left to `subprocess`.
"""

from __future__ import annotations

import atexit
import ctypes
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.fakes.fork_server import SIGNALS, receive_exactly

HUB: Final = (
    "tests.fakes.watched:warm", "mcp_hub.cli.serve", "mcp_hub.downstream.stdio", "mcp_hub.downstream.app",
    "mcp_hub.transport.stdio_link", "mcp_hub.upstream.link_dialer", "jsonschema_rs", "platformdirs.unix", "uvloop",
    "watchfiles", "mcp_hub.cli.report", "mcp_hub.cli.service_manager", "mcp_hub.hub.groups.meta_tools",
    "mcp_hub.hub.groups.tool_search", "mcp_hub.clients.table",
    "mcp_hub.transport.http_link", "mcp_hub.transport.sse_link", "anyio._backends._asyncio", "encodings.idna",
    "encodings.utf_8_sig",
)  # fmt: skip
"""What a hub imports on its way, or soon after."""
SIGNING_IN: Final = (*HUB, "mcp_hub.cli.login", "mcp_hub.oauth.token_flow")
VERIFYING: Final = (
    *HUB, "mcp_hub.downstream.verifier", "fastmcp.server.auth.providers.introspection",
    "fastmcp.server.auth.providers.jwt", "fastmcp.utilities.auth",
)  # fmt: skip
SDK: Final = (
    "mcp.client.sse", "mcp.server.mcpserver", "mcp.server.sse", "mcp.server.stdio", "fastmcp",
    "fastmcp.server.providers.skills", "fastmcp.skills.extension", "uvicorn", "starlette.applications",
    "starlette.routing",
)  # fmt: skip
BUILTIN: Final = (
    "mcp_hub.servers.local.local_server", "mcp_hub.servers.builtin.web", "mcp_hub.servers.builtin.browser_tools",
    "playwright.async_api",
)  # fmt: skip
"""What the built-in servers `web` and `browser` import."""
TESTS: Final = Path(__file__).resolve().parents[1]
WITH_SDK: Final = {
    "tests.conformance.fixture", str(TESTS / "peers" / "clients" / "python_mcp2.py"),
    str(TESTS / "peers" / "clients" / "python_fastmcp.py"), str(TESTS / "peers" / "servers" / "fastmcp_server.py"),
    str(TESTS / "peers" / "servers" / "one_era_server.py"),
}  # fmt: skip
"""Programs and modules on the SDK or on fastmcp."""

SERVER: Final = str(Path(__file__).with_name("fork_server.py"))
FORKED: Final = str(Path(__file__).with_name("forked.py"))
WATCHED: Final = str(Path(__file__).with_name("watched.py"))
PR_SET_CHILD_SUBREAPER: Final = 36
INTERPRETER_PREFIXES: Final = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "COVERAGE_")
KEYRING_VARIABLE: Final = "PYTHON_KEYRING_BACKEND"
LIBRARY_PREFIXES: Final = ("FASTMCP_",)
"""Beginnings of the names of variables that are read when an interpreter starts, and when a library is imported; one
that begins like them is read by no module that is imported beforehand."""

_execute: Final = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_SIGNATURE: Final = inspect.signature(_execute)
_PLAIN: Final[Mapping[str, Any]] = {
    "preexec_fn": None, "close_fds": True, "pass_fds": (), "shell": False, "restore_signals": True, "gid": None,
    "gids": None, "uid": None, "umask": -1, "process_group": -1,
}  # fmt: skip
"""Options with which a fork is what an exec would be."""


class ForkServer:
    """One warm interpreter, with these modules imported."""

    def __init__(self, modules: Sequence[str], env: Mapping[str, str], interpreter: str) -> None:
        own_end, server_end = socket.socketpair()
        self._socket = own_end
        self._directory = tempfile.TemporaryDirectory(prefix="forks-")
        address, python = (Path(self._directory.name) / name for name in ("socket", "python"))
        body = Path(FORKED).read_text().replace('ADDRESS = ""', f"ADDRESS = {str(address)!r}")
        python.write_text(f"#!{sys.executable} -IS\n{body}")
        python.chmod(0o700)
        self.python = str(python)
        """A program that is as the interpreter for who starts it: what it is told to run is forked here."""
        with server_end, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen()
            fds = [server_end.fileno(), listener.fileno()]
            argv = [interpreter, SERVER, *map(str, fds), *modules]
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=fds, env=env)
        atexit.register(self.close)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()
        self._directory.cleanup()

    def start(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, fds: Sequence[int], *, session: bool) -> int:
        """Returns the id of a new process, which is a child of this one."""
        umask = os.umask(0)
        os.umask(umask)
        ignored = [int(number) for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN]
        request = {"words": argv, "env": dict(env), "cwd": cwd, "umask": umask, "session": session, "ignored": ignored}
        _adopt_orphans(True)
        try:
            data = json.dumps(request).encode()
            socket.send_fds(self._socket, [len(data).to_bytes(4, "little")], fds)
            self._socket.sendall(data)
            answer = receive_exactly(self._socket, 5)
        finally:
            _adopt_orphans(False)
        if len(answer) < 5:
            raise OSError("the fork server of the tests has ended")
        return int.from_bytes(answer[:4], "little")


_lock: Final = threading.RLock()
_servers: Final[dict[tuple[str, tuple[str, ...], str], ForkServer]] = {}


def _with_prefixes(env: Mapping[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(prefixes) and name != KEYRING_VARIABLE}


def _adopt_orphans(enabled: bool) -> None:
    """Makes orphans below this process its own children, or those of whoever had them before."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(enabled), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _modules(argv: Sequence[str]) -> tuple[str, ...] | None:
    """What the program imports that these words start; None if it is none of those known here."""
    interpreter, *argv = argv
    if interpreter != sys.executable or not argv:
        return None
    if argv[0] == WATCHED:
        config = _configuration(argv)
        return SIGNING_IN if '"auth"' in config else VERIFYING if '"verify"' in config else HUB
    if argv in (["-m", "mcp_hub.servers", "web"], ["-m", "mcp_hub.servers", "browser"]):
        return BUILTIN
    program = argv[1] if argv[0] == "-m" else argv[0]
    return SDK if program in WITH_SDK else None


def _configuration(argv: Sequence[str]) -> str:
    """The text of the configuration of these words, which says what the hub will import."""
    try:
        return Path(argv[argv.index("--config") + 1]).read_text()
    except (ValueError, IndexError, OSError):
        return ""


def _server(modules: tuple[str, ...], env: Mapping[str, str], interpreter: str = sys.executable) -> ForkServer:
    key = (
        interpreter,
        modules,
        json.dumps(_with_prefixes(env, INTERPRETER_PREFIXES + LIBRARY_PREFIXES), sort_keys=True),
    )
    if key not in _servers:
        _servers[key] = ForkServer(modules, env, interpreter)
    return _servers[key]


def python_with(*modules: str, interpreter: str = sys.executable) -> str:
    """What to name in place of an interpreter for programs on these modules that others than the tests start."""
    if sys.platform != "linux":
        return interpreter
    with _lock:
        return _server(modules, os.environ, interpreter).python


def python_with_sdk() -> str:
    """What to name in place of `sys.executable` for programs on the SDK."""
    return python_with(*SDK)


def _execute_child(process: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> None:
    options = _SIGNATURE.bind(process, *args, **kwargs).arguments
    argv = options["args"]
    modules = _modules([*map(os.fspath, argv)]) if isinstance(argv, list | tuple) else None
    is_plain = all(options.get(name, value) == value for name, value in _PLAIN.items())
    variables = os.environ if options["env"] is None else options["env"]
    env = {os.fsdecode(name): os.fsdecode(value) for name, value in variables.items()}
    is_same_interpreter = _with_prefixes(env, INTERPRETER_PREFIXES) == _with_prefixes(os.environ, INTERPRETER_PREFIXES)
    if modules is None or not (is_plain and is_same_interpreter) or options.get("executable") not in (None, argv[0]):
        _execute(process, *args, **kwargs)
        return
    with _lock:
        server = _server(modules, env)
        fds = [number if options[name] == -1 else options[name] for number, name in enumerate(_CHILD_ENDS)]
        cwd = os.fspath(options["cwd"] or Path.cwd())
        process.pid = server.start(list(map(os.fspath, argv[1:])), env, cwd, fds, session=options["start_new_session"])
    process._child_created = True  # type: ignore[attr-defined]
    pipe_fds = (options[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"))
    process._close_pipe_fds(*pipe_fds)  # type: ignore[attr-defined]


_CHILD_ENDS: Final = ("p2cread", "c2pwrite", "errwrite")
"""The child's ends of its standard streams; -1 is that of this process."""


def install() -> None:
    """Starts what can be forked by a fork from now on."""
    if sys.platform == "linux":
        subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]
