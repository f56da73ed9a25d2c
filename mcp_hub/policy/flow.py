"""What one session may combine: private data, what strangers wrote, and a way out, all three, is how data is stolen."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

from mcp_hub.catalog.catalog import Item, Route
from mcp_hub.config.models import Server
from mcp_hub.config.rules import Flows, Label
from mcp_hub.errors import FlowRefused
from mcp_hub.policy import Call, Json, Next
from mcp_hub.policy.patterns import Patterns

MAX_CALLERS: Final = 10_000
"""Callers whose labels are remembered; the longest unseen goes first."""
ALL: Final[frozenset[Label]] = frozenset({"reads_private", "reads_untrusted", "writes_external"})


class Used:
    """What each caller has used so far: labels, and when it last did. It outlives configurations."""

    def __init__(self) -> None:
        self._of: OrderedDict[Hashable, tuple[float, frozenset[Label]]] = OrderedDict()

    def labels(self, caller: Hashable, since: float) -> frozenset[Label]:
        """Those of a caller; none if it has been quiet since then."""
        at, labels = self._of.get(caller, (since, frozenset[Label]()))
        return labels if at >= since else frozenset()

    def note(self, caller: Hashable, now: float, labels: frozenset[Label]) -> None:
        """These are all it has used up to now."""
        self._of[caller] = now, labels
        self._of.move_to_end(caller)
        while len(self._of) > MAX_CALLERS:
            self._of.popitem(last=False)

    def forget(self, caller: Hashable) -> None:
        """The caller is gone."""
        self._of.pop(caller, None)


class Flow:
    """Refuses the call that would complete the three in one session. Labels are the configuration's, not the servers'.

    A session is a connection or session of the handshake era; in the modern one a principal, until it has been quiet
    for `flows.window`.
    """

    def __init__(
        self,
        servers: Mapping[str, Server],
        flows: Flows,
        used: Used,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flows = flows
        self._clock = clock
        self._labels = {
            id: [(label, Patterns(names)) for label, names in server.labels.items()] for id, server in servers.items()
        }
        self._used = used

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Nothing changes in a list: what may be called depends on what was called before."""
        return items

    def concerns(self, route: Route) -> bool:
        """Only what is labelled."""
        return self._flows.mode != "off" and bool(self.labels(route))

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Raises FlowRefused."""
        labels = self.labels(call.route) if self._flows.mode != "off" else frozenset()
        if not labels:
            return await call_next(call)
        now = self._clock()
        known = self._used.labels(call.caller, now - self._flows.window)
        both = known | labels
        call.notes.append(f"flow: {', '.join(sorted(both))}")
        refused = both >= ALL and self._flows.mode == "refuse"
        self._used.note(call.caller, now, known if refused else both)
        if refused:
            call.refused_by = "flows"
            text = (
                f"This session has used {', '.join(sorted(known))}; with {', '.join(sorted(labels))} of "
                f"{call.route.upstream!r} private data could be sent where a stranger wants it. Begin a new session "
                "for it (setting: flows)."
            )
            raise FlowRefused(text, server=call.route.upstream, executed=False)
        return await call_next(call)

    def labels(self, route: Route) -> frozenset[Label]:
        """What the configuration says a call to a route does."""
        return frozenset(label for label, names in self._labels.get(route.upstream, ()) if names.match(route.name))
