"""Puts the live page of a hub together, from the parts that have its endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_hub.downstream.page import LivePage
from mcp_hub.downstream.page.actions import ActionsPart
from mcp_hub.downstream.page.client_rows import ClientRows
from mcp_hub.downstream.page.config_view import ConfigView
from mcp_hub.downstream.page.confirmations import ConfirmationsPart
from mcp_hub.downstream.page.feed import CallsPart, Feed
from mcp_hub.downstream.page.runs import RunsPart
from mcp_hub.downstream.page.server_rows import ServerRows
from mcp_hub.downstream.page.tool_list import ToolsPart
from mcp_hub.downstream.page.update_stream import StatePart

if TYPE_CHECKING:
    from mcp_hub.downstream.page.endpoints import Part
    from mcp_hub.downstream.page_access import PageSources


def make_page(sources: PageSources) -> LivePage:
    """Returns the page of a hub, with the endpoints of all its parts."""
    hub = sources.dispatcher.hub
    feed = Feed(hub)
    page = LivePage(feed)
    servers, clients = ServerRows(sources.dispatcher, feed, sources.cure), ClientRows(sources.dispatcher, feed)
    view = ConfigView(hub, sources.configuration, sources.cure)
    tools, actions = ToolsPart(hub, sources.costs), ActionsPart(sources.dispatcher, sources.reload)
    runs = RunsPart(sources.dispatcher, tools)
    confirmations = ConfirmationsPart(sources.dispatcher, runs)
    parts: list[Part] = [
        CallsPart(hub, feed),
        StatePart(page, hub, sources.status, feed, servers, clients, view, confirmations),
        *(servers, clients, tools, runs, confirmations, actions),
    ]
    page.returned = actions.sign_ins.returned
    page.on_close.append(actions.sign_ins.close)
    for part in parts:
        page.add(part)
    return page
