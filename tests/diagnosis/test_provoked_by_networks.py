"""Servers on a network that do not answer as they should: each failure is told with the code of its cure."""

from __future__ import annotations

import socket
from email.utils import formatdate
from pathlib import Path
from time import time

import pytest

from mcp_hub import codes
from tests.diagnosis.looking import answering, checked, configured, findings, http, reported_codes, said, unused_port
from tests.downstream.network.test_tls import certificate
from tests.fakes.private_authority import PrivateAuthority, strict


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (http("404 Not Found"), codes.NO_MCP_HERE),
        (http("405 Method Not Allowed"), codes.NO_MCP_HERE),
        (http("200 OK", b"<html><title>Hello</title></html>", Content_Type="text/html"), codes.NO_MCP_HERE),
        (http("500 Internal Server Error", b"oops"), codes.SERVER_FAILED),
        (http("429 Too Many Requests"), codes.RATE_LIMITED),
        (http("308 Permanent Redirect", Location="https://elsewhere.test/mcp"), codes.REDIRECTED),
        (http("307 Temporary Redirect", Location="http://127.0.0.1:{port}/mcp"), codes.REDIRECTED),
        (http("400 Bad Request", b"The plain HTTP request was sent to HTTPS port"), codes.TLS_WANTED),
        (b"SSH-2.0-OpenSSH_9.6\r\n", codes.NOT_HTTP),
        (b"", codes.NOT_HTTP),
        (http("401 Unauthorized", WWW_Authenticate="Bearer"), codes.SIGN_IN_NEEDED),
        (http("403 Forbidden"), codes.ACCESS_REFUSED),
    ],
)
def test_a_server_that_does_not_speak_mcp_is_diagnosed(tmp_path: Path, answer: bytes, code: str) -> None:
    with answering(answer) as url:
        path = configured(tmp_path, {"a": {"url": url, "transport": "http"}})
        assert code in checked(path)
        assert code in reported_codes(path)


@pytest.mark.parametrize("answer", [http("200 OK", b"{}", Content_Type="text/plain"), http("404 Not Found")])
def test_a_url_that_opens_no_event_stream_is_diagnosed(tmp_path: Path, answer: bytes) -> None:
    with answering(answer) as url:
        assert codes.NO_MCP_HERE in checked(configured(tmp_path, {"a": {"url": url, "transport": "sse"}}))


def test_a_rejected_api_key_is_diagnosed(tmp_path: Path) -> None:
    with answering(http("401 Unauthorized", WWW_Authenticate="Bearer")) as url:
        entry = {"url": url, "transport": "http", "headers": {"Authorization": "Bearer ${KEY:-expired}"}}
        assert codes.CREDENTIALS_REFUSED in checked(configured(tmp_path, {"a": entry}))


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://no-such-host.invalid/mcp", codes.HOST_UNKNOWN),
        ("http://127.0.0.1:PORT/mcp", codes.CONNECTION_REFUSED),
    ],
)
def test_an_unreachable_server_is_diagnosed(tmp_path: Path, url: str, code: str) -> None:
    path = configured(tmp_path, {"a": {"url": url.replace("PORT", str(unused_port()))}})
    assert code in checked(path)
    assert code in reported_codes(path)


