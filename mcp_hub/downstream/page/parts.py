"""Puts the live page of a hub together, from the parts that have its endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_hub.downstream.page import LivePage

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.page.endpoints import Part
    from mcp_hub.hub.hub_status import Status


def make_page(dispatcher: Dispatcher, status: Status) -> LivePage:
    """Returns the page of a hub, with the endpoints of all its parts."""
    page = LivePage()
    parts: list[Part] = []
    for part in parts:
        page.add(part)
    return page
