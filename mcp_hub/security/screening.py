"""The screen: flags suspicious texts and characters in the instructions and items of a server.

It does no I/O and takes bounded time for any input. It proves nothing: an honest text may be flagged, a clever one
may not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Generator, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any, Final

import msgspec

from mcp_hub.protocol.kinds import PROMPTS, RESOURCES, SKILLS, TEMPLATES, TOOLS, Kind
from mcp_hub.text import (
    BIDI,
    CONTROL,
    INVISIBLE,
    TAGS,
    find_hidden_characters,
    fold_text,
    hidden_characters,
)

WINDOW: Final = 400
"""Characters within which all parts of a rule must match, about three sentences."""
_STRIDE: Final = 200
_PIECE: Final = 8192
_LONGEST: Final = 1024
"""Characters by which pieces of a text overlap; no phrase matches more."""


class PoisoningRule(msgspec.Struct, frozen=True, dict=True):
    """A rule for folded text (lower case, single spaces): any of `phrases`, and all of `near` close to it."""

    name: str
    description: str
    """What it finds, for the user."""
    words: str
    """Separated by commas; blanks are part of the words."""
    phrases: tuple[str, ...]
    near: tuple[str, ...] = ()
    report_only: bool = False
    """Whether a match is only reported and never hides an item."""

    @cached_property
    def _words(self) -> tuple[str, ...]:
        return tuple(self.words.split(","))

    @cached_property
    def _compiled(self) -> tuple[re.Pattern[str], tuple[re.Pattern[str], ...]]:
        return re.compile("|".join(self.phrases)), tuple(re.compile(expression) for expression in self.near)

    def find(self, text: str) -> Iterator[int | None]:
        """Searches folded text in steps of a few milliseconds: yields None after each, and the index of a match."""
        if not any(word in text for word in self._words):
            return
        pattern, near_patterns = self._compiled
        # Overlapping windows, so that no match is cut, nor can many partial matches hide a complete one.
        window, stride, per_step = (WINDOW, _STRIDE, 20) if near_patterns else (_PIECE, _PIECE - _LONGEST, 1)
        for number, start in enumerate(range(0, max(1, len(text) - (window - stride)), stride), 1):
            end = start + window
            match = pattern.search(text, start, end)
            if match is not None and not near_patterns and match.end() == end < len(text):
                match = None  # it may be the beginning of another word; the next piece has all of it
            if match is not None and all(near.search(text, start, end) is not None for near in near_patterns):
                yield match.start()
                return
            if number % per_step == 0:
                yield None


def match_rules(text: str) -> Iterator[tuple[PoisoningRule, int] | None]:
    """Yields (rule, index of its match) for every rule that folded text matches, and None after every step."""
    for rule in RULES:
        for index in rule.find(text):
            yield None if index is None else (rule, index)
        yield None


_NOT: Final = r"\b(?:do not|don'?t|never|without|must not|should not|avoid|no need to)"
_SECRETLY: Final = r"(?:silently|secretly|covertly|quietly|discreetly)"
_TOOLS: Final = r"(?:tools?|functions?|commands?|actions?|requests?|operations?|tool calls?|messages?)"
_HOME: Final = r"(?:~|\$home|%userprofile%|/home/[^/ ]{1,64}|/root|/users/[^/ ]{1,64})[/\\]\."
_PRAISE: Final = (
    r"(?:best|superior|most (?:reliable|accurate|powerful|trusted|trustworthy|secure|advanced|capable|efficient"
    r"|effective|popular|comprehensive))"
)

RULES: Final = (
    PoisoningRule(
        "hidden-instructions",
        "instructions marked off from the description, as only a model would read them",
        "<,[important,[system,[inst,[critical,[hidden,### system,### instruction",
        (
            r"<\s?/?\s?(?:important|system[-_]?(?:prompt)?|instructions?|secret|hidden|critical|assistant|admin|override"
            r"|priority|mandatory|internal|model|llm|ai|agent|note[-_]to[-_](?:ai|model|llm))(?:[ :_-][^<>]{0,40})?>",
            r"<!--",
            r"<\|(?:im_start|im_end|system|user|assistant|endoftext)[^<>]{0,20}\|>",
            r"\[/?(?:important|system|inst|critical|hidden|instructions?)(?:[\] :])",
            r"### ?(?:system|instructions?)\b",
        ),
    ),
    PoisoningRule(
        "ignore-instructions",
        "asks to ignore, forget or override instructions",
        "ignor,disregard,forget,overrid,bypass,overrul,supersed,not follow",
        (
            r"\b(?:ignor(?:e|es|ing)|disregard(?:s|ing)?|forget|overrid(?:e|es|ing)|bypass(?:es|ing)?"
            r"|overrul(?:e|es|ing)|supersed(?:e|es|ing)|(?:do|must|should) not follow)\b"
            r"(?: (?:all|any|every|of|the|your|my|its|these|those|this|each|other|and)){0,4}"
            r" (?:previous|prior|above|earlier|preceding|existing|other|system|safety|original|initial|security"
            r"|foregoing|developer'?s?|user'?s?|default)"
            r"(?: (?:and|or|system|safety|security|tool|previous|other)){0,3}"
            r" (?:instructions?|rules?|prompts?|directives?|guidelines?|guardrails?|polic(?:y|ies)|context|messages?"
            r"|restrictions?|descriptions?|checks?|constraints?|requests?|commands?|preferences?)",
        ),
    ),
    PoisoningRule(
        "hide-from-user",
        "asks to keep something from the user",
        "do not,don't,dont ,never,without,must not,should not,hide,conceal,keep,withhold,invisible,avoid,no need"
        ",user,human,person,silently,secretly,covertly,quietly,discreetly",
        (
            _NOT + r"(?: (?:ever|even|first|explicitly|the|user|to|you)){0,3}"
            r" (?:mention|tell|inform|reveal|disclose|notify|show|say|display|explain|alert|warn|expose|share|report"
            r"|discuss|telling|informing|mentioning|notifying|alerting|revealing|disclosing|showing|prompting|letting)\b",
            r"\b(?:hide|conceal|keep|hidden|invisible|withhold)"
            r"(?: (?:this|it|that|them|the|these|secret|hidden|all|any|fact)){0,4} from\b",
            r"\b(?:user|human|person)s? (?:must|should|does|do|need|may|can|will) ?(?:not|never|n't)"
            r" (?:(?:be|ever|need|to) ){0,3}(?:know|see|notice|learn|told|aware|informed|notified|find)",
            rf"\b{_SECRETLY} (?:\w{{1,20}} ){{0,2}}(?:send|read|copy|forward|include|append|upload|collect|call|run"
            r"|execute|add|pass|log|record|exfiltrate|store|bcc)",
        ),
        near=(rf"\b(?:users?|humans?|them|anyone|people|person|he|she|owner|{_SECRETLY})\b",),
    ),
    PoisoningRule(
        "secret-files",
        "names files in which secrets are kept",
        ".ssh,id_rsa,id_dsa,id_ed25519,id_ecdsa,.aws,.env,passwd,shadow,sudoers,.netrc,.npmrc,.pypirc,git-credentials"
        ",.kube,keychain,authorized_keys,_history,wallet.dat,mcp.json,desktop_config,.gnupg,.docker,gcloud,login data"
        ",cookies.sqlite,.pgpass,private key,private_key,private-key,ssh key,reading_ssh,/.cursor,/.claude",
        (
            _HOME + r"(?:ssh|aws|gnupg|kube|config/gcloud|docker|cursor|claude|netrc|npmrc|pypirc|pgpass"
            r"|git-credentials|bash_history|zsh_history)",
            r"\bid_(?:rsa|dsa|ed25519|ecdsa)\b",
            r"\.ssh[/\\]",
            r"\.aws[/\\](?:credentials|config)",
            r"/etc/(?:passwd|shadow|sudoers)",
            r"(?<![\w.])\.env(?:\.\w{1,20})?\b(?! ?(?:variable|var\b))",
            r"\.git-credentials|\.kube[/\\]config|\bauthorized_keys\b|\.(?:bash|zsh)_history|\bwallet\.dat\b",
            r"\bmcp\.json\b|claude_desktop_config|\.docker[/\\]config|cookies\.sqlite|\blogin data\b|\bkeychain\b",
            r"ssh[ _-]private[ _-]key|reading_ssh|contents? of (?:the |your )?(?:ssh|private) key",
        ),
    ),
    PoisoningRule(
        "pass-secrets-on",
        "asks for secrets or the conversation to be put into arguments, results or messages",
        "pass,send,includ,put,append,forward,provide,submit,upload,encode,supply,insert,attach,copy,paste,write,add"
        ",embed,transmit,exfiltrate,leak,bcc,summar,repeat,fill",
        (
            r"\b(?:pass|send|includ(?:e|ing)|put|append|forward|provide|submit|upload|encode|supply|insert|attach|copy"
            r"|paste|write|add|embed|transmit|exfiltrate|leak|bcc|summari[sz]e|repeat|fill)\b",
        ),
        near=(
            r"conversations?\b|chat history|(?:previous|prior|all|user'?s?) (?:messages|prompts|tool calls)"
            r"|system prompt|credentials?\b|api[ _-]?keys?\b|passwords?\b|private keys?\b"
            r"|(?:access |auth |session )tokens?\b|secrets\b|environment variables|\benv vars?\b|contents? of"
            r"|(?:its|their|file) contents?|history\b|cookies?\b",
            r"\b(?:parameter|argument|field|sidenote|side note|note|notes|subject|body|header|footer|query string"
            r"|context|metadata|attachment|endpoint|webhook|our server|to the server|remote server)\b"
            r"|https?://|@[\w-]{1,60}\.[a-z]{2,10}",
            r"\b(?:must|always|otherwise|required|first|before|mandatory|importantly?|will not work|won't work|needs?"
            r"|ensure|every|all|do not|never|verbatim|whole|entire|full|exact|silently|secretly|please|also"
            r"|necessary)\b",
        ),
    ),
    PoisoningRule(
        "sends-to-an-address",
        "names an address of its own that something is to be sent to",
        "@",
        (
            r"(?<![\w.+-])[\w.+-]{1,64}@(?!example\.|[\w-]{1,60}\.(?:example|test|invalid)\b|(?:domain|company|email|host"
            r"|yourdomain|mycompany)\.)[\w-]{1,60}(?:\.[\w-]{2,20}){1,3}",
        ),
        near=(
            r"\b(?:send|sent|sends|sending|forward|copy|copies|copied|e-?mail|cc|bcc|notify|notified|report|loop|inform"
            r"|tell|upload|share|deliver|post|go to|let)\b",
        ),
    ),
    PoisoningRule(
        "before-other-tools",
        "wants to be called before, after or instead of the other tools",
        "tool,function,action,request,command,operation,conversation,message,session",
        (
            r"\b(?:before|prior to|after|instead of|rather than|ahead of|in place of|on)"
            r"(?: (?:you|using|calling|running|invoking|executing|performing|making|use|call|run|taking|answering"
            r"|doing)){0,2} (?:any|every|all|each)(?: of)?(?: (?:the|other|another|further|subsequent|single)){0,2} "
            + _TOOLS
            + r"\b",
            r"\b(?:at the|on|with) (?:beginning|start|every turn) of (?:every|each|any|the) (?:conversation|session"
            r"|message|turn|chat)",
            r"\b(?:all|every|any) other (?:tools?|functions?) (?:\w{1,20} ){0,2}(?:deprecated|broken|unsafe|insecure"
            r"|disabled|unavailable|obsolete|fail|must not|should not)",
        ),
    ),
    PoisoningRule(
        "telltale-parameters",
        "a parameter that no tool needs but to be told secrets",
        "property ",
        (
            r"^property (?:side_?notes?|(?:full_|whole_|entire_)?(?:conversation|chat|tool_call|message)_?history"
            r"|(?:full_|whole_|entire_)conversation|system_?prompts?|chain_?of_?thoughts?"
            r"|(?:hidden|secret)_?(?:notes?|context|instructions?)|contents?_(?:from|of)_(?:reading_)?\w{1,60}"
            r"|tools?_?list|available_tools|user_?secrets?)$",
        ),
    ),
    PoisoningRule(
        "redirects-other-tools",
        "changes what other tools or the user would do",
        "recipient,number,destination,address,payee,beneficiary,even if,regardless,no matter,whatever,all email"
        ",all e-mail,all message,all payment,all file,all transaction,all request,behavio",
        (
            r"\b(?:change|set|replace|redirect|modify|swap|substitute|rewrite|alter)"
            r"(?: (?:the|its|all|any|every|their)){0,2}"
            r" (?:recipients?|phone numbers?|destinations?|(?:wallet|email|mail|payment|target|delivery)"
            r" address(?:es)?|payees?|beneficiary|account numbers?)\b",
            r"\b(?:even if|regardless of (?:what|whether|which)|no matter (?:what|which|who)|whatever)"
            r"(?: recipient| address)? (?:the )?(?:user|human)s?"
            r" (?:specif|ask|say|said|request|want|tell|told|decline|refuse|object|instruct)",
            r"\ball (?:e-?mails?|messages?|payments?|files?|transactions?|requests?)"
            r" (?:must|should|have to|need to|shall)(?: always)? (?:be sent|go|be forwarded|be routed|be copied"
            r"|include|be cc|be bcc|pass through)",
            r"\b(?:changes?|alters?|modif(?:y|ies)) the behaviou?rs? of (?:the )?(?:\S{1,60} )?"
            r"(?:tools?|function|server)",
        ),
    ),
    PoisoningRule(
        "new-role",
        "gives the model a new role or new rules",
        "you are now,no longer,from now on,act as,new instruction,new system,new rule,new directive,mode,jailbreak"
        ",pretend,system prompt,unrestricted,system:,system :",
        (
            r"\byou are (?:now|no longer)\b(?! (?:able|connected|logged|ready|authenticated))",
            r"\bfrom now on,? (?:you|always|all|every|do not|never)\b",
            r"\bact as (?:if you|though you|an unrestricted|the system|root\b|an admin)",
            r"\bnew (?:system )?(?:instructions?|rules?|directives?) ?:",
            r"\b(?:developer|god|admin|dan) mode (?:on|enabled|activated|is)",
            r"\bunrestricted (?:mode|ai|assistant|agent)",
            r"\bjailbreak|\bpretend (?:that )?(?:you|to be)|(?:^|[.\]>] )system ?: ",
            r"\b(?:reveal|repeat|print|output|show|leak|copy|include|provide)"
            r"(?: (?:me|us|your|the|full|entire|whole|complete|verbatim)){0,4} system prompt",
        ),
    ),
    PoisoningRule(
        "runs-commands",
        "holds commands of the kind that fetch and run something",
        "curl,wget,rm -rf,| sh,|sh,bash,base64,powershell,chmod,nc -,os.system,eval(,eval (,/dev/tcp,invoke-expression",
        (
            # Only from the last command of a row, as a text may have thousands of them.
            r"\b(?:curl|wget)\b(?:(?!\b(?:curl|wget)\b)[^|;]){0,200}\| ?(?:sudo )?(?:ba|z|da)?sh\b",
            r"\b(?:curl|wget)(?= )(?:(?!\b(?:curl|wget) )[^|;]){0,200}(?:--data|--post| -d | -x post)",
            r"\b(?:curl|wget) (?:(?!\b(?:curl|wget) )[^|;]){0,200} -f ",
            r"\brm -rf (?:/|~|\$)|\| ?(?:sudo )?(?:ba|z)sh\b|base64 (?:-d|--decode)|chmod \+x [^ ]{1,100} ?&&",
            r"powershell(?:\.exe)? -e(?:nc)?|\bnc -e|/dev/tcp/|\bos\.system ?\(|\binvoke-expression\b|\beval ?\(",
        ),
    ),
    PoisoningRule(
        "markdown-image",
        "an image whose address can carry data away when it is shown",
        "](http",
        (r"!\[[^\]]{0,200}\]\(https?://",),
    ),
    PoisoningRule(
        "preference",
        "praises itself to be preferred to other tools",
        "best,most ,superior,only tool,only server,only function,prefer,than ,#1,number one,always,must,other tool"
        ",other server,alternative,similar,priority",
        (
            r"\b(?:always|must) (?:use|choose|select|prefer|pick|call) this (?:tool|function|one|server)\b",
            r"\bprefer this (?:tool|function|one|server|over)",
            rf"\b(?:the|is|as) {_PRAISE} (?:\w{{1,20}} ){{0,3}}(?:tool|function|server|choice|option|service|one"
            r"|available)\b",
            r"\b(?:better|faster|safer|superior|more (?:reliable|accurate|secure|efficient))(?: than| to)"
            r" (?:any|all|every|the)(?: of)?(?: the)? (?:other|alternative)",
            r"\b(?:do not|don't|never|avoid) (?:use|using|call|calling|rely on) (?:any |the )?"
            r"(?:other|alternative|similar) (?:tools?|functions?|servers?)",
            r"#1 |\bnumber one (?:tool|choice|server)|\bhighest priority\b",
            r"\bonly (?:tool|server|function) you (?:need|should|may)",
        ),
        report_only=True,
    ),
)
"""The rules, in the order in which findings are reported."""


MAX_DESCRIPTION: Final = 4096
"""Characters of one text; a longer one is flagged. Descriptions of real servers have a few hundred."""
MAX_INSTRUCTIONS: Final = 4096
"""Characters of a server's instructions that are passed on, and so read."""
MAX_LOOKED_AT: Final = 64 * 1024
"""Characters of one item that are read. An item with more is flagged."""
MAX_TEXTS: Final = 4000
"""Texts of one item that are read, keys of its schemas included."""
_MAX_DEPTH: Final = 64
_EXCERPT: Final = 60
_BLANK_LINES: Final = 12
_MIN_PHRASE: Final = 8
"""Characters; a shorter text, such as `string`, cannot be an instruction."""

