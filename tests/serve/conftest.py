from __future__ import annotations

from typing import Any

import pytest

LOOPS: list[Any] = ["asyncio", ("asyncio", {"use_uvloop": True})]
"""The hub runs on uvloop where there is one; what touches sockets' ends is tested on both."""


@pytest.fixture
def anyio_backend() -> Any:
    return "asyncio"
