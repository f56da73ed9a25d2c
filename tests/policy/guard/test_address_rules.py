"""Which addresses are dialled."""

from __future__ import annotations

import json

import pytest

from mcp_hub.security.address_rules import AddressRules, problem_of_entries

PRIVATE = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.1.1", "0.0.0.0", "224.0.0.1",
    "255.255.255.255", "192.0.2.1", "240.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1", "ff02::1",
    "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::7f00:1", "2001:db8::1", "fec0::1", "3fff::1",
    "64:ff9b:1:7f00:0:100:808:808", "168.63.129.16", "192.0.0.192", "192.88.99.1", "198.18.0.1", "5f00::1",
    "::ffff:0:127.0.0.1", "fd00:ec2::254", "100.100.100.200", "2001:0:7f00:1::",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_that_are_not_public_are_refused_with_the_setting_that_allows_them(address: str) -> None:
    assert "web.allow_addresses" in (AddressRules().refused("host.example", address, 80) or "")


@pytest.mark.parametrize(
    ("allow", "host", "address", "line"),
    [
        ((), "wiki.intranet", "10.1.2.3", 'web: {allow_addresses: ["wiki.intranet:8000"]}'),
        (("a.corp",), "127.0.0.1", "127.0.0.1", 'web: {allow_addresses: ["a.corp", "127.0.0.1:8000"]}'),
        ((), "[::1]", "::1", 'web: {allow_addresses: ["[::1]:8000"]}'),
    ],
)
def test_a_refused_address_is_reported_with_the_setting_line_that_allows_it(
    allow: tuple[str, ...], host: str, address: str, line: str
) -> None:
    refused = AddressRules(allow).refused(host, address, 8000)
    assert refused is not None
    assert line in refused
    allowed = tuple(json.loads(line[line.index("[") : -1]))
    assert AddressRules(allowed).refused(host, address, 8000) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://127.0.0.1:8000/", "; for 'http://127.0.0.1:8000/' write 127.0.0.1:8000"),
        ("https://user@wiki.intranet/page", " write wiki.intranet"),
        ("10.1.*", "; for '10.1.*' write 10.1.0.0/16"),
        ("10.0.0.1-10.0.0.9", "is no address"),
        ("127.0.0.1:99999", "is no address"),
        ("[::1]:0", "is no address"),
        ("localhost:", "is no address"),
        ("*", "; all addresses are 0.0.0.0/0"),
        ("10.0.0.0/33", "is no address"),
        ("10.0.0", "is no address"),
        ("", "is no address"),
    ],
)
def test_an_address_entry_that_cannot_match_is_an_error_with_a_suggestion(text: str, said: str) -> None:
    assert said in (problem_of_entries([text]) or "")


def test_errors_of_several_address_entries_are_reported_in_one_sentence() -> None:
    problem = problem_of_entries(["10.0.0.0/8", "http://a/x", "b/", "*"])
    assert problem is not None
    assert problem.startswith("'http://a/x', 'b/', '*' are no addresses, networks or names, such as ")
    assert problem.endswith("; for 'http://a/x' write a; all addresses are 0.0.0.0/0")


@pytest.mark.parametrize(
    "text",
    ["10.0.0.0/8", "192.168.1.7", "wiki.intranet", "*.corp", "127.0.0.1:8000", "[::1]:80", "fd00::/8", "my_host"],
)
def test_every_form_of_an_address_entry_is_accepted(text: str) -> None:
    assert problem_of_entries([text]) is None


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert AddressRules().refused("host.example", address, 80) is None


@pytest.mark.parametrize(
    ("allow", "host", "address", "port", "passes"),
    [
        ("127.0.0.1:80", "x", "127.0.0.1", 80, True),
        ("127.0.0.1:80", "x", "127.0.0.1", 81, False),
        ("10.0.0.0/8", "x", "10.9.9.9", 1, True),
        ("10.0.0.0/8", "x", "::ffff:10.9.9.9", 1, True),
        ("10.0.0.0/8", "x", "11.0.0.1", 1, True),
        ("wiki.intranet", "WIKI.intranet.", "192.168.0.1", 1, True),
        ("wiki.intranet", "other.intranet", "192.168.0.1", 1, False),
        ("*.corp", "a.corp", "192.168.0.1", 1, True),
        ("*.corp", "corp", "192.168.0.1", 1, False),
        ("[::1]:8080", "x", "::1", 8080, True),
        ("::1", "x", "::1", 8080, True),
        ("fd00::/8", "x", "fd12::1", 1, True),
        ("wiki:8000", "wiki", "10.0.0.1", 8001, False),
    ],
)
def test_an_allowed_address_entry_allows_exactly_what_it_names(
    allow: str, host: str, address: str, port: int, passes: bool
) -> None:
    assert (AddressRules((allow,)).refused(host, address, port) is None) is passes


def test_an_invalid_address_entry_is_refused() -> None:
    assert AddressRules().refused("x", "not an address", 80) is not None