MAX_OF_SERVER: Final = 2 * 1024 * 1024
"""Characters of all items of one server, which take half a second. Items beyond that are flagged unread."""

MAX_FOREIGN: Final = 10
"""Names of other servers' tools that are reported for one item."""

TOO_LONG: Final = "too-long"
PADDING: Final = "hidden-by-padding"
ENCODED: Final = "encoded-text"
FOREIGN_TOOLS: Final = "names-other-tools"

RULE_DESCRIPTIONS: Final[Mapping[str, str]] = {
    CONTROL: "control characters, which steer a terminal or break a line",
    BIDI: "characters that turn the direction of writing",
    INVISIBLE: "characters that cannot be seen",
    TAGS: "tag characters, an alphabet that cannot be seen",
    TOO_LONG: "longer than a description has to be",
    PADDING: "text pushed out of sight by blanks or empty lines",
    ENCODED: "a long encoded text that nobody can read",
    **{rule.name: rule.description for rule in RULES},
    FOREIGN_TOOLS: "names a tool of another server",
}
"""Rule -> what it finds."""
REPORT_ONLY: Final = frozenset({FOREIGN_TOOLS, *(rule.name for rule in RULES if rule.report_only)})
"""Rules that never hide an item, as they cannot show intent."""
HIDDEN_CHARACTER_RULES: Final = frozenset({CONTROL, BIDI, INVISIBLE, TAGS})

