"""Which approvals of a person the hub remembers."""

from __future__ import annotations

from mcp_hub.catalog import Route
from mcp_hub.policy.approvals import IDLE, MAX_CALLERS, Approvals
from mcp_hub.protocol.kinds import TOOLS

TOOL = Route("up", TOOLS, "delete")
OTHER_ROUTE = Route("up", TOOLS, "send")


def test_approvals_in_use_outlast_idle_ones_of_other_callers() -> None:
    approvals = Approvals()
    for number in range(MAX_CALLERS):
        approvals.add(f"caller {number}", TOOL)
    assert approvals.has("caller 0", TOOL)
    approvals.add("newcomer", TOOL)
    assert approvals.has("caller 0", TOOL)
    assert not approvals.has("caller 1", TOOL)


def test_a_new_approval_does_not_renew_those_that_a_principal_left_idle() -> None:
    now = 0.0
    approvals = Approvals(lambda: now)
    approvals.add("alice", TOOL)
    now = IDLE + 1
    assert not approvals.has("alice", OTHER_ROUTE)
    approvals.add("alice", OTHER_ROUTE)
    assert approvals.has("alice", OTHER_ROUTE)
    assert not approvals.has("alice", TOOL)
