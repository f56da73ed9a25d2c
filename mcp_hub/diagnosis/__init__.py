"""Findings of `doctor` about a hub and its machine, and the remedies of the codes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec

from mcp_hub.codes import code_of

Level = Literal["ok", "warn", "fail"]


class Remedy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one code means: a title, why it happens, and what to do."""

    title: str
    cause: str
    cure: str
    fix: str | None = None
    """What `doctor --fix` does about it; None: nothing."""


class Repair(msgspec.Struct, frozen=True):
    """A change that `doctor --fix` offers, and that can be undone."""

    command: tuple[str, ...]
    """The command line that would do the same, for the user."""
    back: str
    """How to undo it, for the user."""
    apply: Callable[[], None]
    """Makes the change. Raises OSError."""


class Finding(msgspec.Struct, frozen=True):
    """The result of one check."""

    level: Level
    about: str
    """What it is about, such as the name of a server."""
    text: str
    code: str | None = None
    repair: Repair | None = None


class Section(msgspec.Struct, frozen=True):
    """The findings about one part of the machine."""

    title: str
    findings: tuple[Finding, ...]


def ok(about: str, text: str) -> Finding:
    """Makes the finding of something that is in order."""
    return Finding("ok", about, text)


def warn(about: str, text: str, code: str | None = None, repair: Repair | None = None) -> Finding:
    """Makes the finding of something that works but needs attention. `code` defaults to that of a CodedText."""
    return Finding("warn", about, str(text), code or code_of(text), repair)


def fail(about: str, text: str, code: str | None = None, repair: Repair | None = None) -> Finding:
    """Makes the finding of something that does not work. `code` defaults to that of a CodedText."""
    return Finding("fail", about, str(text), code or code_of(text), repair)


@cache
def remedies(file: str = "codes.toml") -> dict[str, Remedy]:
    """Returns all remedies by code, in the order of the codes: HUB-nnn, or those of failed calls from `OF_CALLS`."""
    import tomllib

    return msgspec.convert(tomllib.loads(Path(__file__).with_name(file).read_text("utf-8")), dict[str, Remedy])


OF_CALLS: Final = "wire_codes.toml"
