"""Traffic over several replicas while they fail: sessions call, answer requests, and try foreign sessions."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Callable

from tests.replicas.account import ANSWERED, BROKEN, INTRUDE, MINE, OWN, WATCH, Account, Operation
from tests.replicas.raw_client import Json, RawClient, Unanswered, code_of, text_of
from tests.replicas.subscriber import Subscriber

WITHIN = 20.0
"""Seconds that a client waits for an answer."""
SERVERS = {OWN: "own__do", MINE: "own__do"}
"""The tools of some kinds of calls; every other kind calls the shared server."""


class SessionTraffic:
    """One client of the handshake era that makes calls one after the other, and checks what it gets.

    `subscriber`: its subscriptions; None: it has none. `other`: a client of another principal.
    """

    def __init__(
        self, account: Account, client: RawClient, name: str, kinds: list[str], principal: str, other: RawClient
    ) -> None:
        self.subscriber = Subscriber(account, client, name) if WATCH in kinds else None
        self._account = account
        self._client = client
        self._name = name
        self._kinds = kinds
        self._principal = principal
        self._foreign_client = other
        self._numbers = itertools.count(1)
        self._own: str | None = None
        """The pid of this session's own server process that answered last."""
        self._since: list[Operation] = []
        """The calls of the session's own server since then."""
        self._random = random.Random(name)

    async def run(self, stop: asyncio.Event, pace: float = 1.0) -> None:
        """Makes calls until it is told to stop, with at most `pace` seconds before each."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pace * self._random.random()):
                    await stop.wait()
            if stop.is_set():
                return
            await self._run_operation(self._random.choice(self._kinds))

    async def _run_operation(self, kind: str) -> None:
        operation = Operation(f"{self._name}-{next(self._numbers)}", kind, time.monotonic(), self._principal)
        self._account.operations.append(operation)
        try:
            async with asyncio.timeout(WITHIN):
                self._take(operation, await self._answer(kind, operation.id))
        except (Unanswered, TimeoutError):
            operation.outcome = BROKEN
        operation.ended = time.monotonic()
        if kind == OWN:
            self._follow(operation)
        if self.subscriber is not None and operation.outcome == "session_restarted":
            self.subscriber.told_of_a_loss(operation.ended)

    async def _answer(self, kind: str, id: str) -> Json:
        tool, arguments = SERVERS.get(kind, "up__do"), {"id": id}
        if kind == WATCH and self.subscriber is not None:
            return await self.subscriber.switch()
        if kind == "ask":
            return await self._elicited_answer(id)
        if kind in (MINE, "modern"):
            return await self._client.modern("tools/call", {"name": tool, "arguments": arguments})
        if kind == INTRUDE:
            return await self._client.of(self._foreign_client.session).call(tool, arguments)
        return await self._client.call(tool, arguments)

    async def _elicited_answer(self, id: str) -> Json:
        params = {"name": "up__ask", "arguments": {"id": id}}
        message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        async with contextlib.aclosing(self._client.events(message)) as events:
            async for _, got in events:
                if got.get("method") == "elicitation/create":
                    if not got["params"]["message"].endswith(f" {id}"):
                        self._account.wrong.append(f"{self._name} was asked for another one: {got}")
                    await self._client.post({"jsonrpc": "2.0", "id": got["id"], "result": {"action": "accept"}})
                elif "method" not in got and got.get("id") == id:
                    return got
        raise Unanswered

    def _take(self, operation: Operation, answer: Json) -> None:
        unknown = answer.get("error", {}).get("message") == "Session not found"
        if operation.kind == INTRUDE:
            operation.outcome = ANSWERED
            if not unknown:
                self._account.wrong.append(f"{operation.id} got {answer} in the session of another principal")
            return
        if unknown:
            self._account.wrong.append(f"the session {self._name} was lost")
        code = code_of(answer)
        if code is not None:
            operation.outcome = code
            operation.executed = None if "may have been" in str(answer) else False
            return
        operation.outcome = ANSWERED
        if operation.kind == WATCH:
            return
        id, pid, number = text_of(answer).split()
        if id != operation.id:
            self._account.wrong.append(f"{operation.id} got the answer to {id}")
        operation.by = (pid, number)

    def _follow(self, operation: Operation) -> None:
        """Checks that the session's own server process is the previous one, unless its loss was reported."""
        self._since.append(operation)
        if operation.by is None:
            return
        pid, before = operation.by[0], self._own
        outcomes = [earlier.outcome for earlier in self._since]
        if before is not None and pid != before and not {"session_restarted", BROKEN} & {*outcomes}:
            self._account.wrong.append(f"{before} was lost and {pid} began, and nothing was said: {self._since}")
        if before == pid and "session_restarted" in outcomes:
            self._account.wrong.append(f"the loss of {pid} was said, and it was not lost: {self._since}")
        self._own, self._since = pid, []


async def open_sessions(
    account: Account, clients: dict[str, list[RawClient]], kinds_of: Callable[[int], list[str]], at_once: int = 20
) -> list[SessionTraffic]:
    """Opens a session for each client of each principal; `kinds_of(number)` says what it does."""
    gate = asyncio.Semaphore(at_once)

    async def opened(number: int, principal: str, client: RawClient) -> SessionTraffic:
        async with gate:
            await client.begin(elicitation={})
            others = next(principal_clients for name, principal_clients in clients.items() if name != principal)
            session = SessionTraffic(account, client, f"s{number}", kinds_of(number), principal, others[0])
            if session.subscriber is not None:
                await session.subscriber.begin()
            return session

    owners = [(principal, client) for principal, principal_clients in clients.items() for client in principal_clients]
    random.Random(len(owners)).shuffle(owners)
    return list(await asyncio.gather(*(opened(number, *owner) for number, owner in enumerate(owners))))
