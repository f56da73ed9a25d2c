"""URIs: templates are matched completely and in bounded time; what the hub puts in front comes off again."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog import names

SEVERAL_WAYS = [
    ("file:///{+path}/log/{name}", "file:///a/log/b/log/c"),
    ("file:///{+dir}/{file}", "file:///a/b/c/d.txt"),
    ("x:{a}.txt/{b}", "x:one.txt.txt/two"),
    ("x:{+a}-{b}-end", "x:1-2-3-end"),
    ("x:{/a*}{?q,r}{#f}", "x:/1/2?q=1&r=2#there"),
    ("x:{a}{;p}{.e}", "x:thing;p=1.txt"),
    ("x:{v:3}?fixed=1{&more*}", "x:abc?fixed=1&m=2"),
    ("x:{a", "x:{a"),
    ("", ""),
]


@pytest.mark.parametrize(("template", "uri"), SEVERAL_WAYS)
def test_a_uri_matches_a_template_for_any_division_among_its_expressions(template: str, uri: str) -> None:
    pattern = names.template_pattern(template)
    assert pattern is not None
    assert pattern.fullmatch(uri) == uri


PIECE = st.sampled_from(
    ["{a}", "{+a}", "{/a}", "{?a,b}", "{&a}", "{#a}", "{;a}", "{.a}", "a", "/", "?", "#", ".", "b/"]
)
CLASSES = {"": "[^/?#]*", "+": ".*", "#": "(?:#.*)?", ".": r"(?:\.[^/?#]*)?", "/": "(?:/[^?#]*)?"}
CLASSES |= {";": "(?:;[^/?#]*)?", "?": r"(?:\?[^#]*)?", "&": "(?:&[^#]*)?"}


@given(st.lists(PIECE, max_size=5).map("".join), st.text(st.sampled_from("ab/?#.;&"), max_size=9))
def test_template_matching_agrees_with_a_backtracking_regular_expression(template: str, uri: str) -> None:
    pattern = names.template_pattern(template)
    assert pattern is not None
    parts = re.split(r"\{([+#./;?&]?)a[^}]*\}", template)
    expected = "".join(CLASSES[part] if n % 2 else re.escape(part) for n, part in enumerate(parts))
    assert (pattern.fullmatch(uri) is not None) is (re.fullmatch(expected, uri, re.DOTALL) is not None)


HOSTILE = ["x:" + "{a}" * 16 + "!", "x:" + "{+a}a" * 16 + "!", "x:" + "{a}aa" * 16 + "!", "x:" + "{.a}" * 16 + "!"]


@pytest.mark.parametrize("template", HOSTILE)
def test_hostile_templates_and_uris_are_matched_in_bounded_time(template: str) -> None:
    pattern = names.template_pattern(template)
    assert pattern is not None
    started_at = time.process_time()
    for uri in ("x:" + "a" * 8000, "x:" + "." * 8000, "x:" + "a." * 4000):
        assert pattern.fullmatch(uri) is None
    assert time.process_time() - started_at < 60  # without a bound it never ends


@given(st.text(min_size=1, max_size=20), st.text(max_size=20), st.text(min_size=1, max_size=20), st.text(max_size=20))
def test_no_two_resources_are_exposed_under_the_same_uri(one: str, uri: str, other: str, another: str) -> None:
    exposed = names.expose_uri(one, uri)
    assert names.original_uri(exposed) == (one, uri)
    assert (exposed == names.expose_uri(other, another)) is ((one, uri) == (other, another))


@pytest.mark.parametrize(
    "uri", ["", "x://y", "mcp-hub://", "mcp-hub://no-slash", "mcp-hub:///x", "mcp-hub://%FF/x", "MCP-HUB://a/b"]
)
def test_an_unknown_uri_resolves_to_nothing(uri: str) -> None:
    assert names.original_uri(uri) is None


@given(st.text(max_size=90), st.text(min_size=1, max_size=90))
def test_a_disambiguated_name_never_equals_the_first_one(namespace: str, name: str) -> None:
    candidates = [names.expose(namespace, name), *(names.renamed(namespace, name, attempt) for attempt in range(3))]
    assert len(set(candidates)) == 4
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,60}", exposed) for exposed in candidates)


def test_names_that_look_alike_are_recognised() -> None:
    pairs = [("a", "b_c"), ("a_b", "c"), ("A", "B__c"), ("", "ａ_b_c")]
    assert {names.lookalike(*pair) for pair in pairs} == {"a_b_c"}
    assert names.lookalike("a", "bc") != names.lookalike("a", "b_c")
