"""Heads of requests: their lines, that no value can add a line, and that equal heads are encoded once."""

import pytest
from yarl import URL

from mcp_hub.transport.http1.pool import KEPT, KEPT_SIZE, RequestHeadEncoder


def lines(head: bytes) -> list[str]:
    text = head.decode()
    assert text.endswith("\r\n\r\n")
    return text[:-4].split("\r\n")


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://up.example/mcp", "up.example"),
        ("http://up.example:80/mcp", "up.example"),
        ("https://up.example:443/mcp", "up.example"),
        ("https://up.example:80/mcp", "up.example:80"),
        ("http://up.example.:8080/mcp", "up.example:8080"),
        ("http://[::1]/mcp", "[::1]"),
        ("http://[2001:db8::1]:8080/mcp", "[2001:db8::1]:8080"),
        ("http://bücher.example/mcp", "xn--bcher-kva.example"),
    ],
)
def test_the_host_header_matches_the_url(url, host):
    assert f"Host: {host}" in lines(RequestHeadEncoder(URL(url), {}).head("GET", "/", {}, None))


def test_a_requests_own_headers_precede_configured_and_default_ones():
    heads = RequestHeadEncoder(URL("http://up/"), {"accept": "text/html", "X-Key": "a", "host": "front"})
    head_lines = lines(heads.head("POST", "/mcp?q=%20", {"Accept": "application/json", "x-key": "b"}, 7))
    assert head_lines[0] == "POST /mcp?q=%20 HTTP/1.1"
    assert {line.split(":")[0].lower() for line in head_lines[1:]} == {
        "host", "user-agent", "accept", "accept-encoding", "x-key", "content-length",
    }  # fmt: skip
    assert {"host: front", "Accept: application/json", "x-key: b", "Content-Length: 7"} <= set(head_lines)
    assert len(head_lines) == 7


@pytest.mark.parametrize("size", [None, 0, 12])
def test_content_length_is_sent_with_a_body(size):
    head_lines = lines(RequestHeadEncoder(URL("http://up/"), {}).head("DELETE", "/", {}, size))
    assert [line for line in head_lines if "Length" in line] == ([] if size is None else [f"Content-Length: {size}"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X", "a\r\nY: b"),
        ("X", "a\nb"),
        ("X", "a\rb"),
        ("X", "nu\0l"),
        ("X", "\x7f"),
        ("X Y", "a"),
        ("X:", "a"),
        ("", "a"),
        ("X", "\udcff"),
        ("é", "a"),
    ],
)
def test_a_header_cannot_inject_another_one(name, value):
    heads = RequestHeadEncoder(URL("http://up/"), {})
    for _ in range(2):
        with pytest.raises(ValueError):
            heads.head("GET", "/", {name: value}, None)


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "", "/é", "/\0"])
def test_a_target_cannot_inject_headers(target):
    with pytest.raises(ValueError):
        RequestHeadEncoder(URL("http://up/"), {}).head("GET", target, {}, None)


def test_request_heads_are_cached_up_to_a_bound_and_never_mixed():
    heads = RequestHeadEncoder(URL("http://up/"), {})
    for n in [*range(3 * KEPT), *range(3 * KEPT)]:
        head_lines = lines(heads.head("POST", "/mcp", {"Mcp-Name": str(n)}, n))
        assert {f"Mcp-Name: {n}", f"Content-Length: {n}"} <= set(head_lines)
        assert len(heads._cache) <= KEPT
    heads = RequestHeadEncoder(URL("http://up/"), {})
    heads.head("POST", "/mcp", {"Mcp-Name": "x" * KEPT_SIZE}, 1)
    assert heads._cache == {}
