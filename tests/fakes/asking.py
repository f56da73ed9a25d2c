"""A server that asks its client: `python asking.py [--era handshake|modern|both] [--log FILE] [--hold]`.

It needs the standard library only. With `--hold` an `unsubscribe` is answered with the next `subscribe`. With
`--first-roots` it asks for the roots as soon as it is initialized, and `echo` answers those that it has got. It never
answers `--mute METHOD`, or of that method what is about one resource, `--mute "METHOD URI"`.
With `both` it has both eras and asks in neither but the handshake's, as programs from before the modern era do.

`ask {method, params}` puts a question and answers what came back, `withdraw {reason}` cancels all questions,
`declared` what the client said it can be asked, `together {count}` several questions at once.
`late` is answered first and asks for the roots after it.
`touch {uri}` says that a resource has changed; the log has every subscription.
`process` asks in the modern era, and says whether the answer came to the same process.
`impatient` asks for the roots and answers with a megabyte when the next call comes, whether it was told or not.
`visit {id, url}` is refused until the user has been at the URL; `complete {id}` says that an elicitation is.
`log {level}` says something before it answers, `log_late {level}` after it, `log_next {level}` with the next call,
whosever it is; `level` is what it was last told to log.
`linger {method, params, answers}` works on when it is cancelled: with the next `resume`, whosever it is, it asks, and
with `answers` it is answered after that. `resume` answers what came back.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
ERA = sys.argv[sys.argv.index("--era") + 1] if "--era" in sys.argv else "handshake"
LOG = Path(sys.argv[sys.argv.index("--log") + 1]) if "--log" in sys.argv else None
withheld_ids: list[object] = []
MUTE = {value for option, value in zip(sys.argv, sys.argv[1:], strict=False) if option == "--mute"}
LOGGING = ("log", "log_late", "log_next", "level", "touch")
TOOLS = (
    *LOGGING,
    "ask",
    "withdraw",
    "declared",
    "together",
    "late",
    "echo",
    "patience",
    "greedy",
    "visit",
    "complete",
    "impatient",
    "process",
    "linger",
    "resume",
)

CAPABILITIES = {"tools": {}, "logging": {}, "resources": {"subscribe": True}}
RESOURCES = [{"uri": "x:one", "name": "one"}, {"uri": "x:two", "name": "two"}]

listening: list = []
lock = threading.Lock()
waiting: dict[str, tuple[threading.Event, dict]] = {}
declared: dict = {}
visited: set[str] = set()
queued_messages: list[dict] = []
unanswered_ids: list = []
resumed, heard_back = threading.Event(), threading.Event()
heard: dict = {}
numbers = iter(range(1, 10**6))


def send(message: dict) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def log(text: str) -> None:
    if LOG is not None:
        with lock, LOG.open("a") as file:
            file.write(text + "\n")


def ask(method: str, params: dict) -> dict:
    """The whole answer."""
    request_id = f"q{next(numbers)}"
    event, answer = threading.Event(), {}
    waiting[request_id] = (event, answer)
    send({"id": request_id, "method": method, "params": params})
    event.wait(60)
    return answer


def text(value: object) -> dict:
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def message_of(arguments: dict) -> dict:
    return {"level": arguments.get("level", "info"), "logger": "x", "data": {"future": 10**25}, "future": 1}


def handshake_call(request_id: object, name: str, arguments: dict) -> None:
    while queued_messages:
        send({"method": "notifications/message", "params": queued_messages.pop()})
    while unanswered_ids:
        send({"id": unanswered_ids.pop(), "result": text("x" * 1_000_000)})
    if name == "impatient":
        unanswered_ids.append(request_id)
        send({"id": f"q{next(numbers)}", "method": "roots/list"})
    elif name == "ask":
        answer = ask(arguments["method"], arguments.get("params", {}))
        send({"id": request_id, "result": text({k: answer[k] for k in ("result", "error") if k in answer})})
    elif name == "withdraw":
        for question_id in waiting:
            send({"method": "notifications/cancelled", "params": {"requestId": question_id, **arguments}})
        send({"id": request_id, "result": text("")})
    elif name == "linger":
        log("lingers")
        resumed.wait(60)
        heard.update(ask(arguments["method"], arguments.get("params", {})))
        if arguments.get("answers"):
            send({"id": request_id, "result": text("at last")})
        heard_back.set()
    elif name == "resume":
        resumed.set()
        heard_back.wait(60)
        send({"id": request_id, "result": text({k: heard[k] for k in ("result", "error") if k in heard})})
    elif name == "declared":
        send({"id": request_id, "result": text({k: v for k, v in declared.items() if k != "level"})})
    elif name == "touch":
        send({"method": "notifications/resources/updated", "params": {"uri": arguments["uri"], "future": 1}})
        send({"id": request_id, "result": text("touched")})
    elif name == "log":
        send({"method": "notifications/message", "params": message_of(arguments)})
        send({"id": request_id, "result": text("logged")})
    elif name == "log_late":
        send({"id": request_id, "result": text("soon")})
        send({"method": "notifications/message", "params": message_of(arguments)})
    elif name == "log_next":
        queued_messages.append(message_of(arguments))
        send({"id": request_id, "result": text("later")})
    elif name == "visit" and arguments["id"] not in visited:
        visited.add(arguments["id"])
        elicitation = {
            "mode": "url",
            "elicitationId": arguments["id"],
            "url": arguments["url"],
            "message": "Please",
            "future": 1,
        }
        error = {"code": -32042, "message": "Visit this first", "data": {"elicitations": [elicitation], "future": 2}}
        send({"id": request_id, "error": error})
    elif name == "complete":
        send(
            {"method": "notifications/elicitation/complete", "params": {"elicitationId": arguments["id"], "future": 3}}
        )
        send({"id": request_id, "result": text("completed")})
    elif name == "level":
        send({"id": request_id, "result": text(declared.get("level", "none"))})
    elif name == "late":
        send({"id": request_id, "result": text("soon")})
        log(json.dumps(ask("roots/list", {})))
    elif "--first-roots" in sys.argv:
        known = declared.get("known", {})
        send({"id": request_id, "result": text({key: known[key] for key in ("result", "error") if key in known})})
    else:
        send({"id": request_id, "result": text(arguments.get("text", ""))})


def modern_call(name: str, params: dict, meta: dict) -> dict:
    arguments, responses = params.get("arguments") or {}, params.get("inputResponses")
    if ERA == "both" and name == "ask":
        return text("this is asked of clients of the handshake alone")
    if name == "declared":
        return text(meta[PREFIX + "clientCapabilities"])
    if name == "touch":
        for subscription in listening:
            tag = {PREFIX + "subscriptionId": subscription}
            params = {"uri": arguments["uri"], "future": 1, "_meta": tag}
            send({"method": "notifications/resources/updated", "params": params})
        return text("touched")
    if name == "level":
        return text(meta.get(PREFIX + "logLevel", "none"))
    while queued_messages:
        send({"method": "notifications/message", "params": queued_messages.pop()})
    if name == "log_next":
        queued_messages.append(message_of(arguments))
        return text("later")
    if name == "log":
        if PREFIX + "logLevel" in meta:
            send({"method": "notifications/message", "params": message_of(arguments)})
        return text("logged")
    if name == "patience":
        rounds = int(params.get("requestState", "0"))
        if rounds < 3:
            return {"resultType": "input_required", "requestState": str(rounds + 1)}
        return text(f"after {rounds} rounds")
    if name == "greedy":
        return {"resultType": "input_required", "requestState": "x", "inputRequests": {"a": {"method": "roots/list"}}}
    if name == "process":
        if responses is not None:
            return text("the same" if params["requestState"] == str(os.getpid()) else "another")
        question = {"method": "roots/list", "params": {}}
        return {"resultType": "input_required", "requestState": str(os.getpid()), "inputRequests": {"key": question}}
    if name in ("ask", "together") and responses is None:
        question = {"method": arguments.get("method", "roots/list"), "params": arguments.get("params", {})}
        count = arguments.get("count", 1)
        requests = {f"key{n}": question for n in range(count)}
        return {"resultType": "input_required", "requestState": "st\u00e4te", "inputRequests": requests}
    if name in ("ask", "together"):
        assert params["requestState"] == "st\u00e4te"
        return text(responses)
    return text(arguments.get("text", ""))


def handle(message: dict) -> None:
    method, request_id = message.get("method"), message.get("id")
    params = message.get("params") or {}
    meta = params.get("_meta") or {}
    if method is None:
        event, answer = waiting.pop(request_id, (threading.Event(), {}))
        answer.update(message)
        event.set()
        return
    if request_id is None:
        log(method)
        if "--first-roots" in sys.argv and method == "notifications/initialized":
            threading.Thread(target=lambda: declared.update(known=ask("roots/list", {})), daemon=True).start()
        return
    if MUTE & {method, f"{method} {params.get('uri')}"}:
        log(f"mute {method}")
        return
    tool_list = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    if ERA == "modern" or (ERA == "both" and PREFIX + "protocolVersion" in meta):
        answer = None
        if method == "server/discover":
            versions = [MODERN, "2025-11-25"] if ERA == "both" else [MODERN]
            answer = {"supportedVersions": versions, "capabilities": CAPABILITIES}
        elif method == "subscriptions/listen":
            subscribed = params["notifications"]
            log("listen " + json.dumps(subscribed.get("resourceSubscriptions", [])))
            listening[:] = [request_id]
            tag = {PREFIX + "subscriptionId": request_id}
            answer = {"notifications": subscribed, "_meta": tag}
            send({"method": "notifications/subscriptions/acknowledged", "params": answer})
            return
        elif method == "resources/list":
            answer = {"resources": RESOURCES}
        elif method == "tools/list":
            answer = tool_list
        elif method == "tools/call":
            answer = modern_call(params["name"], params, meta)
        if answer is None:
            send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})
        else:
            send(
                {"id": request_id, "result": {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **answer}}
            )
    elif method == "initialize":
        declared.update(params["capabilities"])
        info = {"name": "asking", "version": "1"}
        version = params["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": info}
        send({"id": request_id, "result": result})
    elif method == "resources/list":
        send({"id": request_id, "result": {"resources": RESOURCES}})
    elif method in ("resources/subscribe", "resources/unsubscribe"):
        log(f"{method} {params['uri']}")
        withheld_ids.append(request_id)
        if "--hold" not in sys.argv or method == "resources/subscribe":
            while withheld_ids:
                send({"id": withheld_ids.pop(0), "result": {}})
    elif method == "logging/setLevel":
        declared["level"] = params["level"]
        send({"id": request_id, "result": {}})
    elif method == "tools/list":
        send({"id": request_id, "result": tool_list})
    elif method == "tools/call":
        call_args = (request_id, params["name"], params.get("arguments") or {})
        threading.Thread(target=handshake_call, args=call_args, daemon=True).start()
    elif method == "ping":
        send({"id": request_id, "result": {}})
    else:
        send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})


for line in sys.stdin:
    handle(json.loads(line))
