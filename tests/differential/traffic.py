"""Random servers and random requests to them, the same for the same seed: every member a protocol knows, and more."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Sequence
from typing import Any, Final

Json = dict[str, Any]

TEXTS: Final = (
    "",
    "a",
    "grüße",
    "日本",
    "\U0001f600",
    "\u0000",
    "\\",
    '"',
    "\u2028",
    "a\nb",
    "e\u0301",
    "\u202e",
    "x" * 300,
    " ",
)
KEYS: Final = ("", "future", "x-extra", "ключ", "a b", "example.org/kept", "uri", "content", "$ref", "\U0001f600")
NUMBERS: Final = (0, 1, -1, 2**53 + 1, 2**64, -(10**30), 0.5, -0.0, 1.0, 1e300, 5e-324, 1.7976931348623157e308, 0.1)
KINDS: Final = ("string", "integer", "number", "boolean", "array", "object")
REQUESTS: Final = ("tools/call",) * 6 + ("resources/read", "prompts/get", "completion/complete", "tools/call") * 2


class Source(random.Random):
    """Random protocol values."""

    def value(self, depth: int = 3) -> Any:
        """Any JSON value."""
        kind = self.randrange(8 if depth else 5)
        if kind == 0:
            return self.choice((None, True, False))
        if kind in (1, 2):
            return self.choice(NUMBERS) if self.random() < 0.7 else self.uniform(-1e6, 1e6)
        if kind in (3, 4):
            return self.text()
        if kind == 5:
            return [self.value(depth - 1) for _ in range(self.randrange(4))]
        return self.object(depth)

    def text(self) -> str:
        """A text of anything but halves of characters."""
        return "".join(self.choices(TEXTS + tuple(string.ascii_letters), k=self.randrange(6)))

    def object(self, depth: int = 3) -> Json:
        """Any object."""
        return {self.choice(KEYS): self.value(depth - 1) for _ in range(self.randrange(4))}

    def extended(self, item: Json) -> Json:
        """`item` with members nobody has heard of, somewhere among its own."""
        members = list(item.items())
        for key in self.sample(("future", "x-unknown", "ключ"), self.randrange(3)):
            members.insert(self.randrange(len(members) + 1), (key, self.value()))
        if self.random() < 0.3:
            members.append(("_meta", {"example.org/m": self.value(), **({"other": self.value()})}))
        return dict(members)

    def block(self) -> Json:
        """One block of content, of every type there is and one there is not."""
        data = "aGVsbG8="
        number = self.randrange(6)
        uri = f"test://links/{self.randrange(10**9)}"
        block: Json = [
            {"type": "text", "text": self.text()},
            {"type": "image", "data": data, "mimeType": "image/png"},
            {"type": "audio", "data": data, "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": uri, "name": self.text()},
            {"type": "resource", "resource": self.extended({"uri": uri, "text": self.text()})},
            {"type": "future", "uri": uri, "value": self.value()},
        ][number]
        if self.random() < 0.3:
            block["annotations"] = self.extended({"audience": ["user"], "priority": 0.5})
        return self.extended(block)


def schema(source: Source) -> Json:
    """An input schema that arguments can be made for."""
    names = source.sample(("text", "number", "flag", "list", "thing", "ключ"), source.randrange(5))
    properties = {name: source.extended({"type": source.choice(KINDS), "description": source.text()}) for name in names}
    for definition in properties.values():
        if definition["type"] == "array":
            definition["items"] = {"type": "string"}
    required = [name for name in names if source.random() < 0.5]
    return source.extended({"type": "object", "properties": properties, "required": required})


def valid(source: Source, arguments_schema: Json) -> Json:
    """Arguments that fit a schema of these."""
    value_by_type: dict[str, Any] = {
        "string": source.text(),
        "integer": source.choice((0, -7, 2**40)),
        "number": source.choice((0, 0.25, -1e10)),
        "boolean": source.random() < 0.5,
        "array": [source.text()],
        "object": source.object(2),
    }
    properties, required = arguments_schema["properties"], arguments_schema["required"]
    return {
        name: value_by_type[definition["type"]]
        for name, definition in properties.items()
        if name in required or source.random() < 0.7
    }


class Catalog:
    """What the server of a seed lists."""

    def __init__(self, seed: int) -> None:
        source = Source(f"{seed} lists")
        self.tools = [self._tool(source, number) for number in range(8)]
        self.resources = [source.extended({"uri": f"test://one/{n}", "name": f"one{n}", "size": n}) for n in range(4)]
        self.templates = [source.extended({"uriTemplate": "test://many/{id}/{+rest}", "name": "many"})]
        self.prompts = [
            source.extended({"name": f"prompt{n}", "arguments": [source.extended({"name": "who", "required": False})]})
            for n in range(3)
        ]

    @staticmethod
    def _tool(source: Source, number: int) -> Json:
        tool: Json = {"name": f"tool{number}", "inputSchema": schema(source), "description": source.text()}
        if source.random() < 0.5:
            tool |= {"title": source.text(), "annotations": source.extended({"readOnlyHint": True})}
        if source.random() < 0.5:
            tool["icons"] = [source.extended({"src": "data:image/png;base64,", "sizes": ["any"]})]
        return source.extended(tool)


def requests(seed: int, count: int) -> list[tuple[str, Json]]:
    """Method and params of so many sound requests, without what belongs to a hop."""
    source, catalog = Source(f"{seed} requests"), Catalog(seed)
    pairs: list[tuple[str, Json]] = []
    for _ in range(count):
        method = source.choice(REQUESTS)
        if method == "tools/call":
            tool = source.choice(catalog.tools)
            params: Json = {"name": tool["name"], "arguments": valid(source, tool["inputSchema"])}
        elif method == "resources/read":
            uris = ("test://one/1", "test://many/5/a/b", "test://many/%20/x?y=1#z", "test://one/3")
            params = {"uri": source.choice(uris)}
        elif method == "prompts/get":
            params = {"name": f"prompt{source.randrange(3)}", "arguments": {"who": source.text()}}
        else:
            ref = source.choice(
                ({"type": "ref/prompt", "name": "prompt0"}, {"type": "ref/resource", "uri": "test://many/{id}/{+rest}"})
            )
            params = {"ref": source.extended(dict(ref)), "argument": {"name": "who", "value": source.text()}}
        params = source.extended(params)
        if source.random() < 0.3:
            params["_meta"] = {
                "traceparent": "00-" + "a" * 32,
                "example.org/x": source.value(),
                **params.get("_meta", {}),
            }
        pairs.append((method, params))
    return pairs


def answer(seed: int, method: str, params: Json, modern: bool) -> tuple[list[Json], Json]:
    """The notifications (method and params; progress without its token) and the `result` or `error` of a request."""
    source = Source(f"{seed} {method} {json.dumps(params)}")
    notified: list[Json] = []
    for step in range(source.randrange(3)):
        notified.append(
            {"method": "notifications/progress", "params": source.extended({"progress": step, "total": 9.5})}
        )
    if source.random() < 0.1:
        code = source.choice((-32000, -32602, -32603, 7, -1))
        return notified, {"error": source.extended({"code": code, "message": source.text(), "data": source.value()})}
    result: Json
    if method == "tools/call":
        result = {"content": [source.block() for _ in range(source.randrange(4))]}
        if source.random() < 0.5:
            result["structuredContent"] = source.value() if modern else source.object()
        if source.random() < 0.2:
            result["isError"] = source.random() < 0.5
    elif method == "resources/read":
        result = {
            "contents": [source.extended({"uri": params["uri"], "text": source.text(), "mimeType": "text/plain"})]
        }
    elif method == "prompts/get":
        messages = [source.extended({"role": "user", "content": source.block()}) for _ in range(source.randrange(3))]
        result = {"description": source.text(), "messages": messages}
    else:
        result = {"completion": source.extended({"values": [source.text()], "total": 1, "hasMore": False})}
    # What the server has seen is part of what it answers: the way there is compared with it.
    result = source.extended(result)
    result["_meta"] = {**result.get("_meta", {}), "example.org/seen": params}
    if modern:
        result["resultType"] = "complete"
        if method == "resources/read":
            result |= {"ttlMs": source.randrange(1000), "cacheScope": source.choice(("public", "private"))}
    return notified, {"result": result}


LISTS: Final[Sequence[tuple[str, str, str]]] = (
    ("tools/list", "tools", "tools"),
    ("resources/list", "resources", "resources"),
    ("resources/templates/list", "resourceTemplates", "templates"),
    ("prompts/list", "prompts", "prompts"),
)
"""Method, member of its result, attribute of Catalog."""
