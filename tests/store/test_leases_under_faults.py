"""Leases while replicas are paused, the store is slow or loses keys, and clocks are set: a model of both, in steps.

Time passes in the model only. The store's part is what its scripts do; the replicas' part is `Lease` itself.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mcp_hub.store.membership import LEASE, MARGIN, RENEW_EVERY, Lease

REPLICAS = 3
STEP = 0.05
"""Seconds of one step of time, short enough that no check misses a state in between."""


class Replica:
    """The state of one replica: its lease by its own clock, and whether it believes that it owns the one resource."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.incarnation = 0
        self.lease = Lease()
        self.owns = False
        self.paused = False
        self.next_renewal = 0.0
        self.is_queried = False
        """Whether another replica asked it to check its ownership, and it has not checked yet."""

    @property
    def name(self) -> str:
        return f"{self.number}:{self.incarnation}"

    def give_up(self) -> None:
        self.lease.note_end()
        self.incarnation += 1
        self.owns = False


class Store:
    """The state of the store: records that expire by its own clock, which may be set, and the owner of the resource."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.records: dict[str, float] = {}
        self.owner = ""

    def lives(self, name: str) -> bool:
        """Returns whether a record exists; an expired record is removed when it is read, as Redis does."""
        if self.records.get(name, float("-inf")) <= self.clock:
            self.records.pop(name, None)
        return name in self.records

    def renew(self, name: str, *, fresh: bool) -> bool:
        if not fresh and not self.lives(name):
            return False
        self.records[name] = self.clock + LEASE
        return True

    def claim(self, name: str) -> str:
        if not self.lives(name):
            return ""
        if not self.owner or self.owner == name or not self.lives(self.owner):
            self.owner = name
        return self.owner


class Leases(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.store = Store()
        self.replicas = [Replica(number) for number in range(REPLICAS)]
        self.slow = 0.0
        self.disturbed = float("-inf")
        """When the store last lost a record that had not expired: its clock was set, or the key was evicted."""
        for replica in self.replicas:
            self.renew(replica)

    def renew(self, replica: Replica) -> None:
        """Renews as `Membership` does: the lease counts from the time of the request, however long the reply takes."""
        replica.next_renewal = self.now + RENEW_EVERY
        if self.store.renew(replica.name, fresh=False):
            replica.lease.note_renewal(self.now - self.slow)
        else:
            replica.lease.note_end()
        if not replica.lease.holds(self.now):
            replica.give_up()
            if self.store.renew(replica.name, fresh=True):
                replica.lease.note_renewal(self.now - self.slow)

    def pass_time(self, seconds: float) -> None:
        while seconds > 0:
            self.now += STEP
            self.store.clock += STEP
            seconds -= STEP
            for replica in self.replicas:
                if not replica.paused and self.now >= replica.next_renewal:
                    self.renew(replica)
            self.check()

    @rule(seconds=st.floats(STEP, 5.0))
    def wait(self, seconds: float) -> None:
        self.pass_time(seconds)

    @rule(number=st.integers(0, REPLICAS - 1))
    def claim(self, number: int) -> None:
        """Claims as `Owners` does: if the store knows no owner, the other replicas first check whether they are it."""
        replica = self.replicas[number]
        if replica.paused:
            return
        unknown = not self.store.owner
        self.look(replica)
        if unknown and replica.owns:
            replica.owns = False
            for peer in self.replicas:
                peer.is_queried = peer is not replica
            self.check_those_asked()
            if any(peer.is_queried for peer in self.replicas):
                self.pass_time(LEASE)  # it waits until the lease of a silent replica has expired
            self.look(replica)

    def look(self, replica: Replica) -> None:
        owner = self.store.claim(replica.name)
        # A claim counts only if the lease holds after it.
        replica.owns = owner == replica.name and replica.lease.holds(self.now)

    def check_those_asked(self) -> None:
        for replica in self.replicas:
            if replica.is_queried and not replica.paused:
                replica.is_queried = False
                if replica.owns:
                    self.look(replica)

    @rule(number=st.integers(0, REPLICAS - 1))
    def pause(self, number: int) -> None:
        self.replicas[number].paused = True

    @rule(number=st.integers(0, REPLICAS - 1))
    def resume(self, number: int) -> None:
        self.replicas[number].paused = False
        self.check_those_asked()  # the request was waiting in the connection

    @rule(number=st.integers(0, REPLICAS - 1), late=st.floats(STEP, 0.7))
    def take_over_from_a_paused_owner(self, number: int, late: float) -> None:
        self.claim(number)
        self.pause(number)
        self.pass_time(LEASE + late)
        self.claim((number + 1) % REPLICAS)
        self.check()
        self.resume(number)

    @rule(seconds=st.floats(0.0, 1.0))
    def answer_late(self, seconds: float) -> None:
        self.slow = seconds

    @rule(seconds=st.floats(-30.0, 30.0))
    def set_the_stores_clock(self, seconds: float) -> None:
        self.store.clock += seconds
        if seconds > 0:
            self.disturbed = self.now

    @precondition(lambda self: self.store.records)
    @rule(number=st.integers(0, REPLICAS - 1))
    def evict(self, number: int) -> None:
        if self.store.records.pop(self.replicas[number].name, None) is not None:
            self.disturbed = self.now

    @precondition(lambda self: not any(replica.paused or replica.is_queried for replica in self.replicas))
    @rule()
    def evict_the_owner(self) -> None:
        self.store.owner = ""

    @rule()
    def lose_everything(self) -> None:
        self.store.records.clear()
        self.store.owner = ""
        self.disturbed = self.now

    @invariant()
    def check(self) -> None:
        """Two replicas never act as owner, except for a moment after the store lost a record that had not expired."""
        acting = [replica.name for replica in self.replicas if replica.owns and replica.lease.holds(self.now)]
        tolerance = LEASE - MARGIN + STEP
        since = round(self.now - self.disturbed, 6)  # the sum of the steps has a rounding error
        assert len(acting) <= 1 or since <= tolerance, (acting, self.now, self.disturbed)

    def teardown(self) -> None:
        """Whatever happened, the resource has one owner in the end, which can act."""
        for replica in self.replicas:
            replica.paused, self.slow = False, 0.0
        self.store.clock = max(self.store.clock, *self.store.records.values(), 0.0)
        self.disturbed = self.now
        self.pass_time(2 * LEASE)
        for number in range(REPLICAS):
            self.claim(number)
        acting = [replica.name for replica in self.replicas if replica.owns and replica.lease.holds(self.now)]
        assert acting == [self.store.owner]


TestLeases = Leases.TestCase
