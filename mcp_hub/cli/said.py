"""What there is to be told of the things servers say: pins that do not fit, signs the screen has found."""

from __future__ import annotations

from mcp_hub.hub.engine import Hub
from mcp_hub.policy.screen import what_is
from mcp_hub.text import printable

Row = dict[str, str]
"""A finding as `check` prints it: server, kind, name, problem, severity."""


def doubted(hub: Hub) -> list[Row]:
    """Everything that is not as it was pinned, and everything the screen has found."""
    found = []
    for id, upstream in hub.upstreams.items():
        found += [_row(id, *problem) for problem in hub.rules.pins.problems(id)]
        said = upstream.agreement.instructions if upstream.agreement is not None else None
        if said and (problem := hub.rules.pins.of_instructions(id, said)) is not None:
            found.append(_row(id, "its", "instructions", problem))
    return found + screened(hub)


def screened(hub: Hub) -> list[Row]:
    """What the screen finds in all that is listed now."""
    _ = hub.catalog
    while hub.rules.screen.step():
        pass
    found = []
    for id, upstream in hub.upstreams.items():
        said = upstream.agreement.instructions if upstream.agreement is not None else None
        for flag in hub.rules.screen.of_instructions(id, said) if said else ():
            found.append(_row(id, "its", "instructions", f"screen: {what_is(flag)}"))
    for id, route, flag in hub.rules.screen.flags():
        held = "; it is kept back" if hub.rules.screen.why(route) is not None else ""
        found.append(_row(id, route.kind.unknown, route.name, f"screen: {what_is(flag)}{held}"))
    return found


def _row(server: str, kind: str, name: str, problem: str) -> Row:
    shown = {"kind": kind, "name": printable(name, 200), "problem": printable(problem, 600)}
    return {"server": server, **shown, "severity": "warning"}
