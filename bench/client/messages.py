"""The requests of one era as templates of bytes, made once."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

Era = Literal["handshake", "modern"]
ERAS: tuple[Era, ...] = ("handshake", "modern")
MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
INFO = {"name": "bench", "version": "1"}
_PREFIX = "io.modelcontextprotocol/"
ENVELOPE = {
    _PREFIX + "protocolVersion": MODERN,
    _PREFIX + "clientCapabilities": {},
    _PREFIX + "clientInfo": INFO,
}

NUMBER = "\0number\0"
"""Stands in arguments where the number of the request goes, as text."""
SMALL = 65536
"""Bytes up to which an answer is parsed as a whole; of longer ones only the id is looked for."""
_ID = re.compile(rb'"id": ?(\d+)')


class BadAnswer(Exception):
    """The response is not the expected answer; the message quotes it."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request that can be sent with any number; `headers` are those of HTTP, each line with its end."""

    template: bytes
    headers: bytes
    echoes: bool
    """Whether the answer is a text, the number itself."""

    def body(self, number: int) -> bytes:
        return self.template % ((number, number) if self.echoes else number)

    def check(self, answer: bytes) -> int:
        """The number of the request that is answered. Raises BadAnswer for an error, also in a result."""
        if len(answer) > SMALL:
            match = _ID.search(answer, 0, 200) or _ID.search(answer, len(answer) - 200)
            if match is None or answer.find(b'"error"', 0, 200) >= 0:
                raise BadAnswer(answer[:200].decode(errors="replace"))
            return int(match[1])
        message = json.loads(answer)
        result = message.get("result")
        if result is None or result.get("isError"):
            raise BadAnswer(answer[:500].decode(errors="replace"))
        number: int = message["id"]
        if self.echoes and result["content"][0]["text"] != str(number):
            raise BadAnswer(f"request {number} was answered {answer[:500].decode(errors='replace')}")
        return number


def is_answer(message: bytes) -> bool:
    """Whether a message is an answer, not a notification or a request of the server; an answer has no method."""
    return b'"method"' not in message[:200] or b'"result"' in message[:200]


def _bytes(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode().replace(b"%", b"%%")


def request(era: Era, method: str, params: dict[str, Any] | None = None) -> Request:
    """A request of `method`; NUMBER in its params is replaced by the number of each."""
    headers = b""
    if era == "modern":
        headers = f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n".encode()
        if params and "name" in params:
            headers += f"Mcp-Name: {params['name']}\r\n".encode()
        params = {**(params or {}), "_meta": ENVELOPE}
    elif method != "initialize":
        headers = f"MCP-Protocol-Version: {HANDSHAKE}\r\n".encode()
    encoded_params = _bytes(params if params is not None else {})
    number = _bytes(NUMBER)
    template = b'{"jsonrpc":"2.0","id":%d,"method":' + _bytes(method) + b',"params":' + encoded_params + b"}"
    return Request(template.replace(number, b'"%d"'), headers, number in encoded_params)


def call(era: Era, name: str, arguments: dict[str, Any]) -> Request:
    return request(era, "tools/call", {"name": name, "arguments": arguments})


def echo(era: Era, name: str) -> Request:
    """A call that is answered with the number of its request."""
    return call(era, name, {"text": NUMBER})


INITIALIZE = request("handshake", "initialize", {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": INFO})
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
INITIALIZED_HEADERS = f"MCP-Protocol-Version: {HANDSHAKE}\r\n".encode()
