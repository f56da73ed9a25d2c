"""A person at Codex who answers every question of a server so: `python codex_person.py ANSWER PROMPT COMMAND...`.

The command is Codex's server for editors (`codex app-server`), to which this program is an editor. It ends with the
turn. Standard library only.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

Json = dict[str, Any]


def main() -> None:
    answer, prompt, *command = sys.argv[1:]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as codex:
        assert codex.stdin is not None
        assert codex.stdout is not None

        def send(message: Json) -> None:
            codex.stdin.write(json.dumps(message).encode() + b"\n")
            codex.stdin.flush()

        send({"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "person", "version": "1"}}})
        for line in codex.stdout:
            message = json.loads(line)
            method, request_id = message.get("method"), message.get("id")
            if method == "turn/completed":
                break
            if method == "mcpServer/elicitation/request":
                print("asked:", line.decode(), file=sys.stderr)
                send({"id": request_id, "result": json.loads(answer)})
            elif method is None and request_id == 1:
                send({"method": "initialized"})
                send({"id": 2, "method": "thread/start", "params": {}})
            elif method is None and request_id == 2:
                text = [{"type": "text", "text": prompt}]
                turn = {"threadId": message["result"]["thread"]["id"], "input": text}
                send({"id": 3, "method": "turn/start", "params": turn})
        codex.stdin.close()


main()
