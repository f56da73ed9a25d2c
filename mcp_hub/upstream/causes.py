"""Which client caused what a server asks or logs: told if it is certain, never guessed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

import msgspec

from mcp_hub.catalog import resource_uris
from mcp_hub.config.models import Server
from mcp_hub.errors import INVALID_REQUEST, METHOD_NOT_FOUND, ProtocolError
from mcp_hub.protocol.asking import CAPABILITY, Asker, Json, lacks
from mcp_hub.upstream.clients import Clients
from mcp_hub.upstream.elicitations import Elicitations

CARRIER_WAIT: Final = 5.0
"""Seconds a question waits for all but one of its caller's open requests to end."""

Hear = Callable[[Json], None]

_NOBODY: Final = object()
_SEVERAL: Final = object()


class Attended(msgspec.Struct, eq=False):
    """A call that a session carries while the block runs."""

    key: Hashable | None
    asker: Asker | None
    hear: Hear | None
    running: list[Attended]
    ended: asyncio.Event

    def __enter__(self) -> Attended:
        self.running.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.running.remove(self)
        self.ended.set()


class Causes:
    """The calls that run on one session. `key` is its client's; None where there is only one anyway, or several."""

    def __init__(self, server: Server, key: Hashable | None, clients: Clients, *, shared: bool) -> None:
        self._server = server
        self._key = key
        self._clients = clients
        self._shared = shared
        """Whether clients beside the standing one may cause something here."""
        self._running: list[Attended] = []
        self._only: Hashable | None = _NOBODY if shared else key
        """The one caller this session has ever worked for; no time is long enough to be sure that a message is not
        late, so that with a second caller nothing is certain any more but what comes on the stream of a call."""
        self.elicitations = Elicitations(server.id)
        self._moved = asyncio.Event()
        """A call has ended or is parked: another one may be the only one that can carry a question."""

    def attended(self, key: Hashable | None, asker: Asker | None, hear: Hear | None = None) -> Attended:
        """While its block runs, the session carries a call of this client; `hear` takes log messages it causes."""
        if key != self._only:
            self.joined(key)
        return Attended(key, asker, hear, self._running, self._moved)

    def joined(self, key: Hashable | None) -> None:
        """The session works for this client from now on."""
        if self._shared:
            self._only = key if self._only in (_NOBODY, key) else _SEVERAL

    def heard(self, message: Json, cause: object) -> None:
        """Pass a log message to the client it belongs to for certain, else to nobody.

        `cause` is the call on whose stream it came (NO_CAUSE: not that of a call; None: streams are not known).
        """
        if isinstance(cause, Attended):
            if cause.hear is not None:
                cause.hear(message)
            return
        if self._only in (_NOBODY, _SEVERAL) or (cause is not None and self._shared):
            return
        takers = [one.hear for one in self._running if one.hear is not None]
        if takers and (len(self._running) == 1 or self._only is None):
            takers[-1](message)
        else:
            self._clients.hear(message, self._server.id, self._only)

    async def answer(self, method: str, params: Json, cause: object = None) -> Json:
        """The result of a server's request. Raises ProtocolError, which is its answer then.

        `cause` is as of `heard`: what comes on the stream of a call is asked because of that call.
        """
        if method == "ping":
            return {}
        if method not in CAPABILITY:
            raise ProtocolError(METHOD_NOT_FOUND, f"The hub does not offer {method!r} to this server.")
        if cause is None or not self._shared:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CARRIER_WAIT):
                    while self._too_many_carry():
                        self._moved.clear()
                        await self._moved.wait()
        key, asker = self._asker(method, cause)
        missing = lacks(asker.capabilities, method, params)
        if missing is not None:
            raise ProtocolError(METHOD_NOT_FOUND, f"The client does not offer {missing}.")
        asyncio.get_running_loop().call_soon(self._moved.set)  # by then the call is parked, if it is of that kind
        exposed = partial(self._clients.uris.exposed, key, self._server.id)
        params = resource_uris.in_question(method, self.elicitations.asked(params, asker), exposed)
        return resource_uris.in_answer(
            await asker.ask(method, params), partial(self._clients.uris.original, key, self._server.id)
        )

    def _too_many_carry(self) -> bool:
        """Whether several requests of one modern caller are open; which of them is answered with a question matters."""
        askers = [one.asker for one in self._running if one.asker is not None]
        return len({one.key for one in self._running}) == 1 and sum(asker.parked is False for asker in askers) > 1

    def _asker(self, method: str, cause: object) -> tuple[Hashable | None, Asker]:
        """Who is asked, and the key it is known by. Raises ProtocolError if that is not certain."""
        standing = self._clients.of(self._key)
        if self._shared and standing is None and CAPABILITY[method] not in self._server.allow:
            text = f"This server may not ask for {CAPABILITY[method]} (setting: servers.{self._server.id}.allow)."
            raise ProtocolError(METHOD_NOT_FOUND, text)
        nobody = ProtocolError(INVALID_REQUEST, f"Nobody can be told to have caused this {method}: it is not asked.")
        if self._shared and cause is not None:
            if isinstance(cause, Attended) and cause.asker is not None:
                return cause.key, cause.asker
            raise nobody
        keys = {one.key for one in self._running}
        if len(keys) == 1:
            (key,) = keys
            askers = [one.asker for one in self._running]
            open_ones = [asker for asker in askers if asker is None or not asker.parked]
            if len(open_ones) == 1 and open_ones[0] is not None:
                return key, open_ones[0]  # on the stream of the call that caused it
            parked = next((asker for asker in reversed(askers) if asker is not None and asker.parked), None)
            if parked is not None and not open_ones:
                return key, parked  # its next request brings the answer to the first question and takes this one
            known = standing or next((asker for asker in askers if asker is not None), None)
            if known is not None:
                return key, known
        if not keys and standing is not None:
            return self._key, standing
        raise nobody
