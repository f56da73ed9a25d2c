"""Calls that wait for a person's confirmation, which the live page shows and its viewer answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.downstream.page.endpoints import Endpoint, Json, PageError, PageRequest, not_found
from mcp_hub.downstream.page.feed import iso, run_of, shown_object
from mcp_hub.downstream.page.runs import CLIENT
from mcp_hub.policy.approvals import ConfirmationWatcher

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.page.runs import RunsPart
    from mcp_hub.downstream.page.sessions import PageSession, Viewer
    from mcp_hub.policy import Call
    from mcp_hub.policy.approvals import PendingConfirmation

MAX_ROWS: Final = 100
"""Confirmations that are shown; the others follow when these are answered."""
MAX_INLINE: Final = 4 * 1024
"""Bytes of names and arguments in a row, so that all rows fit an event; the page asks for longer ones."""
_WAITING_CALL: Final = "such call that waits, or it was answered meanwhile"
MAX_ANSWER: Final = 16 * 1024
"""Bytes of an answer."""


class ConfirmationsPart:
    """Serves `POST /confirm` and `GET /confirmations/ID`. An admin answers for every caller, others for themselves.

    Calls that were run from a page are confirmed there, beside the form of their tool; `rows` has those of them whose
    arguments are too long for that.
    """

    def __init__(self, dispatcher: Dispatcher, runs: RunsPart) -> None:
        self._hub = dispatcher.hub
        self._runs = runs
        approvals = dispatcher.hub.approvals
        self._pending = approvals.pending

    def endpoints(self) -> Mapping[tuple[str, str], Endpoint]:
        """Returns both endpoints."""
        return {("POST", "/confirm"): self.confirm, ("GET", "/confirmations/"): self.arguments}

    def rows(self, viewer: Viewer) -> list[Json]:
        """Returns the calls that wait for a viewer's answer, the oldest first."""
        visible = [
            pending
            for pending in self._pending
            if self._sees(viewer, pending.call) and (pending.question.too_long or not self._runs.has_made(pending.call))
        ]
        return [self._row(pending) for pending in visible[:MAX_ROWS]]

    def watched(self, session: PageSession, notify: Callable[[], object]) -> contextlib.AbstractContextManager[None]:
        """Lets the viewer of a session answer while its page is open; `notify()` is called when `rows` changes."""
        return self._pending.watched(ConfirmationWatcher(lambda call: self._sees(session.viewer, call), notify))

    async def confirm(self, page_request: PageRequest) -> Json:
        """Passes the viewer's answer to the call that waits. Raises PageError, also if it was answered already."""
        body, viewer = await page_request.body(MAX_ANSWER), page_request.session.viewer
        pending, answer = self._find(body.get("id"), viewer), body.get("answer")
        choices = pending.question.choices
        if not isinstance(answer, str) or answer not in choices:
            raise PageError(400, "invalid", f"`answer` is one of {', '.join(choices)}.", "Mend the request.")
        if not pending.give(answer):
            raise not_found(_WAITING_CALL)
        call = pending.call
        facts = {
            "client": CLIENT["name"],
            "name": "confirm",
            "upstream": call.route.upstream,
            "target": call.caller.label,
            "verdict": "ok",
            "reason": f"{call.exposed}: {answer}",
        }
        rules = self._hub.rules
        rules.trace.record_action(viewer.principal, facts)
        return {"done": True}

    async def arguments(self, page_request: PageRequest) -> Json:
        """Returns the names and arguments of a call that waits, whatever their size. Raises PageError."""
        question = self._find(page_request.rest, page_request.session.viewer).question
        return {"asks": question.tool, "arguments": question.arguments}

    def _find(self, id: Any, viewer: Viewer) -> PendingConfirmation:
        """Returns a call that waits for a viewer. Raises PageError."""
        pending = self._pending.find(id) if isinstance(id, str) else None
        if pending is None or not self._sees(viewer, pending.call):
            raise not_found(_WAITING_CALL)
        return pending

    def _sees(self, viewer: Viewer, call: Call) -> bool:
        return viewer.admin or call.caller.principal == viewer.principal

    def _row(self, pending: PendingConfirmation) -> Json:
        call, question = pending.call, pending.question
        info = call.envelope.client_info or {}
        client = info.get("name")
        row = shown_object(
            {
                "id": pending.id,
                "since": iso(pending.since),
                "name": call.exposed,
                "server": call.route.upstream,
                "tool": call.route.name,
                "size": question.size,
                "digest": question.digest,
                "choices": list(question.choices),
                "setting": question.setting,
                "within": call.within,
                "run": run_of(call.within, call.label),
                "client": client if isinstance(client, str) else None,
                "caller": call.caller.label,
                "principal": str(call.caller.principal),
            }
        )
        fits = len(question.tool.encode()) + question.size <= MAX_INLINE
        return row | {"asks": question.tool if fits else None, "arguments": question.arguments if fits else None}
