"""One bad list is one bad list: nothing an upstream lists takes a name, a URI or the whole catalog from another."""

import base64
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog import PAGE_SIZE, Catalog, CatalogSource, Item, OnConflict, Route
from mcp_hub.catalog.merge import MAX_DEPTH
from mcp_hub.catalog.names import renamed
from mcp_hub.errors import INVALID_PARAMS, ProtocolError
from mcp_hub.protocol.frames import decode
from mcp_hub.protocol.kinds import KINDS, MAX_ITEM, PROMPTS, RESOURCES, SKILLS, TEMPLATES, TOOLS, Kind
from mcp_hub.upstream import list_store

STRATEGIES: tuple[OnConflict, ...] = ("keep_first", "raise", "override", "rename", "prefix")


def listed(upstream: str, *named: str, kind: Kind = TOOLS, namespace: str = "", **fields: Any) -> CatalogSource:
    wires = [{"name": name, kind.name_key: name, "inputSchema": {"type": "object"}, **fields} for name in named]
    if kind is SKILLS:
        frontmatters = [{"name": uri.split("/")[-2], "description": "d"} for uri in named]
        wires = [
            {**wire, "frontmatter": front, "resources": "dynamic"}
            for wire, front in zip(wires, frontmatters, strict=True)
        ]
    items = (Item(Route(upstream, kind, name), name, wire) for name, wire in zip(named, wires, strict=True))
    return CatalogSource(upstream, namespace, tuple(items))


def uri_of(kind: Kind, name: str) -> str:
    """A URI of a kind that is known by them; that of a skill has a name which is allowed."""
    return f"skill://{name.encode().hex()}/SKILL.md" if kind is SKILLS else f"u:{name}"


def routes(catalog: Catalog, kind: Kind = TOOLS) -> dict[str, tuple[str, str]]:
    exposed = {}
    for name in catalog.names(kind):
        route = catalog.resolve(kind, name)
        assert route is not None
        exposed[name] = (route.upstream, route.name)
    return exposed


def page_items(catalog: Catalog, kind: Kind = TOOLS, *, modern: bool = True) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = decode(catalog.page(kind, modern=modern))[kind.result_key]
    return items


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("named", [("a.b", "a_b"), ("a_b", "a.b"), ("a.b", "a/b", "a_b")])
def test_no_tool_is_lost_because_the_hub_made_two_names_equal(strategy: OnConflict, named: tuple[str, ...]) -> None:
    catalog = Catalog.build([listed("u", *named)], strategy)
    exposed = routes(catalog)
    assert {name for _, name in exposed.values()} == set(named)
    assert exposed["a_b"] == ("u", "a_b")
    assert len(catalog.findings) == len(named) - 1


def test_a_name_stays_with_its_tool_when_the_server_lists_in_another_order() -> None:
    first = Catalog.build([listed("u", "a.b", "a/b")])
    reordered = Catalog.build([listed("u", "a/b", "a.b")], previous=first)
    assert routes(first) == routes(reordered)


def test_a_list_cannot_take_over_a_disambiguated_name_in_use() -> None:
    target = renamed("b", "x")
    sources = [listed("a", "x"), listed("b", "x"), listed("evil", target)]
    for order in (sources, [sources[2], *sources[:2]]):
        exposed = routes(Catalog.build(order, "rename"))
        assert exposed[target] == ("evil", target)
        assert sorted(exposed.values()) == [("a", "x"), ("b", "x"), ("evil", target)]
    before = Catalog.build(sources[:2], "rename")
    after = routes(Catalog.build(sources, "rename", previous=before))
    assert after[target] == ("b", "x")
    assert len(after) == 3


@pytest.mark.parametrize("kind", [RESOURCES, TEMPLATES])
def test_no_upstream_can_list_a_uri_that_the_hub_gives_to_another(kind: Kind) -> None:
    evil = listed("evil", "mcp-hub://b/file:///x", kind=kind)
    catalog = Catalog.build([evil, listed("a", "file:///x", kind=kind), listed("b", "file:///x", kind=kind)])
    assert routes(catalog, kind) == {
        "mcp-hub://evil/mcp-hub://b/file:///x": ("evil", "mcp-hub://b/file:///x"),
        "file:///x": ("a", "file:///x"),
        "mcp-hub://b/file:///x": ("b", "file:///x"),
    }


def test_a_catch_all_template_does_not_shadow_a_more_specific_one() -> None:
    greedy, exact = listed("greedy", "{+any}", kind=TEMPLATES), listed("exact", "db://rows/{id}", kind=TEMPLATES)
    catalog = Catalog.build([greedy, exact])
    assert catalog.resolve(RESOURCES, "db://rows/7") == Route("exact", RESOURCES, "db://rows/7")
    assert catalog.resolve(RESOURCES, "db://other") == Route("greedy", RESOURCES, "db://other")
    assert catalog.resolve(RESOURCES, "mcp-hub://exact/db://rows/7") == Route("exact", RESOURCES, "db://rows/7")
    assert catalog.resolve(RESOURCES, "mcp-hub://nobody/db://rows/7") is None
    assert catalog.resolve(RESOURCES, "db://rows/" + "7" * 10_000) is None


