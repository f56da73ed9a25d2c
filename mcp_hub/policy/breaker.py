"""An upstream whose transport keeps failing is left alone for a while; then one call tries whether it is back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from mcp_hub.catalog.catalog import Item, Route
from mcp_hub.config import rules
from mcp_hub.config.models import Server
from mcp_hub.errors import CircuitOpen, PermissionDenied, ProtocolError, ResultTooLarge, ServerUnavailable
from mcp_hub.policy import Call, Json, Next
from mcp_hub.policy.breaker_states import TRANSITIONS, Event, State


class _Circuit(msgspec.Struct):
    rules: rules.Breaker
    state: State = State.CLOSED
    failures: int = 0
    """In a row."""
    opened: float = 0.0
    probing: bool = False

    def move(self, event: Event, now: float) -> None:
        before, self.state = self.state, TRANSITIONS.get((self.state, event), self.state)
        if self.state is State.CLOSED and event is Event.SUCCEEDED:
            self.failures = 0
        if self.state is State.OPEN and before is not State.OPEN:
            self.opened = now


class Breaker:
    """Counts failures of the transport, in a row and per upstream; errors an upstream answers with are answers."""

    def __init__(self, servers: Mapping[str, Server], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._circuits = {id: _Circuit(server.breaker) for id, server in servers.items() if server.breaker.failures > 0}

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Nothing changes in a list."""
        return items

    def state(self, upstream: str) -> State:
        """The state of an upstream's breaker; closed where it has none."""
        circuit = self._circuits.get(upstream)
        return circuit.state if circuit is not None else State.CLOSED

    def concerns(self, route: Route) -> bool:
        """Upstreams that have a breaker."""
        return route.upstream in self._circuits

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Raises CircuitOpen, with the seconds until the next attempt, without asking the upstream."""
        circuit = self._circuits.get(call.route.upstream)
        if circuit is None:
            return await call_next(call)
        probe = self._admitted(circuit, call)
        event = Event.UNDECIDED
        try:
            result = await call_next(call)
            event = Event.SUCCEEDED
            return result
        except ServerUnavailable:
            circuit.failures += 1
            event = Event.FAILED_TOO_OFTEN if circuit.failures >= circuit.rules.failures else Event.FAILED
            raise
        except (ProtocolError, PermissionDenied, ResultTooLarge):
            event = Event.SUCCEEDED
            raise
        finally:
            if probe:
                circuit.probing = False
            circuit.move(event, self._clock())
            if circuit.state is State.OPEN and event is Event.FAILED_TOO_OFTEN:
                call.notes.append(f"breaker: open after {circuit.failures} failures")

    def _admitted(self, circuit: _Circuit, call: Call) -> bool:
        """Whether this call is the probe. Raises CircuitOpen."""
        now = self._clock()
        if circuit.state is State.CLOSED:
            return False
        left = circuit.opened + circuit.rules.cooldown - now
        if circuit.state is State.OPEN and left <= 0:
            circuit.move(Event.COOLED_DOWN, now)
        if circuit.state is State.HALF_OPEN and not circuit.probing:
            circuit.probing = True
            call.notes.append("breaker: this call tries whether the server is back")
            return True
        server = call.route.upstream
        wait = max(left, 1.0) if circuit.state is State.OPEN else 1.0
        text = (
            f"The server {server!r} failed {circuit.failures} times in a row and is left alone for {wait:.0f} s "
            f"(setting: servers.{server}.breaker)."
        )
        raise CircuitOpen(text, server=server, retry_after=round(wait, 3), executed=False)
