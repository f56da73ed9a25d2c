"""Whoever is refused before he is let in leaves a line and a count: by whom, why, and never with a token."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcp_hub.config.models import Listen
from mcp_hub.downstream.admission import Gate
from mcp_hub.downstream.refusal_log import BURST, CAUSES, RATE, RefusalLog
from tests.downstream.network.test_tls import certificate
from tests.downstream.network.visitor import ERAS, TOKENS, bearer, network_hub, visiting
from tests.downstream.raw_http import BOTH, message
from tests.fakes.client import HUB, PATIENCE, StdioClient, fake, write_config

pytestmark = pytest.mark.anyio

PROXY = "127.0.0.1"


def written(hub: StdioClient, event: str) -> list[dict[str, Any]]:
    """The records of one kind, as they stand on stderr."""
    lines = [json.loads(line) for line in hub.stderr.splitlines() if line.startswith(b"{") and line.endswith(b"}")]
    return [line for line in lines if line["event"] == event]


async def records(hub: StdioClient, event: str, count: int) -> list[dict[str, Any]]:
    """The records of one kind, once there are `count` of them."""
    await hub.until(lambda: len(written(hub, event)) >= count)
    return written(hub, event)


async def raw(base: str, *requests: bytes) -> None:
    """Send each on a connection of its own and wait for its end."""
    host, _, port = base.partition("://")[2].partition(":")
    for data in requests:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(data)
            await reader.read()
            writer.transport.abort()


def post(host: str, *lines: str, path: str = "/mcp") -> bytes:
    body = message("initialize", {})
    head = [f"Host: {host}", *(f"{name}: {value}" for name, value in BOTH), f"Content-Length: {len(body)}", *lines]
    return "\r\n".join([f"POST {path} HTTP/1.1", *head, "", ""]).encode("latin-1") + body


SECRET = "a-token-that-is-not-known-" + "9" * 16
END = "Connection: close"
CODED = post("localhost", "Transfer-Encoding: gzip, chunked").replace(b"Content-Length", b"X")
CASES: list[tuple[bytes, str, int, str | None]] = [
    (post("localhost", END), "no_token", 401, None),
    (post("localhost", END, f"Authorization: Bearer {SECRET}"), "bad_token", 401, None),
    (post("evil.example", END), "host", 421, "evil.example"),
    (post(f"{SECRET}@localhost\x1b[2J", END), "bad_request", 400, None),
    (post(f"{SECRET}@localhost", END), "host", 421, None),
    (post("localhost", END, "Origin: https://evil.example"), "origin", 403, "https://evil.example"),
    (post("localhost", END, "Origin: null"), "origin", 403, "null"),
    (post("localhost", END, f'Origin: x\\"{SECRET}'), "origin", 403, None),
    (post("localhost", END, "Sec-Fetch-Site: cross-site"), "cross_site", 403, None),
    (post("localhost", END, path="http://evil.example/mcp"), "target", 421, "localhost"),
    (post("localhost", END, path=f"/{SECRET}"), "path", 404, None),
    (CODED, "transfer_encoding", 501, None),
    (post("localhost", f"X: {'x' * 70_000}"), "head_too_large", 431, None),
    (SECRET.encode() + b"\r\n\r\n", "bad_request", 400, None),
]


async def test_every_refusal_writes_one_log_line_and_increments_one_counter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_HUB_RUNTIME_DIR", str(tmp_path / "run"))
    async with network_hub(tmp_path / "hub", {}, {"token": TOKENS["alice"]}) as (hub, base):
        await raw(base, *(data for data, *_ in CASES))
        entries = await records(hub, "refused", len(CASES))
        logged = [(entry["cause"], entry["status"], entry.get("said")) for entry in entries]
        assert logged == [case[1:] for case in CASES]
        assert {entry["peer"] for entry in entries} == {"127.0.0.1"}
        assert SECRET.encode() not in hub.stderr
        assert TOKENS["alice"].encode() not in hub.stderr
        counts: dict[str, int] = {}
        for _, cause, *_ in CASES:
            counts[cause] = counts.get(cause, 0) + 1
        async with httpx2.AsyncClient(headers=bearer(TOKENS["alice"]), timeout=PATIENCE) as http:
            page = (await http.get(f"{base}/metrics")).text
        for cause in CAUSES:
            assert f'mcp_hub_refusals_total{{cause="{cause}"}} {counts.get(cause, 0)}\n' in page
        (facts,) = json.loads(await status("--json"))
        assert facts["refusals"] == counts
        assert f"{len(CASES)} requests refused before authentication: " in await status()


async def status(*arguments: str) -> str:
    completed = await asyncio.to_thread(
        subprocess.run, [*HUB, "status", *arguments], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    return completed.stdout


async def test_a_failed_tls_handshake_is_counted_as_a_refusal(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    async with network_hub(tmp_path / "hub", {}, {"tls": tls}) as (hub, base):
        await raw(base, post("localhost"))
        (entry,) = await records(hub, "refused", 1)
        assert (entry["cause"], entry["peer"]) == ("tls", "127.0.0.1")


async def test_a_principal_with_a_profile_sees_no_refusal_counts(tmp_path: Path) -> None:
    listen = {"principals": {"alice": {"token": TOKENS["alice"], "profile": "p"}}}
    async with (
        network_hub(tmp_path / "hub", {"up": fake()}, listen, profiles={"p": {"tools": ["up/echo"]}}) as (_, base),
        httpx2.AsyncClient(headers=bearer(TOKENS["alice"]), timeout=PATIENCE) as http,
    ):
        assert "refusals" not in (await http.get(f"{base}/metrics")).text


async def test_a_flood_of_refusals_is_counted_and_not_logged(tmp_path: Path) -> None:
    count = 3 * BURST
    async with network_hub(tmp_path / "hub", {}, {"token": TOKENS["alice"]}) as (hub, base):
        host, _, port = base.partition("://")[2].partition(":")
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(post("localhost") * count + post("localhost", END))
            assert (await reader.read()).count(b"HTTP/1.1 401") == count + 1
            writer.close()

        await hub.until(lambda: accounted(hub) > count)
        assert accounted(hub) == count + 1
        assert len(written(hub, "refused")) < count


def accounted(hub: StdioClient) -> int:
    """The number of refusals in the records, including those that are only counted."""
    return sum(entry.get("not_written", 1) for entry in written(hub, "refused"))


def test_refusal_lines_are_rate_limited_and_the_rest_counted_by_cause() -> None:
    entries: list[dict[str, Any]] = []

    async def flood() -> None:
        refusals = RefusalLog(entries.append, clock=lambda: 0.0)
        for number in range(BURST + 30):
            refusals.note("host" if number % 2 else "no_token", "192.0.2.1", 401)
        assert len(entries) == BURST
        refusals.close()

    asyncio.run(flood())
    assert entries[BURST:] == [{"not_written": 30, "causes": {"host": 15, "no_token": 15}}]
    assert RATE <= BURST


# --- who it was --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("trusted", [False, True])
async def test_the_records_of_calls_have_the_address_of_their_client(tmp_path: Path, era: str, trusted: bool) -> None:
    listen = {"token": TOKENS["alice"], "trusted_proxies": [PROXY] if trusted else []}
    async with network_hub(tmp_path / "hub", {"up": fake()}, listen) as (hub, base):
        async with visiting(base, era, TOKENS["alice"]) as visitor:
            assert await visitor.text("up__echo", {"text": "direct"}) == "direct"
            visitor.http.headers["x-forwarded-for"] = "198.51.100.1, 203.0.113.9"
            assert await visitor.text("up__echo", {"text": "forwarded"}) == "forwarded"
            await visitor.call("up__nothing")
        await raw(base, post("evil.example", END, "X-Forwarded-For: 203.0.113.9"))
        calls = await records(hub, "call", 3)
        client_address = "203.0.113.9" if trusted else "127.0.0.1"
        assert [entry["peer"] for entry in calls] == ["127.0.0.1", client_address, client_address]
        assert [entry["peer"] for entry in await records(hub, "refused", 1)] == [client_address]


async def test_records_over_stdio_have_no_client_address(tmp_path: Path) -> None:
    from tests.fakes.client import hub as stdio

    async with stdio(tmp_path, {"up": fake()}) as client:
        await client.request("tools/call", {"name": "up__echo", "arguments": {"text": "x"}})
        (call,) = await records(client, "call", 1)
        assert "peer" not in call


@pytest.mark.parametrize(
    ("lines", "peer"),
    [
        ([], "10.0.0.5"),
        ([("x-forwarded-for", "203.0.113.9")], "203.0.113.9"),
        ([("x-forwarded-for", "198.51.100.1, 203.0.113.9")], "203.0.113.9"),
        ([("x-forwarded-for", "203.0.113.9, 10.0.0.7")], "203.0.113.9"),
        ([("x-forwarded-for", "203.0.113.9"), ("x-forwarded-for", "10.0.0.7")], "203.0.113.9"),
        ([("x-forwarded-for", "203.0.113.9:5000")], "203.0.113.9"),
        ([("x-forwarded-for", "[2001:db8::1]:5000")], "2001:db8::1"),
        ([("x-forwarded-for", "2001:db8::1")], "2001:db8::1"),
        ([("x-forwarded-for", "fe80::1%evil\x1b[2J")], "fe80::1"),
        ([("x-forwarded-for", "evil\x1b[2J")], "10.0.0.5"),
        ([("x-forwarded-for", "203.0.113.9, unknown")], "10.0.0.5"),
        ([("x-forwarded-for", "")], "10.0.0.5"),
        ([("x-forwarded-for", ", ".join(["10.0.0.7"] * 10_000))], "10.0.0.7"),
        ([("forwarded", "for=203.0.113.9;proto=https")], "203.0.113.9"),
        ([("forwarded", 'proto=https;For="[2001:db8::1]:5000"')], "2001:db8::1"),
        ([("forwarded", "for=198.51.100.1, for=203.0.113.9")], "203.0.113.9"),
        ([("forwarded", "for=_hidden")], "10.0.0.5"),
        ([("forwarded", "for=198.51.100.1"), ("x-forwarded-for", "203.0.113.9")], "203.0.113.9"),
    ],
)
def test_a_trusted_proxy_determines_the_client_address(lines: list[tuple[str, str]], peer: str) -> None:
    listen = Listen.model_validate({"token": "t" * 32, "trusted_proxies": ["10.0.0.0/24"]})
    headers = [(name.encode(), value.encode()) for name, value in lines]
    assert Gate(listen).peer("10.0.0.5", headers) == peer
    assert Gate(listen).peer("192.0.2.1", headers) == "192.0.2.1"


@pytest.mark.parametrize("value", ["nginx", ["10.0.0.0/40"], [7], ""])
async def test_a_trusted_proxy_must_be_configured_by_ip_address(tmp_path: Path, value: Any) -> None:
    config = write_config(tmp_path, {}, listen={"trusted_proxies": value})
    completed = await asyncio.to_thread(
        subprocess.run, [*HUB, "check", "--config", str(config)], capture_output=True, timeout=PATIENCE, check=False
    )
    assert completed.returncode == 2
    assert b"listen.trusted_proxies" in completed.stderr
