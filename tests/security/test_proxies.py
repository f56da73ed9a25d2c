"""Which host is reached through which proxy, and how the address of a proxy is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.security.proxies import ForwardProxy, ProxyRules, ProxySettingError, is_exempt, is_this_machine

REMOTE_HOST = "mcp.example"


def proxy_text(environ: dict[str, str], scheme: str = "https", host: str = REMOTE_HOST, port: int = 443) -> str | None:
    """The proxy of an environment as a text."""
    proxy = ProxyRules.of(environ).proxy_for(scheme, host, port)
    return None if proxy is None else f"{proxy} {proxy.source}"


@pytest.mark.parametrize(
    ("environ", "http", "https"),
    [
        ({}, None, None),
        ({"http_proxy": "http://a:1"}, "http://a:1 http_proxy", None),
        ({"HTTP_PROXY": "http://a:1"}, "http://a:1 HTTP_PROXY", None),
        ({"https_proxy": "http://a:1"}, None, "http://a:1 https_proxy"),
        ({"https_proxy": "http://a:1", "HTTPS_PROXY": "http://b:1"}, None, "http://a:1 https_proxy"),
        ({"https_proxy": "", "HTTPS_PROXY": "http://b:1"}, None, "http://b:1 HTTPS_PROXY"),
        ({"ALL_PROXY": "socks5://a"}, "socks5h://a:1080 ALL_PROXY", "socks5h://a:1080 ALL_PROXY"),
        ({"all_proxy": "http://a:1", "https_proxy": "direct"}, "http://a:1 all_proxy", None),
        ({"HTTP_PROXY": "http://a:1", "REQUEST_METHOD": "GET"}, None, None),
        ({"http_proxy": "http://a:1", "REQUEST_METHOD": "GET"}, "http://a:1 http_proxy", None),
    ],
)
def test_proxy_variables_are_read_as_by_curl(environ: dict[str, str], http: str | None, https: str | None) -> None:
    assert proxy_text(environ, "http", port=80) == http
    assert proxy_text(environ) == https


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("proxy.example", "http://proxy.example:1080"),
        ("proxy.example:3128", "http://proxy.example:3128"),
        ("HTTP://proxy.example:3128/", "http://proxy.example:3128"),
        ("https://proxy.example", "https://proxy.example:443"),
        ("socks5h://[::1]:9", "socks5h://[::1]:9"),
        ("http://me:p%40ss@proxy.example:3128", "http://proxy.example:3128"),
    ],
)
def test_proxy_urls_are_parsed_and_shown_without_credentials(written: str, meant: str) -> None:
    assert str(ForwardProxy.parse(written, "proxy")) == meant


def test_proxy_credentials_are_percent_decoded() -> None:
    proxy = ForwardProxy.parse("http://m%65:p%40ss%3A@proxy.example", "proxy")
    assert proxy is not None
    assert (proxy.user, proxy.password) == ("me", "p@ss:")
    assert proxy.authorization == "Basic bWU6cEBzczo="


@pytest.mark.parametrize(
    "written",
    ["", "http://", "ftp://a", "socks4://a", "http://a:99999", "http://a:0", "http://a/path", "http://a b", "http://[::1",
     "http://s3cret@", "x" * 300 + "@:"],
)  # fmt: skip
def test_an_invalid_proxy_url_is_refused_without_quoting_it(written: str) -> None:
    with pytest.raises(ProxySettingError) as caught:
        ForwardProxy.parse(written, "HTTPS_PROXY")
    assert "HTTPS_PROXY" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert len(str(caught.value)) < 200


@given(st.text(max_size=60))
def test_any_text_is_parsed_as_a_proxy_url_or_refused(written: str) -> None:
    try:
        proxy = ForwardProxy.parse(written, "proxy")
    except ProxySettingError:
        return
    assert proxy is None or (proxy.host and 0 < proxy.port < 65536)


@pytest.mark.parametrize(
    ("exempt", "host", "port", "is_one"),
    [
        ("", REMOTE_HOST, 443, False),
        ("*", REMOTE_HOST, 443, True),
        ("*,x", "y.test", 443, False),
        ("example", REMOTE_HOST, 443, True),
        (".example", REMOTE_HOST, 443, True),
        ("*.example", REMOTE_HOST, 443, True),
        (".mcp.example", REMOTE_HOST, 443, True),
        ("cp.example", REMOTE_HOST, 443, False),
        ("MCP.Example.", REMOTE_HOST, 443, True),
        ("mcp.example", "mcp.example.", 443, True),
        ("mcp.example:443", REMOTE_HOST, 443, True),
        ("mcp.example:8443", REMOTE_HOST, 443, False),
        ("a.test, mcp.example", REMOTE_HOST, 443, True),
        ("a.test mcp.example", REMOTE_HOST, 443, True),
        ("10.0.0.0/8", "10.1.2.3", 443, True),
        ("10.0.0.0/8", "11.1.2.3", 443, False),
        ("10.1.2.3", "10.1.2.3", 443, True),
        ("10.1.2.3:80", "10.1.2.3", 443, False),
        ("10.0.0.0/99", "10.1.2.3", 443, False),
        ("0.3", "10.1.0.3", 443, False),
        ("fd00::/8", "fd00::1", 443, True),
        ("[fd00::1]", "[fd00::1]", 443, True),
        ("[fd00::1]:443", "fd00::1", 443, True),
        ("[fd00::1]:80", "fd00::1", 443, False),
        ("10.0.0.0/8", "::ffff:10.1.2.3", 443, True),
        (",,  ,", REMOTE_HOST, 443, False),
        (".", REMOTE_HOST, 443, False),
    ],
)
def test_no_proxy_matches_suffixes_networks_and_ports(exempt: str, host: str, port: int, is_one: bool) -> None:
    assert is_exempt(exempt, host, port) is is_one


@given(st.text(max_size=60), st.text(max_size=30), st.integers(0, 65535))
def test_any_text_in_no_proxy_is_accepted(exempt: str, host: str, port: int) -> None:
    assert is_exempt(exempt, host, port) in (True, False)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "::ffff:127.0.0.1"]
)
def test_requests_to_loopback_use_only_a_proxy_of_their_entry(host: str) -> None:
    assert is_this_machine(host)
    assert proxy_text({"ALL_PROXY": "http://a:1"}, host=host) is None
    assert ProxyRules.of({}, "http://a:1").proxy_for("https", host, 443) is None
    assert ProxyRules.of({}, "http://a:1", own=True).proxy_for("https", host, 443) is not None


def test_a_configured_proxy_overrides_the_variables_and_no_proxy_applies_to_the_root_proxy() -> None:
    environ = {"HTTPS_PROXY": "http://a:1", "NO_PROXY": "other.test"}
    root, entry = ProxyRules.of(environ, "http://b:2"), ProxyRules.of(environ, "http://b:2", own=True)
    assert str(root.proxy_for("https", REMOTE_HOST, 443)) == "http://b:2"
    assert root.proxy_for("https", "other.test", 443) is None
    assert str(entry.proxy_for("https", "other.test", 443)) == "http://b:2"
    assert ProxyRules.of(environ, "direct").proxy_for("https", REMOTE_HOST, 443) is None
