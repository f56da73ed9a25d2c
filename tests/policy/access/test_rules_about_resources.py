"""A rule about resources holds for every spelling that some server reads as what the rule means."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.policy.uri_rules import UriRules
from tests.fakes.client import PATIENCE, StdioClient, hub
from tests.policy.access.greedy_reader import texts
from tests.tiers import EXAMPLES

READER = str(Path(__file__).with_name("greedy_reader.py"))

SECRET = "SECRET"
SCHEMES = ("file", "docs", "repo", "https", "ui")

EVERYWHERE = {
    "as it is": "{scheme}:///{path}",
    "dot segment": "{scheme}:///./{path}",
    "double slash": "{scheme}:///.//{path}",
    "step up": "{scheme}:///other/../{path}",
    "step up from what is allowed": "{scheme}:///public/../{path}",
    "step above the root": "{scheme}:///../../{path}",
    "encoded step up": "{scheme}:///other/%2e%2e/{path}",
    "half encoded step up": "{scheme}:///other/.%2E/{path}",
    "twice encoded step up": "{scheme}:///other/%252e%252e/{path}",
    "encoded slashes": "{scheme}:///other%2f..%2f{path}",
    "twice encoded slashes": "{scheme}:///other%252f..%252f{path}",
    "encoded": "{scheme}:///{encoded}",
    "twice encoded": "{scheme}:///{twice}",
    "upper case": "{scheme}:///{upper}",
    "scheme in upper case": "{upper_scheme}:///{path}",
    "query": "{scheme}:///{path}?x=1",
    "fragment": "{scheme}:///{path}#x",
    "encoded query": "{scheme}:///{path}%3Fx=1",
    "parameters": "{scheme}:///{path};x=1",
    "step up in the query": "{scheme}:///other?/../{path}",
    "backslashes": "{scheme}:\\\\\\{backslashes}",
    "encoded backslashes": "{scheme}:///other%5c..%5c{path}",
    "one slash": "{scheme}:/{path}",
    "no slash": "{scheme}:{path}",
    "zero width": "{scheme}:///{invisible}",
    "full width": "{scheme}:///{wide}",
    "full width step up": "{scheme}:///other/\uff0e\uff0e\uff0f{path}",
    "slash behind": "{scheme}:///{path}/",
    "dot behind": "{scheme}:///{path}.",
    "blank in front": " {scheme}:///{path}",
    "zero byte": "{scheme}:///{path}%00.png",
    "line feed": "{scheme}:///{path}%0a",
}
FILES = {
    "four slashes": "file:////{path}",
    "five slashes": "file://///{path}",
    "this machine": "file://localhost/{path}",
    "this machine by number": "file://127.0.0.1/{path}",
    "another machine": "file://another.example/{path}",
    "the path as host": "file://{path}",
    "stream": "file:///{path}::$DATA",
}
DOTS = frozenset(how for how, text in EVERYWHERE.items() if "step" in how or "/./" in text or ".." in text)
UNCERTAIN = DOTS | {"double slash", "zero byte", "line feed"}
"""What is refused whatever it leads to; so is what readers disagree about, for rules that allow."""
CERTAIN = ("as it is", "encoded", "scheme in upper case", "query", "fragment")
"""Spellings that stay what they are for every reader, in URIs of files."""
LONGER = ("query", "fragment")
"""Those of which a rule without wildcards says nothing."""


@functools.cache
def rules(*patterns: str) -> UriRules:
    return UriRules(patterns)


def spelled(spelling: str, scheme: str, path: str) -> str:
    encoded = "/".join("".join(f"%{ord(char):02x}" for char in part) for part in path.split("/"))
    return (EVERYWHERE | FILES)[spelling].format(
        scheme=scheme,
        upper_scheme=scheme.upper(),
        path=path,
        encoded=encoded,
        twice=encoded.replace("%", "%25"),
        upper=path.upper(),
        backslashes=path.replace("/", "\\"),
        invisible=f"{path[:2]}\u200b{path[2:]}",
        wide="".join(chr(ord(char) + 0xFEE0) if char.isalpha() else char for char in path),
    )


REFUSING = ("{scheme}:///private*", "{scheme}:///private/*", "{scheme}:///private/s.txt", "*private*", "{upper}:///Private*",
            "{scheme}:///[op]rivate/?.txt", "{scheme}:///%70rivate*", "{scheme}:///x/../private*")  # fmt: skip


@settings(max_examples=16 * EXAMPLES)
@given(scheme=st.sampled_from(SCHEMES), rule=st.sampled_from(REFUSING), how=st.sampled_from([*EVERYWHERE, *FILES]))
def test_a_refusing_rule_covers_every_spelling_of_its_uri_and_no_other_uri(scheme: str, rule: str, how: str) -> None:
    scheme = "file" if how in FILES else scheme
    refused = rules(rule.format(scheme=scheme, upper=scheme.upper()))
    assert refused.covers(spelled(how, scheme, "private/s.txt"))
    if how not in UNCERTAIN:
        assert not refused.covers(spelled(how, scheme, "public/p.txt"))


@settings(max_examples=10 * EXAMPLES)
@given(
    scheme=st.sampled_from(SCHEMES),
    how=st.sampled_from([*EVERYWHERE, *FILES]),
    rule=st.sampled_from(("*", "/*", "/p.txt")),
)
def test_an_allowing_rule_admits_no_spelling_of_another_uri(scheme: str, how: str, rule: str) -> None:
    scheme = "file" if how in FILES else scheme
    allowed = rules(f"{scheme}:///public{rule}")
    assert not allowed.admits(spelled(how, scheme, "private/s.txt"))
    assert allowed.admits(f"{scheme}:///public/p.txt")
    if scheme == "file" and how in CERTAIN and not (rule == "/p.txt" and how in LONGER):
        assert allowed.admits(spelled(how, scheme, "public/p.txt"))


TOKENS = [
    "/",
    "//",
    ".",
    "..",
    "%2e",
    "%2F",
    "%5c",
    "\\",
    "public",
    "other",
    "?",
    "#",
    ";",
    "%252e",
    "\uff0f",
    "\u200b",
]


@settings(max_examples=12 * EXAMPLES)
@given(st.lists(st.sampled_from(TOKENS), max_size=9).map("".join), st.sampled_from(["file:///", "file:", "docs://"]))
def test_no_spelling_of_a_secret_uri_escapes_its_rule(middle: str, start: str) -> None:
    """The reader tries every way of reading a URI, and the right one is among them."""
    uri = f"{start}{middle}private/s.txt"
    scheme = uri.partition(":")[0]
    if SECRET in texts(uri):
        assert rules(f"{scheme}:///private*", f"{scheme}:///srv/private*").covers(uri)
        assert not rules(f"{scheme}:///public*").admits(uri)
    assert SECRET in texts(f"{start}./{middle.replace('..', '')}/../../../../../../../../../../private/s.txt")


@pytest.mark.parametrize(
    ("rule", "admitted", "refused"),
    [
        ("docs://README*", "docs://README.md", "docs://readme.md"),
        ("docs://search?q=public*", "docs://search?q=public1", "docs://search?q=public1&q=secret"),
        ("docs://search?q=public*", "docs://search?q=public", "docs://search"),
        ("docs://a", "docs://a", "docs://a?path=b"),
        ("docs://a/*", "docs://a/b", "docs://a%2Fb"),
        ("docs://{name}", "docs://a", "docs://a/b"),
        ("web://https://example.org*", "web://https://example.org/x", "web://https:example.org/x"),
        ("file:///my dir*", "file:///my%20dir/x", "file:///my%2520dir/x"),
        ("file:///a?.txt", "file:///ab.txt", "file:///a?.txt"),
        ("docs://x[0-9]", "docs://x5", "docs://xx"),
        ("file:///C:/public*", "file:///c:/public/p", "file:///C:/public/../private"),
        ("file:///C:/public*", "file:///c%3A/public/p", "file:///D:/public/p"),
        ("caf\u00e9://x", "cafe\u0301://x", "cafe://x"),
        ("file://nas/public*", "file://NAS/public/p", "file:///public/p"),
        ("https://example.org/public*", "https://EXAMPLE.org:443/public/p", "https://example.org:444/public/p"),
    ],
)
def test_an_allow_rule_matches_only_the_uris_it_names(rule: str, admitted: str, refused: str) -> None:
    assert rules(rule).admits(admitted)
    assert not rules(rule).admits(refused)


@pytest.mark.parametrize(
    ("rule", "refused", "other"),
    [
        ("docs://search?q=secret*", "docs://search?lang=de&q=secret1", "docs://search?q=public"),
        ("docs://search?q=secret*", "docs://search?Q=%53ecret", "docs://search?x=secret"),
        ("file:///C:/private*", "file:///c|/private/s", "file:///D:/private/s"),
        ("file:///C:/private*", "file:\\\\\\c:\\private\\s", "file:///C:/public/s"),
        ("file:///private*", "file:///PRIVAT~1/s.txt", "file:///privacy/s.txt"),
        ("file:///private*", "file:////PRIVAT~1/s.txt", "file:////privacy/s.txt"),
        ("file:///private*", "file:///\\PRIVAT~1/s.txt", "file:///\\privacy/s.txt"),
        ("https://example.org/private*", "https://me@EXAMPLE.org:443/private", "https://example.com/private"),
        ("docs://private*", "docs:///private/x", "docs://privacy"),
        ("repo://a/[ab]*", "REPO://a//B1", "repo://a/c1"),
        ("ui://caf\u00e9", "ui://cafe\u0301", "ui://cafe"),
        ("mcp-hub://b/file:///private*", "mcp-hub://b/file:///./private/s", "mcp-hub://b/file:///public"),
    ],
)
def test_a_refusing_rule_covers_other_names_of_the_same_resource(rule: str, refused: str, other: str) -> None:
    assert rules(rule).covers(refused)
    assert not rules(rule).covers(other)


def test_a_rule_for_tools_does_not_apply_to_resources() -> None:
    assert not rules("write_*").covers("docs://write_%00")
    assert not rules("write_*").covers("docs://%00")


# --- the hub in front of the reader ------------------------------------------------------------------------------


@dataclass
class Peer:
    runner: asyncio.Runner
    client: StdioClient

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            async with asyncio.timeout(PATIENCE):
                message: dict[str, Any] = await self.client.start(method, params)
                return message

        return self.runner.run(ask())

    def read(self, server: str, uri: str) -> str | None:
        """The text of a resource of one server; None if the answer is an error."""
        message = self.answer("resources/read", {"uri": f"mcp-hub://{server}/{uri}"})
        return message["result"]["contents"][0]["text"] if "result" in message else None


RULES: dict[str, dict[str, Any]] = {
    "free": {},
    "denied": {"disable_resources": ["{scheme}:///private*", "{scheme}:///srv/private*"]},
    "exact": {"disable_resources": ["{scheme}:///private/s.txt", "{scheme}:///srv/private/s.txt"]},
    "listed": {},
    "allowed": {"enable_resources": ["{scheme}:///public*"]},
}


@pytest.fixture(scope="module", params=[("file", False), ("file", True), ("docs", False)], ids=str)
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Peer]]:
    scheme, modern = request.param
    servers = {
        name: {
            "command": sys.executable,
            "args": [READER, scheme],
            **{key: [rule.format(scheme=scheme) for rule in patterns] for key, patterns in keys.items()},
        }
        for name, keys in RULES.items()
    }
    blacklist = [f"listed/{scheme}:///private*", ["lis*", f"{scheme}:///srv/private*"]]
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        context = hub(tmp_path_factory.mktemp("uris"), servers, modern=modern, blacklist=blacklist, list_wait=30)
        client = runner.run(stack.enter_async_context(context))
        session = Peer(runner, client)
        assert "result" in session.answer("resources/list", {})
        yield scheme, session
        runner.run(stack.aclose())


def test_every_spelling_of_a_refused_uri_is_refused_and_is_readable_without_the_rule(peer: tuple[str, Peer]) -> None:
    scheme, session = peer
    for spelling in [*EVERYWHERE, *(FILES if scheme == "file" else ())]:
        secret, public = spelled(spelling, scheme, "private/s.txt"), spelled(spelling, scheme, "public/p.txt")
        assert session.read("free", secret) == SECRET, spelling
        assert session.read("free", public) == "for everybody", spelling
        for server in ("denied", "listed", "exact"):
            assert session.read(server, secret) is None, (spelling, server)
            if spelling not in UNCERTAIN:
                assert session.read(server, public) == "for everybody", (spelling, server)
        assert session.read("allowed", secret) is None, spelling
        if scheme == "file" and spelling in CERTAIN:
            assert session.read("allowed", public) == "for everybody", spelling


@pytest.mark.parametrize("method", ["resources/read", "resources/subscribe", "completion/complete"])
def test_a_refused_uri_answers_byte_for_byte_as_an_unknown_one(peer: tuple[str, Peer], method: str) -> None:
    scheme, session = peer
    if method == "resources/subscribe" and session.client.modern:
        return
    errors = set()
    for server in ("denied", "listed", "exact", "allowed", "nobody"):
        for spelling in ("as it is", "step up", "encoded slashes", "line feed", "upper case"):
            uri = f"mcp-hub://{server}/{spelled(spelling, scheme, 'private/s.txt')}"
            reference = {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "path", "value": ""}}
            message = session.answer(method, reference if method == "completion/complete" else {"uri": uri})
            errors.add(json.dumps(message["error"]).replace(json.dumps(uri)[1:-1], "URI"))
    assert len(errors) == 1, errors


def test_lists_contain_exactly_what_the_rules_allow(peer: tuple[str, Peer]) -> None:
    scheme, session = peer
    listed = [item["uri"] for item in session.answer("resources/list", {})["result"]["resources"]]
    served = {name: {uri.split("/", 3)[3] for uri in listed if uri.startswith(f"mcp-hub://{name}/")} for name in RULES}
    served["free"] |= {uri for uri in listed if not uri.startswith("mcp-hub:")}
    public = {f"{scheme}:///public/p.txt"}
    assert len(served["free"]) == 3
    assert served["denied"] == served["listed"] == served["exact"] == served["allowed"] == public


def test_completions_never_contain_refused_uris(peer: tuple[str, Peer]) -> None:
    scheme, session = peer
    completions = {}
    for server in RULES:
        listed = session.answer("resources/templates/list", {})["result"]["resourceTemplates"]
        template = f"{scheme}:///{{+path}}"
        exposed = {item["uriTemplate"] for item in listed} & {template, f"mcp-hub://{server}/{template}"}
        uri = max(exposed) if server != "free" else template
        reference = {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "path", "value": ""}}
        completions[server] = session.answer("completion/complete", reference)["result"]["completion"]["values"]
    assert completions.pop("free") == ["private/s.txt", "public/p.txt", "srv/private/s.txt"]
    assert set(map(tuple, completions.values())) == {("public/p.txt",)}


def test_a_query_with_very_many_parameters_is_refused_by_rules_about_queries() -> None:
    many = "docs://search?" + "x=1&" * 1000
    assert rules("docs://search?q=secret*").covers(many)
    assert not rules("docs://search?x=*").admits(many)
    assert rules("docs://search?x=*").admits("docs://search?x=1&x=2")
