"""Describes the hub to its clients: by instructions, and to hubs in front of it, by the hubs behind it.

The instructions are the hub's own sentence, then those of its servers, bounded in length.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from mcp_hub.config.ancestry import HUB_KEY, Ancestry
from mcp_hub.config.models import Server
from mcp_hub.errors import ProtocolError
from mcp_hub.security.callers import SOLE, Caller, CallerSlot
from mcp_hub.security.screening import MAX_INSTRUCTIONS
from mcp_hub.text import printable, quoted
from mcp_hub.upstream import Upstream

log = logging.getLogger("mcp_hub")

Json = dict[str, Any]

MAX_OF_ALL: Final = 16_384
_PREFACE: Final = (
    "These are the tools, resources and prompts of several servers. The part of a name before '__' is the server's. "
    "What each server says of itself follows as a quote below its name."
)


def merge_instructions(instructions: Iterable[tuple[str, str | None]], notes: str = "") -> str | None:
    """Merges (server, its instructions) into one text, in their order; None if there are none.

    A text that is too long is cut, and servers whose text does not fit are named. The user's own `notes` come first
    and whole.
    """
    parts: list[str] = []
    remaining = MAX_OF_ALL
    omitted: list[str] = []
    for server, text in instructions:
        if text is None or not text.strip():
            continue
        body = text.strip()
        if len(body) > MAX_INSTRUCTIONS:
            body = f"{body[:MAX_INSTRUCTIONS]}… (cut)"
        part = f"## {printable(server, 100)}\n{quoted(body)}"
        if len(part) > remaining:
            omitted.append(server)
            continue
        remaining -= len(part)
        parts.append(part)
    if omitted:
        parts.append(f"(instructions of {', '.join(omitted)} left out: too long)")
    return "\n\n".join([*([notes] if notes else []), *([_PREFACE, *parts] if parts else [])]) or None


def instructions_of_skills(
    servers: Iterable[Server], exposed: Callable[[str, str], str | None]
) -> Iterator[tuple[str, str | None]]:
    """Yields (server, a text that lists its skills), with only those skills that the client may read.

    `exposed(server, uri)` returns the URI by which the client reads a resource, or None if it may not.
    """
    for server in servers:
        if server.skills:
            from mcp_hub.servers import skill_server

            def exposed_here(uri: str, id: str = server.id) -> str | None:
                return exposed(id, uri)

            yield server.id, skill_server.skill_notes(server.skills, exposed_here)


MAX_PURPOSE: Final = 500
"""The most characters of a server's purpose."""
_HEADINGS: Final = re.compile(r"\A(?:\s*#[^\n]*\n)+")


class ServerPurposes:
    """Returns the purpose of each server: the first paragraph of its instructions below their headings.

    `filter_text(server, instructions)` returns the instructions if they may be passed on.
    """

    def __init__(self, upstreams: Mapping[str, Upstream], filter_text: Callable[[str, str | None], str | None]) -> None:
        self._upstreams = upstreams
        self._filter_text = filter_text

    def __call__(self, server: str) -> str:
        """Returns the purpose of a server; "" if it has no instructions, or they may not be passed on."""
        upstream = self._upstreams.get(server)
        agreement = upstream.agreement if upstream is not None else None
        text = self._filter_text(server, agreement.instructions if agreement is not None else None)
        paragraph = _HEADINGS.sub("", (text or "")[: 4 * MAX_PURPOSE]).strip().split("\n\n", 1)[0]
        return printable(" ".join(paragraph.split()), MAX_PURPOSE)


MAX_LOGGED: Final = 1000
"""The most hubs in front of this one that are remembered, as modern clients never announce that they are gone."""


class NestedHubs:
    """The place of this hub in a chain of hubs, each the client of the next.

    `visible_ids(caller)` returns the ids of the upstreams of which a caller sees anything. `notify(callers)` is called
    when the hubs behind this one have changed for these callers, so that they request their lists again.
    """

    def __init__(
        self,
        ancestry: Ancestry,
        upstreams: Callable[[], Mapping[str, Upstream]],
        visible_ids: Callable[[Caller], frozenset[str]],
        notify: Callable[[frozenset[Caller]], None],
    ) -> None:
        self.ancestry = ancestry
        self._upstreams = upstreams
        self._visible_ids = visible_ids
        self._notify = notify
        self._sent = CallerSlot[Json](bound=MAX_LOGGED)
        """The description that each hub in front of this one got last."""
        self._refusal: ProtocolError | None = None

    def admit(self, client_info: Any) -> None:
        """Checks the only client of this hub.

        Raises ProtocolError, now and on every later request, if the client is a hub that must not be served.
        """
        if self._refusal is None and (refusal := self.ancestry.refusal(client_info)) is not None:
            log.error("%s", refusal)
            self._refusal = refusal
        if self._refusal is not None:
            raise self._refusal

    def meta(self, caller: Caller) -> Json:
        """Returns the `_meta` of an answer to a caller that is a hub (`Envelope.from_hub`)."""
        self._sent[caller] = description = self._describe_for(caller)
        return {HUB_KEY: description}

    def built(self) -> None:
        """Notifies those hubs in front of this one for which the hubs behind it have changed."""
        changed = [caller for caller, description in self._sent.items() if self._describe_for(caller) != description]
        if changed:
            self._notify(frozenset(changed))

    def _describe_for(self, caller: Caller) -> Json:
        visible_ids = self._visible_ids(caller)
        visible_hubs = [upstream.nested_hubs for id, upstream in self._upstreams().items() if id in visible_ids]
        # The names of servers are for the only client, whose configuration started this hub.
        return self.ancestry.describe(visible_hubs, self._notes() if caller is SOLE else ())

    def _notes(self) -> Iterable[str]:
        for id, upstream in self._upstreams().items():
            if upstream.left_out:
                yield f"{id}: {upstream.error}"
            yield from (f"{id} › {note}" for note in upstream.nested_hubs.notes)
