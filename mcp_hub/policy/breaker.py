"""The circuit breaker: stops calls to an upstream whose transport keeps failing, then lets one call try again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import Meta

from mcp_hub.catalog import Route
from mcp_hub.config.field_types import Duration
from mcp_hub.config.models import Server
from mcp_hub.config.settings import EntryKey, Frozen, model_key
from mcp_hub.errors import (
    CallError,
    PermissionDenied,
    ProtocolError,
    RequestRejected,
    ResultTooLarge,
    ServerUnavailable,
)
from mcp_hub.policy import Call, Json, Next, Policy, PolicyParts


class BreakerSettings(Frozen):
    """The circuit breaker of an upstream whose transport keeps failing."""

    OFF: ClassVar[Mapping[str, Any]] = {"failures": 0}

    SHORT: ClassVar[Mapping[type, str]] = {int: "failures"}

    failures: Annotated[int, Meta(ge=0)] = 5
    """Consecutive failures after which it opens; 0: it never opens."""
    cooldown: Duration = 30.0
    """How long it stays open before one call tries the server again."""


BREAKER: Final = EntryKey("breaker", model_key(BreakerSettings), BreakerSettings(), in_defaults=True)


class CircuitOpen(CallError):
    """The circuit is open: the upstream has failed too often and gets no calls for a while."""

    code, rpc_code, retryable = "circuit_open", -32010, True
    policy, refuses = "breaker", True


class CircuitState(StrEnum):
    """The state of a circuit."""

    CLOSED = "closed"
    """Calls go to the upstream."""
    OPEN = "open"
    """No call goes to the upstream until the cool-down is over."""
    HALF_OPEN = "half_open"
    """One call goes to the upstream as a probe; its outcome decides."""


class CircuitEvent(StrEnum):
    """What moves a circuit from one state to another."""

    SUCCEEDED = "succeeded"
    """The upstream answered, even if with an error."""
    FAILED = "failed"
    """The transport failed, but fewer times in a row than the limit."""
    FAILED_TOO_OFTEN = "failed_too_often"
    COOLED_DOWN = "cooled_down"
    UNDECIDED = "undecided"
    """The call says nothing about the upstream: it was cancelled, or the hub itself refused it."""


TRANSITIONS: Final[dict[tuple[CircuitState, CircuitEvent], CircuitState]] = {
    (CircuitState.CLOSED, CircuitEvent.FAILED_TOO_OFTEN): CircuitState.OPEN,
    (CircuitState.OPEN, CircuitEvent.COOLED_DOWN): CircuitState.HALF_OPEN,
    # A call that was running when the breaker opened.
    (CircuitState.OPEN, CircuitEvent.SUCCEEDED): CircuitState.CLOSED,
    (CircuitState.HALF_OPEN, CircuitEvent.SUCCEEDED): CircuitState.CLOSED,
    (CircuitState.HALF_OPEN, CircuitEvent.FAILED): CircuitState.OPEN,
    (CircuitState.HALF_OPEN, CircuitEvent.FAILED_TOO_OFTEN): CircuitState.OPEN,
    (CircuitState.HALF_OPEN, CircuitEvent.UNDECIDED): CircuitState.HALF_OPEN,
}
"""A pair that is not in the table leaves the state as it is."""


class _Circuit(msgspec.Struct):
    rules: BreakerSettings
    state: CircuitState = CircuitState.CLOSED
    failures: int = 0
    """Failures in a row."""
    opened_at: float = 0.0
    is_probing: bool = False

    def move(self, event: CircuitEvent, now: float) -> None:
        previous, self.state = self.state, TRANSITIONS.get((self.state, event), self.state)
        if self.state is CircuitState.CLOSED and event is CircuitEvent.SUCCEEDED:
            self.failures = 0
        if self.state is CircuitState.OPEN and previous is not CircuitState.OPEN:
            self.opened_at = now


class CircuitBreaker(Policy):
    """Opens the circuit of an upstream after a number of transport failures in a row.

    An error from the upstream is not a failure.
    """

    name = "breaker"
    keys = (BREAKER,)

    def __init__(self, servers: Mapping[str, Server], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        settings = {id: BREAKER.of(server) for id, server in servers.items()}
        self._circuits = {id: _Circuit(rules) for id, rules in settings.items() if rules.failures > 0}

    @classmethod
    def of(cls, parts: PolicyParts) -> CircuitBreaker:
        """Makes the policy of a configuration."""
        return cls(parts.servers)

    def state(self, upstream: str) -> CircuitState:
        """Returns the state of an upstream's circuit; closed if it has no breaker."""
        circuit = self._circuits.get(upstream)
        return circuit.state if circuit is not None else CircuitState.CLOSED

    def reset(self, upstream: str) -> None:
        """Closes an upstream's circuit, because the server was restarted."""
        circuit = self._circuits.get(upstream)
        if circuit is not None:
            circuit.failures = 0
            circuit.move(CircuitEvent.SUCCEEDED, self._clock())

    def concerns(self, route: Route) -> bool:
        """Returns whether the upstream has a breaker."""
        return route.upstream in self._circuits

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Runs the call. Raises CircuitOpen while the circuit is open, with the seconds until the next attempt."""
        circuit = self._circuits.get(call.route.upstream)
        if circuit is None:
            return await call_next(call)
        probe = circuit.state is not CircuitState.CLOSED and not call.is_wanted_retry and self._is_probe(circuit, call)
        state_before = circuit.state
        event = CircuitEvent.UNDECIDED
        try:
            result = await call_next(call)
            event = CircuitEvent.SUCCEEDED
            return result
        except (ProtocolError, PermissionDenied, RequestRejected, ResultTooLarge):
            event = CircuitEvent.SUCCEEDED
            raise
        except ServerUnavailable:
            circuit.failures += 1
            event = CircuitEvent.FAILED_TOO_OFTEN if circuit.failures >= circuit.rules.failures else CircuitEvent.FAILED
            raise
        finally:
            if probe:
                circuit.is_probing = False
            if circuit.state is CircuitState.CLOSED and event is CircuitEvent.SUCCEEDED:
                circuit.failures = 0
            else:
                circuit.move(event, self._clock())
            opened = circuit.state is CircuitState.OPEN and state_before is not CircuitState.OPEN
            if opened and event is CircuitEvent.FAILED_TOO_OFTEN:
                call.notes.append(f"breaker: open after {circuit.failures} failures")

    def _is_probe(self, circuit: _Circuit, call: Call) -> bool:
        """Returns True if this call is the probe. Raises CircuitOpen if it is not."""
        now = self._clock()
        remaining = circuit.opened_at + circuit.rules.cooldown - now
        if circuit.state is CircuitState.OPEN and remaining <= 0:
            circuit.move(CircuitEvent.COOLED_DOWN, now)
        if circuit.state is CircuitState.HALF_OPEN and not circuit.is_probing:
            circuit.is_probing = True
            call.notes.append("breaker: this call tries whether the server is back")
            return True
        server = call.route.upstream
        wait = max(remaining, 1.0) if circuit.state is CircuitState.OPEN else 1.0
        text = (
            f"The server {server!r} failed {circuit.failures} times in a row and gets no calls for {wait:.0f} s "
            f"(setting: servers.{server}.breaker)."
        )
        raise CircuitOpen(text, server=server, retry_after=round(wait, 3), executed=False)
