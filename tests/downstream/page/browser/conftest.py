from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from playwright.async_api import Browser

from mcp_hub.hub.hub_status import VARIABLE
from tests.downstream.page.browser.looking import chromium


@pytest.fixture(scope="module", autouse=True)
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The hubs of a module are by themselves: `mcp-hub open` asks each hub of its user, those of other tests too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(tmp_path_factory.mktemp("run")))
        yield


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started
