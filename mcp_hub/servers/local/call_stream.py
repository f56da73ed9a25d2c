"""Runs any callable as a stream of chunks: functions, coroutines and generators, sync and async.

Sync code runs in a thread; a generator runs in one thread from beginning to end, so that it may use thread-local state.
Async code runs on the event loop it is started on. A chunk may be any object.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any, Final, TypeVar

T = TypeVar("T")

Start = Callable[[], Any]
"""Calls the function with its arguments."""

AHEAD: Final = 2
"""Chunks that a sync generator may produce before they are consumed."""
_END: Final = object()


def is_async(function: Callable[..., Any]) -> bool:
    """Returns whether a call of the function has to run on an event loop."""
    underlying = _underlying(function)
    return inspect.iscoroutinefunction(underlying) or inspect.isasyncgenfunction(underlying)


def is_stream(function: Callable[..., Any]) -> bool:
    """Returns whether the function is a generator, sync or async."""
    underlying = _underlying(function)
    return inspect.isgeneratorfunction(underlying) or inspect.isasyncgenfunction(underlying)


def _underlying(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def run_in_thread(start: Start, emit: Callable[[Any, bool], None]) -> Any:
    """Runs a sync function in this thread and calls `emit(chunk, has_more)` for each chunk.

    `has_more` says whether other chunks may follow. An exception that `emit` raises ends a generator. Returns None, or
    an awaitable or async iterator that the function returned, for `run_on_loop`.
    """
    value = start()
    if inspect.isawaitable(value) or isinstance(value, AsyncIterator):
        return value
    if isinstance(value, Generator):
        with closing(value):
            for chunk in value:
                emit(chunk, True)
    else:
        emit(value, False)
    return None


def begin_alone(work: Coroutine[Any, Any, T], name: str) -> Future[T]:
    """Starts a coroutine on a new loop in a new thread. Cancelling the future cancels it and ends both."""
    loop = asyncio.new_event_loop()
    future = asyncio.run_coroutine_threadsafe(work, loop)
    thread = threading.Thread(target=run_until, args=(loop, future), name=name, daemon=True)
    try:
        thread.start()
    except BaseException:  # the program is interrupted, or has too many threads
        future.cancel()
        if thread.ident is None:
            work.close()
            loop.close()
        raise
    return future


def run_until(loop: asyncio.AbstractEventLoop, future: Future[T]) -> None:
    """Runs a loop in this thread until the future of its work is done, and closes it."""
    asyncio.set_event_loop(loop)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:  # its end cancels what the work has left running
        runner.run(_ended(future))


async def _ended(future: Future[Any]) -> None:
    await asyncio.wait({asyncio.wrap_future(future)})


async def run_on_loop(value: Any) -> AsyncGenerator[tuple[Any, bool]]:
    """Yields (chunk, whether others may follow) of what an async function returned."""
    while inspect.isawaitable(value):
        value = await value
    if isinstance(value, AsyncGenerator):
        async with aclosing(value):
            async for chunk in value:
                yield chunk, True
    elif isinstance(value, AsyncIterator):
        async for chunk in value:
            yield chunk, True
    elif isinstance(value, Generator):
        async with aclosing(_from_thread(lambda: value)) as stream:
            async for chunk in stream:
                yield chunk
    else:
        yield value, False


@dataclass(frozen=True)
class KeptGenerator:
    """A generator that a function returned and that is its only chunk."""

    generator: Generator[Any, Any, Any] | AsyncGenerator[Any, Any]


def kept(value: Any) -> Any:
    """Returns what a function returned; a generator in it is not run but kept."""
    if inspect.isawaitable(value):
        return _kept_later(value)
    return KeptGenerator(value) if isinstance(value, Generator | AsyncGenerator) else value


async def _kept_later(value: Awaitable[Any]) -> Any:
    return kept(await value)


async def chunks(start: Start, *, asynchronous: bool) -> AsyncGenerator[tuple[Any, bool]]:
    """Calls a function and yields (chunk, whether others may follow).

    Sync code runs in a thread and does not block the loop.
    """
    async with aclosing(run_on_loop(start()) if asynchronous else _from_thread(start)) as stream:
        async for chunk in stream:
            yield chunk


async def _from_thread(start: Start) -> AsyncGenerator[tuple[Any, bool]]:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[Any, Any]] = asyncio.Queue()
    slots = threading.Semaphore(AHEAD)
    stopped = threading.Event()

    def put(item: Any, has_more: Any) -> None:
        slots.acquire()
        if stopped.is_set():
            raise CancelledError
        try:
            loop.call_soon_threadsafe(queue.put_nowait, (item, has_more))
        except RuntimeError:  # the loop is closed, so nobody waits for chunks
            raise CancelledError from None

    def work() -> None:
        error = continuation = None
        try:
            continuation = run_in_thread(start, put)
        except CancelledError:
            return
        except BaseException as raised:  # also sys.exit, which must end the call and not only the thread
            error = raised
        with contextlib.suppress(CancelledError):
            put(_END, (error, continuation))

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="tool", daemon=True).start()
    try:
        while (item := await queue.get())[0] is not _END:
            slots.release()
            yield item
        error, continuation = item[1]
        if error is not None:
            may_pass = isinstance(error, Exception | asyncio.CancelledError)
            raise error if may_pass else RuntimeError(str(error) or type(error).__name__)
        if continuation is not None:
            async with aclosing(run_on_loop(continuation)) as stream:
                async for chunk in stream:
                    yield chunk
    finally:
        stopped.set()
        slots.release(AHEAD)  # wakes a thread that waits in `put`, which then ends
