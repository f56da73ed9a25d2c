"""The command that the suite starts for each scenario: `python messenger.py PORT URL`. Standard library only.

It tells the tests that listen on PORT the URL and what the suite says in its environment, and waits. What they answer
is what went wrong.
"""

import json
import os
import socket
import sys

_, port, url = sys.argv
with socket.create_connection(("127.0.0.1", int(port))) as tests:
    environ = {name: value for name, value in os.environ.items() if name.startswith("MCP_CONFORMANCE_")}
    tests.sendall(json.dumps({"url": url, "environ": environ}).encode() + b"\n")
    failure = tests.makefile("r").read()
sys.exit(failure or 0)
