"""The model of a real client: a provider on loopback that answers by a script, in four APIs.

They are Anthropic's Messages (Claude Code), Gemini's generateContent (Gemini CLI), and OpenAI's Responses (Codex) and
chat completions (opencode). Every request with tools takes the next step of the script.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
THINKS_AT_MOST = 30.0
"""Seconds that a step may let the client wait."""
ZSTD_DEADLINE = 10
_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


@dataclass(frozen=True)
class Call:
    """A step in which the model calls the offered tool whose name ends so, after it has thought for some seconds."""

    tool: str
    arguments: Json = field(default_factory=dict)
    thinks: float = 0.0


@dataclass(frozen=True)
class _Action:
    """What the model does: it calls a tool, searches the client's own index of tools, or says something."""

    kind: str
    text: str
    arguments: Json = field(default_factory=dict)


class ScriptedProvider(ThreadingHTTPServer):
    """Serves on a port of its own until it is closed; `requests` are those with tools, since the last `play`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[Json] = []
        self._steps: list[Call] = []
        self._searched = False
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._ids = iter(range(1, 10**9))
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def play(self, steps: Sequence[Call]) -> None:
        """Begins a new script."""
        with self._lock:
            self.requests, self._steps, self._searched = [], list(steps), False

    def close(self) -> None:
        self._closing.set()
        self.shutdown()
        self.server_close()

    def next_id(self) -> str:
        return f"call_{next(self._ids)}"

    def act(self, request: Json, names: Iterable[str], search: str | None = None) -> _Action:
        """Takes the next step. A tool that is not offered is first searched with `search`, the client's own way."""
        with self._lock:
            self.requests.append(request)
            if not self._steps:
                return _Action("say", "END")
            step = self._steps[0]
            name = _longest(names, step.tool)
            if name is None and search is not None and not self._searched:
                self._searched = True
                return _Action("search", step.tool)
            del self._steps[0]
            self._searched = False
        self._closing.wait(min(step.thinks, THINKS_AT_MOST))
        return _Action("call", name, step.arguments) if name else _Action("say", f"MISSING {step.tool}")


def _longest(names: Iterable[str], ending: str) -> str | None:
    return max((name for name in names if name.endswith(ending)), key=len, default=None)


def offered_tools(body: Json) -> dict[str, tuple[str | None, Json]]:
    """The tools in a request of any of the APIs, by whole name: the namespace that Codex gives, and the definition."""
    tools: dict[str, tuple[str | None, Json]] = {}

    def add(listed: Iterable[Json], namespace: str | None = None) -> None:
        for tool in listed:
            if tool.get("type") == "namespace":
                add(tool.get("tools", ()), tool["name"])
            elif "functionDeclarations" in tool:
                add(tool["functionDeclarations"])
            elif name := (definition := tool.get("function", tool)).get("name"):
                tools[(namespace or "") + name] = (namespace, definition)

    add(body.get("tools", ()))
    for item in body.get("input", ()):
        if isinstance(item, dict) and item.get("type") == "tool_search_output":
            add(item.get("tools", ()))
    return tools


