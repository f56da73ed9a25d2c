"""The store that several replicas of a hub share: a Redis or Valkey server, behind deadlines.

Every request to it ends within `DEADLINE` seconds, with a reply or with StoreUnavailable. While the store is
unavailable, requests fail at once and a background task probes it, so that no call waits for an unreachable server.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from mcp_hub.config.store import StoreSettings
from mcp_hub.errors import CallError, ConfigError
from mcp_hub.text import printable

log = logging.getLogger("mcp_hub.store")

DEADLINE: Final = 1.0
"""Seconds for one request to the store."""
LATE: Final = 1.5
"""Seconds for which `retry` retries, as the store may only be slow."""
ASK_AGAIN: Final = 0.1
"""Seconds between two attempts of `retry`."""
PROBE_EVERY: Final = 0.25
"""Seconds between two probes while the store is unavailable."""
LOOKED_WITHIN: Final = 2.0
"""Seconds; if requests and probes are further apart, this process was paused: a replica sends two requests a second."""
LAYOUT: Final = 2
"""Version of the keys and their values. Replicas with different layouts share nothing."""
MAX_SAID: Final = 300
"""Characters of an error of the store that are shown."""
MAX_CONNECTIONS: Final = 16
"""Concurrent requests; others wait, within their deadline."""
PROBE: Final = "redis.call('SET', KEYS[1], '', 'PX', 1000)"
"""A script that writes. A store may answer and read, but accept no writes: a read-only replica, one without memory."""

TYPES: Final = {
    "keys": "list", "members": "set", "member": "string", "newest": "string", "changes": "stream", "owner": "string",
    "state": "hash", "watches": "hash", "stream": "stream", "asked": "string", "bucket": "hash", "active": "zset",
}  # fmt: skip
"""The type of each key, by the last part of its name, if that is here, else by the first."""
_REMOVE_FOREIGN: Final = """
for i, key in ipairs(KEYS) do
    local found = redis.call('TYPE', key).ok
    if found ~= 'none' and ARGV[i] ~= '' and found ~= ARGV[i] then redis.call('DEL', key) end
end
"""
"""Removes each of KEYS whose type is not the one in ARGV."""

T = TypeVar("T")
Reply = Any
"""A reply of the store: bytes, a number, a list of these, or None."""


class StoreUnavailable(CallError):
    """The store is unavailable or refuses, and this cannot be done without it."""

    code, rpc_code, retryable = "store_unavailable", -32010, True


class Script:
    """A Lua script of the store. It is executed as one step: nothing comes between its commands."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def run(self, store: Store, keys: Sequence[str], *args: str | bytes | float) -> Reply:
        """Returns what the script returns for `keys` (without the prefix). Raises StoreUnavailable."""
        return await store.evaluate(self.text, keys, args)


