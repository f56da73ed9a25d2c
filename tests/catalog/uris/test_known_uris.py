"""Which URI leads where for whom: nobody's URIs are another's, and what is remembered is bounded."""

from __future__ import annotations

import pytest

from mcp_hub.catalog import Catalog, CatalogSource, Item, Route
from mcp_hub.catalog.exposed_ids import MAX_ISSUED, MAX_ISSUED_URI, IssuedUris, UriMap
from mcp_hub.protocol.kinds import RESOURCES
from mcp_hub.security.callers import Caller

ME = Caller()


def test_equal_uris_from_two_servers_resolve_to_each_for_one_caller() -> None:
    uris, me = IssuedUris(), Caller()
    first = uris.give(me, "a", "x:1", "x:1")
    second = uris.give(me, "b", "x:1", "x:1")
    assert (first, uris.find(me, first)) == ("x:1", ("a", "x:1"))
    assert (second, uris.find(me, second)) == ("mcp-hub://b/x:1", ("b", "x:1"))
    assert uris.give(me, "b", "x:1", "x:1") == second
    assert uris.find(Caller(), first) is None
    me.end()
    assert uris.find(me, first) is None


def test_equal_web_urls_of_two_servers_are_one_resource() -> None:
    uris = IssuedUris()
    for server in "ab":
        assert uris.give(ME, server, "https://example.com/", "https://example.com/") == "https://example.com/"


def test_remembered_uris_are_bounded_and_the_largest_caller_loses_its_oldest() -> None:
    uris, modest, greedy, other = IssuedUris(), Caller(), Caller(), Caller()
    uris.give(modest, "a", "x:mine", "x:mine")
    size = 30_000
    count = MAX_ISSUED // size
    for number in range(count):
        uri = f"x:{number}".ljust(size // 2, "-")
        assert uris.give(greedy, "a", uri, uri) == uri
    assert uris.find(modest, "x:mine") == ("a", "x:mine")
    assert uris.find(greedy, "x:0".ljust(size // 2, "-")) is None
    assert uris.find(greedy, f"x:{count - 1}".ljust(size // 2, "-")) is not None
    greedy.end()
    for number in range(count // 2):  # what was forgotten takes no room
        uri = f"y:{number}".ljust(size // 2, "-")
        uris.give(other, "a", uri, uri)
    assert uris.find(other, "y:0".ljust(size // 2, "-")) is not None


def test_uris_of_late_results_for_a_caller_that_is_gone_take_no_room() -> None:
    uris, gone, other, size = IssuedUris(), Caller(), Caller(), 30_000
    uris.give(gone, "a", "x:1", "x:1")
    gone.end()
    for number in range(2 * MAX_ISSUED // size):
        uri = f"x:{number}".ljust(size // 2, "-")
        assert uris.give(gone, "a", uri, uri) == uri
    assert uris.find(gone, "x:1") is None
    uris.give(other, "a", "x:mine", "x:mine")
    assert uris.find(other, "x:mine") == ("a", "x:mine")


def test_a_uri_too_long_to_remember_is_not_rewritten() -> None:
    uris = IssuedUris()
    uri = "x:" + "-" * MAX_ISSUED_URI
    assert uris.give(ME, "a", uri, uri) == uri
    assert uris.find(ME, uri) is None


@pytest.fixture
def uris() -> UriMap:
    sources = [
        CatalogSource(
            server, server, tuple(Item(Route(server, RESOURCES, uri), uri, {"uri": uri, "name": "n"}) for uri in listed)
        )
        for server, listed in (("a", ("x:1",)), ("b", ("x:1", "x:2")))
    ]
    catalog = Catalog.build(sources)
    return UriMap(lambda caller: catalog)


@pytest.mark.parametrize("uri", ["x:1", "x:2", "x:3", "mcp-hub://a/x:1", "mcp-hub://b/x:9"])
def test_original_uris_are_the_inverse_of_exposed_ones(uris: UriMap, uri: str) -> None:
    for server in "ab":
        exposed = uris.exposed(ME, server, uri)
        assert uris.original(ME, server, exposed) == uri
        peer = "a" if server == "b" else "b"
        assert uris.original(ME, peer, exposed) == exposed


def test_a_forgotten_prefixed_uri_is_still_recognised(uris: UriMap) -> None:
    assert uris.original(ME, "b", "mcp-hub://b/x:7") == "x:7"
    assert uris.original(ME, "a", "mcp-hub://b/x:7") == "mcp-hub://b/x:7"
    assert uris.original(ME, "a", "x:never") == "x:never"
