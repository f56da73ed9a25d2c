"""Exposed names: legal for every client, the same every time, and templates that no URI can make slow."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog import names
from mcp_hub.clients.installs import ENTRY
from mcp_hub.clients.table import CLIENTS

LEGAL = re.compile(r"[A-Za-z0-9_-]{1,60}")
NAME = st.text(min_size=1, max_size=200)
PLAIN = st.text(st.sampled_from("abcXYZ019-"), min_size=1, max_size=20)


@given(NAME, NAME)
def test_every_exposed_name_is_legal_and_the_same_every_time(namespace: str, name: str) -> None:
    for make in (names.expose, names.renamed):
        exposed = make(namespace, name)
        assert LEGAL.fullmatch(exposed)
        assert exposed == make(namespace, name)
    assert LEGAL.fullmatch(names.expose("", name))


def test_the_longest_name_is_legal_with_what_each_client_adds() -> None:
    name = names.expose("server", "long_" * 20)
    assert len(name) == names.MAX_LENGTH
    assert max(len(client.prefix + name) for client in CLIENTS) == 64
    assert all(not client.prefix or client.prefix.startswith(ENTRY) for client in CLIENTS)


@given(PLAIN, PLAIN)
def test_a_name_that_needs_no_change_is_namespace_and_name(namespace: str, name: str) -> None:
    assert names.expose(namespace, name).split(names.SEPARATOR, 1) == [namespace, name]
    assert names.expose("", name) == name


@given(
    st.text(st.sampled_from("ab"), min_size=70, max_size=90), st.text(st.sampled_from("ab"), min_size=70, max_size=90)
)
def test_two_long_names_stay_distinct_after_shortening(one: str, other: str) -> None:
    assert (names.expose("n", one) == names.expose("n", other)) == (one == other)


@given(PLAIN, st.text(max_size=50))
def test_a_disambiguated_uri_resolves_to_its_original(upstream: str, uri: str) -> None:
    assert names.original_uri(names.expose_uri(upstream, uri)) == (upstream, uri)


@pytest.mark.parametrize(
    ("template", "uri", "matches"),
    [
        ("test://t/{id}/data", "test://t/7/data", True),
        ("test://t/{id}/data", "test://t/7/8/data", False),
        ("test://t/{id}/data", "test://t/7/data/more", False),
        ("file:///{+path}", "file:///a/b/c.txt", True),
        ("file:///{path}", "file:///a/b", False),
        ("x://s{?q,r}", "x://s", True),
        ("x://s{?q,r}", "x://s?q=1&r=2", True),
        ("x://s{?q,r}", "x://stuff", False),
        ("x://s{/a,b}", "x://s/1/2", True),
        ("x://s{#f}", "x://s#here", True),
        ("x://{a}{b}", "x://12", True),
        ("x://{a}-{b}", "x://1-2", True),
        ("x://fixed", "x://fixed", True),
        ("x://fixed", "x://fixed2", False),
        ("x://a.b/{c}", "x://aXb/1", False),
    ],
)
def test_a_template_matches_its_uris_and_no_others(template: str, uri: str, matches: bool) -> None:
    pattern = names.template_pattern(template)
    assert pattern is not None
    assert (pattern.fullmatch(uri) is not None) is matches


@pytest.mark.parametrize("template", ["x://" + "{a}x" * 16 + "y", "x://" + "{+a}x" * 16, "x://" + "{a}" * 16 + "z"])
def test_no_uri_makes_a_match_slow(template: str) -> None:
    pattern = names.template_pattern(template)
    assert pattern is not None
    assert pattern.fullmatch("x://" + "x" * 8000 + "!") is None or "+" in template


def test_a_template_with_too_many_expressions_is_not_matched() -> None:
    assert names.template_pattern("x://" + "{a}/" * 17) is None
