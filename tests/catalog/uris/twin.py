"""A server with the same resources as its twin: `python twin.py NAME handshake|modern`. Standard library only.

It reads whatever it is asked for, and the text is its name. The tool `say {uris}` and the prompt `said {uris}` name
resources, `ask {uris}` does so in a sampling question and answers what came back, `touch {uri}` says that one has
changed, `read {uri}` of what begins with `x:none` is an error.
"""

from __future__ import annotations

import json
import sys
import threading

NAME, ERA = sys.argv[1:3]
MODERN = ERA == "modern"
KEY = "io.modelcontextprotocol/"
APP = "ui://app"
TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": APP, "csp": {}}}}
    for name in ("say", "ask", "touch")
]
RESOURCES = [{"uri": uri, "name": uri} for uri in ("x:one", "x:two", f"x:only-{NAME}")]
CAPABILITIES = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}}

lock = threading.Lock()
waiting: dict[str, tuple[threading.Event, dict]] = {}
subscribed: set[str] = set()
listening: list = []
numbers = iter(range(10**6))


def send(message: dict) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def link(uri: str) -> dict:
    return {"type": "resource_link", "uri": uri, "name": NAME}


def embedded(uri: str) -> dict:
    return {"type": "resource", "resource": {"uri": uri, "text": NAME}}


def blocks(uris: list[str]) -> list[dict]:
    return [make(uri) for uri in uris for make in (link, embedded)]


def question(uris: list[str]) -> dict:
    tool_result = {"type": "tool_result", "toolUseId": "1", "content": blocks(uris)}
    messages = [{"role": "user", "content": tool_result}, {"role": "user", "content": [tool_result]}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 1}}


def text_result(value: object) -> dict:
    return {"content": [{"type": "text", "text": json.dumps(value)}]}


def ask_client(request_id: object, uris: list[str]) -> None:
    own_id, event, answer = f"q{next(numbers)}", threading.Event(), {}
    waiting[own_id] = (event, answer)
    send({"id": own_id, **question(uris)})
    event.wait(60)
    send({"id": request_id, "result": text_result(answer["result"])})


def touch(uri: str) -> None:
    for tag in [{"_meta": {KEY + "subscriptionId": listener}} for listener in listening] or [{}] * (uri in subscribed):
        send({"method": "notifications/resources/updated", "params": {"uri": uri, **tag}})


def call(request_id: object, params: dict) -> dict | None:
    name, arguments = params["name"], params.get("arguments") or {}
    if name == "say":
        return {"content": blocks(arguments["uris"]), "_meta": {"ui/resourceUri": APP}}
    if name == "touch":
        touch(arguments["uri"])
        return text_result("touched")
    if not MODERN:
        threading.Thread(target=ask_client, args=(request_id, arguments["uris"]), daemon=True).start()
        return None
    if "inputResponses" not in params:
        return {"resultType": "input_required", "inputRequests": {"q": question(arguments["uris"])}}
    return text_result(params["inputResponses"]["q"])


def answer(request_id: object, method: str, params: dict) -> dict | None:
    """The result; None: it comes later."""
    if method == "initialize":
        info = {"name": "twin", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": CAPABILITIES, "serverInfo": info}
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
    if method == "subscriptions/listen":
        listening[:] = [request_id]
        tag = {KEY + "subscriptionId": request_id}
        acknowledged = {"notifications": params["notifications"], "_meta": tag}
        send({"method": "notifications/subscriptions/acknowledged", "params": acknowledged})
        return None
    if method == "resources/subscribe":
        subscribed.add(params["uri"])
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(request_id, params)
    if method == "resources/list":
        return {"resources": RESOURCES}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "x:t/{id}", "name": "t"}]}
    if method == "resources/read":
        uri = params["uri"]
        if uri.startswith("x:none"):
            raise LookupError(uri)
        part = {"uri": f"{uri}/part", "text": NAME}
        return {"contents": [{"uri": uri, "text": NAME, "_meta": {"ui": {"csp": {}}}}, part]}
    if method == "prompts/list":
        return {"prompts": [{"name": "said", "arguments": [{"name": "uris"}]}]}
    if method == "prompts/get":
        uris = json.loads(params["arguments"]["uris"])
        return {"messages": [{"role": "user", "content": block} for block in blocks(uris)]}
    if method == "completion/complete":
        return {"completion": {"values": [NAME, params["ref"]["uri"]]}}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message:
        event, slot = waiting.pop(message["id"])
        slot.update(message)
        event.set()
    elif "id" in message:
        is_known = message["method"] != ("server/discover" if not MODERN else "initialize")
        try:
            result = answer(message["id"], message["method"], message.get("params") or {}) if is_known else None
        except LookupError as error:
            fault = {"code": -32602 if MODERN else -32002, "message": "Not found", "data": {"uri": str(error.args[0])}}
            send({"id": message["id"], "error": fault})
            continue
        if not is_known:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
        elif result is not None:
            fields = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if MODERN else {}
            send({"id": message["id"], "result": {**fields, **result}})
