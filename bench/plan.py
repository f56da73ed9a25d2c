"""The plan of a run: its rows and repetitions, and the running rows of one scene, which take turns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.client.connection import Lost
from bench.client.conversation import Conversation
from bench.client.messages import BadAnswer, Era
from bench.rows import Row
from bench.sheet import Scene, Sheet
from bench.stage import Running, Stage, tool

FAILURES = (Lost, BadAnswer, OSError, ValueError)
"""The exceptions of a row that cannot do something; ValueError if its bytes are not as expected."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`seconds` is the length of one timed stretch, of which there are `repeat`; `small` cuts numbers down to what
    shows that everything works.
    """

    rows: tuple[Row, ...]
    repeat: int
    seconds: float
    small: bool = False
    data: Path | None = None
    """The directory of what a measure reads."""


class Actor:
    """One row that is at work: a client of it, and the names of its tools."""

    def __init__(self, running: Running, conversation: Conversation) -> None:
        self.row = running.row.name
        self.running = running
        self.conversation = conversation
        self.names = running.complete(conversation)
        self.pids = running.pids()
        self.out = False
        """Whether it has failed; it has no more turns then."""

    def tool(self, original: str) -> str:
        """Returns its name for a tool, that of the first server which has it. Raises Lost."""
        return tool(self.names, original)

    def last_tool(self, original: str) -> str:
        """The same of the last server. Raises Lost."""
        return tool(self.names[::-1], original)


class Cast:
    """The rows of one scene. One that fails is noted and left out, the others go on."""

    def __init__(self, plan: Plan, sheet: Sheet, scene: Scene) -> None:
        self.plan = plan
        self.sheet = sheet
        self.scene = scene
        self.era: Era = "modern" if scene.era == "modern" else "handshake"
        self.actors: list[Actor] = []

    @contextlib.contextmanager
    def at_work(self, upstreams: int = 1, tools: int = 5) -> Iterator[Cast]:
        """Starts all rows at the same time, and ends them."""
        with Stage(self.scene.cell, self.era, upstreams, tools).opened() as stage, contextlib.ExitStack() as stack:
            started = []
            for row in self.plan.rows:
                with self.noting(row.name):
                    running = stage.start(row)
                    stack.callback(running.close)
                    started.append(running)
            for running in started:
                with self.noting(running.row.name):
                    self.actors.append(Actor(running, running.converse()))
            yield self
        self.actors = []

    @contextlib.contextmanager
    def noting(self, row: str) -> Iterator[None]:
        """Records a failure of a row in the sheet, and gives the row no more turns."""
        try:
            yield
        except FAILURES as error:
            self.sheet.fail(self.scene, row, error)
            for actor in self.actors:
                if actor.row == row:
                    actor.out = True

    def turns(self, repeat: int | None = None) -> Iterator[tuple[int, Actor]]:
        """Each actor in each repetition; another one is the first in each. Used with `noting`."""
        for turn in range(repeat or self.plan.repeat):
            shift = turn % len(self.actors) if self.actors else 0
            for actor in (*self.actors[shift:], *self.actors[:shift]):
                if not actor.out:
                    yield turn, actor

    def add(self, row: str, figure: str, value: float) -> None:
        self.sheet.add(self.scene, row, figure, value)
