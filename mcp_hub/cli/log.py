"""The log on stderr: one line per record, no secret and nothing that steers a terminal in it, no line without end."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable
from typing import Final

from mcp_hub.observability.records import Records
from mcp_hub.security.redaction import Redaction
from mcp_hub.text import printable

AT_ONCE: Final = 10
"""Lines of one kind in `WINDOW` seconds; the others are counted. Kinds are told apart by their logger, their text
before anything was put in, and the first thing that was: whom it is about."""
WINDOW: Final = 1.0
MAX_LINE: Final = 4000
MAX_KINDS: Final = 256
_MAX_TRACEBACK: Final = 200

_Kind = tuple[str, int, str, str]


class Repeats:
    """Who says the same all the time is heard a few times; how often more is said afterwards."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[_Kind, tuple[float, int]] = {}
        """Kind -> when its window began, and how many came since."""

    def admits(self, record: logging.LogRecord) -> bool:
        """Whether this one is to be shown."""
        first = record.args[0] if isinstance(record.args, tuple) and record.args else ""
        kind = (record.name, record.levelno, str(record.msg)[:MAX_LINE], first[:200] if isinstance(first, str) else "")
        if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
            kind = ("", record.levelno, "", "")  # all that are too many share one
        began, number = self._kinds.get(kind, (self._clock(), 0))
        self._kinds[kind] = began, number + 1
        return number < AT_ONCE

    def over(self, *, all: bool = False) -> list[tuple[int, str]]:
        """Level and text about what was not shown, of the kinds whose window has ended."""
        now, said = self._clock(), []
        for kind, (began, number) in list(self._kinds.items()):
            if all or now - began >= WINDOW:
                del self._kinds[kind]
                if number > AT_ONCE:
                    about = f"{kind[3]}: " if kind[3] else ""
                    said.append((kind[1], f"{about}{number - AT_ONCE:,} more lines like this: {kind[2]}"))
        return said


class LogHandler(logging.Handler):
    """Writes to stderr; through `records`, once there are any, so that nobody waits for it to be read."""

    def __init__(self) -> None:
        super().__init__()
        self.redaction = Redaction()
        self.records: Records | None = None
        self._repeats = Repeats()

    def emit(self, record: logging.LogRecord) -> None:
        """One line, and the traceback if there is one."""
        try:
            self._say(self._repeats.over())
            if self._repeats.admits(record):
                self._line(self._safe(record.levelno, record.getMessage()) + self._traceback(record))
        except Exception as error:
            self._line(f"mcp-hub: error: a line of the log could not be written ({type(error).__name__})")

    def finish(self) -> None:
        """Say what was counted and not said yet, and write past `records` from now on."""
        self._say(self._repeats.over(all=True))
        self.records = None

    def _say(self, said: list[tuple[int, str]]) -> None:
        for level, text in said:
            self._line(self._safe(level, text))

    def _safe(self, level: int, text: str) -> str:
        name = logging.getLevelName(level).lower()
        return f"mcp-hub: {name}: {printable(self.redaction.text(text[: 4 * MAX_LINE]), MAX_LINE)}"

    def _traceback(self, record: logging.LogRecord) -> str:
        if not record.exc_info:
            return ""
        lines = logging.Formatter().formatException(record.exc_info).splitlines()[-_MAX_TRACEBACK:]
        return "".join(f"\n{printable(self.redaction.text(line[: 4 * MAX_LINE]), MAX_LINE)}" for line in lines)

    def _line(self, text: str) -> None:
        if self.records is not None:
            self.records.line(text)
        elif sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):
                print(text, file=sys.stderr, flush=True)
