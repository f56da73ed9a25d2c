"""What rooms keep for a caller goes with it, and the principals that a hub knows are bounded."""

from __future__ import annotations

import gc
import weakref

import pytest

from mcp_hub.security import Principal, callers
from mcp_hub.security.callers import SOLE, Caller, Callers, CallerSlot


def test_a_caller_that_ends_leaves_every_slot_and_closes_what_is_open() -> None:
    closed: list[tuple[Caller, str]] = []
    plain, open_things = CallerSlot(set[str]), CallerSlot[str](end=lambda caller, value: closed.append((caller, value)))
    gone, stays = Caller(), Caller()
    for caller in (gone, stays, SOLE):
        plain.of(caller).add("x")
        open_things[caller] = "open"
    gone.end()
    SOLE.end()
    assert set(plain) == set(open_things) == {stays, SOLE}
    assert closed == [(gone, "open")]
    open_things.drop(stays)
    assert closed == [(gone, "open"), (stays, "open")]
    assert stays in plain
    open_things[SOLE] = "again"
    assert dict(open_things) == {SOLE: "again"}


def test_nothing_is_kept_for_a_caller_that_has_ended() -> None:
    slot, gone = CallerSlot(set[str]), Caller()
    gone.end()
    slot.of(gone).add("late")
    slot[gone] = {"late"}
    assert not slot


def test_a_slot_that_is_gone_keeps_nothing_alive() -> None:
    slot, caller = CallerSlot(Caller), Caller()
    kept = weakref.ref(slot.of(caller))
    del slot
    gc.collect()
    assert kept() is None
    caller.end()


def test_of_a_slot_with_a_bound_the_entry_that_was_set_first_goes_first() -> None:
    closed: list[int] = []
    slot = CallerSlot[int](bound=2, end=lambda caller, value: closed.append(value))
    first, second, third = Caller(), Caller(), Caller()
    for number, caller in enumerate((first, second, first, third)):
        slot[caller] = number
    assert slot == {first: 2, third: 3}
    assert closed == [1]


def test_the_idlest_principal_ends_for_a_new_one_but_none_whose_request_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "MAX_PRINCIPALS", 2)
    known, slot = Callers(), CallerSlot(set[str])
    busy, idle = known.of(Principal("busy")), known.of(Principal("idle"))
    busy.active = 1
    for caller in (busy, idle):
        slot.of(caller)
    third = known.of(Principal("third"))
    assert set(slot) == {busy}
    assert known.of(Principal("third")) is third
    assert known.of(Principal("busy")) is busy
    assert known.of(Principal("idle")) is not idle


def test_a_principal_with_another_profile_is_another_caller() -> None:
    known = Callers()
    wide, narrow = known.of(Principal("ann")), known.of(Principal("ann", "readers"))
    assert (wide.profile, narrow.profile) == (None, "readers")
    assert wide is not narrow
    assert {*known.named("ann")} == {wide, narrow}
    known.end(narrow.principal.key)
    assert known.named("ann") == [wide]
    assert known.of(Principal("ann", "readers")) is not narrow


def test_a_principal_that_other_replicas_named_before_it_came_is_the_same_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callers, "MAX_PRINCIPALS", 2)
    known, slot = Callers(), CallerSlot(set[str])
    (expected,) = known.named("ann")
    slot.of(expected).add("from another replica")
    came = known.of(Principal("ann", "readers", label="ann"))
    assert slot.of(came) == {"from another replica"}
    assert (came.profile, came.label, came.key) == ("readers", "principal-ann", "principal ann")
    for name in ("x", "y", "z"):
        slot.of(known.named(name)[0])
    assert len(slot) == 3  # ann, and two that are expected


def test_names_outside_of_the_process_tell_callers_apart_and_stay_the_same() -> None:
    ann, other, session, local = known_ones = [
        Caller(Principal("ann"), is_principal=True),
        Caller(Principal("ann", "readers"), is_principal=True),
        Caller(Principal("ann")),
        Caller(Principal("ann")),
    ]
    session.share("id")
    assert [caller.key for caller in known_ones] == ["principal ann", "principal ann", "session id", None]
    assert session.store_key == "session:id"
    assert ann.store_key != other.store_key
    assert ann.seal == b"\1ann"
    assert SOLE.seal == b"\0"
    assert len({caller.seal for caller in (*known_ones, SOLE)}) == 4
    assert [caller.directory is None for caller in (ann, session, local, SOLE)] == [False, True, True, True]
