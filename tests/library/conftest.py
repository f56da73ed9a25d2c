"""A toolkit that is closed at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mcp_hub import Toolkit


@pytest.fixture
async def toolkit() -> AsyncIterator[Toolkit]:
    async with Toolkit() as instance:
        yield instance