_ENCODED: Final = re.compile(r"(?<![A-Za-z0-9+/_=-])(?=[A-Za-z0-9+/_-]{0,119}\d)[A-Za-z0-9+/_-]{120,}+")
_SPACES: Final = re.compile(r"(?<![ \t\u00a0\u3000])[ \t\u00a0\u3000]{80,}+(?=\S)")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_DISTINCT: Final = re.compile(r"[A-Za-z0-9][_.\-][A-Za-z0-9]|[a-z][A-Z]")
"""Matches names that are not words of prose."""


class Flag(msgspec.Struct, frozen=True):
    """One finding: its rule, the part of the item, and the text around it, which may not be safe to print."""

    rule: str
    where: str
    excerpt: str


class Budget:
    """The characters that may still be read."""

    def __init__(self, characters: int = MAX_OF_SERVER) -> None:
        self.remaining = characters


def names_of(kind: Kind, wire: Any) -> Iterator[tuple[str, str]]:
    """Yields (key, text) of the names of an item."""
    if isinstance(wire, dict):
        for key in dict.fromkeys((kind.name_key, "name")):
            if isinstance(wire.get(key), str):
                yield key, wire[key]
        if kind is not TOOLS and not wire.get("name") and isinstance(wire.get("title"), str):
            yield "title", wire["title"]  # it is listed as the name, too


