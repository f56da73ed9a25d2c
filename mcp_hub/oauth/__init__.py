"""The tokens of upstreams while the hub runs: all sessions of an upstream share them, and one renewal serves all."""

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

from mcp_hub import codes
from mcp_hub.config.credentials import OAuthSettings
from mcp_hub.config.models import Config, Server
from mcp_hub.oauth.token_store import (
    SignIn,
    SignInError,
    Stamp,
    TokenStore,
    TokenStoreError,
    TokenUnavailable,
    token_store_for,
)
from mcp_hub.security.private_files import PendingWrites
from mcp_hub.security.redaction import LEARNED
from mcp_hub.text import printable
from mcp_hub.transport import Challenge, LinkError, SignInNeeded

if TYPE_CHECKING:
    from mcp_hub.oauth.token_flow import SignInUser, TokenFlow

log = logging.getLogger("mcp_hub.oauth")

EARLY: Final = 5.0
"""Seconds before its end at which a token is renewed: requests take time, and clocks differ."""
RENEWAL: Final = 30.0
"""Seconds that a renewal without a user may take."""
PAUSE: Final = 10.0
"""Seconds after a failed renewal before the next one is tried."""
REFUSED: Final = 60.0
"""Seconds after which a stored token that was refused is tried again: servers also refuse good ones for a while."""


