"""Which approvals of a person the hub remembers."""

from __future__ import annotations

import pytest

from mcp_hub.catalog import Route
from mcp_hub.policy.approvals import IDLE, Approvals
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security import Principal, callers
from mcp_hub.security.callers import Caller, Callers

TOOL = Route("up", TOOLS, "delete")
OTHER_ROUTE = Route("up", TOOLS, "send")


def test_approvals_in_use_outlast_idle_ones_of_other_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "MAX_PRINCIPALS", 10)
    approvals, known = Approvals(), Callers()
    first, second, *_ = [known.of(Principal(f"caller {number}")) for number in range(10)]
    for caller in (first, second):
        approvals.add(caller, TOOL)
    known.of(first.principal)
    known.of(Principal("newcomer"))
    assert approvals.has(known.of(first.principal), TOOL)
    assert not approvals.has(second, TOOL)
    assert not approvals.has(known.of(second.principal), TOOL)


def test_a_new_approval_does_not_renew_those_that_a_principal_left_idle() -> None:
    now, alice = 0.0, Caller(Principal("alice"), is_principal=True)
    approvals = Approvals(lambda: now)
    approvals.add(alice, TOOL)
    now = IDLE + 1
    assert not approvals.has(alice, OTHER_ROUTE)
    approvals.add(alice, OTHER_ROUTE)
    assert approvals.has(alice, OTHER_ROUTE)
    assert not approvals.has(alice, TOOL)


def test_approvals_of_a_session_last_until_it_ends() -> None:
    now, session = 0.0, Caller(Principal("alice"))
    approvals = Approvals(lambda: now)
    approvals.add(session, TOOL)
    now = 2 * IDLE
    assert approvals.has(session, TOOL)
    assert not approvals.has(Caller(Principal("alice")), TOOL)
    session.end()
    assert not approvals.has(session, TOOL)
