"""The data-flow policy: one session must not combine private data, untrusted content and a way out.

With all three, content written by a stranger can make a model send private data away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, get_args

from mcp_hub.catalog import Route
from mcp_hub.catalog.names import EXPRESSION
from mcp_hub.config.field_types import Duration
from mcp_hub.config.fields import FieldValue
from mcp_hub.config.models import Config, Server
from mcp_hub.config.settings import EntryKey, Frozen, KeyReading, RootKey, model_key
from mcp_hub.errors import CallError, PermissionDenied
from mcp_hub.observability.stalls import in_slices
from mcp_hub.policy import Call, Json, Next, Policy, PolicyParts
from mcp_hub.policy.patterns import Patterns
from mcp_hub.policy.rule_names import RuleNames
from mcp_hub.policy.sharing import Sharing
from mcp_hub.policy.uri_rules import UriRules, completed_route, completed_values
from mcp_hub.protocol.kinds import KINDS, TEMPLATES
from mcp_hub.security.callers import Caller, CallerSlot

Label = Literal["reads_private", "reads_untrusted", "writes_external"]
Labels = Mapping[Label, tuple[str, ...]]
"""Label -> patterns over the original names and URIs that it applies to."""
FlowMode = Literal["off", "warn", "refuse"]

Used = tuple[float, frozenset[Label]]
"""When a caller was last active, and the labels that it has used."""
ALL: Final[frozenset[Label]] = frozenset(get_args(Label))


class FlowSettings(Frozen):
    """Flows: which labels of tools one session may combine."""

    OFF: ClassVar[Mapping[str, Any]] = {"mode": "off"}
    SHORT: ClassVar[Mapping[type, str]] = {str: "mode"}

    mode: FlowMode = "off"
    """`refuse`: the call that would complete the three labels is refused; `warn`: records show the labels."""
    window: Duration = 3600.0
    """Inactivity after which a principal of the modern era, which has no sessions, starts again without labels."""


def _read_labels(field: FieldValue, reading: KeyReading) -> Labels:
    """Reads labels: a list applies to all tools of the server, a mapping says which label applies to which names."""
    label_names = get_args(Label)
    value, findings = field.value, reading.findings
    if isinstance(value, list) and all(isinstance(label, str) for label in value):
        value = {label: ["*"] for label in value}
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        findings.error(field.at, f"must be a list of {', '.join(label_names)}, or a mapping of them to names")
        return {}
    labels: dict[Label, tuple[str, ...]] = {}
    for label, names in value.items():
        patterns = [names] if isinstance(names, str) else names
        if label not in label_names:
            findings.error((*field.at, label), f"is not a label; the labels are {', '.join(label_names)}")
        elif not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            findings.error((*field.at, label), "must be a name, a pattern, or a list of them")
        else:
            labels[label] = tuple(patterns)
    return labels


FLOWS: Final = RootKey("flows", model_key(FlowSettings), FlowSettings(), restricts=True)
LABELS: Final[EntryKey[Labels]] = EntryKey("labels", _read_labels, {}, restricts=True)
"""What its tools do, for `flows`: `reads_private`, `reads_untrusted`, `writes_external`; a list, or a mapping of these
to names."""


def _uri_rules(patterns: Sequence[str]) -> UriRules:
    """Returns rules that cover the URIs which a template of `patterns` makes, not only the template."""
    return UriRules((*patterns, *(EXPRESSION.sub("*", pattern) for pattern in patterns)))


class UsedLabels:
    """The labels that each caller has used, and when it was last active. It outlives configurations."""

    def __init__(self) -> None:
        self._of = CallerSlot[Used]()
        self._published = CallerSlot[tuple[float, frozenset[Label] | None]]()
        """The labels that the other replicas know, and when they got them."""

    def labels(self, caller: Caller, since: float) -> frozenset[Label]:
        """Returns the labels of a caller; none if it was last active before `since`."""
        at, labels = self._of.get(caller, (since, frozenset[Label]()))
        return labels if at >= since else frozenset()

    def note(self, caller: Caller, now: float, labels: frozenset[Label]) -> Used:
        """Records all labels that a caller has used so far, and returns the entry for `take_back`."""
        self._of[caller] = entry = (now, labels)
        return entry

    def take_back(self, caller: Caller, entry: Used, labels: frozenset[Label]) -> None:
        """Replaces the labels of an entry, unless another call has recorded its own, which must stay."""
        if self._of.get(caller) is entry:
            self.note(caller, entry[0], labels)

    def needs_publishing(self, caller: Caller, now: float, labels: frozenset[Label], every: float) -> bool:
        """Returns whether to send labels to other replicas: they lack them, or got them `every` seconds ago."""
        at, published = self._published.get(caller, (now, None))
        return published != labels or now - at >= every

    def mark_published(self, caller: Caller, at: float, labels: frozenset[Label]) -> None:
        """Records that the other replicas know of labels."""
        self._published[caller] = at, labels

    def merge(self, caller: Caller, at: float, labels: frozenset[Label], window: float) -> None:
        """Adds labels that a caller has used at another replica, at the time `at`.

        Labels from more than `window` seconds before are dropped.
        """
        last_active, _ = self._of.get(caller, (at, frozenset[Label]()))
        all_labels = self.labels(caller, at - window) | labels
        self.note(caller, max(last_active, at), all_labels)
        self.mark_published(caller, at, all_labels)


class FlowRefused(PermissionDenied):
    """The call would combine all three labels in one session.

    The server got no request, unless the labels are those of names in its answer, which is withheld.
    """

    policy, refuses = "flow", True


class FlowPolicy(Policy):
    """Refuses the call that would combine all three labels in one session. Labels come from the configuration only.

    A session is a connection or session of the handshake era; in the modern era it is a principal, until it has been
    inactive for `flows.window` seconds.
    """

    name = "flow"
    keys = (FLOWS, LABELS)

    def __init__(
        self,
        servers: Mapping[str, Server],
        flows: FlowSettings,
        used: UsedLabels,
        clock: Callable[[], float] = time.monotonic,
        sharing: Sharing | None = None,
    ) -> None:
        self._flows = flows
        self._sharing = sharing or Sharing()
        self._clock = clock
        self._labels = {
            id: [(label, Patterns(names), _uri_rules(names)) for label, names in LABELS.of(server).items()]
            for id, server in servers.items()
        }
        self._used = used

    @staticmethod
    def rule_names(config: Config) -> Iterator[RuleNames]:
        """Yields the names that labels apply to."""
        for server in config.servers:
            for label, names in LABELS.of(server).items():
                yield RuleNames(f"servers.{server.id}.labels.{label}", names, server.id, KINDS)

    @classmethod
    def of(cls, parts: PolicyParts) -> FlowPolicy:
        """Makes the policy of a configuration."""
        return cls(parts.servers, FLOWS.of(parts.config), parts.used, sharing=parts.sharing)

    def concerns(self, route: Route) -> bool:
        """Returns whether the route has a label."""
        if self._flows.mode == "off":
            return False
        return bool(self._labels.get(route.upstream)) if route.kind is TEMPLATES else bool(self.labels(route))

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Runs the call. Raises FlowRefused if the session would then have all three labels."""
        if self._flows.mode == "off":
            return await call_next(call)
        labels = self.labels(completed_route(call))
        if call.route.kind is not TEMPLATES:
            await self._use(call, labels, executed=False)
            return await call_next(call)
        labels |= self.labels(call.route)
        await self._use(call, labels, executed=False)
        result = await call_next(call)
        await self._use(call, await in_slices(self._labels_of_values(call, result)) - labels, executed=True)
        return result

    def _labels_of_values(self, call: Call, result: Json) -> Generator[None, None, frozenset[Label]]:
        """Returns the labels of all URIs that the answer to a completion names, in steps."""
        labels = frozenset[Label]()
        for _, route in completed_values(call, result):
            yield
            labels |= self.labels(route)
            if route.kind is TEMPLATES:  # arguments are missing: it may become any of these URIs
                of_server = self._labels.get(route.upstream, ())
                labels |= {label for label, _, uris in of_server if uris.admits_some(route.name)}
        return labels

    async def _use(self, call: Call, labels: frozenset[Label], *, executed: bool) -> None:
        """Records the labels of a call, or of its answer. Raises FlowRefused if the session would then have all."""
        if not labels:
            return
        now = self._clock()
        previous_labels = self._used.labels(call.caller, now - self._flows.window)
        all_labels = previous_labels | labels
        call.notes.append(f"flow: {', '.join(sorted(all_labels))}")
        is_refused = all_labels >= ALL and self._flows.mode == "refuse"
        entry = self._used.note(call.caller, now, previous_labels if is_refused else all_labels)
        if is_refused:
            call.refused_by = "flows"
            text = (
                f"This session has used {', '.join(sorted(previous_labels))}; with {', '.join(sorted(labels))} of "
                f"{call.route.upstream!r} private data could be sent to a stranger. Begin a new session "
                "for it (setting: flows)."
            )
            raise FlowRefused(text, server=call.route.upstream, executed=executed)
        if self._sharing.publish is not None and self._used.needs_publishing(
            call.caller, now, all_labels, self._flows.window / 2
        ):
            await self._publish(call, entry, previous_labels)

    async def _publish(self, call: Call, entry: Used, previous_labels: frozenset[Label]) -> None:
        """Sends the labels to the other replicas before the call runs. With `refuse`, raises CallError if it fails."""
        now, labels = entry
        try:
            await self._sharing.broadcast("used", call.caller, [sorted(labels), time.time()])
        except CallError:
            if self._flows.mode == "refuse":
                self._used.take_back(call.caller, entry, previous_labels)
                raise
        else:
            self._used.mark_published(call.caller, now, labels)

    def labels(self, route: Route) -> frozenset[Label]:
        """Returns the labels of a route."""
        return frozenset(
            label
            for label, names, uris in self._labels.get(route.upstream, ())
            if (uris.covers(route.name) if route.kind.by_uri else names.match(route.name))
        )
