"""A scripted MCP server over stdio, in either era, with a switch for every way of misbehaving.

Run as a program: `python upstream.py [--era handshake|modern|dual] [--tools N] [--start-delay S] [--die MESSAGE] ...`.
Nothing but the standard library, so that it shares no code with what it tests, and of that as little as possible, so
that it starts in 20 ms.
"""

# ruff: noqa: PTH110, PTH123 - pathlib takes longer to import than all the rest
from __future__ import annotations

import _thread
import os
import sys
import time

import quick_json as json
from upstream_options import Options

MODERN = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


options = Options(sys.argv[1:])
leak = " " + os.environ[options.leak] if options.leak else ""

out = sys.stdout.buffer
lock = _thread.allocate_lock()
cancelled: set[object] = set()
tools_added: list[str] = []
redefined: dict[str, object] = {}
listening: list[object] = []


def write_raw(data: bytes) -> None:
    with lock:
        out.write(data)
        out.flush()


def send(message: dict) -> None:
    write_raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def tool(name: str, properties: dict | None = None, **fields: object) -> dict:
    schema = {"type": "object", "properties": properties or {}}
    return {"name": name, "description": f"{name} of {options.name}", "inputSchema": schema, **fields}


def all_tools() -> list:
    text = {"text": {"type": "string"}}
    tools = [
        tool(
            "echo",
            text,
            title="Echo",
            annotations={"readOnlyHint": True},
            icons=[],
            _meta={"a/b": [1]},
            futureField={"x": 10**25},
        ),
        tool("add", {"a": {"type": "number"}, "b": {"type": "number"}}),
        *[
            tool(name)
            for name in (
                "pid",
                "environ",
                "crash",
                "fail",
                "sleep",
                "big",
                "count",
                "garble",
                "null",
                "grow",
                "stderr",
                "meta",
                "odd_error",
            )
        ],
        *[tool(f"t{n}") for n in range(options.tools)],
        *[tool(name) for name in tools_added],
    ]
    if options.more_if and os.path.exists(options.more_if):
        tools.append(tool("late"))
    if options.gibberish:
        tools.append(tool("gibberish"))
    if options.burst:
        tools.append(tool("burst"))
    if options.bad_tool:
        tools.insert(1, {"name": "broken", "inputSchema": "not a schema"})
    by_name = {one["name"]: redefined.get(one["name"], one) for one in tools}
    return [one for one in by_name.values() if one != "gone"] if redefined else tools


def call(request_id: object, name: str, arguments: dict, meta: dict) -> None:
    text = None
    if name == "echo":
        text = arguments.get("text", "")
    elif name == "add":
        text = str(arguments["a"] + arguments["b"])
    elif name == "pid":
        text = str(os.getpid())
    elif name == "environ":
        text = json.dumps(dict(os.environ))
    elif name == "meta":
        text = json.dumps(meta)
    elif name == "crash":
        sys.stderr.write("about to crash: \x1b[31msecret-value-123" + leak + "\n")
        sys.stderr.flush()
        os._exit(7)
    elif name == "fail":
        send(
            {
                "id": request_id,
                "error": {"code": -32050, "message": "no" + leak, "data": {"why": [1, 2]}, "extra": True},
            }
        )
        return
    elif name == "odd_error":
        send({"id": request_id, "error": {"code": "E_ODD", "message": None}})
        return
    elif name == "sleep":
        end = time.monotonic() + arguments.get("seconds", 60)
        while time.monotonic() < end:
            if request_id in cancelled:
                return
            time.sleep(0.01)
        text = "slept"
    elif name == "big":
        text = "x" * int(arguments["bytes"])
    elif name == "count":
        for n in range(1, int(arguments["steps"]) + 1):
            params = {
                "progressToken": meta.get("progressToken"),
                "progress": n,
                "total": arguments["steps"],
                "future": "kept",
            }
            if "progressToken" in meta:
                send({"method": "notifications/progress", "params": params})
            time.sleep(arguments.get("pause", 0))
        text = "counted"
    elif name == "garble":
        write_raw(
            b'{"jsonrpc":"2.0","id":'
            + str(request_id).encode()
            + b',"result":{"content":[{"type":"text","text":"\xff\xfe"\n'
        )
        return
    elif name == "gibberish":
        write_raw(b'{"jsonrpc":"2.0","method":"x\xff" what\n' * int(arguments["lines"]))
        text = "written"
    elif name == "burst":
        written = arguments["text"] * int(arguments["times"])
        write_raw((arguments.get("begin", "") + written + arguments.get("end", "")).encode())
        if arguments.get("exit"):
            os._exit(7)
        text = "written"
    elif name == "null":
        send({"id": request_id, "result": None})
        return
    elif name == "grow":
        tools_added.append(arguments.get("name", "grown"))
        if "definition" in arguments:  # of a tool that it lists already, or the new one; "gone" takes it off the list
            redefined[tools_added[-1]] = arguments["definition"]
        announce("notifications/tools/list_changed")
        text = "grown"
    elif name == "changed":
        for kind in ("tools", "prompts", "resources"):
            announce(f"notifications/{kind}/list_changed")
        text = "announced"
    elif name == "stderr":
        sys.stderr.write(arguments["text"] + "\n")
        sys.stderr.flush()
        text = "written"
    else:
        text = f"called {name}"
    result = {
        "content": [{"type": "text", "text": text, "futureField": 1}],
        "futureTop": {"n": 10**25},
        "_meta": {"x/y": 1},
    }
    for message in listed("before", []):
        send(message)
    if options.noise:
        write_raw((f"some noise \x1b[2J{leak}\n").encode() * options.noise)
    send({"id": request_id, "result": finish(result, meta)})


