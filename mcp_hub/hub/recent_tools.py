"""The tools that each principal used last, kept on disk from one run of the hub to the next."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from mcp_hub.catalog import OWN, Route
from mcp_hub.protocol.frames import FrameError, decode, encode
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.private_files import PendingWrites, PrivateDirectory, newer_format

log = logging.getLogger("mcp_hub")

FORMAT: Final = 1
MAX_PRINCIPALS: Final = 1000
"""The most principals; with one more, the one whose tools were used longest ago is forgotten."""
MAX_SIZE: Final = 1024 * 1024

_Tools = OrderedDict[tuple[str, str], None]
"""(server, tool), the one that was used last at the end."""


class RecentTools:
    """The last `number` tools of each principal. A tool that is new among them is saved in the background.

    No method raises. Without a `directory` nothing is saved. `of` is the configuration file that the tools belong to.
    """

    def __init__(self, number: int, directory: Path | None, of: Path | None) -> None:
        self._number = number
        self._files = PrivateDirectory(directory) if directory is not None and of is not None else None
        self._name = f"recent-{hashlib.sha256(bytes(of or Path())).hexdigest()[:16]}.json"
        self._writes = PendingWrites()
        self._used: OrderedDict[str, _Tools] = OrderedDict()
        for principal, tools in self._read().items():
            for server, name in tools:
                self._add(principal, (server, name))

    def used(self, principal: str, route: Route) -> None:
        """Notes that a principal has called a tool; ignores the hub's own tools, and routes that are no tool."""
        if route.kind is not TOOLS or route.upstream == OWN:
            return
        if self._add(principal, (route.upstream, route.name)) and self._files is not None:
            self._writes.put(f"writing {self._name}", partial(asyncio.to_thread, self._write, self._as_lists()))

    def of(self, principal: str) -> list[Route]:
        """Returns the tools of a principal in an order that does not depend on when they were used."""
        return [Route(server, TOOLS, name) for server, name in sorted(self._used.get(principal, ()))]

    async def close(self) -> None:
        """Waits until the tools are saved, for a bounded time."""
        await self._writes.close()

    def _add(self, principal: str, tool: tuple[str, str]) -> bool:
        """Puts a tool last; returns whether it is new among the principal's tools."""
        tools = self._used.setdefault(principal, OrderedDict())
        self._used.move_to_end(principal)
        fresh = tool not in tools
        tools[tool] = None
        tools.move_to_end(tool)
        if len(tools) > self._number:
            tools.popitem(last=False)
        if len(self._used) > MAX_PRINCIPALS:
            self._used.popitem(last=False)
        return fresh

    def _as_lists(self) -> dict[str, list[tuple[str, str]]]:
        return {principal: list(tools) for principal, tools in self._used.items()}

    def _read(self) -> dict[str, list[tuple[str, str]]]:
        try:
            data = decode(self._files.read(self._name, MAX_SIZE)) if self._files is not None else None
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, FrameError) as error:
            log.warning("the tools that were used last are not known: %s: %s", self._name, error)
            return {}
        if (newer := newer_format(data, FORMAT)) is not None:
            log.warning("the tools that were used last are not known: %s: %s", self._name, newer)
            self._files = None  # nothing is written any more
        principals = data.get("principals") if isinstance(data, dict) and data.get("format") == FORMAT else None
        if not isinstance(principals, dict):
            return {}
        return {principal: list(_pairs(tools)) for principal, tools in principals.items() if isinstance(tools, list)}

    def _write(self, used: dict[str, list[tuple[str, str]]]) -> None:
        """Writes the file. Tools that another hub has written to it meanwhile stay, in front of these."""
        principals = self._read()
        for principal, tools in used.items():
            earlier = [tool for tool in principals.pop(principal, ()) if tool not in tools]
            principals[principal] = [*earlier, *tools][-self._number :]  # the last of all, as it is the newest
        principals = dict(list(principals.items())[-MAX_PRINCIPALS:])
        if self._files is not None:
            self._files.make()
            self._files.write(self._name, encode({"format": FORMAT, "principals": principals}))


def _pairs(tools: Iterable[Any]) -> Iterable[tuple[str, str]]:
    for pair in tools:
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair):
            yield pair[0], pair[1]
