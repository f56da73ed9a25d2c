"""The tokens of one upstream while the hub runs: shared by all its sessions, renewed once for all that wait."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import shlex
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from mcp_hub.config.models import Config, Server
from mcp_hub.oauth.sign_in import NoTokenNow, SignIn, SignInFailed
from mcp_hub.oauth.store import Stamp, StoreFailed, TokenStore, store_of
from mcp_hub.security.private_files import PendingWrites
from mcp_hub.security.redaction import LEARNED
from mcp_hub.text import printable
from mcp_hub.transport.authorization import Challenge, SignInNeeded
from mcp_hub.transport.link import LinkError

if TYPE_CHECKING:
    from mcp_hub.oauth.flow import Flow, User

log = logging.getLogger("mcp_hub.oauth")

EARLY: Final = 5.0
"""Seconds before its end a token is renewed: a request takes its time, and clocks differ."""
RENEWAL: Final = 30.0
"""Seconds a renewal takes at most, where no user has to be waited for."""
PAUSE: Final = 10.0
"""Seconds after one that failed for the moment in which nobody is asked again."""


class Tokens:
    """The Authorization of one upstream. With a `user` it signs in anew; without one it can only renew."""

    def __init__(
        self,
        server: Server,
        store: TokenStore,
        allow: Sequence[str] = (),
        user: User | None = None,
        clock: Callable[[], float] = time.time,
        writes: PendingWrites | None = None,
    ) -> None:
        assert server.oauth is not None
        self.server = server
        self._oauth = server.oauth
        self._store = store
        self._allow = allow
        self._user = user
        self._clock = clock
        self._writes = writes or PendingWrites(StoreFailed)
        self._sign_in: SignIn | None = None
        self._stamp: Stamp | None = None
        self._outdated: Stamp | None = None
        """What the store has, or will have again, while it cannot take the sign-in that is in use."""
        self._read = False
        self._reading = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None
        self._done = False
        """Whether there was a renewal; for a `user`, what was kept before counts no more."""
        self._failure: Exception | None = None
        self._failed_until: float | None = None
        """When the failure may be over; None: when the store has changed."""
        self._no_more_until = 0.0
        """When the hub as itself asks again for a scope that it was not given."""

    @property
    def has_new(self) -> bool:
        """Whether there is a token that a user, or the hub itself, has just signed in for."""
        return self._done or (self._user is None and self.signed_in)

    @property
    def signed_in(self) -> bool:
        """Whether there is a token, whatever it is worth."""
        return self._sign_in is not None and self._sign_in.access_token is not None

    @property
    def changed(self) -> bool:
        """Whether another process has signed in, or out, since anything was last asked for."""
        return self._has_changed(self._store.stamp(self.server))

    def _has_changed(self, stamp: Stamp | None) -> bool:
        return stamp != self._stamp and (stamp is None or stamp != self._outdated)

    async def token(self) -> str | None:
        """As in Authorization."""
        await self._look()
        if (failure := self._lasting_failure()) is not None:
            raise failure
        known = self._sign_in
        if known is not None and known.access_token is not None and self._user is None and not self._expired(known):
            return known.access_token
        if self._user is not None:
            return known.access_token if known is not None and self._done else None
        if self._oauth.grant == "client_credentials":
            if known is None or known.access_token is None:
                return None  # the answer says where tokens are to be had
            await self._renewed(known.access_token, Challenge(401))
        elif known is None or known.access_token is None:
            raise self._needed("nobody has signed in yet")
        elif known.refresh_token is None:
            raise self._needed("the sign-in has expired")
        else:
            await self._renewed(known.access_token, None)
        return self._sign_in.access_token if self._sign_in is not None else None

    async def challenged(self, token: str | None, challenge: Challenge, *, again: bool) -> bool:
        """As in Authorization."""
        more = challenge.status == 403
        if more and challenge.field("error") != "insufficient_scope":
            return False
        await self._look()
        known = self._sign_in
        if not again:
            if known is not None and known.access_token not in (None, token) and (self._user is None or self._done):
                return True
            own = self._oauth.grant == "client_credentials" and (not more or self._clock() >= self._no_more_until)
            if self._user is not None or own:
                await self._renewed(token, challenge)
                return True
            if not more and known is not None and known.refresh_token is not None:
                await self._renewed(token, None, refused=True)
                return True
        await self._remember(token, challenge)
        if more:
            self._no_more_until = self._clock() + PAUSE if again else self._no_more_until
            scope = printable(challenge.field("scope") or "", 200)
            raise self._needed(f"it wants more than the sign-in allows{f' (scope: {scope})' if scope else ''}")
        error = self._needed("it does not take the sign-in any more" if token else "nobody has signed in yet")
        if self._user is None:
            self._fail(error, None if self._oauth.grant == "authorization_code" else PAUSE)
        raise error

    async def sign_in(self, challenge: Challenge) -> None:
        """Sign in now, with a user or as the hub itself. Raises SignInNeeded, LinkError."""
        await self._look()
        await self._renewed(None, challenge)

    async def last_challenge(self) -> Challenge | None:
        """What the server said when it last refused the tokens that are kept."""
        await self._look()
        return self._sign_in.challenge if self._sign_in is not None else None

    # --- what is kept ------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Read what is kept, where it has changed. Raises SignInNeeded where it cannot be read."""
        if self._read and not self.changed:
            return
        if not self._read and (failure := self._lasting_failure()) is not None:
            raise failure
        async with self._reading:
            stamp = self._store.stamp(self.server)
            if self._read and not self._has_changed(stamp):
                return
            try:
                sign_in = await asyncio.to_thread(self._store.load, self.server) if stamp is not None else None
            except StoreFailed as error:
                self._read = False
                unreadable = SignInNeeded(f"unavailable (auth): {error}", executed=False, status=401)
                self._fail(unreadable, PAUSE)
                raise unreadable from None
            self._take(sign_in, stamp)
            self._failure = self._failed_until = None

    def _take(self, sign_in: SignIn | None, stamp: Stamp | None) -> None:
        if sign_in is not None:
            LEARNED.learn(*sign_in.secrets)
        self._sign_in, self._stamp, self._read, self._outdated = sign_in, stamp, True, None

    async def _keep(self, sign_in: SignIn) -> None:
        """What cannot be kept on disk is used all the same, and kept as soon as the disk takes it."""
        before = self._outdated or self._stamp
        try:
            if self._user is not None:
                async with self._store.locked(self.server):
                    await asyncio.to_thread(self._store.save, self.server, sign_in)
            else:
                await asyncio.to_thread(self._store.save, self.server, sign_in)
        except StoreFailed as error:
            if self._user is not None:
                raise SignInFailed(str(error)) from None
            self._take(sign_in, self._store.stamp(self.server))
            self._outdated = before
            what = f"keeping the tokens of {printable(self.server.id)} in {self._store.where(self.server)}"
            self._writes.put(what, partial(self._keep_later, sign_in))
        else:
            self._take(sign_in, self._store.stamp(self.server))

    async def _keep_later(self, sign_in: SignIn) -> None:
        """Keep it, unless there is a newer one by now, of this process or another one. Raises StoreFailed."""
        async with self._store.locked(self.server):
            if self._sign_in is sign_in and not self.changed:
                await asyncio.to_thread(self._store.save, self.server, sign_in)
                self._take(sign_in, self._store.stamp(self.server))

    async def _remember(self, token: str | None, challenge: Challenge) -> None:
        """For the next `login`: what the server wants. Not if somebody has signed in meanwhile, nor twice."""
        if self._user is not None or self._oauth.grant == "client_credentials":
            return
        async with self._store.locked(self.server):
            await self._look()
            before = self._sign_in if self._sign_in is not None else SignIn()
            if before.challenge != challenge and before.access_token == token:
                await self._keep(before.refused(challenge))

    def _expired(self, known: SignIn) -> bool:
        if known.expires_at is None:
            return False
        life = (known.tokens or {}).get("expires_in")
        early = min(EARLY, life / 10) if isinstance(life, int) else EARLY
        return self._clock() >= known.expires_at - early

    # --- renewing ----------------------------------------------------------------------------------------------

    async def _renewed(self, token: str | None, challenge: Challenge | None, *, refused: bool = False) -> None:
        """Another token than `token`: by a refresh, or with a challenge from the beginning. One at a time.

        Raises SignInNeeded, LinkError.
        """
        if self._renewing is None or self._renewing.done():
            work = self._renew(token, challenge, refused=refused)
            self._renewing = asyncio.get_running_loop().create_task(work, name=f"sign-in {self.server.id}")
            self._renewing.add_done_callback(lambda task: task.cancelled() or task.exception())
        # Whoever gives up waiting leaves it to the others.
        await asyncio.shield(self._renewing)

    async def _renew(self, token: str | None, challenge: Challenge | None, *, refused: bool) -> None:
        try:
            async with self._alone():
                await self._look()
                known = self._sign_in
                if known is not None and known.access_token not in (None, token) and self._user is None:
                    return  # another process was faster
                flow = await self._flow()
                if challenge is not None:
                    signed_in = await flow.sign_in(challenge, known)
                else:
                    assert known is not None
                    signed_in = await flow.refresh(known)
                await self._keep(signed_in)
                self._done = True
                self._failure = self._failed_until = None
        except SignInFailed as error:
            await self._look()
            if challenge is None and self._sign_in is not None and self._sign_in.access_token not in (None, token):
                return  # the refresh token was spent by another process
            failure = self._needed(str(error))
            if refused:
                await self._remember(token, Challenge(401))
            if challenge is None or challenge.status != 403:
                self._fail(failure, None if self._oauth.grant == "authorization_code" else PAUSE)
            raise failure from None
        except (NoTokenNow, TimeoutError) as error:
            why = str(error) or f"the authorization server did not answer within {RENEWAL:g} s"
            unavailable = LinkError(f"it cannot be signed in to: {why}", executed=False)
            if challenge is None or challenge.status != 403:
                self._fail(unavailable, PAUSE)
            raise unavailable from None
        except LinkError:
            raise
        except Exception as error:
            log.error("signing in to %s failed with an unexpected %s", self.server.id, type(error).__name__)
            odd = LinkError("it cannot be signed in to: the authorization server answers oddly", executed=False)
            self._fail(odd, PAUSE)
            raise odd from None

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """In bounded time and without other processes; a user takes the time it takes, and nobody waits for that."""
        if self._user is not None:
            yield
            return
        async with self._store.locked(self.server), asyncio.timeout(RENEWAL):
            yield

    async def _flow(self) -> Flow:
        module = await asyncio.to_thread(importlib.import_module, "mcp_hub.oauth.flow")
        flow: Flow = module.Flow(self.server, self._allow, self._user)
        return flow

    # --- failures ----------------------------------------------------------------------------------------------

    def _fail(self, failure: LinkError, seconds: float | None) -> None:
        if self._user is None:
            self._failure = failure
            self._failed_until = None if seconds is None else self._clock() + seconds

    def _lasting_failure(self) -> LinkError | None:
        """The failure that still counts, as a new object: it is raised in many places."""
        failure = self._failure
        if not isinstance(failure, LinkError) or (
            self._failed_until is not None and self._clock() >= self._failed_until
        ):
            return None
        return type(failure)(str(failure), executed=False, status=failure.status)

    def _needed(self, why: str) -> SignInNeeded:
        if self._user is not None:
            text = why
        elif self._oauth.grant == "client_credentials":
            text = (
                f"unavailable (auth): {why}; see client_id, its secret and scopes under servers.{self.server.id}.auth"
            )
        else:
            text = f"unavailable (auth): {why}; run: mcp-hub login {shlex.quote(printable(self.server.id, 100))}"
        return SignInNeeded(text, executed=False, status=401)


class SignIns:
    """The tokens of all upstreams of one hub that have to be signed in to."""

    def __init__(self, config: Config, writes: PendingWrites | None = None) -> None:
        self._writes = writes
        self._store = store_of(config)
        self._allow = config.web.allow_addresses
        self._tokens: dict[str, Tokens] = {}

    def of(self, server: Server) -> Tokens | None:
        """Those of one; None where no sign-in is configured."""
        if server.oauth is None:
            return None
        if server.id not in self._tokens:
            self._tokens[server.id] = Tokens(server, self._store, self._allow, writes=self._writes)
        return self._tokens[server.id]