def announce(method: str) -> None:
    if listening:
        for subscription in listening:
            send({"method": method, "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": subscription}}})
    else:
        send({"method": method})


def finish(result: dict, meta: dict) -> dict:
    return {"resultType": "complete", **result} if VERSION_KEY in meta else result


def listed(key: str, default: object) -> object:
    if not options.lists:
        return default
    with open(options.lists) as file:
        text = file.read()
    return json.loads(text).get(key, default)


def page(params: dict) -> dict:
    tools = listed("tools", all_tools())
    if options.cursor_loop:
        return {"tools": tools, "nextCursor": "again"}
    if options.endless_pages:
        n = int(params.get("cursor", "0"))
        return {"tools": [tool(f"page{n}")], "nextCursor": str(n + 1)}
    if options.pages == 1:
        return {"tools": tools}
    size = -(-len(tools) // options.pages)
    start = int(params.get("cursor", "0"))
    result = {"tools": tools[start : start + size]}
    if start + size < len(tools):
        result["nextCursor"] = str(start + size)
    return result


CAPABILITIES = {"tools": {"listChanged": True}, "resources": {"listChanged": True}, "prompts": {}, "completions": {}}


def skill(uri: str) -> dict:
    """The entry of a skill with one file beside its SKILL.md."""
    files = [uri, uri.replace("SKILL.md", "notes.md")]
    return {
        "uri": uri,
        "frontmatter": {"name": uri.split("/")[-2], "description": "what it is for"},
        "resources": [{"uri": file, "digest": "sha256:" + "0" * 64, "size": 1} for file in files],
    }


openings: list[str] = []
client: dict = {}
"""The capabilities that the client has declared."""


def handle(message: dict, paused: bool = False) -> None:
    method, request_id = message.get("method"), message.get("id")
    params = message.get("params") or {}
    meta = params.get("_meta") or {}
    modern = VERSION_KEY in meta
    if "id" not in message:
        if method == "notifications/cancelled":
            cancelled.add(params.get("requestId"))
        return
    client.update(meta.get("io.modelcontextprotocol/clientCapabilities") or params.get("capabilities") or {})
    openings.append("handshake" if method == "initialize" else "modern")
    if options.one_opening and modern and openings[0] == "handshake":
        send({"id": request_id, "error": {"code": -32600, "message": "this connection serves the handshake"}})
        return
    if options.era == "handshake" and (modern or method == "server/discover"):
        if options.die_on_unknown:
            os._exit(9)
        if not options.ignore_unknown:
            send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})
        return
    if method == "initialize" and options.era == "modern":
        data = {"supported": [MODERN], "requested": params.get("protocolVersion")}
        send({"id": request_id, "error": {"code": -32022, "message": "Unsupported protocol version", "data": data}})
        return
    answer: dict | None = None
    fault = listed("faults", {}).get(method)  # by the method: error, silence, or exit
    if fault == "exit":
        os._exit(9)
    if fault == "error":
        send({"id": request_id, "error": {"code": -32603, "message": "no such list"}})
    if fault is not None:
        return
    if method == "initialize":
        note(f"ready {os.getpid()}")
        version = params["protocolVersion"] if params["protocolVersion"] in HANDSHAKE else HANDSHAKE[-1]
        info = {"name": options.name, "version": listed("version", "1")}
        answer = {
            "protocolVersion": version,
            "capabilities": listed("capabilities", CAPABILITIES),
            "serverInfo": info,
            "instructions": listed("instructions", "be kind"),
        }
    elif method == "server/discover":
        extensions = (
            {"extensions": {"io.modelcontextprotocol/skills": {"directoryRead": True}}} if options.skills else {}
        )
        answer = {
            "supportedVersions": [MODERN],
            "capabilities": {**CAPABILITIES, **extensions},
            "ttlMs": 0,
            "cacheScope": "private",
        }
    elif method == "subscriptions/listen":
        listening.append(request_id)
        tag = {"io.modelcontextprotocol/subscriptionId": request_id}
        send(
            {
                "method": "notifications/subscriptions/acknowledged",
                "params": {"notifications": params["notifications"], "_meta": tag},
            }
        )
        return
    elif method == "ping":
        answer = {}
    elif method == "tools/list" and listed("fault", None) in ("error", "slow", "page" * ("cursor" in params)):
        if listed("fault", None) != "slow":
            send({"id": request_id, "error": {"code": -32603, "message": "the database is locked"}})
        return
    elif method == "tools/list":
        answer = page(params)
        if options.apps_if_declared and "io.modelcontextprotocol/ui" not in client.get("extensions", {}):
            answer["tools"] = [one for one in answer["tools"] if "ui" not in one.get("_meta", {})]
    elif method == "resources/list":
        if options.list_pause and not paused:
            _thread.start_new_thread(handle_later, (message,))
            return
        uris = json.loads(options.resources) if options.resources else [f"fake://{options.name}/one"]
        answer = {"resources": listed("resources", [{"uri": uri, "name": "one", "future": 1} for uri in uris])}
    elif method == "resources/templates/list":
        template = options.template or f"fake://{options.name}/item/{{id}}"
        answer = {"resourceTemplates": listed("templates", [{"uriTemplate": template, "name": "item"}])}
    elif method == "prompts/list":
        prompts = [{"name": "greet", "arguments": [{"name": "who", "required": True}]}]
        answer = {"prompts": listed("prompts", prompts)}
    elif method == "skills/list" and options.skills:
        answer = {"skills": listed("skills", [skill(uri) for uri in json.loads(options.skills)])}
    elif method == "skills/get" and options.skills:
        answer = {"skill": skill(params["uri"])}
    elif method == "resources/directory/read" and options.skills:
        files = [file["uri"] for uri in json.loads(options.skills) for file in skill(uri)["resources"]]
        children = [{"uri": file, "name": file} for file in files if file.startswith(params["uri"] + "/")]
        answer = {"resources": children, "nextCursor": "page of " + str(params.get("cursor"))}
    elif method == "resources/read":
        answer = {"contents": [{"uri": params["uri"], "text": f"text of {params['uri']}"}]}
    elif method == "prompts/get":
        recipient = (params.get("arguments") or {}).get("who", "you")
        answer = {"messages": [{"role": "user", "content": {"type": "text", "text": f"hello {recipient}"}}]}
    elif method == "completion/complete":
        values = [params["argument"]["value"] + "!", json.dumps(params["ref"])]
        answer = {"completion": {"values": listed("completions", values)}}
    elif method == "tools/call" and options.result:
        answer = json.loads(options.result)
    elif method == "tools/call" and listed("result", None) is not None:
        answer = dict(listed("result", None))
    elif method == "tools/call" and params["name"] in listed("results", {}):  # by the name of the tool
        answer = dict(listed("results", {})[params["name"]])
    elif method == "tools/call":
        _thread.start_new_thread(call, (request_id, params["name"], params.get("arguments") or {}, meta))
        return
    if answer is None:
        send({"id": request_id, "error": {"code": -32601, "message": f"Method not found: {method}"}})
        return
    if modern and method != "server/discover":
        answer = {"ttlMs": 0, "cacheScope": "private", **answer}
    send({"id": request_id, "result": finish(answer, meta)})
    if options.grow_once_listed and method == "tools/list" and not tools_added:
        tools_added.append("meanwhile")
        announce("notifications/tools/list_changed")


def handle_later(message: dict) -> None:
    time.sleep(options.list_pause)
    handle(message, paused=True)


def note(line: str) -> None:
    if options.journal:
        with open(options.journal, "a") as file:
            file.write(line + "\n")


def main() -> None:
    if options.die is not None:
        sys.stderr.write(options.die + leak + "\n")
        sys.stderr.flush()
        os._exit(1)
    if options.die_if and os.path.exists(options.die_if):
        note(f"died {os.getpid()}")
        sys.stderr.write("not now" + leak + "\n")
        sys.stderr.flush()
        os._exit(1)
    note(f"start {os.getpid()}")
    if options.stubborn:
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.grandchild:
        import subprocess

        program = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
        sys.stderr.write(f"grandchild {child.pid}\n")
        sys.stderr.flush()
    time.sleep(options.start_delay)
    for line in sys.stdin.buffer:
        if options.record:
            with open(options.record, "ab") as file:
                file.write(line)
        if options.silent or (options.hang_if and os.path.exists(options.hang_if)):
            continue
        handle(json.loads(line))
    while options.stubborn:
        time.sleep(60)


main()
