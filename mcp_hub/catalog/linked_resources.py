"""The resources that tools and skills refer to, listed or not, and the URIs under which clients reach them."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from mcp_hub.catalog import names, resource_uris
from mcp_hub.catalog.entries import CatalogEntry, Route, made_entry
from mcp_hub.protocol.frames import encode
from mcp_hub.protocol.kinds import RESOURCES
from mcp_hub.protocol.skill_entries import directories_of, files_of, with_uris


class LinkedResources:
    """The UI resources of tools and the files of skills: the catalog refers to both by their exposed URIs."""

    def __init__(self) -> None:
        self._exposed: dict[Route, str] = {}
        self._routes: dict[str, Route] = {}
        self.unlisted: dict[str, Route] = {}

    def take(self, resource: CatalogEntry) -> None:
        """Registers a listed resource."""
        self._exposed[resource.route] = resource.exposed
        self._routes[resource.exposed] = resource.route

    def tool(self, entry: CatalogEntry) -> CatalogEntry:
        """Returns the tool with the exposed URI of its UI resource."""
        wire = resource_uris.in_meta(entry.wire, partial(self._uri, entry.route.upstream))
        if wire is entry.wire or entry.item is None:
            return entry
        return made_entry(entry.exposed, entry.item, wire, encode(wire), same=False)

    def skill(self, entry: CatalogEntry) -> Generator[None, None, CatalogEntry]:
        """Returns the skill with the exposed URIs of its files.

        Either all of them are the server's own URIs or all are prefixed, so that the files stay in one directory.
        """
        upstream, files = entry.route.upstream, files_of(entry.wire)[1:]
        files = [entry.route.name, *(uri for uri in files if uri != entry.route.name)]
        unprefixed = entry.exposed == entry.route.name
        for uri in files:
            yield
            unprefixed = unprefixed and self._exposed_uri(Route(upstream, RESOURCES, uri)) == uri
        for uri in (*files, *directories_of(files)):
            yield
            exposed = uri if unprefixed else names.expose_uri(upstream, uri)
            if exposed not in self._routes:
                self.unlisted.setdefault(exposed, Route(upstream, RESOURCES, uri))
        if unprefixed:
            return entry
        exposed = names.expose_uri(upstream, entry.route.name)
        wire = with_uris({**entry.wire, "uri": entry.route.name}, partial(names.expose_uri, upstream))
        return CatalogEntry(exposed, entry.route, wire, encode(wire))

    def _exposed_uri(self, route: Route) -> str:
        """Returns the URI of a resource, prefixed if its own URI leads to another resource."""
        if route in self._exposed:
            return self._exposed[route]
        uri = route.name
        is_foreign = self._routes.get(uri, self.unlisted.get(uri, route)) != route or uri.startswith(names.URI_PREFIX)
        return names.expose_uri(route.upstream, uri) if is_foreign else uri

    def _uri(self, upstream: str, uri: str) -> str:
        route = Route(upstream, RESOURCES, uri)
        exposed = self._exposed_uri(route)
        if route not in self._exposed:
            self.unlisted[exposed] = route
        return exposed
