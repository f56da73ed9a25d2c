"""Lists tools to each client with input schemas that the provider of its models takes. Calls are not affected."""

from __future__ import annotations

import asyncio
from operator import is_not
from typing import TYPE_CHECKING, Any

from mcp_hub.catalog import Catalog, CatalogEntry
from mcp_hub.catalog.entries import made_entry
from mcp_hub.config.models import Config
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy.presentation import CLIENT_SCHEMAS, ClientSchemaForm
from mcp_hub.protocol.kinds import TOOLS

if TYPE_CHECKING:
    from mcp_hub.clients import Client, Provider
    from mcp_hub.hub.catalogs import Catalogs


class ClientSchemas:
    """Rewrites the input schemas of listed tools for the clients that need it. Belongs to the hub's loop."""

    def __init__(self, form: ClientSchemaForm) -> None:
        self.form = form
        self._making = asyncio.Lock()
        """Held while a listing is made, so that requests for the same one make it once."""

    async def listed(self, catalog: Catalog, client: Client | None) -> Catalog:
        """Returns the catalog with the list of tools for a client; None: it is not known.

        It is the same catalog if no schema has to be rewritten.
        """
        provider = client.provider if client is not None and self.form == "auto" else None
        if provider is None and self.form != "portable":
            return catalog
        key = ("schemas", provider)
        if key not in catalog.listings:
            async with self._making:
                if key not in catalog.listings:
                    catalog.listings[key] = await in_thread(_listing, catalog, provider)
        return catalog.listings[key] or catalog

    def facts(self, catalog: Catalog) -> list[dict[str, Any]]:
        """Returns how many tools of a catalog are listed with another schema: the keys `clients`, `rewritten`, `of`."""
        from mcp_hub.clients.table import CLIENTS

        clients: dict[Provider | None, list[str]] = {None: ["every client"]} if self.form == "portable" else {}
        for client in CLIENTS if self.form == "auto" else ():
            if client.provider is not None:
                clients.setdefault(client.provider, []).append(client.name)
        entries = catalog.entries(TOOLS)
        counts = {provider: sum(_for(entry, provider) is not entry for entry in entries) for provider in clients}
        return [{"clients": clients[key], "rewritten": count, "of": len(entries)} for key, count in counts.items()]


def _listing(catalog: Catalog, provider: Provider | None) -> Catalog | None:
    entries = catalog.entries(TOOLS)
    rewritten = [_for(entry, provider) for entry in entries]
    return catalog.listing(rewritten) if any(map(is_not, rewritten, entries)) else None


def _for(entry: CatalogEntry, provider: Provider | None) -> CatalogEntry:
    """Returns the entry of a tool with a schema that the provider takes; the same one if it takes that of the entry."""
    if provider not in entry.variants:
        from mcp_hub.schema.portable_schema import portable_schema

        schema = entry.wire["inputSchema"]
        rewritten = portable_schema(schema, provider)
        wire = {**entry.wire, "inputSchema": rewritten}
        entry.variants[provider] = None if rewritten is schema else made_entry(entry.exposed, entry.route, wire)
    return entry.variants[provider] or entry


def adapt_schemas(catalogs: Catalogs, config: Config) -> None:
    """Applies the form of schemas of a configuration to the lists of tools. Notifies clients if it has changed."""
    form = CLIENT_SCHEMAS.of(config)
    if form != catalogs.client_schemas.form:
        catalogs.client_schemas = ClientSchemas(form)
        catalogs.notify(frozenset({TOOLS}), lambda caller: True)
