"""Server-to-client requests across the eras: a client of the handshake is asked what a modern server wants to know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import Any, Final

from mcp_hub.errors import INVALID_REQUEST, ProtocolError
from mcp_hub.protocol.asking import CAPABILITY, COMPLETED, ELICITATION_ID, MAX_REQUESTS, Asker, Json, lacks
from mcp_hub.protocol.era import INPUT_REQUIRED

MAX_ROUNDS: Final = 20
"""Times one call may ask; a server that never has enough is at fault."""
_POLL: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
"""Seconds between attempts where a server only says that it needs more time, the last one for ever."""

Again = Callable[[Json], Awaitable[Json]]
"""Sends the same request once more, with these params besides."""


def wants_input(result: Json) -> bool:
    """Whether a modern result is not the end of its request."""
    return result.get("resultType") == INPUT_REQUIRED


async def driven(result: Json, asker: Asker | None, again: Again) -> Json:
    """The last result of a request whose server asks something first, each question put to the client.

    Raises ProtocolError: the client's own error, or what the server did wrong.
    """
    polls = 0
    sent: list[str] = []
    for _ in range(MAX_ROUNDS + len(_POLL)):
        if not wants_input(result):
            return result
        requests, state = result.get("inputRequests"), result.get("requestState")
        more: Json = {} if state is None else {"requestState": state}
        if isinstance(requests, dict) and requests:
            polls = 0
            more["inputResponses"] = await _answers(requests, asker, sent)
        elif state is not None:
            await asyncio.sleep(_POLL[min(polls, len(_POLL) - 1)])
            polls += 1
        else:
            raise ProtocolError(INVALID_REQUEST, "The server asks for input and does not say which.")
        result = await again(more)
        while sent and asker is not None:
            asker.tell(COMPLETED, {ELICITATION_ID: sent.pop()})  # the server has taken it for done
    raise ProtocolError(INVALID_REQUEST, f"The server asked for input more than {MAX_ROUNDS} times.")


async def _answers(requests: Json, asker: Asker | None, sent: list[str]) -> Json:
    """The client's results under the keys of the questions, which are put at the same time.

    `sent` gets the ids of the URLs the client is sent to.
    """
    if len(requests) > MAX_REQUESTS:
        raise ProtocolError(INVALID_REQUEST, f"The server asks more than {MAX_REQUESTS} questions at once.")
    tasks = {key: asyncio.ensure_future(_answer(request, asker, sent)) for key, request in requests.items()}
    try:
        await asyncio.gather(*tasks.values())
    finally:
        for task in tasks.values():
            task.cancel()
    return {key: task.result() for key, task in tasks.items()}


async def _answer(request: Any, asker: Asker | None, sent: list[str]) -> Json:
    method = request.get("method") if isinstance(request, dict) else None
    params = request.get("params") if isinstance(request, dict) else None
    params = params if isinstance(params, dict) else {}
    if not isinstance(method, str) or method not in CAPABILITY:
        raise ProtocolError(INVALID_REQUEST, f"The server asks for {method!r}, which no client answers.")
    missing = CAPABILITY[method] if asker is None else lacks(asker.capabilities, method, params)
    if asker is None or missing is not None:
        raise ProtocolError(INVALID_REQUEST, f"The server asks for {missing}, which the client has not declared.")
    if params.get("mode") == "url" and ELICITATION_ID not in params:
        sent.append(token_hex(16))  # the handshake revisions want one
        params = {**params, ELICITATION_ID: sent[-1]}
    return await asker.ask(method, params)
