"""The steps of a ToolManager, told to a task log where there is one."""

from __future__ import annotations

import logging
from typing import Any, Final, Protocol

log = logging.getLogger("mcp_hub.library")

_OF: Final = "ToolManager | "


class TaskLog(Protocol):
    """Takes steps by position, whatever it calls its parameters."""

    def log_step(self, level: str, step_name: str, message: str, metadata: Any = None, /) -> Any:
        """One step."""
        ...


class Steps:
    """Silent without a task log. One that raises never fails a call."""

    def __init__(self) -> None:
        self.sink: TaskLog | None = None

    def info(self, step: str, message: str, metadata: Any = None) -> None:
        """Something went as it should."""
        self._tell("info", step, message, metadata)

    def debug(self, step: str, message: str) -> None:
        """A detail."""
        self._tell("debug", step, message, None)

    def error(self, step: str, message: str) -> None:
        """Something failed."""
        self._tell("error", step, message, None)

    def _tell(self, level: str, step: str, message: str, metadata: Any) -> None:
        if self.sink is None:
            return
        try:
            self.sink.log_step(level, _OF + step, message, metadata)
        except Exception as error:
            log.warning("the task log did not take %r: %r", step, error)
