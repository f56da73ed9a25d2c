"""The interface of policies, and the chain they form around a call.

A policy has two methods: `shape` runs when a catalog is built, `__call__` around every call. Both belong to one object,
so that the hidden and the refused items are the same. `chain.POLICIES` fixes the order of policies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

import msgspec

from mcp_hub.catalog import RUN, Item, Route
from mcp_hub.config.models import Config, Server
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND, UnknownName
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.protocol.kinds import RESOURCES, TEMPLATES, Kind
from mcp_hub.protocol.questions import Asker, CallQuestions, Suspendable
from mcp_hub.security.callers import SOLE, Caller
from mcp_hub.security.lru import Lru
from mcp_hub.security.redaction import Redactor

if TYPE_CHECKING:
    from mcp_hub.policy.approvals import Approvals
    from mcp_hub.policy.call_record import RecordLabels, RecordTap
    from mcp_hub.policy.data_flow import UsedLabels
    from mcp_hub.policy.fallback import Scrape
    from mcp_hub.policy.long_results import LongResults
    from mcp_hub.policy.quotas import Allowance
    from mcp_hub.policy.rule_names import RuleNames
    from mcp_hub.policy.selection import Selection
    from mcp_hub.policy.shape_result import Function
    from mcp_hub.policy.sharing import Sharing
    from mcp_hub.policy.trace import Measure
    from mcp_hub.security.pinning import PinRecord

Json = dict[str, Any]

MAX_COMPOSED: Final = 10_000
"""Routes whose composed chain is cached; callers can make up any number of resource URIs."""


class Call(msgspec.Struct, eq=False):
    """One call on its way to one upstream.

    `params` are the request's end-to-end params under the upstream's own names; a policy that changes them replaces
    the object. `exposed` is the name the caller used.
    """

    method: str
    exposed: str
    route: Route
    params: Json
    era: Era
    envelope: Envelope
    caller: Caller = SOLE
    on_progress: Callable[[Json], None] | None = None
    asker: Asker | None = None
    """Sends the server's requests to the caller during this call; None: the caller takes none."""
    on_message: Callable[[Json], None] | None = None
    """Takes log messages of the server that belong to this call."""
    subscriber: object = None
    """The owner of the subscription that this call opens or ends; `on_update` gets the notifications."""
    on_update: Callable[[Json], None] | None = None
    deadlines: list[Suspendable] = msgspec.field(default_factory=list)
    """The running time limits; they are suspended while the call waits for its caller."""
    questions: CallQuestions = msgspec.field(default_factory=CallQuestions)
    """The requests that the server has sent to the caller because of this call."""
    notes: list[str] = msgspec.field(default_factory=list)
    """What policies did, for `--explain` and the log: `retry: attempt 2 after server_unavailable`."""
    attempts: int = 0
    """Requests sent to the upstream."""
    is_wanted_retry: bool = False
    """Whether the attempt that is made is one that a person asked for, so that an open circuit does not end it."""
    has_token: bool = False
    """Whether it has taken its tokens of the server's rates, which hold for all its attempts."""
    label: str | None = None
    """The id of the call in records and spans; None: one is assigned."""
    fallback: str | None = None
    """The name of the fallback that answered in place of the upstream, such as `markitdown`."""
    refused_by: str | None = None
    """The rule that refused the call."""
    objects: bool = False
    """Whether arguments are placeholders for Python objects, which only the called function can validate."""
    nested: bool = False
    """Whether another running call of the same upstream waits for this one."""
    within: str | None = None
    """The hub's own tool that makes the call (`hub_call`, `hub_read`, `hub_run`); None: the client makes it."""
    confirmed: str = ""
    """The digest of the tool and arguments that a person was asked about and allowed; "" if nobody was asked."""
    allowance: Allowance | None = None
    """What a program may use that this call runs; None: no listener limits its caller."""
    preset: Mapping[str, Any] | None = None
    """Arguments preset by the program that registered the tool; None: the call does not come from such a program."""
    in_any_group: bool = False
    """Whether inactive groups do not matter, as the program itself calls the tool and not its model."""
    raised: Sequence[BaseException] = ()
    """What a function of this program has raised in this call."""

    @property
    def in_one_go(self) -> bool:
        """Whether the server's requests are answered during the call, as its client cannot repeat it with answers."""
        return self.era == "handshake" or self.confirmed != "" or self.within == RUN

    @property
    def kind(self) -> Kind:
        """The kind that the caller asked for: RESOURCES also if a template matched the URI."""
        return RESOURCES if self.route.kind is TEMPLATES else self.route.kind


Next = Callable[[Call], Awaitable[Json]]


class NewlyListedTool(Exception):
    """Raised after a connection to a server: the tool that was not listed before is now, and can be called."""


def unknown_name(kind: Kind, exposed: str, era: Era) -> UnknownName:
    """Returns one error for names that do not exist, are hidden or are refused, so that clients cannot tell which."""
    code = RESOURCE_NOT_FOUND if kind is RESOURCES and era == "handshake" else INVALID_PARAMS
    data = {"uri": exposed} if kind is RESOURCES else None
    return UnknownName(code, f"Unknown {kind.unknown}: {exposed}", data)


def without_output_schema(item: Item) -> Item:
    """Returns a tool without its output schema, as clients refuse results that do not fit it."""
    if not isinstance(item.wire, dict) or "outputSchema" not in item.wire:
        return item
    return msgspec.structs.replace(item, wire={key: value for key, value in item.wire.items() if key != "outputSchema"})


