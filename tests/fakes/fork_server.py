"""A warm interpreter that forks a program of the tests: `python fork_server.py SOCKET LISTENING MODULE...`.

It imports the modules (and calls `function` for `module:function`), then forks once for each request on its socket. The
new process is what `python PROGRAM ...` would be, with the arguments, streams, environment, directory and session that
were asked for; only its imports are done already, and at its end the interpreter is not taken apart. Its parent is the
process that asked on SOCKET (`forks.py`). On LISTENING the programs ask that `forked.py` stands for: a process of
theirs ends with the connection.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

ROOT = str(Path(__file__).resolve().parents[2])
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
WATCHED = str(Path(__file__).with_name("watched.py"))


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Receives so many bytes, fewer at the end of the connection. A signal ends one `recv` early whatever its flags."""
    data = b""
    while len(data) < size and (part := connection.recv(size - len(data))):
        data += part
    return data


def serve(request_socket: socket.socket, listener: socket.socket) -> dict[str, Any]:
    """Forks for every request until the socket ends. Returns only in a child, with its request."""
    relays: set[int] = set()
    while True:
        ready, _, _ = select.select([request_socket, listener], [], [])
        relays -= {pid for pid in relays if os.waitpid(pid, os.WNOHANG)[0] == pid}
        if listener in ready:
            connection, _ = listener.accept()
            relay = os.fork()
            if relay == 0:
                for inherited in (request_socket, listener):
                    inherited.close()
                return relay_program(connection)
            relays.add(relay)
            connection.close()
        if request_socket not in ready:
            continue
        head, fds, _, _ = socket.recv_fds(request_socket, 4, 3)
        if not head:
            sys.exit(0)
        request = json.loads(receive_exactly(request_socket, int.from_bytes(head, "little")))
        release_reader, release_writer = os.pipe()
        intermediate = os.fork()
        if intermediate == 0:
            child = os.fork()
            if child != 0:  # its orphan goes to the process that asked
                request_socket.sendall(child.to_bytes(4, "little"))
                os._exit(0)
            os.close(release_writer)
            os.read(release_reader, 1)
            request_socket.detach()
            listener.detach()
            take_streams(fds)
            return request
        os.waitpid(intermediate, 0)
        for fd in (release_reader, release_writer, *fds):
            os.close(fd)
        request_socket.sendall(b"\0")


def relay_program(connection: socket.socket) -> dict[str, Any]:
    """Forks for the program at the other end: passes its signals on, tells it how the process ended, and ends with it.

    Returns only in the child, with its request.
    """
    head, fds, _, _ = socket.recv_fds(connection, 4, 3)
    request = json.loads(receive_exactly(connection, int.from_bytes(head, "little")))
    child = os.fork()
    if child == 0:
        connection.detach()
        take_streams(fds)
        return request  # type: ignore[no-any-return]
    for fd in fds:
        os.close(fd)
    child_fd = os.pidfd_open(child)
    while child_fd not in select.select([connection, child_fd], [], [])[0]:
        signals = connection.recv(16)
        for number in signals or (signal.SIGKILL,):
            os.kill(child, number)
        if not signals:
            break
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        connection.sendall(status.to_bytes(4, "little"))
    os._exit(0)


def take_streams(fds: list[int]) -> None:
    """Makes these the standard streams of this process, and closes all other descriptors."""
    for stream, fd in enumerate(fds):
        os.dup2(fd, stream)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)  # noqa: PTH208 - no directory, but a list of numbers


def apply_request(request: dict[str, Any]) -> None:
    """Takes over what the process was asked for."""
    if request["session"]:
        os.setsid()
    for number in SIGNALS:  # what is ignored stays so in a program that is executed, and nothing else does
        default = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else default)
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    # Whether they are terminals, and what is in their buffers, was that of the server.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for the life of the process
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]


def run(argv: list[str]) -> None:
    """Runs a program as `python ARGV...` does."""
    program, *arguments = argv
    sys.argv[:] = argv
    if program == WATCHED:
        from tests.fakes import watched

        sys.exit(watched.main())
    if program == "-m":
        sys.argv[:] = ["-m", *arguments[1:]]
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(program).parent)
        runpy.run_path(program, run_name="__main__")


def end(code: int) -> NoReturn:
    """Ends as the interpreter does, but frees only what nobody holds: the rest would copy every page of the server."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def main() -> None:
    sys.path[0] = ROOT
    for target in sys.argv[3:]:
        module, _, function = target.partition(":")
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()
    gc.collect()
    gc.freeze()  # what is here already is copied by no collection of a child
    request_socket, listener = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    request = serve(request_socket, listener)
    apply_request(request)
    try:
        run(request["words"])
    except SystemExit as system_exit:
        if not isinstance(system_exit.code, int | None):
            raise  # a text to print
        end(system_exit.code or 0)
    end(0)


if __name__ == "__main__":
    main()
