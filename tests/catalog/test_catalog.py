"""The merged catalog: order, equal names, quarantine, pages."""

import copy
import json
import random
from typing import Any

import pytest

from mcp_hub.catalog import PAGE_SIZE, Catalog, CatalogSource, Item, Route
from mcp_hub.errors import ProtocolError
from mcp_hub.protocol.kinds import KINDS, PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind, defect, name_of

OBJECT = {"type": "object"}


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": OBJECT, **fields}


def source(upstream: str, *wires: Any, kind: Kind = TOOLS, namespace: str | None = None) -> CatalogSource:
    items = []
    for wire in wires:
        name = name_of(kind, wire)
        items.append(Item(Route(upstream, kind, name), name, wire))
    return CatalogSource(upstream, upstream if namespace is None else namespace, tuple(items))


def page(catalog: Catalog, kind: Kind = TOOLS, **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(bytes(catalog.page(kind, **{"modern": False, **options})))
    return result


def test_items_are_ordered_by_source_and_then_as_listed() -> None:
    catalog = Catalog.build([source("b", tool("2"), tool("1")), source("a", tool("3"))])
    assert catalog.names(TOOLS) == ("b__2", "b__1", "a__3")
    assert catalog.resolve(TOOLS, "b__1") == Route("b", TOOLS, "1")
    assert catalog.resolve(TOOLS, "1") is None
    assert catalog.resolve(PROMPTS, "b__1") is None


def test_the_fingerprint_does_not_depend_on_the_order_of_arrival() -> None:
    sources = [source(f"s{n}", tool("same"), tool(f"t{n}"), namespace="") for n in range(8)]
    expected = Catalog.build(sources).fingerprint
    for seed in range(100):
        shuffled = list(sources)
        random.Random(seed).shuffle(shuffled)
        present: list[CatalogSource] = []
        for newcomer in shuffled:
            present.append(newcomer)
            Catalog.build(sorted(present, key=sources.index))
        assert Catalog.build(sorted(present, key=sources.index)).fingerprint == expected


@pytest.mark.parametrize("kind", [TOOLS, PROMPTS])
@pytest.mark.parametrize(
    ("strategy", "routes", "severity"),
    [
        ("keep_first", {"same": "a"}, "warning"),
        ("raise", {"same": "a"}, "error"),
        ("override", {"same": "b"}, "warning"),
        ("prefix", {"same": "a", "b__same": "b"}, "warning"),
        ("rename", {"same": "a", "b__same_HASH": "b"}, "warning"),
    ],
)
def test_equal_names_are_decided_as_configured(
    kind: Kind, strategy: Any, routes: dict[str, str], severity: str
) -> None:
    wire = {"name": "same", "inputSchema": OBJECT}
    sources = [source("a", wire, kind=kind, namespace=""), source("b", wire, kind=kind, namespace="")]
    catalog = Catalog.build(sources, strategy)
    rebuilt = Catalog.build(sources, strategy, previous=catalog)
    assert rebuilt.fingerprint == catalog.fingerprint
    upstreams = {}
    for name in catalog.names(kind):
        route = catalog.resolve(kind, name)
        assert route is not None
        upstreams["b__same_HASH" if name.startswith("b__same_") else name] = route.upstream
    assert upstreams == routes
    assert [finding.severity for finding in catalog.findings] == [severity]


def test_equal_uris_are_disambiguated_and_resolve_to_their_servers() -> None:
    sources = [
        source("a", {"uri": "x://r", "name": "r"}, kind=RESOURCES),
        source("b", {"uri": "x://r", "name": "r"}, kind=RESOURCES),
    ]
    catalog = Catalog.build(sources)
    assert catalog.names(RESOURCES) == ("x://r", "mcp-hub://b/x://r")
    assert catalog.resolve(RESOURCES, "mcp-hub://b/x://r") == Route("b", RESOURCES, "x://r")
    assert catalog.exposed_uri("b", "x://r") == "mcp-hub://b/x://r"
    assert catalog.exposed_uri("a", "x://r") == "x://r"


def test_equal_templates_are_disambiguated_and_their_uris_resolve_to_their_servers() -> None:
    template = {"uriTemplate": "x://r/{id}", "name": "r"}
    catalog = Catalog.build([source("a", template, kind=TEMPLATES), source("b", template, kind=TEMPLATES)])
    assert catalog.resolve(RESOURCES, "x://r/1") == Route("a", RESOURCES, "x://r/1")
    assert catalog.resolve(RESOURCES, "mcp-hub://b/x://r/1") == Route("b", RESOURCES, "x://r/1")
    assert catalog.resolve(RESOURCES, "x://s/1") is None


def test_a_name_never_moves_to_another_upstream_while_a_generation_lasts() -> None:
    a, b = source("a", tool("same"), namespace=""), source("b", tool("same"), namespace="")
    first = Catalog.build([b])
    second = Catalog.build([a, b], previous=first)
    third = Catalog.build([a, b], previous=second)
    without_b = Catalog.build([a], previous=third)
    with_b = Catalog.build([a, b], previous=without_b)
    for catalog in (second, third, without_b, with_b):
        (renamed,) = [name for name in catalog.names(TOOLS) if name != "same"]
        assert renamed.startswith("a__same_")
        assert catalog.resolve(TOOLS, renamed) == Route("a", TOOLS, "same")
        assert any("served under this name already" in finding.problem for finding in catalog.findings)
    for catalog in (first, second, third, with_b):
        assert catalog.resolve(TOOLS, "same") == Route("b", TOOLS, "same")
    assert without_b.resolve(TOOLS, "same") is None


BAD: list[tuple[Kind, Any]] = [
    (TOOLS, "no object"),
    (TOOLS, {"inputSchema": OBJECT}),
    (TOOLS, {"name": "", "inputSchema": OBJECT}),
    (TOOLS, {"name": 7, "inputSchema": OBJECT}),
    (TOOLS, {"name": "x" * 2000, "inputSchema": OBJECT}),
    (TOOLS, {"name": "x", "inputSchema": "text"}),
    (TOOLS, {"name": "x", "inputSchema": {"type": "array"}}),
    (TOOLS, {"name": "x", "inputSchema": False}),
    (RESOURCES, {"uri": "no scheme", "name": "x"}),
    (TEMPLATES, {"name": "x"}),
    (PROMPTS, {"description": "x"}),
]
GOOD = {
    "tools": tool("good"),
    "resources": {"uri": "good://", "name": "good"},
    "templates": {"uriTemplate": "good://{a}", "name": "good"},
    "prompts": {"name": "good"},
}


@pytest.mark.parametrize(("kind", "bad"), BAD)
def test_an_invalid_item_is_left_out_with_its_reason_and_its_neighbours_stay(kind: Kind, bad: Any) -> None:
    assert defect(kind, bad) is not None
    catalog = Catalog.build([source("s", bad, GOOD[kind.name], kind=kind)])
    assert len(catalog) == 1
    (finding,) = catalog.findings
    assert finding.problem.startswith("it is left out")
    assert finding.name


def test_unknown_fields_are_kept_and_the_input_is_not_modified() -> None:
    wire = tool("t", future={"deep": [1, {"x": None}]}, other=None)
    before = copy.deepcopy(wire)
    catalog = Catalog.build([source("s", wire)])
    assert page(catalog)["tools"] == [{**wire, "name": "s__t"}]
    assert wire == before


def test_only_modern_clients_get_an_output_schema_that_is_not_an_object() -> None:
    catalog = Catalog.build([source("s", tool("t", outputSchema={"type": "array"}), tool("o", outputSchema=OBJECT))])
    assert ["outputSchema" in entry for entry in page(catalog)["tools"]] == [False, True]
    assert ["outputSchema" in entry for entry in page(catalog, modern=True)["tools"]] == [True, True]


@pytest.mark.parametrize("modern", [False, True])
def test_a_long_list_comes_in_pages_that_together_are_complete(modern: bool) -> None:
    catalog = Catalog.build([source("s", *(tool(f"t{n}") for n in range(2 * PAGE_SIZE + 1)))])
    names: list[str] = []
    cursor = None
    for _ in range(3):
        result = page(catalog, modern=modern, cursor=cursor)
        names += [entry["name"] for entry in result["tools"]]
        cursor = result.get("nextCursor")
        assert ("resultType" in result) is modern
    assert cursor is None
    assert names == [f"s__t{n}" for n in range(2 * PAGE_SIZE + 1)]


@pytest.mark.parametrize("cursor", ["", "garbage", "====", "MTIzOjEwMDA=", "ü"])
def test_a_cursor_that_is_not_of_this_catalog_is_refused(cursor: str) -> None:
    catalog = Catalog.build([source("s", *(tool(f"t{n}") for n in range(PAGE_SIZE + 1)))])
    with pytest.raises(ProtocolError) as caught:
        catalog.page(TOOLS, modern=False, cursor=cursor)
    assert caught.value.code == -32602
    changed_catalog = Catalog.build([source("s", *(tool(f"u{n}") for n in range(PAGE_SIZE + 1)))])
    with pytest.raises(ProtocolError):
        changed_catalog.page(TOOLS, modern=False, cursor=page(catalog)["nextCursor"])


def test_names_that_differ_only_in_case_are_both_listed_with_a_warning() -> None:
    catalog = Catalog.build([source("a", tool("Same"), namespace=""), source("b", tool("same"), namespace="")])
    assert catalog.names(TOOLS) == ("Same", "same")
    assert [finding.severity for finding in catalog.findings] == ["warning"]


def test_only_kinds_with_differences_are_reported_as_changed() -> None:
    catalog = Catalog.build([source("s", tool("t"))])
    assert catalog.changed(Catalog.build([source("s", tool("t"))])) == frozenset()
    assert catalog.changed(Catalog.build([source("s", tool("t", title="T"))])) == {TOOLS}
    assert catalog.changed(Catalog.build([])) == {TOOLS}
    assert {kind.name for kind in KINDS} == {"tools", "resources", "templates", "prompts", "skills"}


def test_a_copy_that_is_not_public_is_made_once_and_without_reading_the_lists_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items = tuple(Item(Route("a", TOOLS, name), name, {"name": name, "inputSchema": {"type": "object"}})
        for name in ("x", "y"))  # fmt: skip
    public, private = (
        Catalog.build([CatalogSource("a", "a", items, ttl_ms=5, cache_scope=scope)]) for scope in ("public", "private")
    )
    monkeypatch.setattr(Catalog, "_survey", None)
    copy = public.unshared()
    assert (copy.is_public, public.is_public, private.unshared() is private) == (False, True, True)
    assert (copy.fingerprint, copy.tool_bytes, public.unshared() is copy) == (
        public.fingerprint,
        public.tool_bytes,
        True,
    )
    pages = [json.loads(bytes(catalog.page(TOOLS, modern=True))) for catalog in (public, copy)]
    assert [page.pop("cacheScope") for page in pages] == ["public", "private"]
    assert pages[0] == pages[1]