class Store:
    """One connection pool to the store. `clock` returns seconds.

    Its keys are `{PREFIX:1}:NAME`; the braces keep them on one node of a cluster, as scripts need several of them.
    """

    def __init__(self, settings: StoreSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._prefix = f"{{{settings.prefix}:{LAYOUT}}}:"
        self._redis: Redis | None = None
        self._probe: asyncio.Task[None] | None = None
        self._digests: dict[str, str] = {}
        self._last_reply = float("-inf")
        """The time of the last reply, by `clock`."""
        self.away_since: float | None = None
        """The time when the store became unavailable, by `clock`; None while it is available."""
        self._last_use = clock()
        """The time of the last request or probe, by `clock`."""
        self.unknown = False
        """Whether this process was paused since the last reply: others may have used the store meanwhile."""
        self.changed: Callable[[bool], None] = lambda _: None
        """Called with the new value of `is_unavailable` when that has changed."""
        self.uses = 0
        """The number of requests to the store."""

    @property
    def is_unavailable(self) -> bool:
        """Whether the store is unavailable: it does not answer or accepts no writes, as far as requests have shown."""
        return self.away_since is not None

    def key(self, name: str) -> str:
        """Returns the full key for a name."""
        return self._prefix + name

    async def open(self) -> None:
        """Checks the store's settings. Raises ConfigError if it evicts keys; an unavailable store is no error."""
        try:
            facts = await self.execute("INFO", "memory")
        except StoreUnavailable:
            return
        policy = str(facts.get("maxmemory_policy", ""))
        if policy.startswith("allkeys-"):
            text = f"the store evicts keys when its memory is full (maxmemory-policy {policy}), and sessions with them"
            raise ConfigError(f"{text}; set maxmemory-policy to noeviction")
        if policy.startswith("volatile-") and facts.get("maxmemory"):
            log.warning("the store may evict sessions when its memory is full (maxmemory-policy %s)", policy)

    async def execute(self, *command: str | bytes | float) -> Reply:
        """Returns the reply to one command, whose keys are full keys (`key`). Raises StoreUnavailable."""
        keys = [part for part in command if isinstance(part, str) and part.startswith(self._prefix)]
        return await self._request(lambda redis: redis.execute_command(*command), keys)  # type: ignore[no-untyped-call]

    async def evaluate(self, text: str, keys: Sequence[str], args: Sequence[str | bytes | float]) -> Reply:
        """Returns what a script returns. `keys` are without the prefix. Raises StoreUnavailable."""
        full_keys = [self.key(name) for name in keys]
        digest = self._digests.get(text)
        if digest is not None:
            try:
                return await self._request(
                    lambda redis: redis.evalsha(digest, len(full_keys), *full_keys, *args), full_keys
                )
            except NoScriptError:  # the store was restarted; another request may have noticed it first
                self._digests.pop(text, None)
        answer = await self._request(lambda redis: redis.eval(text, len(full_keys), *full_keys, *args), full_keys)
        self._digests[text] = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        return answer

    async def retry(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Runs `ask`, which must be safe to repeat; retries for LATE seconds. Raises StoreUnavailable."""
        until = self._clock() + LATE
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                away_since = self.away_since
                if self._clock() > min(until, until if away_since is None else away_since + LATE):
                    raise
                await asyncio.sleep(ASK_AGAIN)

    async def _request(self, ask: Callable[[Redis], Any], keys: Sequence[str]) -> Reply:
        """Sends a request. Raises StoreUnavailable if it fails, but NoScriptError for an unknown script.

        If one of its `keys` is of another type than the hub gives it, the key is removed first.
        """
        self._notice_pause()
        if self.is_unavailable:
            raise StoreUnavailable("The store is unavailable (setting: store).", retry_after=1.0, executed=False)
        self.uses += 1
        try:
            async with asyncio.timeout(DEADLINE):
                try:
                    try:
                        answer = await ask(self._client())
                    except ResponseError as error:
                        if "WRONGTYPE" not in str(error):
                            raise
                        await self._remove_foreign(keys)
                        answer = await ask(self._client())
                except NoScriptError:
                    raise
                except ResponseError as error:
                    # If a write fails too, the store is unavailable; else it refuses this request alone.
                    await self._write()
                    reason = printable(str(error))[:MAX_SAID]
                    log.warning("the store at %s refuses: %s", self._settings.place, reason)
                    raise StoreUnavailable(f"The store refuses (setting: store): {reason}", retry_after=1.0) from None
                self._last_reply, self.unknown = self._clock(), False
                return answer
        except NoScriptError:
            raise
        except (OSError, RedisError) as error:  # TimeoutError is an OSError
            if not isinstance(error, TimeoutError) or self._clock() - self._last_reply > DEADLINE:
                self._mark_unavailable(error)  # else it answers other requests: this one waited too long in the pool
        raise StoreUnavailable("The store does not answer (setting: store).", retry_after=1.0)

    def _notice_pause(self) -> None:
        """Notices a pause of this process."""
        now = self._clock()
        self.unknown = self.unknown or now - self._last_use > LOOKED_WITHIN
        self._last_use = now

    def _client(self) -> Redis:
        if self._redis is None:
            self._redis = _make_client(self._settings)
        return self._redis

    async def _remove_foreign(self, keys: Sequence[str]) -> None:
        """Removes those keys that are not of the type that the hub gives them. Raises OSError or RedisError."""
        log.warning("the store at %s has values that are not of this hub; they are removed", self._settings.place)
        parts = [key.removeprefix(self._prefix).split(":") for key in keys]
        types = [TYPES.get(name[-1]) or TYPES.get(name[0], "") for name in parts]
        await self._client().eval(_REMOVE_FOREIGN, len(keys), *keys, *types)

    async def _write(self) -> None:
        """Writes a key that ends at once. Raises OSError or RedisError if the store accepts no writes."""
        await self._client().eval(PROBE, 1, self.key("probe"))

    def _mark_unavailable(self, error: BaseException) -> None:
        """Marks the store as unavailable, and starts the probe."""
        if self.away_since is None:
            self.away_since = self._clock()
            reason = printable(str(error))[:MAX_SAID] or type(error).__name__
            consequence = "this replica shares nothing with the others until it can"
            log.warning("the store at %s cannot be used: %s; %s", self._settings.place, reason, consequence)
            self.changed(True)
        if self._probe is None or self._probe.done():
            self._probe = asyncio.get_running_loop().create_task(self._probe_until_available())

    async def _probe_until_available(self) -> None:
        """Probes the store until it accepts a write."""
        while self.is_unavailable:
            await asyncio.sleep(PROBE_EVERY)
            self._notice_pause()
            redis, self._redis = self._redis, None  # old connections may hang for long
            if redis is not None:
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(DEADLINE):
                        await redis.aclose()
            with contextlib.suppress(Exception):
                async with asyncio.timeout(DEADLINE):
                    await self._write()
                seconds = self._clock() - (self.away_since or self._clock())
                self.away_since = None
                log.warning("the store at %s can be used again after %.1f s", self._settings.place, seconds)
                self.changed(False)

    async def close(self) -> None:
        """Closes all connections. Never raises."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.wait([self._probe])
        redis, self._redis = self._redis, None
        if redis is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(DEADLINE):
                    await redis.aclose()


def _make_client(settings: StoreSettings) -> Redis:
    """Returns a client that never retries, because a request must not be executed twice.

    It has no time limit for replies, as DEADLINE ends every request. Its own limit would use `asyncio.wait_for`, which
    may swallow the cancellation of a task before Python 3.12.
    """
    pool = BlockingConnectionPool.from_url(
        settings.url.get_secret_value(),
        max_connections=MAX_CONNECTIONS,
        timeout=DEADLINE,
        socket_timeout=None,
        socket_connect_timeout=DEADLINE,
        retry=Retry(NoBackoff(), 0),
        client_name="mcp-hub",
    )
    return Redis.from_pool(pool)