def flags_of_names(kind: Kind, wire: Any) -> tuple[Flag, ...]:
    """Returns flags for hidden characters in the names of an item."""
    flags = []
    for where, text in names_of(kind, wire):
        # The name of a resource beside its URI is for people and may be in any script.
        matches = find_hidden_characters(text[:MAX_DESCRIPTION], name=where == kind.name_key, lines=False)
        flags += [Flag(rule, where, _excerpt(text, at)) for rule, at in matches]
    return tuple(flags)


def flags_of_item(
    kind: Kind,
    wire: Any,
    *,
    without: Collection[str] = (),
    max_description: int = MAX_DESCRIPTION,
    budget: Budget | None = None,
) -> tuple[Flag, ...]:
    """Returns all findings in an item. `without`: top-level keys whose texts do not come from the server."""
    steps = flags_in_steps(kind, wire, without, max_description, budget or Budget())
    return tuple(flag for flag in steps if flag is not None)


def flags_in_steps(
    kind: Kind, wire: Any, without: Collection[str], max_description: int, budget: Budget
) -> Iterator[Flag | None]:
    """Yields what `flags_of_item` returns, in steps of a few milliseconds: each finding, and None after every step."""
    yield from flags_of_names(kind, wire)
    yield from _flags(_texts_of(kind, wire, without), max_description, budget)


