"""The confirm policy: a person is asked before the calls that the configuration names.

It also asks before a program calls a tool that may change something, as clients do not show such calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from mcp_hub.catalog import CALL, RUN, Route
from mcp_hub.config.extras import missing
from mcp_hub.config.field_types import Duration, Size
from mcp_hub.config.fields import FieldValue
from mcp_hub.config.models import Config, Server
from mcp_hub.config.settings import EntryKey, Frozen, KeyReading, RootKey, read_model
from mcp_hub.errors import CallError, PermissionDenied, ProtocolError
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy import Call, Json, Listed, Next, Policy, PolicyParts
from mcp_hub.policy.approvals import (
    MAX_QUESTION,
    NO,
    ONCE,
    SESSION,
    Approvals,
    ConfirmationQuestion,
    PendingConfirmation,
)
from mcp_hub.policy.call_record import Shown
from mcp_hub.policy.presentation import Preset
from mcp_hub.policy.rule_names import RuleNames
from mcp_hub.policy.selection import ToolNames
from mcp_hub.policy.sharing import Sharing
from mcp_hub.protocol.frames import encode, weighs_more
from mcp_hub.protocol.kinds import TOOLS, hints_of, only_reads
from mcp_hub.protocol.questions import ELICITATION, missing_capability, suspended
from mcp_hub.security.redaction import Redactor
from mcp_hub.text import unhidden

DESTRUCTIVE: Final = "destructive"
"""Stands for all tools but those whose annotations say that they only read, or are not destructive."""
CONFIRM_WAIT: Final = 240.0
"""Seconds for the person to answer."""
AT_ONCE: Final = 1.0
"""Seconds within which no person reads a question: a client that declines or cancels it by then has asked nobody."""
NOBODY: Final = "no answer"
_OF_PROGRAMS: Final = "code_mode.writes"
_ON_PAGE: Final = "With the live page open (`mcp-hub open`) the person can allow it there."
_QUOTED: Final = str.maketrans({"\\": "\\\\", "'": "\\'"})
_CHOICES: Final = {
    ONCE: "Once, with exactly these arguments",
    SESSION: "Every call of this tool in this session, whatever its arguments",
    NO: "No",
}


def _read_patterns(field: FieldValue, reading: KeyReading) -> tuple[str, ...] | None:
    value = [field.value] if isinstance(field.value, str) else field.value
    if not isinstance(value, list) or not all(isinstance(pattern, str) and pattern for pattern in value):
        reading.findings.error(field.at, f"must be a list of '{DESTRUCTIVE}' and names or patterns of tools")
        return None
    return tuple(value)


class CodeModeSettings(Frozen):
    """Code mode: programs of models that call tools, and what they may do without asking."""

    OFF: ClassVar[Mapping[str, Any]] = {"enabled": False}

    enabled: bool = False
    """Whether the hub offers `hub_run` beside the other tools; with `expose: code` it always does."""
    writes: bool = False
    """Whether programs call tools that may change something without asking the person."""
    calls: Annotated[int, Meta(ge=1, le=1000)] = 50
    """How many calls one program may make."""
    seconds: Duration = 30.0
    """How long a program may run, its calls included, but not while a person is asked."""
    memory: Size = 100_000_000
    """The most memory that the values of a program may take; likewise its calls until they are answered."""


def _read_code_mode(field: FieldValue, reading: KeyReading) -> CodeModeSettings | None:
    settings = read_model(CodeModeSettings, field.value, field.at, reading.findings)
    reason = missing("code_mode") if settings is not None and settings.enabled else None
    if reason is not None:
        reading.findings.warning(field.at, f"has no effect: {reason}")
    return settings


CONFIRM: Final[RootKey[tuple[str, ...]]] = RootKey("confirm", _read_patterns, (), restricts=True)
"""Tools that a person confirms before each call: `destructive`, `server/tool` patterns, own or exposed names."""
CONFIRM_OF_SERVER: Final[EntryKey[tuple[str, ...]]] = EntryKey("confirm", _read_patterns, (), restricts=True)
"""Its tools that a person confirms before each call: `destructive`, or patterns over their names."""
CODE_MODE: Final = RootKey("code_mode", _read_code_mode, CodeModeSettings(), restricts=True)


def named_tools(entries: Iterable[str]) -> tuple[str, ...]:
    """Returns the names and patterns of tools in a list of `confirm`."""
    return tuple(entry for entry in entries if entry != DESTRUCTIVE)


class NotConfirmed(PermissionDenied):
    """The call was not allowed: a person refused it, nobody answered or could be asked. The server got no request."""

    policy, refuses = "confirm", True


class _Rule:
    """One list of tools that need a confirmation. `setting` is its key in the configuration."""

    def __init__(self, setting: str, entries: Sequence[str], servers: Mapping[str, Server]) -> None:
        self.setting = setting
        self.destructive = DESTRUCTIVE in entries
        self.names = ToolNames(named_tools(entries), servers)


class Confirm(Policy):
    """Asks a person before calls, by elicitation or on the live page; refuses calls if neither can ask one.

    Args:
        config: The configuration.
        approvals: The tools that callers have allowed for their sessions.
        listed: Returns a tool as its server lists it to a caller.
        shown: Removes preset arguments from those that the person is shown.
        redactor: Masks the secrets of the configuration in them.
        in_program: Whether the hub runs inside a Python program, which has no person to ask.
        sharing: Sends approvals to the other replicas.
    """

    name = "confirm"
    keys = (CONFIRM, CONFIRM_OF_SERVER, CODE_MODE)
    always_within = True

    def __init__(
        self,
        config: Config,
        approvals: Approvals,
        listed: Listed,
        shown: Shown,
        redactor: Redactor,
        *,
        in_program: bool = False,
        sharing: Sharing | None = None,
    ) -> None:
        self._approvals = approvals
        self._sharing = sharing or Sharing()
        self._listed = listed
        self._without_preset = shown
        self._redactor = redactor
        self._writes = in_program or CODE_MODE.of(config).writes
        servers = {server.id: server for server in config.servers}
        self._root = _Rule("confirm", CONFIRM.of(config), servers)
        self._of_server = {
            server.id: _Rule(f"servers.{server.id}.confirm", entries, {server.id: server})
            for server in config.servers
            if (entries := CONFIRM_OF_SERVER.of(server))
        }
        self._of_profile = {
            profile.name: _Rule(f"profiles.{profile.name}.confirm", profile.confirm, servers)
            for profile in config.profiles
            if profile.confirm
        }

    @staticmethod
    def rule_names(config: Config) -> Iterator[RuleNames]:
        """Yields the tools that lists of `confirm` name."""
        yield RuleNames("confirm", named_tools(CONFIRM.of(config)), form="member")
        for profile in config.profiles:
            yield RuleNames(f"profiles.{profile.name}.confirm", named_tools(profile.confirm), form="member")
        for server in config.servers:
            names = named_tools(CONFIRM_OF_SERVER.of(server))
            yield RuleNames(f"servers.{server.id}.confirm", names, server.id, form="member")

    @classmethod
    def of(cls, parts: PolicyParts) -> Confirm:
        """Makes the policy of a configuration."""
        return cls(
            parts.config,
            parts.approvals,
            parts.listed,
            parts.find(Preset).without_preset,
            parts.redactor,
            in_program=parts.in_program,
            sharing=parts.sharing,
        )

    def concerns(self, route: Route) -> bool:
        """Returns whether calls of the route may need a confirmation."""
        rules = [self._root, *self._of_profile.values()]
        if (of_server := self._of_server.get(route.upstream)) is not None:
            rules.append(of_server)
        return route.kind is TOOLS and any(rule.destructive or route in rule.names for rule in rules)

    def asks_about(self, call: Call) -> bool:
        """Returns whether the person will be asked before the call."""
        return self._reason(call) is not None

    def __call__(self, call: Call, call_next: Next) -> Awaitable[Json]:
        """Runs the call if a person allows it or need not be asked. Raises NotConfirmed."""
        reason = self._reason(call)
        return call_next(call) if reason is None else self._run_confirmed(call, call_next, reason)

    # --- which calls -------------------------------------------------------------------------------------------

    def _reason(self, call: Call) -> str | None:
        """Returns the setting that requires a confirmation, None if none does."""
        route = call.route
        if call.method != TOOLS.act_method or route.kind is not TOOLS:
            return None
        rules = [self._root]
        if self._of_server and (of_server := self._of_server.get(route.upstream)) is not None:
            rules.append(of_server)
        if self._of_profile and (of_profile := self._of_profile.get(call.caller.profile or "")) is not None:
            rules.append(of_profile)
        setting = next((rule.setting for rule in rules if self._covers(rule, call)), None)
        if setting is None and call.within == RUN and not self._writes and not only_reads(self._wire(call)):
            setting = _OF_PROGRAMS
        return None if setting is None or self._approvals.has(call.caller, route) else setting

    def _covers(self, rule: _Rule, call: Call) -> bool:
        return call.route in rule.names or (rule.destructive and self._may_destroy(call))

    def _wire(self, call: Call) -> Json:
        return self._listed(call.route, call.caller) or {}

    def _may_destroy(self, call: Call) -> bool:
        """Returns whether a tool may be destructive. By the protocol, a tool without annotations may."""
        wire = self._wire(call)
        return not only_reads(wire) and hints_of(wire).get("destructiveHint") is not False

    # --- the question ------------------------------------------------------------------------------------------

    async def _run_confirmed(self, call: Call, call_next: Next, setting: str) -> Json:
        tool = f"{_quoted(call.route.name)} of {_quoted(call.route.upstream)}"
        missing = missing_capability(call.asker.capabilities, ELICITATION, {}) if call.asker is not None else ""
        on_page = self._approvals.pending.can_ask(call)
        if missing is not None and not on_page:
            remedy = "Use a client that has elicitation, or change the setting. "
            if setting == _OF_PROGRAMS:
                remedy = f"Call it outside of programs: itself if it is in your list, else by {CALL}. "
            page = f"{_ON_PAGE} " if call.asker is not None else ""
            raise _refusal(call, setting, f"A person must allow {tool}, and this client cannot ask one. {page}{remedy}")
        if call.confirmed and call.confirmed == await self._digest(call):  # it is sent once more
            return await call_next(call)
        question = await self._question(call, tool, setting)
        if question.too_long and not on_page:
            text = f"A person must allow {tool}, and its arguments have more than the {MAX_QUESTION:,} bytes"
            raise _refusal(call, setting, f"{text} that a client's question shows. {_ON_PAGE} ")
        answer, source = await self._answer(call, question, by_client=missing is None)
        call.notes.append(f"confirm: {answer}{source}")
        if answer not in (ONCE, SESSION):
            text = f"The client did not allow the call of {tool}: it answered {answer!r}."
            if answer == NO:
                text = f"The person did not allow the call of {tool}."
            elif answer == NOBODY:
                text = f"Nobody answered whether {tool} may be called. {_ON_PAGE}"
            raise _refusal(call, setting, f"{text} Do not try again unless a person asks for it. ")
        if await self._digest(call) != question.digest:
            raise _refusal(call, setting, f"The arguments of {tool} changed while the person was asked. ")
        call.confirmed = question.digest
        if answer == SESSION and _has_session(call):
            self._approvals.add(call.caller, call.route)
            with contextlib.suppress(CallError):  # then another replica asks the person again
                await self._sharing.broadcast("approved", call.caller, [call.route.upstream, call.route.name])
        return await call_next(call)

    async def _question(self, call: Call, tool: str, setting: str) -> ConfirmationQuestion:
        """Returns what a person is asked about a call."""
        large = weighs_more(call.params.get("arguments"))
        arguments = await in_thread(self._arguments, call) if large else self._arguments(call)
        size = len(arguments.encode("utf-8", "replace"))
        choices = [ONCE, SESSION, NO] if _has_session(call) else [ONCE, NO]
        return ConfirmationQuestion(tool, setting, arguments, size, await self._digest(call), choices)

    def _arguments(self, call: Call) -> str:
        """Returns the arguments without preset ones as JSON, a line each.

        Nothing is left out. Only secrets that the hub knows are masked: what merely looks like one may be a command.
        """
        lines = [
            unhidden(self._redactor.known(encode({name: value}).decode("utf-8", "replace")[1:-1]))
            for name, value in self._effective(call).items()
        ]
        return "{\n  " + ",\n  ".join(lines) + "\n}" if lines else "{}"

    async def _digest(self, call: Call) -> str:
        large = weighs_more(call.params.get("arguments"))
        return await in_thread(self._digest_of, call) if large else self._digest_of(call)

    def _digest_of(self, call: Call) -> str:
        return sha256(encode([call.route.upstream, call.route.name, self._effective(call)])).hexdigest()

    def _effective(self, call: Call) -> Json:
        """Returns the arguments that have an effect: the configuration replaces preset ones."""
        effective: Json = self._without_preset(call, call.params.get("arguments") or {})
        return effective

    async def _answer(self, call: Call, question: ConfirmationQuestion, *, by_client: bool) -> tuple[str, str]:
        """Returns (the answer, its source for notes).

        The answer is ONCE, SESSION, NO, NOBODY, or what a client answered that may have asked a person or nobody.
        """
        via = "" if call.within is None else f", which {call.within} is to call,"
        message = f"mcp-hub asks: may {question.tool}{via} be called with these arguments? {question.arguments}"
        if question.too_long:
            message = (
                f"mcp-hub asks: may {question.tool}{via} be called? Its arguments have {question.size:,} bytes, too "
                f"many for this question. Read them on the live page (`mcp-hub open`). SHA-256: {question.digest}"
            )
        choice_schema = {
            "type": "string",
            "title": "Allow the call",
            "description": "; ".join(f"{choice}: {_CHOICES[choice]}" for choice in question.choices if choice != NO),
            "enum": question.choices,
            "enumNames": [_CHOICES[choice] for choice in question.choices],
        }
        params: Json = {
            "message": message,
            "requestedSchema": {"type": "object", "properties": {"allow": choice_schema}, "required": ["allow"]},
        }
        entry, begun = call.questions.note(ELICITATION, "unanswered", by="mcp-hub"), time.monotonic()
        try:
            with suspended(call.deadlines), self._approvals.pending.open(call, question) as pending:
                async with asyncio.timeout(CONFIRM_WAIT):
                    result = await _first_answer(call, pending, params if by_client else None, entry)
        except TimeoutError:
            return NOBODY, ""
        except ProtocolError:
            return "error", ""
        if isinstance(result, str):
            entry["outcome"] = "accept" if result != NO else "decline"
            return result, ", on the live page"
        return _choice_of(result, question.choices, time.monotonic() - begun)


def _choice_of(result: Json, choices: Sequence[str], seconds: float) -> tuple[str, str]:
    """Returns the answer of a client and its source, as `Confirm._answer` does.

    Clients declare elicitation also where nobody is there, and decline or cancel at once (`claude -p`, `codex exec`).
    """
    action, content = result.get("action"), result.get("content")
    if action == "accept":
        choice = content.get("allow") if isinstance(content, dict) else None
        return next((known for known in choices if known == choice), "accept without a choice"), ""
    action = action if action in ("decline", "cancel") else "error"
    return (NOBODY, f", the client said {action} at once") if seconds < AT_ONCE else (action, "")


async def _first_answer(
    call: Call, pending: PendingConfirmation, params: Json | None, entry: dict[str, str]
) -> Json | str:
    """Returns the first of two answers: the result of the client, or the choice on the live page.

    If the page is first, the request to the client is cancelled. With `params` None the client is not asked. Raises
    ProtocolError if the client answers with an error.
    """
    waiting: set[asyncio.Future[Any]] = {pending.answer}
    if params is not None and call.asker is not None:
        waiting.add(asyncio.ensure_future(call.questions.answer_of(call.asker, ELICITATION, params, entry)))
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        answer: Json | str = (pending.answer if pending.answer in done else done.pop()).result()
        return answer
    finally:
        for future in waiting - {pending.answer}:
            future.cancel()
        await asyncio.gather(*waiting - {pending.answer}, return_exceptions=True)


def _quoted(name: str) -> str:
    """Returns a whole name in quotes; one outside ASCII also with escapes, as other scripts have equal letters."""
    shown = f"'{unhidden(name.translate(_QUOTED))}'"
    return shown if name.isascii() else f"{shown} ({name!a})"


def _has_session(call: Call) -> bool:
    """Returns whether an approval can be remembered: anonymous clients of the modern era cannot be told apart."""
    return not call.caller.is_several


def _refusal(call: Call, setting: str, text: str) -> NotConfirmed:
    call.refused_by = setting
    return NotConfirmed(f"{text}(setting: {setting})", server=call.route.upstream, executed=False)