class UpstreamTokens:
    """The tokens of one upstream (an Authorization). With a `user` it can sign in; without one it can only renew."""

    def __init__(
        self,
        server: Server,
        store: TokenStore,
        allow: Sequence[str] = (),
        user: SignInUser | None = None,
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
        self._writes = writes or PendingWrites(TokenStoreError)
        self._sign_in: SignIn | None = None
        self._stamp: Stamp | None = None
        self._outdated: Stamp | None = None
        """The stamp of the older sign-in in the store, while the store cannot take the one in use."""
        self._read = False
        self._reading = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None
        self._has_renewed = False
        """Whether there was a renewal; with a `user`, a token from before it does not count."""
        self._spent: str | None = None
        """The refresh token that the authorization server has refused, which is not sent again."""
        self._failure: Exception | None = None
        self._failed_until = 0.0
        """When the next attempt may be made, unless the store changes before."""
        self._no_more_until = 0.0
        """When client credentials may ask again for a scope that was refused."""

    @property
    def has_new(self) -> bool:
        """Whether there is a token from a sign-in of this run."""
        return self._has_renewed or (self._user is None and self.signed_in)

    @property
    def signed_in(self) -> bool:
        """Whether there is a token, valid or not."""
        return self._sign_in is not None and self._sign_in.access_token is not None

    @property
    def changed(self) -> bool:
        """Whether another process has signed in or out since the store was last read."""
        return self._has_changed(self._store.stamp(self.server))

    def _has_changed(self, stamp: Stamp | None) -> bool:
        return stamp != self._stamp and (stamp is None or stamp != self._outdated)

    async def token(self) -> str | None:
        """Returns the bearer token to send, renewed if it has expired (Authorization).

        Raises SignInNeeded, LinkError.
        """
        await self._reload()
        if (failure := self._lasting_failure()) is not None:
            raise failure
        sign_in = self._sign_in
        if (
            sign_in is not None
            and sign_in.access_token is not None
            and self._user is None
            and not self._expired(sign_in)
        ):
            return sign_in.access_token
        if self._user is not None:
            return sign_in.access_token if sign_in is not None and self._has_renewed else None
        if self._oauth.grant == "client_credentials":
            if sign_in is None or sign_in.access_token is None:
                return None  # the server's 401 will say where to get a token
            await self._renew_shared(sign_in.access_token, Challenge(401))
        elif sign_in is None or sign_in.access_token is None:
            raise self._sign_in_needed("nobody has signed in yet")
        elif sign_in.refresh_token in (None, self._spent):
            raise self._sign_in_needed("the sign-in has expired")
        else:
            await self._renew_shared(sign_in.access_token, None)
        return self._sign_in.access_token if self._sign_in is not None else None

    async def challenged(self, token: str | None, challenge: Challenge, *, again: bool) -> bool:
        """Reacts to a 401 or 403; returns whether there is another token now (Authorization).

        Raises SignInNeeded, LinkError.
        """
        is_step_up = challenge.status == 403
        if is_step_up and challenge.field("error") != "insufficient_scope":
            return False
        await self._reload()
        sign_in = self._sign_in
        if not again:
            if (
                sign_in is not None
                and sign_in.access_token not in (None, token)
                and (self._user is None or self._has_renewed)
            ):
                return True
            can_request = self._oauth.grant == "client_credentials" and (
                not is_step_up or self._clock() >= self._no_more_until
            )
            if self._user is not None or can_request:
                await self._renew_shared(token, challenge)
                return True
            if not is_step_up and sign_in is not None and sign_in.refresh_token not in (None, self._spent):
                await self._renew_shared(token, None, refused=True)
                return True
        await self._remember(token, challenge)
        if is_step_up:
            self._no_more_until = self._clock() + PAUSE if again else self._no_more_until
            scope = printable(challenge.field("scope") or "", 200)
            raise self._sign_in_needed(f"it wants more than the sign-in allows{f' (scope: {scope})' if scope else ''}")
        error = self._sign_in_needed("it does not take the sign-in any more" if token else "nobody has signed in yet")
        if self._user is None:
            self._fail(error, REFUSED if self._oauth.grant == "authorization_code" else PAUSE)
        raise error

    async def sign_in(self, challenge: Challenge) -> None:
        """Signs in now, with a user or as the hub itself. Raises SignInNeeded, LinkError."""
        await self._reload()
        await self._renew_shared(None, challenge)

    async def last_challenge(self) -> Challenge | None:
        """Returns the challenge with which the server last refused the stored tokens."""
        await self._reload()
        return self._sign_in.challenge if self._sign_in is not None else None

    # --- store -------------------------------------------------------------------------------------------------

    async def _reload(self) -> None:
        """Reads the store if it has changed. Raises SignInNeeded if it cannot be read."""
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
            except TokenStoreError as error:
                self._read = False
                text = f"authorization failed: {error}"
                unreadable = SignInNeeded(text, executed=False, status=401, code=codes.TOKENS_UNREADABLE)
                self._fail(unreadable, PAUSE)
                raise unreadable from None
            self._adopt(sign_in, stamp)
            self._failure = None

    def _adopt(self, sign_in: SignIn | None, stamp: Stamp | None) -> None:
        if sign_in is not None:
            LEARNED.learn(*sign_in.secrets)
        self._sign_in, self._stamp, self._read, self._outdated = sign_in, stamp, True, None

    async def _save(self, sign_in: SignIn) -> None:
        """Saves a sign-in and uses it. If it cannot be saved, it is used nevertheless and saved later.

        With a user, it raises SignInError instead.
        """
        previous = self._outdated or self._stamp
        try:
            if self._user is not None:
                async with self._store.locked(self.server):
                    await asyncio.to_thread(self._store.save, self.server, sign_in)
            else:
                await asyncio.to_thread(self._store.save, self.server, sign_in)
        except TokenStoreError as error:
            if self._user is not None:
                raise SignInError(str(error)) from None
            self._adopt(sign_in, self._store.stamp(self.server))
            self._outdated = previous
            label = f"keeping the tokens of {printable(self.server.id)} in {self._store.where(self.server)}"
            self._writes.put(label, partial(self._save_later, sign_in))
        else:
            self._adopt(sign_in, self._store.stamp(self.server))

    async def _save_later(self, sign_in: SignIn) -> None:
        """Saves a sign-in unless there is a newer one by now. Raises TokenStoreError."""
        async with self._store.locked(self.server):
            if self._sign_in is sign_in and not self.changed:
                await asyncio.to_thread(self._store.save, self.server, sign_in)
                self._adopt(sign_in, self._store.stamp(self.server))

    async def _remember(self, token: str | None, challenge: Challenge) -> None:
        """Stores the challenge for the next `login`, unless it is stored or somebody has signed in meanwhile."""
        if self._user is not None or self._oauth.grant == "client_credentials":
            return
        async with self._store.locked(self.server):
            await self._reload()
            stored = self._sign_in if self._sign_in is not None else SignIn()
            if stored.challenge != challenge and stored.access_token == token:
                await self._save(stored.refused(challenge))

    def _expired(self, sign_in: SignIn) -> bool:
        if sign_in.expires_at is None:
            return False
        lifetime = (sign_in.tokens or {}).get("expires_in")
        margin = min(EARLY, lifetime / 10) if isinstance(lifetime, int) else EARLY
        return self._clock() >= sign_in.expires_at - margin

    # --- renewing ----------------------------------------------------------------------------------------------

    async def _renew_shared(self, token: str | None, challenge: Challenge | None, *, refused: bool = False) -> None:
        """Gets another token than `token`: by a refresh, or for a challenge by a new sign-in. One runs at a time.

        Raises SignInNeeded, LinkError.
        """
        if self._renewing is None or self._renewing.done():
            work = self._renew(token, challenge, refused=refused)
            self._renewing = asyncio.get_running_loop().create_task(work, name=f"sign-in {self.server.id}")
            self._renewing.add_done_callback(lambda task: task.cancelled() or task.exception())
        # A caller that is cancelled does not end it for the others.
        await asyncio.shield(self._renewing)

    async def _renew(self, token: str | None, challenge: Challenge | None, *, refused: bool) -> None:
        try:
            async with self._exclusive():
                await self._reload()
                sign_in = self._sign_in
                if sign_in is not None and sign_in.access_token not in (None, token) and self._user is None:
                    return  # another process was faster
                flow = await self._flow()
                if challenge is not None:
                    signed_in = await flow.sign_in(challenge, sign_in)
                else:
                    assert sign_in is not None
                    signed_in = await flow.refresh(sign_in)
                await self._save(signed_in)
                self._has_renewed = True
                self._failure = None
        except SignInError as error:
            await self._reload()
            if challenge is None and self._sign_in is not None and self._sign_in.access_token not in (None, token):
                return  # the refresh token was spent by another process
            failure = self._sign_in_needed(str(error))
            if challenge is None and self._sign_in is not None:
                self._spent = self._sign_in.refresh_token
            if refused:
                await self._remember(token, Challenge(401))
            if challenge is None or challenge.status != 403:
                self._fail(failure, REFUSED if self._oauth.grant == "authorization_code" else PAUSE)
            raise failure from None
        except (TokenUnavailable, TimeoutError) as error:
            reason = str(error) or f"the authorization server did not answer within {RENEWAL:g} s"
            unavailable = LinkError(f"it cannot be signed in to: {reason}", executed=False, code=codes.ISSUER_AWAY)
            if challenge is None or challenge.status != 403:
                self._fail(unavailable, PAUSE)
            raise unavailable from None
        except LinkError:
            raise
        except Exception as error:
            log.error("signing in to %s failed with an unexpected %s", self.server.id, type(error).__name__)
            text = "it cannot be signed in to: the authorization server sent an invalid answer"
            unexpected = LinkError(text, executed=False, code=codes.ISSUER_AWAY)
            self._fail(unexpected, PAUSE)
            raise unexpected from None

    @contextlib.asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """Runs the block in bounded time and without other processes; with a user, without either bound."""
        if self._user is not None:
            yield
            return
        async with self._store.locked(self.server), asyncio.timeout(RENEWAL):
            yield

    async def _flow(self) -> TokenFlow:
        module = await asyncio.to_thread(importlib.import_module, "mcp_hub.oauth.token_flow")
        flow: TokenFlow = module.TokenFlow(self.server, self._allow, self._user)
        return flow

    # --- failures ----------------------------------------------------------------------------------------------

    def _fail(self, failure: LinkError, seconds: float) -> None:
        if self._user is None:
            self._failure = failure
            self._failed_until = self._clock() + seconds

    def _lasting_failure(self) -> LinkError | None:
        """Returns a copy of the failure that still counts, as it is raised in many places; None if there is none."""
        failure = self._failure
        if not isinstance(failure, LinkError) or self._clock() >= self._failed_until:
            return None
        return type(failure)(str(failure), executed=False, status=failure.status, code=failure.hub_code)

    def _sign_in_needed(self, reason: str) -> SignInNeeded:
        code = codes.SIGN_IN_NEEDED
        if self._user is not None:
            text = reason
        elif self._oauth.grant == "client_credentials":
            code = codes.CLIENT_REFUSED
            setting = f"servers.{self.server.id}.auth"
            text = f"authorization failed: {reason}; see client_id, its secret and scopes under {setting}"
        else:
            text = f"authorization failed: {reason}; run: mcp-hub login {shlex.quote(printable(self.server.id, 100))}"
        return SignInNeeded(text, executed=False, status=401, code=code)


def with_sign_in(server: Server) -> Server | None:
    """Returns a server that has only a URL as if its entry had `auth: oauth`; None if it cannot be signed in to."""
    return server.model_copy(update={"oauth": OAuthSettings()}) if server.can_sign_in else None


class TokenRegistry:
    """The tokens of all upstreams of one hub."""

    def __init__(self, config: Config, writes: PendingWrites | None = None) -> None:
        self._writes = writes
        self._store = token_store_for(config)
        self._allow = config.web.allow_addresses
        self._tokens: dict[str, UpstreamTokens] = {}

    def of(self, server: Server) -> UpstreamTokens | None:
        """Returns the tokens of one upstream; None if it is not known to need any.

        An upstream without `auth` in its entry has tokens as soon as a user has signed in to it.
        """
        if server.oauth is None and server.id not in self._tokens:
            implied = with_sign_in(server)
            if implied is None or self._store.stamp(implied) is None:
                return None
            server = implied
        if server.id not in self._tokens:
            self._tokens[server.id] = UpstreamTokens(server, self._store, self._allow, writes=self._writes)
        return self._tokens[server.id]
