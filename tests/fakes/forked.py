"""Stands for the Python interpreter: `PROGRAM ARGUMENT...` and `-m MODULE ARGUMENT...` are forked from a warm one.

For programs on the SDK that somebody else than the tests starts, such as a server behind a hub. The process that is
forked (`fork_server.py`) has the streams, environment and directory of this one, gets its signals, and ends with it.
`forks.py` writes a copy of this program that knows the address.
"""

import json
import os
import signal
import socket
import sys

ADDRESS = ""


def main() -> int:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(ADDRESS)
    umask = os.umask(0)
    os.umask(umask)
    request = {"words": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "umask": umask}  # noqa: PTH109
    data = json.dumps({**request, "session": True, "ignored": []}).encode()
    socket.send_fds(connection, [len(data).to_bytes(4, "little")], [0, 1, 2])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: connection.sendall(bytes([number])))
    connection.sendall(data)
    os.closerange(0, 3)  # who reads them must see their end when the process closes its own
    status = connection.recv(4)
    code = os.waitstatus_to_exitcode(int.from_bytes(status, "little")) if status else 1
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    os._exit(main())
