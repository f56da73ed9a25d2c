"""Rules: one object with two halves, so that what is hidden and what is refused cannot disagree.

`shape` runs when a catalog is built, `__call__` around every call. The order of the rules is fixed in `CHAIN`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from mcp_hub.catalog.catalog import Item, Route
from mcp_hub.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND, UnknownName
from mcp_hub.policy.time_limit import TimeLimit
from mcp_hub.protocol.asking import Asker
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.protocol.kinds import RESOURCES, TEMPLATES, Kind

Json = dict[str, Any]

MAX_COMPOSED: Final = 10_000
"""Routes whose rules are remembered; URIs of resources are the callers' to make up."""


class Call(msgspec.Struct, eq=False):
    """One call on its way to one upstream.

    `params` are the request's end-to-end params under the upstream's own names; a policy that changes them replaces
    the object. `exposed` is the name the caller used. `caller` is an opaque key, equal for calls of one caller, None
    where there is only one.
    """

    method: str
    exposed: str
    route: Route
    params: Json
    era: Era
    envelope: Envelope
    caller: Hashable | None = None
    on_progress: Callable[[Json], None] | None = None
    asker: Asker | None = None
    """The caller, where it can be asked something because of this call."""
    on_message: Callable[[Json], None] | None = None
    """Takes what the server logs because of this call."""
    subscriber: Hashable = None
    """Whom a subscription is for, and `on_update` the way to tell it."""
    on_update: Callable[[Json], None] | None = None
    deadlines: list[TimeLimit] = msgspec.field(default_factory=list)
    """The limits that are running; they stand still while the call waits for its caller."""
    notes: list[str] = msgspec.field(default_factory=list)
    """What the policies did, for `--explain` and the log: `retry: attempt 2 after server_unavailable`."""
    attempts: int = 0
    """How often the upstream was asked."""
    label: str | None = None
    """Its id in records and spans; None: it is given one."""
    fallback: str | None = None
    """What answered in the upstream's place."""
    refused_by: str | None = None
    """The rule that did not let the call through."""
    preset: Mapping[str, Any] | None = None
    """Arguments that a program sets where it has registered the tool. None: the call does not come from there."""

    @property
    def kind(self) -> Kind:
        """What the caller asked for: to it, a resource found by a template is a resource."""
        return RESOURCES if self.route.kind is TEMPLATES else self.route.kind


Next = Callable[[Call], Awaitable[Json]]


def unknown_name(kind: Kind, exposed: str, era: Era) -> UnknownName:
    """The one error for a name that does not exist, is hidden or is refused: nobody outside can tell them apart."""
    code = RESOURCE_NOT_FOUND if kind is RESOURCES and era == "handshake" else INVALID_PARAMS
    data = {"uri": exposed} if kind is RESOURCES else None
    return UnknownName(code, f"Unknown {kind.unknown}: {exposed}", data)


class Policy(Protocol):
    """One rule. Both halves decide from the upstream's id and the original name, never from the exposed one."""

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items of one upstream as they may be listed: fewer, or with another `local` name or `wire` dict."""
        ...

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """The result of one call: `await call_next(call)`, something around it, or an exception of errors.py."""
        ...


class Selective(Policy, Protocol):
    """A rule that most calls have nothing to do with."""

    def concerns(self, route: Route) -> bool:
        """Whether the rule may ever make a difference to a call of this route.

        Asked once for all calls of a configuration, so it decides by the configuration alone, never by what servers
        list or what has happened.
        """
        ...


class Chain:
    """Policies from the outermost to the innermost. A call goes through those that concern its route."""

    def __init__(self, policies: Sequence[Policy | Selective], innermost: Next) -> None:
        self.policies = tuple(policies)
        self._innermost = innermost
        self._composed: dict[Route, Next] = {}

    def run(self, call: Call) -> Awaitable[Json]:
        """The result of one call, to be awaited."""
        run = self._composed.get(call.route)
        return (run or self._compose(call.route))(call)

    def _compose(self, route: Route) -> Next:
        if len(self._composed) >= MAX_COMPOSED:
            self._composed.clear()
        concerned = [one for one in self.policies if not hasattr(one, "concerns") or one.concerns(route)]
        self._composed[route] = run = compose(concerned, self._innermost)
        return run

    def insert(self, policy: Policy, after: Policy) -> None:
        """One more rule, behind another one; calls that run already go on as they began."""
        if policy not in self.policies:
            place = self.policies.index(after) + 1
            self.policies = (*self.policies[:place], policy, *self.policies[place:])
            self._composed = {}

    def shape(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """What every policy together leaves of the items, innermost rule first."""
        for policy in reversed(self.policies):
            items = policy.shape(items)
        return tuple(items)


def compose(policies: Sequence[Policy], innermost: Next) -> Next:
    """One callable that runs the policies outside in, then `innermost`."""
    call_next = innermost
    for policy in reversed(policies):
        call_next = partial(policy.__call__, call_next=call_next)
    return call_next