def test_expensive_templates_affect_only_their_own_upstream() -> None:
    slow = listed("slow", *("x:" + "{a}aa" * 15 + f"{n}!" for n in range(300)), kind=TEMPLATES)
    catalog = Catalog.build([slow, listed("fine", "x:{a}", kind=TEMPLATES)])
    started_at = time.process_time()
    for uri in ("x:" + "a" * 100, "x:" + "a" * 2000):
        assert catalog.resolve(RESOURCES, uri) == Route("fine", RESOURCES, uri)
    assert time.process_time() - started_at < 10  # without a bound it never ends
    many = listed("many", *(f"x{n}:{{+a}}" for n in range(2000)), kind=TEMPLATES)
    assert Catalog.build([many]).resolve(RESOURCES, "x1999:y") == Route("many", RESOURCES, "x1999:y")


def test_a_uri_an_upstream_mentions_never_leads_to_another_upstream() -> None:
    rows = listed("b", "x://{id}", kind=TEMPLATES)
    catalog = Catalog.build([listed("a", "x://1", kind=RESOURCES), rows, listed("c", "x://{id}", kind=TEMPLATES)])
    assert catalog.exposed_uri("a", "x://1") == "x://1"
    assert catalog.exposed_uri("b", "x://2") == "x://2"
    for upstream in ("b", "c"):
        exposed = catalog.exposed_uri(upstream, "x://1")
        assert catalog.resolve(RESOURCES, exposed) == Route(upstream, RESOURCES, "x://1")
    assert catalog.resolve(RESOURCES, catalog.exposed_uri("c", "x://2")) == Route("c", RESOURCES, "x://2")
    assert catalog.resolve(RESOURCES, catalog.exposed_uri("d", "x://1")) is None
    assert catalog.exposed_uri("d", "y://1") == "y://1"


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def test_an_item_too_deep_to_be_read_is_left_out_and_the_list_is_served() -> None:
    for levels, number in ((MAX_DEPTH - 1, 2), (MAX_DEPTH, 1), (900, 1), (100_000, 1)):
        catalog = Catalog.build([listed("u", "deep", _meta=nested(levels)), listed("v", "good")])
        assert len(page_items(catalog)) == number
        assert ["cannot be passed on" in finding.problem for finding in catalog.findings] == [True] * (2 - number)
    wide = listed("w", "wide", _meta={str(n): {} for n in range(1000)})
    assert len(Catalog.build([wide])) == 1


def test_a_lone_surrogate_is_shown_as_the_replacement_character() -> None:
    source = listed("u", "t", description="cut \ud83d", future=["\ud83d\ude00", "\\ud83d"])
    catalog = Catalog.build([source, listed("v", "\ud800")])
    first, second = page_items(catalog)
    assert (first["description"], first["future"]) == ("cut �", ["😀", "\\ud83d"])
    assert catalog.resolve(TOOLS, second["name"]) == Route("v", TOOLS, "\ud800")
    assert source.items[0].wire["description"] == "cut \ud83d"
    assert len(catalog.findings) == 2


def test_a_tool_with_repaired_text_opens_the_app_of_its_own_server() -> None:
    app = {"ui": {"resourceUri": "ui://app"}}
    sources = [listed(id, "ui://app", kind=RESOURCES) for id in "uv"]
    shown = listed("v", "t", description="cut \ud83d", _meta=app)
    catalog = Catalog.build([sources[0], CatalogSource("v", "", (*sources[1].items, *shown.items))])
    (tool,) = page_items(catalog)
    assert catalog.resolve(RESOURCES, tool["_meta"]["ui"]["resourceUri"]) == Route("v", RESOURCES, "ui://app")


def test_text_that_only_resembles_a_lone_surrogate_is_unchanged() -> None:
    catalog = Catalog.build([listed("u", "t", description="write \\ud83d or \ufffd")])
    assert page_items(catalog)[0]["description"] == "write \\ud83d or \ufffd"
    assert catalog.findings == ()


def test_an_invented_cursor_is_refused_and_not_stored() -> None:
    catalog = Catalog.build([listed("u", *(f"t{n}" for n in range(PAGE_SIZE + 1))), listed("v", "p", kind=PROMPTS)])
    cursor = decode(catalog.page(TOOLS, modern=True))["nextCursor"]
    mark = base64.urlsafe_b64decode(cursor).decode().partition(":")[0]
    made_up = [
        f"{mark}:{offset}" for offset in ("2000", "1_000", "+1000", "01000", "-1000", "0", "9" * 5000, "１０００")
    ]
    for text in made_up:
        with pytest.raises(ProtocolError) as caught:
            catalog.page(TOOLS, modern=True, cursor=base64.urlsafe_b64encode(text.encode()).decode())
        assert caught.value.code == INVALID_PARAMS
    with pytest.raises(ProtocolError):
        catalog.page(PROMPTS, modern=True, cursor=cursor)
    assert len(catalog._pages) == 1
    assert catalog.page(TOOLS, modern=True, cursor=cursor) is catalog.page(TOOLS, modern=True, cursor=cursor)