def flags_of_instructions(text: str, *, max_description: int = MAX_DESCRIPTION) -> tuple[Flag, ...]:
    """Returns all findings in the part of a server's instructions that is passed on, and whether they are too long."""
    texts = iter((("instructions", text.strip()),))
    return tuple(flag for flag in _flags(texts, max_description, Budget(MAX_INSTRUCTIONS)) if flag is not None)


def foreign_names(kind: Kind, wire: Any, tools: Container[str], own: Container[str] = ()) -> tuple[Flag, ...]:
    """Returns flags for names of foreign tools in the first `MAX_DESCRIPTION` characters of each description.

    A name that may be a word of prose, unlike `send_message`, counts only if the text calls it a tool.
    """
    flags: list[Flag] = []
    reported: set[str] = set()
    remaining = MAX_LOOKED_AT
    for where, text in islice(_texts_of(kind, wire, ()), MAX_TEXTS):
        if not where.endswith("description") or remaining <= 0:
            continue
        remaining -= min(len(text), MAX_DESCRIPTION)
        for match in _NAME.finditer(text[:MAX_DESCRIPTION]):
            if len(reported) == MAX_FOREIGN:
                return tuple(flags)
            name = match[0].rstrip(".-")
            end = match.start() + len(name)
            is_foreign = name in tools and name not in own
            is_meant = is_foreign and (is_distinct(name) or _is_called_a_tool(text, match.start(), end))
            if is_meant and name not in reported:
                reported.add(name)
                flags.append(Flag(FOREIGN_TOOLS, where, _excerpt(text, match.start())))
    return tuple(flags)