def results_of(body: Json) -> list[Any]:
    """The results of tools in the conversation that a request holds, as this API spells them."""
    results: list[Any] = []
    for message in body.get("messages", ()):
        content = message.get("content")
        if message.get("role") == "tool":
            results.append(content)
        elif isinstance(content, list):
            results += [
                {"is_error": True, "content": part.get("content")} if part.get("is_error") else part.get("content")
                for part in content
                if part.get("type") == "tool_result"
            ]
    for content in body.get("contents", ()):
        for part in content.get("parts", ()):
            if "functionResponse" in part:
                results.append(part["functionResponse"]["response"])
            elif "inlineData" in part:
                results.append(part)
    results += [
        item.get("output")
        for item in body.get("input", ())
        if isinstance(item, dict) and item.get("type") in ("function_call_output", "custom_tool_call_output")
    ]
    return results


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedProvider

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send(b"", "text/plain")

    def do_GET(self) -> None:
        self._send_json({"object": "list", "data": [], "models": []})

    def do_POST(self) -> None:
        body = json.loads(self._read_body() or b"{}")
        path = self.path.partition("?")[0]
        try:
            if "count_tokens" in path:
                self._send_json({"input_tokens": 10})
            elif "countTokens" in path:
                self._send_json({"totalTokens": 5})
            elif path.endswith("/messages"):
                self._answer_messages(body)
            elif "enerateContent" in path:
                self._answer_gemini(body)
            elif path.endswith("/responses"):
                self._answer_responses(body)
            elif path.endswith("/chat/completions"):
                self._answer_chat(body)
            else:
                self._send_json({})
        except OSError:  # the client has been interrupted
            self.close_connection = True

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "zstd":
            command = ["zstd", "-dc"]
            body = subprocess.run(command, input=body, capture_output=True, check=True, timeout=ZSTD_DEADLINE).stdout
        return body

    def _send(self, body: bytes, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_json(self, value: Json) -> None:
        self._send(json.dumps(value).encode(), "application/json")

    def _send_events(self, events: Iterable[Json], *, named: bool) -> None:
        lines = [(f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events]
        self._send("".join(lines).encode(), "text/event-stream")

    def _answer_messages(self, body: Json) -> None:
        names = offered_tools(body)
        action = _Action("say", "{}")  # to requests for a title and the like
        if len(names) > 1:
            action = self.server.act(body, names, "ToolSearch" if "ToolSearch" in names else None)
        if action.kind == "search":
            deferred = re.findall(r"mcp__[A-Za-z0-9_-]+", json.dumps([body.get("messages"), body.get("system")]))
            query = f"select:{_longest(deferred, action.text) or action.text}"
            action = _Action("call", "ToolSearch", {"query": query, "max_results": 5})
        call_id = self.server.next_id()
        block: Json = {"type": "text", "text": action.text}
        start, delta = {**block, "text": ""}, {"type": "text_delta", "text": action.text}
        if action.kind == "call":
            block = {"type": "tool_use", "id": f"toolu_{call_id}", "name": action.text, "input": action.arguments}
            start = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(action.arguments)}
        stop = {"stop_reason": "tool_use" if action.kind == "call" else "end_turn", "stop_sequence": None}
        usage = {"input_tokens": 10, "output_tokens": 10}
        message = {"id": f"msg_{call_id}", "type": "message", "role": "assistant", "model": body.get("model")}
        if not body.get("stream"):
            self._send_json({**message, **stop, "content": [block], "usage": usage})
            return
        empty: Json = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        self._send_events(
            [
                {"type": "message_start", "message": empty},
                {"type": "content_block_start", "index": 0, "content_block": start},
                {"type": "content_block_delta", "index": 0, "delta": delta},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 10}},
                {"type": "message_stop"},
            ],
            named=True,
        )

    def _answer_gemini(self, body: Json) -> None:
        names = offered_tools(body)
        action = self.server.act(body, names) if names else _Action("say", '{"next_speaker": "user", "reasoning": ""}')
        part: Json = {"text": action.text}
        if action.kind == "call":
            part = {"functionCall": {"name": action.text, "args": action.arguments}}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        answer = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini"}
        if "stream" in self.path:
            self._send_events([answer], named=False)
        else:
            self._send_json(answer)

    def _answer_responses(self, body: Json) -> None:
        names = offered_tools(body)
        searches = any(tool.get("type") == "tool_search" for tool in body.get("tools", ()))
        action = _Action("say", "{}")
        if body.get("tools"):
            action = self.server.act(body, names, "tool_search" if searches else None)
        call_id = self.server.next_id()
        item: Json
        if action.kind == "call":
            namespace, definition = names[action.text]
            item = {"type": "function_call", "id": f"f_{call_id}", "call_id": call_id, "name": definition["name"],
                    "arguments": json.dumps(action.arguments), "status": "completed",
                    **({"namespace": namespace} if namespace else {})}  # fmt: skip
        elif action.kind == "search":
            item = {"type": "tool_search_call", "call_id": call_id, "execution": "client", "status": "completed",
                    "arguments": {"query": action.text.replace("_", " "), "limit": 8}}  # fmt: skip
        else:
            text = {"type": "output_text", "text": action.text, "annotations": []}
            item = {"type": "message", "id": f"m_{call_id}", "role": "assistant", "status": "completed",
                    "content": [text]}  # fmt: skip
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **details}
        answer = {"id": f"resp_{call_id}", "object": "response", "created_at": 1, "status": "completed",
                  "model": body.get("model"), "output": [item], "usage": usage}  # fmt: skip
        if not body.get("stream"):
            self._send_json(answer)
            return
        self._send_events(
            [
                {"type": "response.created", "response": {**answer, "status": "in_progress", "output": []}},
                {"type": "response.output_item.added", "output_index": 0, "item": item},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": answer},
            ],
            named=True,
        )

    def _answer_chat(self, body: Json) -> None:
        names = offered_tools(body)
        action = self.server.act(body, names) if names else _Action("say", "a title")
        call_id = self.server.next_id()
        message: Json = {"role": "assistant", "content": action.text}
        if action.kind == "call":
            function = {"name": action.text, "arguments": json.dumps(action.arguments)}
            call = {"index": 0, "id": call_id, "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        base = {"id": call_id, "created": 1, "model": body.get("model")}
        reason = "tool_calls" if action.kind == "call" else "stop"
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            self._send_json({**base, "object": "chat.completion", "choices": [choice], "usage": _USAGE})
            return
        chunk = {**base, "object": "chat.completion.chunk"}
        self._send_events(
            [
                {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
                {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": _USAGE},
            ],
            named=False,
        )