def test_a_cursor_outlives_a_change_of_another_list() -> None:
    tools = listed("u", *(f"t{n}" for n in range(PAGE_SIZE + 1)))
    before, after = Catalog.build([tools]), Catalog.build([tools, listed("v", "p", kind=PROMPTS)])
    assert before.changed(after) == {PROMPTS}
    cursor = decode(before.page(TOOLS, modern=False))["nextCursor"]
    assert decode(after.page(TOOLS, modern=False, cursor=cursor))["tools"][0]["name"] == f"t{PAGE_SIZE}"


@pytest.mark.parametrize("strategy", ["keep_first", "raise", "rename", "prefix"])
def test_late_upstreams_are_merged_like_early_ones(strategy: OnConflict) -> None:
    a, b, c = (listed(upstream, "x", upstream) for upstream in "abc")
    catalog = Catalog.build([a], strategy)
    for sources in ([a, b], [a, b, c]):
        catalog = Catalog.build(sources, strategy, previous=catalog)
    assert catalog.fingerprint == Catalog.build([a, b, c], strategy).fingerprint
    assert catalog.findings == Catalog.build([a, b, c], strategy).findings


def test_forbidden_equal_names_are_an_error_in_any_order_of_arrival() -> None:
    a, b = listed("a", "x"), listed("b", "x")
    catalog = Catalog.build([a, b], "raise", previous=Catalog.build([b], "raise"))
    assert [finding.severity for finding in catalog.findings] == ["error"]


def test_an_overriding_item_is_listed_at_the_position_of_its_server() -> None:
    catalog = Catalog.build([listed("a", "x", "y"), listed("b", "z", "x")], "override")
    assert list(routes(catalog).items()) == [("y", ("a", "y")), ("z", ("b", "z")), ("x", ("b", "x"))]


NAMED = st.text(st.sampled_from("abAB._-/é "), min_size=1, max_size=4)
SERVERS = st.lists(
    st.tuples(st.sampled_from(["", "", "a", "a_", "A"]), st.lists(NAMED, max_size=5, unique=True)),
    min_size=1,
    max_size=5,
)


@given(SERVERS, st.sampled_from(STRATEGIES), st.randoms(use_true_random=False))
def test_in_every_order_of_arrival_names_are_unique_stable_and_resolvable(
    servers: list[tuple[str, list[str]]], strategy: OnConflict, chance: random.Random
) -> None:
    sources = [listed(f"s{n}", *named, namespace=namespace) for n, (namespace, named) in enumerate(servers)]
    present: set[int] = set()
    catalog, served = Catalog.build([], strategy), {}
    for n in chance.sample(range(len(sources)), len(sources)):
        present.add(n)
        catalog = Catalog.build([sources[i] for i in sorted(present)], strategy, previous=catalog)
        exposed = routes(catalog)
        assert len(set(exposed.values())) == len(exposed)
        assert [item["name"] for item in page_items(catalog)] == list(exposed)
        if strategy != "override":
            assert all(served.get(name, route) == route for name, route in exposed.items())
        served.update(exposed)
    expected = {(f"s{n}", name) for n, (_, named) in enumerate(servers) for name in named}
    if strategy in ("rename", "prefix"):
        assert set(routes(catalog).values()) == expected
    rebuilt = Catalog.build(sources, strategy, previous=catalog)
    assert rebuilt.fingerprint == catalog.fingerprint
    assert rebuilt.changed(catalog) == frozenset()


def test_a_change_of_one_kind_announces_only_that_kind() -> None:
    empty = Catalog.build([])
    for kind in KINDS:
        assert empty.changed(Catalog.build([listed("u", uri_of(kind, "x"), kind=kind)])) == {kind}


@pytest.mark.anyio
async def test_pages_of_huge_items_are_not_gathered_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_store, "MAX_LIST", 10 * MAX_ITEM)
    page_count = 0

    async def page(method: str, params: dict[str, Any]) -> dict[str, Any]:
        nonlocal page_count
        page_count += 1
        huge = {"name": f"t{page_count}", "description": "x" * 4 * MAX_ITEM}
        return {"tools": [huge], "nextCursor": str(page_count)}

    drained = await list_store.drain(page, TOOLS, 600)
    assert (page_count, len(drained.items)) == (3, 3)
    assert drained.shortfall == f"tools/list is larger than {10 * MAX_ITEM:,} bytes"
