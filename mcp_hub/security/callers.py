"""Callers: who sends requests to the hub, and what its rooms keep for each caller until that caller is gone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from itertools import count, islice
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from mcp_hub.security import ANONYMOUS, Principal

T = TypeVar("T")

MAX_PRINCIPALS: Final = 10_000
"""Principals that a hub knows at the same time. They never say that they are gone, so one more ends the idlest one."""

_numbers = count(1)


class Caller:
    """The sole client of a private hub (`SOLE`), one session, or a principal. It owns what rooms keep for it.

    A session is one client of the handshake era. A principal stands for all modern clients that sign in as it.

    Args:
        principal: Its authenticated identity.
        is_principal: Whether it is a principal itself, which has no session and so never says that it is gone.
        label: Its name in records, without secrets; None: one is made.
    """

    principal: Principal
    profile: str | None
    """The profile of its principal. None: it may reach everything that is served."""
    is_several: bool
    """Whether it may be several programs that cannot be told apart, as the anonymous principal is."""
    label: str
    """Its name in records: the same for a caller while the hub runs, and for a principal forever."""

    def __init__(
        self, principal: Principal = ANONYMOUS, *, is_principal: bool = False, label: str | None = None
    ) -> None:
        self.is_principal = is_principal
        self.key: str | None = f"principal {principal}" if is_principal else None
        """Its name at every replica and in the store; None if only this process serves it."""
        self.session_id: str | None = None
        """The id of its session at every replica; None if it has none, or only this process serves it."""
        self.active = 0
        """Requests that are being answered and calls that are parked: a principal is not idle for them."""
        self._slots: WeakValueDictionary[int, CallerSlot[Any]] = WeakValueDictionary()
        """Where rooms keep something for it."""
        self.is_ended = False
        """Whether it is gone, so that nothing more may be done or kept for it."""
        self.identify(principal)
        if not is_principal:
            self.label = label or f"session-{next(_numbers)}"

    def __repr__(self) -> str:
        return f"Caller({self.label!r})"

    def identify(self, principal: Principal) -> None:
        """Sets the principal of a caller of which only the name was known."""
        self.principal, self.profile = principal, principal.profile
        self.is_several = self.is_principal and not principal
        if self.is_principal:
            self.label = label_of(principal)

    @property
    def store_key(self) -> str:
        """The name under which the store keeps which replica owns it."""
        if not self.is_principal:
            return f"session:{self.session_id}"
        return "principal:" + _digest("\0".join((self.profile or "", self.principal)))

    def share(self, session_id: str) -> None:
        """Gives a session the id by which it is known at every replica."""
        self.session_id, self.key = session_id, f"session {session_id}"

    @property
    def directory(self) -> str | None:
        """The name of its directory in a browser's profile; None for a caller that never comes back."""
        return _digest(self.principal)[:16] if self.is_principal else None

    @property
    def seal(self) -> bytes:
        """What the ids of its tasks are signed with, the same after a restart and at every replica."""
        if self.is_principal:
            return b"\1" + self.principal.encode("utf-8", "surrogatepass")
        return b"\0" if self is SOLE else b"\2" + self.label.encode()

    def holds(self, slot: CallerSlot[Any]) -> bool:
        """Notes that a room keeps something for it; returns False if it has ended, so that nothing may be kept."""
        if self is not SOLE and not self.is_ended:
            self._slots[id(slot)] = slot
        return not self.is_ended

    def end(self) -> None:
        """Drops and closes all that rooms keep for it, now and from now on. The sole client never ends."""
        if self is not SOLE:
            self.is_ended = True
            for slot in list(self._slots.values()):
                slot.drop(self)


def label_of(principal: Principal) -> str:
    """Returns the name of a principal in records, without secrets."""
    if principal.label:
        return f"principal-{principal.label}"
    return f"principal-{sha256(principal.encode('utf-8', 'replace')).hexdigest()[:8]}" if principal else "anonymous"


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


SOLE: Final = Caller(label="only")
"""The only client of a private hub, over stdio, or the program that uses the library. It is never gone."""


class CallerSlot(dict[Caller, T]):
    """What one room keeps for each caller; an entry goes when its caller ends. Entries are set by `[]` and `of` only.

    Args:
        make: Makes the first value of a caller, for `of`.
        end: Closes the value of a caller when it is dropped.
        bound: The most entries, where they must be fewer than callers: what was set first is dropped first.
    """

    def __init__(
        self,
        make: Callable[[], T] | None = None,
        *,
        end: Callable[[Caller, T], object] | None = None,
        bound: int | None = None,
    ) -> None:
        super().__init__()
        self._make, self._end, self._bound = make, end, bound

    def __setitem__(self, caller: Caller, value: T) -> None:
        if not caller.holds(self):
            return
        if self._bound is not None:
            self.pop(caller, None)  # else it would keep its place
            if len(self) >= self._bound:
                self.drop(next(iter(self)))
        super().__setitem__(caller, value)

    def of(self, caller: Caller) -> T:
        """Returns the value of a caller, which is made if it has none."""
        value = self.get(caller)
        if value is None:
            assert self._make is not None
            value = self[caller] = self._make()
        return value

    def drop(self, caller: Caller) -> None:
        """Drops the value of a caller, if it has one, and closes it."""
        value = self.pop(caller, None)
        if value is not None and self._end is not None:
            self._end(caller, value)


class Callers:
    """The principals that call one hub, at most MAX_PRINCIPALS. With one more, the one that is idle longest ends."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str | None], Caller] = OrderedDict()
        """By name and profile: a principal that gets another profile is another caller."""
        self._expected: OrderedDict[str, Caller] = OrderedDict()
        """By name: principals that other replicas know, and that have not come here yet."""

    def __len__(self) -> int:
        return len(self._known)

    def of(self, principal: Principal) -> Caller:
        """Returns the caller that a principal is. It counts as used now."""
        caller = self._known.get(principal.key)
        if caller is None:
            caller = self._begin(principal)
        self._known.move_to_end(principal.key)
        return caller

    def _begin(self, principal: Principal) -> Caller:
        idle = (key for key, former in self._known.items() if not former.active)
        for longest in tuple(islice(idle, max(len(self._known) + 1 - MAX_PRINCIPALS, 0))):
            self.end(longest)
        caller = self._expected.pop(principal, None) or Caller(principal, is_principal=True)
        caller.identify(principal)
        self._known[principal.key] = caller
        return caller

    def named(self, name: str) -> list[Caller]:
        """Returns the callers with the name of a principal, which other replicas know."""
        known = [caller for (other, _), caller in self._known.items() if other == name]
        if not known and name not in self._expected:
            self._expected[name] = Caller(Principal(name), is_principal=True)
            if len(self._expected) > MAX_PRINCIPALS:
                self._expected.popitem(last=False)[1].end()
        return known or [self._expected[name]]

    def end(self, key: tuple[str, str | None]) -> None:
        """Ends the caller of the principal with a key that is gone."""
        if (caller := self._known.pop(key, None)) is not None:
            caller.end()