def is_distinct(name: str) -> bool:
    """Returns whether a tool's name is unlikely to be in prose by chance."""
    return _DISTINCT.search(name) is not None


def _is_called_a_tool(text: str, start: int, end: int) -> bool:
    before, after = text[max(0, start - 6) : start].lower(), text[end : end + 10].lower()
    is_quoted = before[-1:] in "`'\"" and after[:1] in "`'\"" and bool(before) and bool(after)
    return (is_quoted and "tool" in text[max(0, start - 30) : end + 30].lower()) or after.lstrip("`'\" ").startswith(
        "tool"
    )


def _flags(texts: Iterator[tuple[str, str]], max_description: int, budget: Budget) -> Iterator[Flag | None]:
    remaining = MAX_LOOKED_AT
    reported_rules: set[str] = set()
    for number, (where, text) in enumerate(texts):
        remaining = min(remaining, budget.remaining)
        if remaining <= 0 or number == MAX_TEXTS:
            if TOO_LONG not in reported_rules:
                yield Flag(TOO_LONG, where, "not screened from here on")
            return
        screened = text[:remaining]
        remaining -= len(screened) + 1
        budget.remaining -= len(screened) + 1
        for flag in _flags_of_text(where, text, screened, max_description, budget):
            # One flag for each rule is enough.
            if flag is None:
                yield None
            elif flag.rule not in reported_rules:
                reported_rules.add(flag.rule)
                yield flag


