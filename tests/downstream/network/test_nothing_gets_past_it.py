"""Headers of callers, routes that do not exist, forged origins and hosts: none of it reaches an upstream."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.config.listen import Listen
from mcp_hub.downstream.admission import Gate
from tests.downstream.network.dumping import dumping
from tests.downstream.network.visitor import ERAS, TOKENS, network_hub, visiting
from tests.fakes.client import PATIENCE
from tests.tiers import EXAMPLES

pytestmark = pytest.mark.anyio

CANARY = "canary-5e11"
FORGED = {
    "cookie": f"session={CANARY}",
    "x-api-key": CANARY,
    "proxy-authorization": f"Basic {CANARY}",
    "x-forwarded-for": CANARY,
    "x-forwarded-host": CANARY,
    "x-real-ip": CANARY,
    "forwarded": f"for={CANARY}",
    "via": CANARY,
    "user-agent": CANARY,
    "traceparent": CANARY,
    "accept-language": CANARY,
    "mcp-whatever": CANARY,
    "mcp-param-region": CANARY,
    "last-event-id": CANARY,
    "x-upstream": CANARY,
}


@pytest.mark.parametrize("upstream_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_no_header_of_a_caller_reaches_an_upstream(tmp_path: Path, era: str, upstream_era: str) -> None:
    listen = {"principals": {"alice": TOKENS["alice"]}}
    async with dumping() as server:
        entry = {"url": server.url, "era": upstream_era, "headers": {"X-Own": "of the configuration"}}
        async with (
            network_hub(tmp_path, {"up": entry}, listen) as (_, base),
            visiting(base, era, TOKENS["alice"]) as visitor,
        ):
            visitor.http.headers.update(FORGED)
            assert await visitor.names("tools/list") == ["up__look"]
            assert await visitor.text("up__look") == "seen"
            assert "result" in await visitor.ask("prompts/get", {"name": "up__greet"})
        assert len(server.calls) == 2
        for headers, message in server.requests:
            assert CANARY not in json.dumps(headers)
            assert TOKENS["alice"] not in json.dumps([headers, message])
            assert "authorization" not in headers
            assert headers["x-own"] == "of the configuration"
            assert headers.get("mcp-session-id", "of-the-upstream") == "of-the-upstream"
            assert not {"origin", "referer", "cookie"} & headers.keys()


async def raw(base: str, data: bytes) -> int:
    """The status of the answer to these bytes."""
    host, _, port = urlsplit(base).netloc.rpartition(":")
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(data)
            return int((await reader.readline()).split()[1])
        finally:
            writer.close()


def posted(path: str, body: bytes, *lines: bytes) -> bytes:
    head = [b"POST %s HTTP/1.1" % path.encode(), *lines, b"Content-Length: %d" % len(body)]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


JSON = b"Content-Type: application/json"
HOST = b"Host: 127.0.0.1"
BAD: dict[str, tuple[list[bytes], int]] = {
    "no Host": ([JSON], 421),
    "an empty Host": ([b"Host:", JSON], 421),
    "a rebound name": ([b"Host: evil.example", JSON], 421),
    "a name that ends so": ([b"Host: evil127.0.0.1", JSON], 421),
    "a name that begins so": ([b"Host: 127.0.0.1.evil.example", JSON], 421),
    "userinfo": ([b"Host: 127.0.0.1@evil.example", JSON], 421),
    "a path": ([b"Host: 127.0.0.1/mcp", JSON], 421),
    "a query": ([b"Host: 127.0.0.1?x", JSON], 421),
    "a fragment": ([b"Host: 127.0.0.1#x", JSON], 421),
    "a backslash": ([b"Host: 127.0.0.1\\evil.example", JSON], 421),
    "two in one": ([b"Host: 127.0.0.1, evil.example", JSON], 421),
    "two of them": ([HOST, b"Host: evil.example", JSON], 421),
    "twice the same": ([HOST, HOST, JSON], 421),
    "another notation": ([b"Host: 2130706433", JSON], 421),
    "a full stop at the end": ([b"Host: localhost.", JSON], 421),
    "a port that is none": ([b"Host: 127.0.0.1:mcp", JSON], 421),
    "letters outside of ASCII": (["Host: lócalhost".encode(), JSON], 421),
    "an open bracket": ([b"Host: [::1", JSON], 421),
    "a zone": ([b"Host: [::1%25lo]", JSON], 421),
    "Origin null": ([HOST, b"Origin: null", JSON], 403),
    "an empty Origin": ([HOST, b"Origin:", JSON], 403),
    "a foreign Origin": ([HOST, b"Origin: https://evil.example", JSON], 403),
    "an Origin that begins so": ([HOST, b"Origin: http://127.0.0.1.evil.example", JSON], 403),
    "an Origin of another scheme": ([HOST, b"Origin: https://127.0.0.1", JSON], 403),
    "an Origin of another port": ([HOST, b"Origin: http://127.0.0.1:1", JSON], 403),
    "Origin twice": ([HOST, b"Origin: http://127.0.0.1", b"Origin: http://127.0.0.1", JSON], 403),
    "Forwarded": ([HOST, b"Forwarded: host=127.0.0.1", JSON], 403),
    "X-Forwarded-Host": ([b"Host: evil.example", b"X-Forwarded-Host: 127.0.0.1", JSON], 421),
    "no Content-Type": ([HOST], 415),
    "a form": ([HOST, b"Content-Type: application/x-www-form-urlencoded"], 415),
    "plain text": ([HOST, b"Content-Type: text/plain"], 415),
    "parts": ([HOST, b"Content-Type: multipart/form-data; boundary=x"], 415),
    "something like JSON": ([HOST, b"Content-Type: application/jsonp"], 415),
    "JSON as a parameter": ([HOST, b"Content-Type: text/plain; application/json"], 415),
    "two Content-Types": ([HOST, JSON, b"Content-Type: text/plain"], 415),
    "no session": ([HOST, JSON], 400),
    "another session": ([HOST, JSON, b"Mcp-Session-Id: x"], 404),
    "two sessions": ([HOST, JSON, b"Mcp-Session-Id: x", b"Mcp-Session-Id: y"], 400),
    "two lengths": ([HOST, JSON, b"Content-Length: 3"], 400),
    "a length and chunks": ([HOST, JSON, b"Transfer-Encoding: chunked"], 400),
    "two versions": ([HOST, JSON, b"MCP-Protocol-Version: 2026-07-28", b"MCP-Protocol-Version: 2025-11-25"], 400),
    "an unheard-of version": ([HOST, JSON, b"MCP-Protocol-Version: 1999-01-01"], 400),
}
ROUTES = ("/", "/healthz", "/healthz/live", "/healthz/ready", "/mcp", "/messages", "/sse")
NOWHERE = (
    "/mcp/x", "/MCP", "/mcp.json", "/mcp;x", "/mcp%2f..", "/register", "/authorize", "/token",
    "/oauth/register", "/servers", "/api/servers", "/api/test", "/mcp-rest/test/connection", "/connect", "/proxy",
    "/upstreams", "/config", "/reload", "/admin", "/docs", "/openapi.json", "/metrics/x", "/.env",
    "/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp",
    "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration", "/sse/x", "/messages/x",
)  # fmt: skip


async def test_malformed_and_forged_requests_are_refused_and_reach_no_upstream(tmp_path: Path) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "up__look", "arguments": {}}}
    body = json.dumps(call).encode()
    async with (
        dumping() as server,
        network_hub(tmp_path, {"up": {"url": server.url}}, {}) as (_, base),
        visiting(base, "handshake") as visitor,
    ):
        assert await visitor.names("tools/list") == ["up__look"]
        before = len(server.requests)
        statuses = {case: await raw(base, posted("/mcp", body, *lines)) for case, (lines, _) in BAD.items()}
        assert statuses == {case: status for case, (_, status) in BAD.items()}
        assert len(server.requests) == before
        assert await visitor.text("up__look") == "seen"
        assert len(server.calls) == 1


async def test_only_existing_routes_are_served(tmp_path: Path) -> None:
    orders = {
        "command": "touch",
        "args": ["x"],
        "url": "http://127.0.0.1:1/mcp",
        "mcpServers": {},
        "transport": "stdio",
    }
    async with (
        dumping() as server,
        network_hub(tmp_path, {"up": {"url": server.url}}, {}) as (_, base),
        visiting(base, "handshake") as visitor,
    ):
        assert await visitor.names("tools/list") == ["up__look"]
        await visitor.ask("tools/call", {"name": "up__look"})  # opens the conversation of this era
        before = len(server.requests)
        for path in NOWHERE:
            for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
                answer = await visitor.http.request(method, path, json=orders if method != "GET" else None)
                assert (answer.status_code, answer.text) == (404, "Not Found\n"), (method, path)
        for path in ROUTES:
            allowed_methods = {
                **dict.fromkeys(("/", "/healthz", "/healthz/live", "/healthz/ready"), ("GET", "HEAD")),
                "/mcp": ("GET", "POST", "DELETE"),
                "/sse": ("GET",),
            }
            for method in ("PUT", "PATCH", "GET", "POST", "DELETE"):
                if method not in allowed_methods.get(path, ("POST",)):
                    assert (await visitor.http.request(method, path, json=orders)).status_code == 405, (method, path)
        # In a call they are members nobody knows, which pass like any other and mean nothing to the hub.
        for params in (orders, {"name": "up__look", **orders, "server": orders}):
            result = (await visitor.ask("tools/call", params)).get("result", {})
            assert not result or result["content"] == [{"type": "text", "text": "seen"}]
        assert [request[1].get("method") for request in server.requests[before:]] == ["tools/call"]


EVIL = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"localhost", b"127.0.0.1", b"[::1]", b"evil.example", b":8808", b"@", b"/", b".", b","]).flatmap(
        lambda first: st.lists(
            st.sampled_from([b"localhost", b"127.0.0.1", b"evil.example", b":1", b"@", b"/", b".", b"\\", b"%", b"#"]),
            max_size=4,
        ).map(lambda parts: first + b"".join(parts))
    ),
)


@given(host=EVIL, origin=st.none() | EVIL)
@settings(max_examples=10 * EXAMPLES)
def test_requests_are_served_only_for_known_hosts(host: bytes, origin: bytes | None) -> None:
    lines: list[tuple[bytes, bytes]] = [(b"host", host), *([(b"origin", origin)] if origin is not None else [])]
    refusal = Gate(Listen()).refusal(lines, 8808)
    name, _, port = host.rpartition(b":") if not host.endswith(b"]") and b":" in host else (host, b"", b"")
    is_known = name.lower() in (b"localhost", b"127.0.0.1", b"[::1]") and (
        b":" not in host or not port or port.isdigit()
    )
    if refusal is None:
        assert is_known
        assert origin is None or origin.lower() in {
            b"http://" + own + b":8808" for own in (b"localhost", b"127.0.0.1", b"[::1]")
        }
    else:
        assert refusal.status == (403 if is_known and len(port) in range(6) and not host.endswith(b":") else 421)


@pytest.mark.parametrize("key", ["tls", "plain"])
def test_only_origins_with_the_listeners_scheme_are_accepted(key: str) -> None:
    given_tls: dict[str, Any] = {"tls": {"cert": "c", "key": "k"}} if key == "tls" else {}
    gate = Gate(Listen.model_validate(given_tls))
    own, foreign = (b"https", b"http") if key == "tls" else (b"http", b"https")
    default = 443 if key == "tls" else 80
    assert gate.allows_origin(own + b"://localhost:8808", 8808)
    assert gate.allows_origin(own + b"://localhost", default)
    assert not gate.allows_origin(foreign + b"://localhost:8808", 8808)
    assert not gate.allows_origin(own + b"://localhost", 8808)
