"""The ids of tasks: clients know them sealed, with the server and the tool they are of; nothing is kept here."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Hashable
from typing import Final

from mcp_hub.catalog.merge import Json, Route
from mcp_hub.errors import INVALID_PARAMS, ProtocolError
from mcp_hub.protocol.frames import FrameError, decode, encode
from mcp_hub.protocol.kinds import TOOLS

GET: Final = "tasks/get"
UPDATE: Final = "tasks/update"
CANCEL: Final = "tasks/cancel"
METHODS: Final = (GET, UPDATE, CANCEL)
ID: Final = "taskId"
RESULT_TYPE: Final = "task"

_PREFIX: Final = "hub-task."
_MAX: Final = 8192
_MAC: Final = 16


def unknown_task(sealed: str) -> ProtocolError:
    """The one error for a task that does not exist, is another caller's, or is of a tool that is refused."""
    return ProtocolError(INVALID_PARAMS, f"Unknown task: {sealed[:200]}")


class TaskIds:
    """Seals with `key`: an id is good for the caller it was given to, and for as long as the key is the same."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, caller: Hashable | None, route: Route, task_id: str) -> str:
        """The id under which `caller` knows a task of the tool at `route`."""
        payload = encode([route.upstream, route.name, task_id])
        return f"{_PREFIX}{_text(payload)}.{_text(self._mac(caller, payload))}"

    def open(self, caller: Hashable | None, sealed: str) -> tuple[Route, str]:
        """The tool and the server's own id. Raises ProtocolError for what was not given to this caller."""
        payload, _, mac = sealed.removeprefix(_PREFIX).partition(".")
        try:
            if not sealed.startswith(_PREFIX) or len(sealed) > _MAX:
                raise ValueError
            data = _bytes(payload)
            if not hmac.compare_digest(self._mac(caller, data), _bytes(mac)) or sealed != f"{_PREFIX}{payload}.{mac}":
                raise ValueError
            upstream, tool, task_id = decode(data)
        except (ValueError, FrameError):
            raise unknown_task(sealed) from None
        return Route(upstream, TOOLS, tool), task_id

    def in_result(self, caller: Hashable | None, route: Route, result: Json) -> Json:
        """A server's result with the id the caller knows."""
        own = result.get(ID)
        return {**result, ID: self.seal(caller, route, own)} if isinstance(own, str) else result

    def _mac(self, caller: Hashable | None, payload: bytes) -> bytes:
        # A principal is a text; the only client, who has none, is not the anonymous one.
        who = b"\0" if caller is None else b"\1" + str(caller).encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, b"mcp-hub task\0%d\0" % len(who) + who + payload, hashlib.sha256)[:_MAC]


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _text(data) != text:
        raise binascii.Error
    return data