def _flags_of_text(
    where: str, text: str, screened: str, max_description: int, budget: Budget
) -> Generator[Flag | None]:
    for hidden in hidden_characters(screened):
        yield None if hidden is None else Flag(hidden[0], where, _excerpt(screened, hidden[1]))
    yield None
    if len(text) > max_description:
        yield Flag(TOO_LONG, where, f"{len(text):,} characters")
    if len(screened) < _MIN_PHRASE:
        return
    if (padding := _padding(screened)) is not None:
        yield Flag(PADDING, where, _excerpt(screened, padding))
    if len(screened) >= 120 and (encoded := _ENCODED.search(screened)) is not None:
        yield Flag(ENCODED, where, _excerpt(screened, encoded.start()))
    yield None
    plain, is_complete = yield from fold_text(screened)
    budget.remaining -= max(0, len(plain) - len(screened))
    if not is_complete:
        yield Flag(TOO_LONG, where, "its characters stand for a text more than four times as long")
    for match in match_rules(plain):
        yield None if match is None else Flag(match[0].name, where, _excerpt(plain, match[1]))


def _padding(text: str) -> int | None:
    """Returns where text follows many empty lines or blanks; None if it does not."""
    if len(text) < _BLANK_LINES:
        return None
    spaces = _SPACES.search(text)
    if spaces is not None:
        return spaces.end()
    if text.count("\n") < _BLANK_LINES:
        return None
    start = empty_lines = 0
    for line in text.split("\n"):
        if not line.strip():
            empty_lines += 1
        elif empty_lines >= _BLANK_LINES and start > empty_lines:
            return start
        else:
            empty_lines = 0
        start += len(line) + 1
    return None


def _excerpt(text: str, at: int) -> str:
    start = max(0, at - 10)
    cut = text[start : at + _EXCERPT]
    return ("…" if start else "") + cut + ("…" if at + _EXCERPT < len(text) else "")


def _texts_of(kind: Kind, wire: Any, without: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yields (place, text) of all texts of an item that a model may read, keys of schemas included; not its name."""
    if not isinstance(wire, dict):
        return
    for key in ("title", "description"):
        if isinstance(wire.get(key), str) and key not in without:
            yield key, wire[key]
    if kind in (RESOURCES, TEMPLATES):
        return
    annotations = wire.get("annotations")
    if isinstance(annotations, dict) and isinstance(annotations.get("title"), str):
        yield "annotations.title", annotations["title"]
    if kind is TOOLS:
        for key in ("inputSchema", "outputSchema"):
            yield from _texts_inside(wire.get(key), key)
    elif kind is PROMPTS:
        yield from _texts_inside(wire.get("arguments"), "arguments")
    elif kind is SKILLS:
        yield from _texts_inside(wire.get("frontmatter"), "frontmatter")


def _texts_inside(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yields (place, text) of all texts of a JSON value, the keys of `properties` included."""
    # Iterators instead of lists, as queueing the members of a large object would block for tens of milliseconds.
    stack: list[Iterator[tuple[str, Any]]] = [iter(((where, value),))]
    while stack:
        at, member = next(stack[-1], ("", None))
        if not at:
            stack.pop()
        elif isinstance(member, str):
            yield at, member
        elif len(stack) > _MAX_DEPTH:
            continue
        elif isinstance(member, dict):
            stack.append(_members(member, at))
        elif isinstance(member, list):
            stack.append((f"{at}[{index}]", inner) for index, inner in enumerate(member))


def _members(value: dict[str, Any], at: str) -> Iterator[tuple[str, Any]]:
    holds_names = at.endswith((".properties", ".patternProperties", ".$defs", ".definitions"))
    for key, member in value.items():
        if holds_names:
            yield f"{at} (a name)", f"property {key}"
        yield f"{at}.{key[:60]}", member
