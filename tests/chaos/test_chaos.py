"""Half a minute of chaos with a fixed seed; `scripts/chaos` takes as long as it is told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import chaos

pytestmark = pytest.mark.anyio

SECONDS = 30.0
SEED = 20261121


async def test_every_guarantee_holds_while_servers_die_hang_and_send_invalid_messages(tmp_path: Path) -> None:
    report = await chaos(SECONDS, SEED, tmp_path)
    assert not report.wrong, report.table()
    assert report.outcomes["ok"] > 100
    assert all(report.disturbances[kind] for kind in ("garble", "stop", "kill", "reload"))