AUTH_REQUIRED = http("407 Proxy Authentication Required", Proxy_Authenticate="Basic realm=x")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (None, codes.PROXY_UNREACHABLE),
        (b"", codes.PROXY_UNREACHABLE),
        (b"SSH-2.0-OpenSSH_9.6\r\n", codes.PROXY_UNREACHABLE),
        (AUTH_REQUIRED, codes.PROXY_CREDENTIALS),
        (http("403 Forbidden"), codes.PROXY_REFUSED),
        (http("503 Service Unavailable"), codes.PROXY_REFUSED),
    ],
)
@pytest.mark.parametrize("place", ["entry", "root", "variable"])
def test_a_proxy_problem_is_diagnosed_without_the_proxys_password(
    tmp_path: Path, answer: bytes | None, code: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(answer or b"") as url:
        proxy = url.removesuffix("/mcp").replace("://", "://me:pr0xy-s3cret@")
        if answer is None:
            proxy = f"http://me:pr0xy-s3cret@127.0.0.1:{unused_port()}"
        if place == "variable":
            monkeypatch.setenv("HTTPS_PROXY", proxy)
        entry = {"url": "https://mcp.example/mcp", **({"proxy": proxy} if place == "entry" else {})}
        path = configured(tmp_path, {"a": entry}, **({"proxy": proxy} if place == "root" else {}))
        assert code in checked(path)
        results = findings(path)
        assert code in {finding["code"] for finding in results}
        assert "pr0xy-s3cret" not in str(results)
        redacted = proxy.replace("me:pr0xy-s3cret@", "")
        assert redacted in str(results)


def test_a_request_that_the_proxy_refuses_is_diagnosed(tmp_path: Path) -> None:
    for answer, code in (
        (AUTH_REQUIRED, codes.PROXY_CREDENTIALS),
        (http("503 Service Unavailable", X_Squid_Error="ERR_CONNECT_FAIL 111"), codes.PROXY_REFUSED),
    ):
        with answering(answer) as url:
            proxy = url.removesuffix("/mcp")
            assert code in checked(configured(tmp_path, {"a": {"url": "http://mcp.example/mcp", "proxy": proxy}}))


def test_certificate_files_that_cannot_be_used_are_diagnosed(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("nothing")
    for file in ("empty.pem", "missing.pem"):
        path = configured(tmp_path, {"a": {"url": "https://localhost:1/mcp", "ca": file}})
        assert codes.CERTIFICATE_FILE_WRONG in {*checked(path), *reported_codes(path)}


def test_a_key_that_does_not_match_its_certificate_is_diagnosed_with_both_files(tmp_path: Path) -> None:
    authority = PrivateAuthority(tmp_path)
    cert, other_key = authority.issue("hub")[0], authority.issue("other")[1]
    entry = {"url": "https://localhost:1/mcp", "client_cert": str(cert), "client_key": str(other_key)}
    outcome = said("check", "--config", str(configured(tmp_path, {"a": entry})))
    assert codes.CERTIFICATE_FILE_WRONG in outcome.codes
    assert f"{other_key} (client_key) is not the private key of {cert}" in outcome.out


def test_a_server_that_requires_a_client_certificate_is_diagnosed(tmp_path: Path) -> None:
    authority = PrivateAuthority(tmp_path)
    context = authority.server("127.0.0.1", clients=authority.ca)
    with strict(context) as port:
        url = f"https://127.0.0.1:{port}/mcp"
        path = configured(tmp_path, {"a": {"url": url, "transport": "http", "ca": str(authority.ca)}})
        assert codes.CERTIFICATE_WANTED in checked(path)


def test_an_address_that_never_accepts_a_connection_is_diagnosed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening, socket.socket() as first:
        first.connect(listening.getsockname())  # takes the only place in the queue
        waiting = [socket.socket() for _ in range(3)]
        for connection in waiting:
            connection.setblocking(False)
            connection.connect_ex(listening.getsockname())
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        path = configured(tmp_path, {"a": {"url": url, "deadlines": {"connect": "4s"}}})
        assert codes.CONNECT_LATE in checked(path)
        for connection in waiting:
            connection.close()


def test_a_certificate_of_an_unknown_authority_is_diagnosed(tmp_path: Path) -> None:
    with answering(http("404 Not Found"), certificate(tmp_path)) as url:
        assert codes.CERTIFICATE_REFUSED in checked(configured(tmp_path, {"a": {"url": url}}))


def test_a_port_that_does_not_speak_tls_is_diagnosed(tmp_path: Path) -> None:
    with answering(http("400 Bad Request")) as url:
        path = configured(tmp_path, {"a": {"url": url.replace("http:", "https:")}})
        assert codes.TLS_UNKNOWN in checked(path)


@pytest.mark.parametrize(("offset", "wrong"), [(7200, True), (-7200, True), (0, False)])
def test_a_clock_that_differs_from_that_of_servers_is_diagnosed(tmp_path: Path, offset: int, wrong: bool) -> None:
    with answering(http("404 Not Found", Date=formatdate(time() + offset, usegmt=True))) as url:
        assert (codes.CLOCK_WRONG in reported_codes(configured(tmp_path, {"a": {"url": url}}))) is wrong
