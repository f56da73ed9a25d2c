"""The sets of queries, read from checkouts of their public repositories below one directory."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_hub.catalog import Catalog, CatalogSource, Item, Route
from mcp_hub.protocol.kinds import TOOLS


@dataclass(frozen=True)
class Query:
    """What is asked, and how good each right answer is: {label: grade}."""

    text: str
    right: Mapping[str, int]


@dataclass(frozen=True)
class QuerySet:
    """A catalog, queries over it, and the label of each exposed name."""

    catalog: Catalog
    queries: list[Query]
    labels: Mapping[str, str]


@dataclass(frozen=True)
class _Tool:
    server: str
    wire: dict[str, Any]
    label: str
    about: str = ""

    def item(self) -> Item:
        """Some sets have no schemas; a tool without one is not listed."""
        name = self.wire["name"]
        return Item(Route(self.server, TOOLS, name), name, {"inputSchema": {"type": "object"}, **self.wire})


def _query_set(tools: list[_Tool], queries: list[Query]) -> QuerySet:
    by_server: dict[str, list[_Tool]] = {}
    for tool in tools:
        by_server.setdefault(tool.server, []).append(tool)
    sources = [
        CatalogSource(server, server, tuple(member.item() for member in members))
        for server, members in by_server.items()
    ]
    catalog = Catalog.build(sources)
    about = {tool.server: tool.about for tool in tools}
    catalog.about = lambda server: about[server]
    labels = {}
    for tool in tools:
        exposed = catalog.exposed(Route(tool.server, TOOLS, tool.wire["name"]))
        if exposed is not None:
            labels[exposed] = tool.label
    return QuerySet(catalog, queries, labels)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def metatool(data: Path) -> QuerySet:
    """HowieHwong/MetaTool (MIT): 199 plugins, a query for one of them each. What is fitted is fitted on this."""
    directory = data / "MetaTool" / "dataset"
    plugins = _read(directory / "plugin_des.json")
    tools = [_Tool("plugins", {"name": name, "description": text}, name) for name, text in plugins.items()]
    with (directory / "data" / "all_clean_data.csv").open(encoding="utf-8", newline="") as file:
        queries = [Query(row["Query"], {row["Tool"]: 1}) for row in csv.DictReader(file)]
    return _query_set(tools, queries)


def golden(data: Path) -> QuerySet:
    """smart-mcp-proxy/mcpproxy-go (MIT): 45 tools of seven servers, 47 graded queries that never name the tool."""
    directory = data / "mcpproxy-go" / "specs" / "065-evaluation-foundation" / "datasets"
    listed = _read(directory / "corpus_v1.tools.json")["tools"]
    tools = [
        _Tool(entry["server"], {"name": entry["tool"], "description": entry["description"]}, entry["tool_id"])
        for entry in listed
    ]
    queries = [
        Query(entry["query"], {label["tool_id"]: label["relevance"] for label in entry["labels"] if label["relevance"]})
        for entry in _read(directory / "retrieval_golden_v1.json")["queries"]
    ]
    return _query_set(tools, queries)


def steps(data: Path) -> QuerySet:
    """icip-cas/LiveMCPBench (Apache-2.0): steps of tasks as people wrote them, where each step has its tool."""
    tools = _live_tools(data)
    known_labels = {tool.label for tool in tools}
    queries = []
    for task in _tasks(data):
        notes = task["Annotator Metadata"]
        texts, names = _numbered_items(notes["Steps"]), _numbered_items(notes["Tools"])
        if len(texts) == len(names):
            queries += [Query(text, {name: 1}) for text, name in zip(texts, names, strict=True) if name in known_labels]
    return _query_set(tools, queries)


def relabelled(data: Path) -> QuerySet:
    """The same steps with labels by the rule in bench/README.md: {"queries": [{"query", "labels": [names]}]}."""
    listed = _read(data / "relabelled_steps.json")["queries"]
    queries = [Query(entry["query"], dict.fromkeys(entry["labels"], 1)) for entry in listed if entry["labels"]]
    return _query_set(_live_tools(data), queries)


def recorded(data: Path) -> QuerySet:
    """The same tasks: what a model asked its search for. Every tool that people noted for the task is right."""
    tools = _live_tools(data)
    known_labels = {tool.label for tool in tools}
    right = {task["task_id"]: _numbered_items(task["Annotator Metadata"]["Tools"]) for task in _tasks(data)}
    queries: dict[tuple[str, str], Query] = {}
    for file in sorted((data / "LiveMCPBench" / "baseline" / "annotation").glob("*.json")):
        for run in _read(file):
            labels = {name: 1 for name in right[run["task_id"]] if name in known_labels}
            for text in _recorded_queries(run.get("messages") or []) if labels else ():
                queries.setdefault((run["task_id"], text), Query(text, labels))
    return _query_set(tools, list(queries.values()))


def _recorded_queries(messages: list[dict[str, Any]]) -> list[str]:
    """The queries of one run, without the marks that its search wants around them."""
    queries = []
    for message in messages:
        for call in message.get("tool_calls") or []:
            if call["function"]["name"] == "route":
                text = json.loads(call["function"]["arguments"]).get("query", "")
                text = re.sub(r"</?tool_assistant>", "", text)
                queries.append(re.sub(r"(?m)^\s*(server|tool)\s*:\s*", "", text).strip())
    return queries


def _tasks(data: Path) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = _read(data / "LiveMCPBench" / "annotated_data" / "all_annotations.json")
    return tasks


def _live_tools(data: Path) -> list[_Tool]:
    """527 tools. Some have the same name on two servers, and the notes do not say which is meant: either is right."""
    return [
        _Tool(server, tool, tool["name"], f"{entry['name']} {entry.get('description') or ''}")
        for entry in _read(data / "LiveMCPBench" / "tools" / "LiveMCPTool" / "tools.json")
        for server, lists in entry["tools"].items()
        for tool in lists["tools"]
    ]


def live_servers(data: Path) -> dict[str, list[dict[str, Any]]]:
    """The same tools as {server: the definitions that it lists}."""
    definitions: dict[str, list[dict[str, Any]]] = {}
    for tool in _live_tools(data):
        definitions.setdefault(tool.server, []).append({"inputSchema": {"type": "object"}, **tool.wire})
    return definitions


def _numbered_items(text: str) -> list[str]:
    return [re.sub(r"^\s*\d+[.)]\s*", "", line).strip() for line in text.splitlines() if line.strip()]


SETS: Mapping[str, Callable[[Path], QuerySet]] = {
    "MetaTool": metatool,
    "golden set": golden,
    "steps": steps,
    "steps, relabelled": relabelled,
    "recorded": recorded,
}