class Policy:
    """One policy. Its methods decide by the upstream's id and the original name, never by the exposed one."""

    name: str
    """The name in `call --explain`, and at the start of the notes of the policy (`name: what it did`)."""
    always_within = False
    """Whether the policy concerns every call that one of the hub's own tools makes."""

    @classmethod
    def of(cls, parts: PolicyParts) -> Self:
        """Makes the policy from the parts of a configuration; those in `POLICIES` have it."""
        raise NotImplementedError

    @staticmethod
    def rule_names(config: Config) -> Iterable[RuleNames]:
        """Returns the names in its settings, each of which should match something that a server lists."""
        return ()

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Returns the items of one upstream that may be listed: fewer, or with another `local` name or `wire` dict."""
        return items

    def concerns(self, route: Route) -> bool:
        """Returns whether the policy may affect calls of this route; one without `__call__` affects none.

        The answer is cached for the configuration, so it must depend on the configuration alone, never on what servers
        list or what has happened.
        """
        return type(self).__call__ is not Policy.__call__

    def __call__(self, call: Call, call_next: Next) -> Awaitable[Json]:
        """Returns the result of `call_next(call)` or another one, or raises a HubError.

        A policy that only checks a call returns `call_next(call)` itself; one that waits is a coroutine function.
        """
        raise NotImplementedError


Listed = Callable[[Route, Caller], Json | None]
"""Returns a tool as its server lists it to a caller, None if it does not."""


class ConfiguredPart(Protocol):
    """An object that exists once for each configuration: a policy of the chain, or a part of one.

    If its settings are in configuration files, the class attribute `keys` has their keys.
    """

    @classmethod
    def of(cls, parts: PolicyParts) -> Self:
        """Makes the object from the parts of a configuration."""
        ...


P = TypeVar("P", bound=ConfiguredPart)


class PolicyParts(msgspec.Struct, frozen=True, dict=True):
    """A configuration, and the shared objects that its policies use."""

    config: Config
    selection: Selection
    record: Callable[[Json], None] | None
    """Gets the record of every call; None: no records."""
    labels: RecordLabels
    """Names calls and callers in records."""
    used: UsedLabels
    """The data-flow labels that sessions have used."""
    approvals: Approvals
    """The tools that callers have allowed for their sessions."""
    listed: Listed
    scrape: Scrape
    """Fetches a page, for the fallback."""
    run_function: Function
    """Runs one of the user's post-processors."""
    long_results: LongResults
    pinned: Mapping[str, PinRecord]
    """The pins by id of the server."""
    sharing: Sharing | None = None
    """Reaches the other replicas of the hub; None: it has none."""
    measure: Measure | None = None
    """Gets the metrics of every call."""
    tap: RecordTap | None = None
    """Gets the record of every call while a live page is open."""
    in_program: bool = False
    """Whether the hub runs inside a Python program, whose calls may have preset arguments."""
    policies: dict[type, Any] = msgspec.field(default_factory=dict)
    """The policies that `find` has made, by their class."""

    @cached_property
    def servers(self) -> Mapping[str, Server]:
        """The entries of servers by id."""
        return {server.id: server for server in self.config.servers}

    @cached_property
    def redactor(self) -> Redactor:
        """Hides the secrets of the configuration."""
        return Redactor(secrets_of(self.config))

    def find(self, kind: type[P]) -> P:
        """Returns the policy of a class, which is made at the first request of the chain or of another policy."""
        if kind not in self.policies:
            self.policies[kind] = kind.of(self)
        policy: P = self.policies[kind]
        return policy


class Chain:
    """Policies from the outermost to the innermost. A call passes those that concern its route."""

    def __init__(self, policies: Sequence[Policy], innermost: Next) -> None:
        self.policies = tuple(policies)
        self._innermost = innermost
        self._composed: Lru[Route, Next] = Lru(MAX_COMPOSED)
        self._composed_within: Lru[Route, Next] = Lru(MAX_COMPOSED)
        """The same for calls that the hub's own tools make."""

    def run(self, call: Call) -> Awaitable[Json]:
        """Starts one call through the chain and returns an awaitable of its result."""
        within = call.within is not None
        run = (self._composed_within if within else self._composed).get(call.route)
        return (run or self._compose(call.route, within=within))(call)

    def _compose(self, route: Route, *, within: bool) -> Next:
        composed = self._composed_within if within else self._composed
        composed[route] = run = compose(self._concerned(route, self.policies, within=within), self._innermost)
        return run

    @staticmethod
    def _concerned(route: Route, policies: Sequence[Policy], *, within: bool) -> list[Policy]:
        return [policy for policy in policies if policy.concerns(route) or (within and policy.always_within)]

    def compose_behind(self, policy: Policy, call: Call, innermost: Next | None = None) -> Next:
        """Composes the policies behind `policy` that concern a call, around `innermost` if it is given."""
        index = self.policies.index(policy) + 1
        concerned = self._concerned(call.route, self.policies[index:], within=call.within is not None)
        return compose(concerned, innermost or self._innermost)

    def insert(self, policy: Policy, after: Policy) -> None:
        """Inserts a policy behind another one; calls that are running are not affected."""
        if policy not in self.policies:
            index = self.policies.index(after) + 1
            self.policies = (*self.policies[:index], policy, *self.policies[index:])
            self._composed.clear()
            self._composed_within.clear()

    def shape(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Applies `shape` of every policy to the items, innermost first."""
        for policy in reversed(self.policies):
            items = policy.shape(items)
        return tuple(items)


def compose(policies: Sequence[Policy], innermost: Next) -> Next:
    """Returns one callable that runs the policies outside in, then `innermost`."""
    call_next = innermost
    for policy in reversed(policies):
        call_next = partial(policy.__call__, call_next=call_next)
    return call_next
