"""The peer: whatever an upstream sends in whatever order, each request ends once, with its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from mcp_hub.errors import METHOD_NOT_FOUND, UpstreamAnswered
from mcp_hub.protocol.frames import FrameError, Message, decode, number_of
from mcp_hub.transport import LinkError, LinkLost, Receiver, RequestId
from mcp_hub.transport.peer import MAX_BACKGROUND, Peer
from tests.fakes.offers import nothing_offered
from tests.fuzz.supply import Supply

TOKENS = (
    *(bytes([step]) for step in range(12)),
    b'\x0b\x30{"id":1,"result":{}}',
    b'{"id":true}',
    b'{"method":"ping","id":[1]}',
)
SEEDS = (
    b"\x00\x00\x00\x01\x01\x02\x00\x01\x00",
    b"\x00\x00\x03\x00\x04\x01\x05\x06\x00\x07\x08\x00\x09",
    b"\x00\x0a\x01\x00\x01\x00\x02\x01",
)
_PROGRESS = "notifications/progress"


class Line:
    """A link without a wire: it stores what is sent; the target supplies what is received."""

    last_words: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.fails = False
        self.receiver: Receiver | None = None

    async def open(self, receiver: Receiver) -> None:
        self.receiver = receiver

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if self.fails:
            raise LinkError("cannot be written", executed=False)
        self.sent.append(message)

    def abandon(self, request_id: RequestId) -> None:
        pass

    async def close(self) -> None:
        pass


class Conversation:
    """One peer, its requests, and an independent account of the expected result of each."""

    def __init__(self) -> None:
        self.line = Line()
        self.lost: list[LinkLost] = []
        self.peer = Peer(
            self.line, notified=lambda method, params, cause: None, requested=nothing_offered, lost=self.lost.append
        )
        self.tasks: list[asyncio.Task[Any]] = []
        self.progress: list[list[Any]] = []
        self.expected: dict[int, Any] = {}
        """Number of a request -> its expected result; the first answer counts."""
        self.open: set[int] = set()
        self.stray = 0

    async def run(self, supply: Supply) -> None:
        while supply and len(self.tasks) < 40:
            await self.step(supply)
            for _ in range(supply.below(4)):
                await asyncio.sleep(0)
        self.peer.lost(LinkLost("the end"))
        for number in self.open:
            self.expected[number] = LinkLost
        results = await asyncio.wait_for(asyncio.gather(*self.tasks, return_exceptions=True), 10)
        self.check(results)
        await self.peer.close()
        while self.peer._background:
            await asyncio.wait(self.peer._background, timeout=10)

    async def step(self, supply: Supply) -> None:
        kind, number = supply.below(12), supply.below(16)
        if kind == 0:
            await self.begin()
        elif kind in (1, 2):
            self.answer(number, failed=kind == 2)
        elif kind == 3 and number < len(self.tasks):
            self.cancel(number)
        elif kind == 4:
            self.peer.received({"method": _PROGRESS, "params": {"progressToken": number + 1, "progress": number}})
        elif kind == 5:
            self.peer.received(
                {"id": number, "method": ("ping", "sampling/createMessage", "x")[number % 3], "params": []}
            )
        elif kind == 6:
            self.undecodable(number)
        elif kind == 7:
            self.peer.received({"method": "notifications/cancelled", "params": {"requestId": number}})
        elif kind == 8:
            self.line.fails = bool(number % 2)
        elif kind == 9:
            self.say({"jsonrpc": "2.0", "id": (True, None, 1.0, "1", [1], {}, -1, 2**70)[number % 8], "result": number})
        elif kind == 10:
            self.peer.received({"method": (None, 7, [], {})[number % 4], "id": 900})
            self.stray += 1
        else:
            self.say_any(supply.piece())

    async def begin(self) -> None:
        notifications: list[Any] = []
        self.progress.append(notifications)
        number = len(self.tasks)
        request = self.peer.request("tools/call", {"nonce": number}, on_progress=notifications.append)
        self.tasks.append(asyncio.ensure_future(request))
        await asyncio.sleep(0)  # until it is sent: ids are given in that order
        if self.line.fails:
            self.expected[number] = LinkError
        else:
            self.open.add(number)

    def answer(self, number: int, *, failed: bool) -> None:
        member = {"error": {"code": -1, "message": str(number)}} if failed else {"result": {"nonce": number}}
        self.say({"jsonrpc": "2.0", "id": number + 1, **member})

    def say(self, message: Message) -> None:
        """Delivers an answer, and records its expected effect."""
        before, answer_id = self.peer.stray, number_of(message.get("id"))
        error, pending = message.get("error"), self.peer._pending
        if "jsonrpc" not in message and "result" not in message and (answer_id is None or "error" not in message):
            answer_id = None  # it is no message
        elif (
            answer_id is None
            and error is not None
            and not (isinstance(error, dict) and error.get("code") == METHOD_NOT_FOUND)
            and len(pending) == 1
            and self.peer._told_at < next(iter(pending.values())).received_before
        ):
            (answer_id,) = pending  # an error without an id means the only request
        waiting = pending.get(answer_id) if type(answer_id) is int else None
        is_awaited = waiting is not None and not waiting.future.done()
        self.peer.received(message)
        assert self.peer.stray == before + (not is_awaited), "an answer to nobody is not counted, or one to somebody is"
        self.stray += not is_awaited
        if is_awaited:
            assert isinstance(answer_id, int)
            assert answer_id - 1 in self.open, "a request that has ended was answered again"
            self.open.discard(answer_id - 1)
            self.expected[answer_id - 1] = (
                UpstreamAnswered if message.get("error") is not None else message.get("result")
            )

    def say_any(self, text: bytes) -> None:
        try:
            message = decode(text)
        except FrameError:
            return
        if not isinstance(message, dict):
            return
        if message.get("method") is None:
            self.say(message)
        else:
            self.stray += not isinstance(message["method"], str)
            self.peer.received(message)

    def undecodable(self, number: int) -> None:
        """Delivers a frame that cannot be decoded: with its id, or without, for the only request in flight."""
        about = number + 1 if number % 2 else None
        pending = self.peer._pending
        target = about if about is not None else next(iter(pending)) if len(pending) == 1 else None
        waiting = pending.get(target) if target is not None else None
        self.peer.failed(about, LinkError("cannot be decoded"))
        if waiting is None:
            self.stray += 1
        elif isinstance(target, int) and target - 1 in self.open:
            self.open.discard(target - 1)
            self.expected[target - 1] = LinkError

    def cancel(self, number: int) -> None:
        if number in self.open and not self.tasks[number].done():
            self.tasks[number].cancel()
            self.open.discard(number)
            self.expected[number] = asyncio.CancelledError

    def check(self, results: list[Any]) -> None:
        assert self.peer.in_flight == 0, "requests are left in the table"
        assert self.peer.stray == self.stray, "not every answer to nobody is counted, or one too many"
        assert len(self.lost) == 1
        assert len(self.peer._background) <= MAX_BACKGROUND
        for number, result in enumerate(results):
            expected = self.expected[number]
            if isinstance(expected, type):
                assert isinstance(result, expected), f"request {number} ended with {result!r}"
            else:
                assert result == expected, f"request {number} got {result!r}"
            for notification in self.progress[number]:
                assert notification["progressToken"] == number + 1, "progress of another request"


async def _run(data: bytes) -> None:
    await Conversation().run(Supply(data))


_runner = asyncio.Runner()


def target(data: bytes) -> None:
    _runner.run(_run(data))
