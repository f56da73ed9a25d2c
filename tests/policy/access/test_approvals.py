"""Which approvals of a person the hub remembers."""

from __future__ import annotations

from mcp_hub.catalog import Route
from mcp_hub.policy.approvals import MAX_CALLERS, Approvals
from mcp_hub.protocol.kinds import TOOLS

TOOL = Route("up", TOOLS, "delete")


def test_approvals_in_use_outlast_idle_ones_of_other_callers() -> None:
    approvals = Approvals()
    for number in range(MAX_CALLERS):
        approvals.add(f"caller {number}", TOOL)
    assert approvals.has("caller 0", TOOL)
    approvals.add("newcomer", TOOL)
    assert approvals.has("caller 0", TOOL)
    assert not approvals.has("caller 1", TOOL)
