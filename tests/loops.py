"""For modules whose tests run on every loop the hub runs on: `from tests.loops import anyio_backend`."""

from __future__ import annotations

import sys
from typing import Any

import pytest

LOOPS = ["asyncio"] if sys.platform == "win32" else ["asyncio", "uvloop"]


@pytest.fixture(scope="module", params=LOOPS)
def anyio_backend(request: Any) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}
