"""Retries: another attempt after a transport failure, if it is safe to execute the call twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from math import inf
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import Meta

from mcp_hub.catalog.exposed_ids import TASK_UPDATE
from mcp_hub.config.field_types import Duration
from mcp_hub.config.models import Config, Server
from mcp_hub.config.settings import EntryKey, Frozen, model_key
from mcp_hub.errors import ServerUnavailable
from mcp_hub.policy import Call, Json, Next, Policy, PolicyParts
from mcp_hub.policy.patterns import Patterns, ToolRulesTable
from mcp_hub.policy.rule_names import RuleNames
from mcp_hub.protocol.kinds import TOOLS, hints_of

BUDGET_AT_REST: Final = 10.0
"""Retries in the budget of an upstream after a quiet time."""


class RetrySettings(Frozen):
    """Retries of failed calls that cannot do harm."""

    OFF: ClassVar[Mapping[str, Any]] = {"attempts": 1}

    SHORT: ClassVar[Mapping[type, str]] = {int: "attempts"}

    attempts: Annotated[int, Meta(ge=1, le=10)] = 2
    """Attempts in total, the first one included."""
    backoff: Duration = 0.5
    """The longest wait before the second attempt, doubled for each further one. The actual wait is random, up to it."""
    max_backoff: Duration = 8.0
    """The longest wait between two attempts."""
    tools: tuple[str, ...] = ()
    """Tools whose calls may be retried, whatever their annotations say."""
    budget: Annotated[float, Meta(ge=0, le=1)] = 0.2
    """The share of calls that may be retries, so that retries do not overload a failing server. If only `attempts` is
    written, there is no such limit."""


_RANDOM: Final = random.Random()
RETRY: Final = EntryKey("retry", model_key(RetrySettings), RetrySettings(), in_defaults=True, restricts=True)


class _RetryBudget(msgspec.Struct):
    """A retry budget: every call adds `share` of a retry, every retry takes one."""

    share: float
    tokens: float = BUDGET_AT_REST

    def spend(self) -> bool:
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


def _budget_of(rules: RetrySettings) -> _RetryBudget:
    """Returns the budget of an upstream; it is infinite if `attempts` is written, but `budget` is not."""
    is_bounded = "attempts" not in rules.model_fields_set or "budget" in rules.model_fields_set
    return _RetryBudget(rules.budget) if is_bounded else _RetryBudget(rules.budget, inf)


class RetryPolicy(Policy):
    """Repeats calls whose transport failed, after exponential waits with jitter.

    `hints(call)` returns the annotations of the called tool, `sleep(seconds)` waits.
    """

    name = "retry"
    keys = (RETRY,)

    def __init__(
        self,
        servers: Mapping[str, Server],
        hints: Callable[[Call], Mapping[str, Any]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rules = {id: RETRY.of(server) for id, server in servers.items()}
        self._listed = {id: Patterns(rules.tools) for id, rules in self._rules.items()}
        self._tools = ToolRulesTable(servers)
        self._budgets = {id: _budget_of(rules) for id, rules in self._rules.items()}
        self._hints = hints
        self._sleep = sleep

    @staticmethod
    def rule_names(config: Config) -> Iterator[RuleNames]:
        """Yields the tools whose calls may be repeated; those of `defaults` need to be tools of one server only."""
        common = config.defaults.get("settings", {}).get(RETRY.name)
        if common is not None:
            yield RuleNames("defaults.retry.tools", common.tools)
        for server in config.servers:
            if (own := RETRY.of(server)) != common:
                yield RuleNames(f"servers.{server.id}.retry.tools", own.tools, server.id)

    @classmethod
    def of(cls, parts: PolicyParts) -> RetryPolicy:
        """Makes the policy of a configuration."""
        listed = parts.listed

        def hints(call: Call) -> Mapping[str, Any]:
            return hints_of(listed(call.route, call.caller) or {})

        return cls(parts.servers, hints)

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Runs the call, and again after a failure if that is allowed. Raises the error of the last attempt."""
        upstream = call.route.upstream
        rules, budget = self._rules[upstream], self._budgets[upstream]
        if budget.tokens < BUDGET_AT_REST:
            budget.tokens = min(BUDGET_AT_REST, budget.tokens + budget.share)
        for attempt in range(1, rules.attempts + 1):
            call.is_wanted_retry = attempt > 1 and "attempts" in rules.model_fields_set
            try:
                return await call_next(call)
            except ServerUnavailable as error:
                if attempt == rules.attempts or not self._may_repeat(call, error):
                    raise
                longest = min(rules.max_backoff, rules.backoff * 2 ** (attempt - 1))
                wait = max(_RANDOM.uniform(0, longest), error.retry_after or 0.0)
                if wait > rules.max_backoff:
                    call.notes.append(f"retry: none, the server asks to wait {wait:g} s")
                    raise
                if not budget.spend():
                    call.notes.append("retry: none, the budget is spent")
                    raise
                call.notes.append(f"retry: attempt {attempt + 1} after {error.code}, {wait:.2f} s later")
                await self._sleep(wait)
        raise AssertionError  # the last attempt returns or raises

    def _may_repeat(self, call: Call, error: ServerUnavailable) -> bool:
        """Returns whether the call was not executed, or may safely be executed twice."""
        rule = self._tools[call.route].retry
        if rule is False:
            return False
        return not error.executed or rule is True or self._is_safe(call)

    def _is_safe(self, call: Call) -> bool:
        if call.method not in (TOOLS.act_method, TASK_UPDATE):
            return True  # reading, completing, rendering a prompt
        if self._listed[call.route.upstream].match(call.route.name):
            return True
        hints = self._hints(call)
        return hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True
