"""Rules about resource URIs. They compare one text of each URI, the one that `text_of` returns.

A rule that refuses applies if it covers this text, whatever a server ignores of it (`_forms`). A rule that allows
applies only if it covers both this text and the URI as it is written. A URI without a certain text is refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Final
from urllib.parse import unquote

from mcp_hub.catalog import Route, names
from mcp_hub.policy import Call, Json
from mcp_hub.policy.patterns import WILDCARDS, Patterns
from mcp_hub.protocol.kinds import RESOURCES, TEMPLATES
from mcp_hub.security.url_rules import MAX_READ_URI
from mcp_hub.security.urls import host_and_port
from mcp_hub.text import normalized

MAX_COMPARED_URI: Final = 8192
"""Characters of a URI that is compared; a longer one has no certain text."""
ROUNDS: Final = 3
"""Rounds of percent-decoding; what is encoded more often has no certain text."""
MAX_PARAMETERS: Final = 64
"""Parameters of one query that are compared. A query with more is refused, as a rule may refuse one of them."""

MAX_VALUES: Final = 100
"""Values of one completion; the protocol allows no more."""

_WILDCARD: Final = re.compile(r"(\{[^{}]*\})|\[!?\]?[^\]]*\]|[*?]")
_MARK: Final = "\ufdd0"
"""A noncharacter that stands for a wildcard of a rule while the rule is normalised."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.*?-]*")
"""A pattern for names of tools and prompts, such as `write_*`, which is not a rule about URIs."""
_UNCERTAIN: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_UNICODE_ESCAPE: Final = re.compile(r"%u[0-9a-f]{4}", re.IGNORECASE)
_DOTS: Final = re.compile(r"(?:^|[/:]) *\.[ .]*(?=[/;?#]|$)")
"""Matches a segment that some server reads as `.` or `..`, such as `...`, `. .` and `..;x`."""
_SHORT_NAME: Final = re.compile(r"(?:^|/)[^/.]{1,6}~[0-9]{1,6}(?:\.[^/.]{0,3})?(?=[/?#;]|$)")
"""Matches the short name that Windows gives to a file with a long name, such as `PRIVAT~1`."""
_LEAD: Final = re.compile(r"\s*file:([/\\]*)([^/\\]*)", re.IGNORECASE)
_SPLIT_HOST: Final = re.compile(r"\s*file://(?!/)[^/]*\\", re.IGNORECASE)
"""Matches a file URI with a backslash in its host, which ends elsewhere for those who take it for a slash."""
_DRIVE: Final = re.compile(r"([A-Za-z])[:|](?=/|$)")
_IGNORED_BY_WINDOWS: Final = re.compile(r"::\$[^/?#]*|(?<![ .])[ .]+(?=[/?#;:]|$)")
_STREAM: Final = re.compile(r"(?<=[^/:]{2}):[^/?#]*")
_TAIL: Final = re.compile(r"[?#;]")
_SLASHES: Final = re.compile(r"/{2,}")
_LOCAL_HOSTS: Final = frozenset({"", "localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}


def decoded(uri: str) -> str | None:
    """Returns a URI without escapes, lookalikes, invisible characters and backslashes.

    Returns None if it is percent-encoded more than `ROUNDS` times. Bytes that are not UTF-8 become U+FFFD.
    """
    for _ in range(ROUNDS + 1):
        text = unquote(uri, errors="replace")
        if not text.isascii():
            text = "".join(char for char in normalized(text) if unicodedata.category(char) != "Cf")
        text = text.replace("\\", "/").strip(" ")
        if text == uri:
            return uri
        uri = text
    return None


@lru_cache(16)
def text_of(uri: str) -> str | None:
    """Returns the text of a URI or template that rules compare, with case; None if no text is certain.

    It has no escapes, double slashes and dot segments. Expressions with the same operator become equal.
    """
    if len(uri) > MAX_COMPARED_URI:
        return None
    text = decoded(names.EXPRESSION.sub(r"{\1}", uri) if "{" in uri else uri)
    if text is None or not _is_certain(text) or _DOTS.search(text) or _SPLIT_HOST.match(uri):
        return None
    written, read = _LEAD.match(uri), _LEAD.match(text)
    if written and read and (len(written[1]) != len(read[1]) or "/" in (decoded(written[2] or "-") or "/")):
        return None  # an encoded slash, too, ends the host only for those who decode first
    return _normalised(text)


def keys_of(uri: str) -> tuple[str, ...] | None:
    """Returns texts of a URI without differences of case, None if it has no certain text.

    The first two are of the URI as a whole. The others are of what remains where a server ignores a part of it, so that
    two URIs that some server may take for one have a common text.
    """
    text = text_of(uri)
    return None if text is None else tuple(_forms(_folded(text)))


def _is_certain(text: str) -> bool:
    """Returns whether a decoded text has no controls, bytes that are not UTF-8 and other escapes."""
    if "\ufffd" in text or _UNICODE_ESCAPE.search(text):
        return False
    if text.isascii():
        return text.isprintable()
    return not any(unicodedata.category(char) in _UNCERTAIN for char in text)


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else normalized(text.casefold())


def _normalised(text: str, *, literal: bool = False) -> str | None:
    """Returns a URI with scheme, host and port in one form; unless `literal`, slashes too."""
    scheme, colon, rest = text.partition(":")
    if not colon or not scheme or "/" in scheme:
        scheme, colon, rest = "", "", text
    scheme, lead = scheme.lower(), ""
    if scheme == "file":
        host, rest = _host_and_path(rest)
        if _SHORT_NAME.search(rest) or _SHORT_NAME.search(host):
            return None
        lead = f"//{host}/" if host else ""
    elif scheme in _DEFAULT_PORTS:
        authority, delimiter, rest = _split(rest.lstrip("/"))
        host, port = ("", None) if _MARK in authority else host_and_port(authority)
        if host:
            authority = host if port in (None, _DEFAULT_PORTS[scheme]) else f"{host}:{port}"
        lead = f"{authority}{delimiter}"
    elif not literal:
        rest = rest.lstrip("/")
    return f"{scheme}{colon}{lead}{rest if literal else _SLASHES.sub('/', rest)}"


def _split(rest: str) -> tuple[str, str, str]:
    end = re.search(r"[/?#]|$", rest)
    at = end.start() if end is not None else len(rest)
    return rest[:at], rest[at : at + 1], rest[at + 1 :]


def _host_and_path(rest: str) -> tuple[str, str]:
    """Returns (host, path) of a file URI: `file:/x`, `file:///x` and `file://localhost/x` have the host ""."""
    path = rest.lstrip("/")
    slashes = len(rest) - len(path)
    host = ""
    if (slashes == 2 or slashes > 3) and _MARK not in path.partition("/")[0]:
        first, _, path = path.partition("/")
        host = _with_drive(first) if _DRIVE.match(first) else host_and_port(first)[0] or first
        if slashes == 2 and host in _LOCAL_HOSTS:
            host = ""
    return host, _with_drive(path.lstrip("/"))


def _with_drive(path: str) -> str:
    return _DRIVE.sub(lambda match: f"{match[1].lower()}:", path, count=1) if _DRIVE.match(path) else path


def _without_host(text: str) -> Iterator[str]:
    """Yields a text, and that of a file URI also without its host, and with the host as a part of the path."""
    yield text
    if text.startswith("file://"):
        host, _, path = text[len("file://") :].partition("/")
        yield f"file:{path}"
        yield f"file:{host}/{path}"


def _forms(text: str) -> Iterator[str]:
    """Yields a text, and what remains of it where a server ignores a part: query, parameters, host, dots at the end."""
    for form in _without_host(text):
        for whole in (form, _TAIL.split(form, maxsplit=1)[0]):
            yield whole
            scheme, colon, path = whole.partition(":")
            path = _IGNORED_BY_WINDOWS.sub("", path)
            yield f"{scheme}{colon}{_STREAM.sub('', path) if scheme == 'file' else path}".rstrip("/")


class UriRules:
    """A set of rules about URIs. It applies if one of them does."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(pattern for pattern in patterns if pattern)
        self._raw = Patterns(self._patterns)
        self._uri_patterns = tuple(pattern for pattern in self._patterns if not _NAME.fullmatch(pattern))

    @cached_property
    def _exact(self) -> frozenset[str]:
        return frozenset(
            pattern for pattern in self._patterns if names.is_template(pattern) or not WILDCARDS.search(pattern)
        )

    @cached_property
    def _covers_everything(self) -> bool:
        return any(not pattern.strip("*") for pattern in self._patterns)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def covers(self, uri: str) -> bool:
        """Returns whether some server may read a URI, or a template, as one that a rule names, ignoring case.

        Every rule about URIs covers a URI without a certain text, and a rule without a certain text covers every URI.
        """
        if not self._uri_patterns or self._raw.match(uri):
            return self._raw.match(uri)
        text = text_of(uri)
        if text is None or any(rule.text is None for rule in self._rules):
            return True
        matches = self._refusing.match
        return any(
            matches(form) for plain in dict.fromkeys((text, _folded(text))) for form in dict.fromkeys(_forms(plain))
        ) or any(query.covers(uri, text) for query in self._queries)

    def admits(self, uri: str) -> bool:
        """Returns whether every server reads a URI, or a template, as one that a rule names, respecting case."""
        if uri in self._exact or self._covers_everything:
            return True
        text = text_of(uri) if self._uri_patterns else None
        literal = None if text is None else _literal(uri)
        if text is None or literal is None:
            return False
        if _is_allowed(self._allowing, text) and _is_allowed(self._allowing_literally, literal):
            return True
        if any(query.admits(uri) for query in self._queries):
            return True
        readable = names.readable(uri)
        if (decoded(readable) or "").count("/") != readable.count("/"):  # an encoded slash is a slash for some servers
            return False
        texts = {readable, _TAIL.split(readable, maxsplit=1)[0]}
        return any(all(template.fullmatch(text) for text in texts) for template in self._templates)

    def admits_some(self, template: str) -> bool:
        """Returns whether a template may make URIs that a rule names.

        Each URI is checked again when a client reads it.
        """
        if self.admits(template):
            return True
        text = text_of(template)
        if text is None:
            return False
        start = text.partition("{")[0]
        starts = (rule.start for rule in self._rules if rule.start is not None and not names.is_template(rule.pattern))
        return any(start.startswith(rule_start) or rule_start.startswith(start) for rule_start in starts)

    def makes(self, uri: str) -> bool:
        """Returns whether one of the rules is a template that the URI may have been made from."""
        readable = names.readable(uri) if self._templates else ""
        return any(template.takes(readable) for template in self._templates)

    @cached_property
    def _rules(self) -> tuple[_Rule, ...]:
        return tuple(_Rule(pattern) for pattern in self._uri_patterns)

    @cached_property
    def _refusing(self) -> re.Pattern[str]:
        return _either(glob for rule in self._rules for glob in rule.refused())

    @cached_property
    def _allowing(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        return _whole_and_root(rule.glob(rule.text) for rule in self._rules)

    @cached_property
    def _allowing_literally(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        return _whole_and_root(rule.glob(rule.literal) for rule in self._rules)

    @cached_property
    def _queries(self) -> tuple[_Query, ...]:
        return tuple(query for pattern in self._uri_patterns if (query := _Query.read(pattern)) is not None)

    @cached_property
    def _templates(self) -> tuple[names.UriPattern, ...]:
        compiled = (names.template_pattern(pattern) for pattern in self._uri_patterns if names.is_template(pattern))
        return tuple(template for template in compiled if template is not None)


def _literal(uri: str) -> str | None:
    """Returns a URI as it is written, with delimiters still encoded, and only scheme and host in one form."""
    return _normalised(normalized(names.readable(names.EXPRESSION.sub(r"{\1}", uri)), "NFC"), literal=True)


def completed_route(call: Call, value: str | None = None) -> Route:
    """Returns the route that the arguments of a completion make of its template, as rules about URIs compare it.

    `value` stands for that of the completed argument. The route of any other call is returned unchanged.
    """
    if call.route.kind is not TEMPLATES:
        return call.route
    argument, context = call.params.get("argument"), call.params.get("context")
    arguments = context.get("arguments") if isinstance(context, dict) else None
    values = dict(arguments) if isinstance(arguments, dict) else {}
    if isinstance(argument, dict) and isinstance(argument.get("name"), str):
        values[argument["name"]] = argument.get("value") if value is None else value
    texts = {name: text for name, text in values.items() if isinstance(name, str) and isinstance(text, str)}
    # Every rule refuses a longer one, also when it is cut.
    uri = names.filled(call.route.name, texts)[: MAX_READ_URI + 1]
    return Route(call.route.upstream, TEMPLATES if names.is_template(uri) else RESOURCES, uri)


def completed_values(call: Call, result: Json) -> Iterator[tuple[str, Route]]:
    """Yields the values that completions of a template offer, each with the route that it makes.

    What is no text is no value, and values beyond `MAX_VALUES` are left out.
    """
    completion = result.get("completion")
    values = completion.get("values") if isinstance(completion, dict) else None
    for value in values[:MAX_VALUES] if isinstance(values, list) else ():
        if isinstance(value, str):
            yield value, completed_route(call, value)


def with_values(result: Json, values: list[str]) -> Json:
    """Returns the result of a completion with only these of its values."""
    completion = result.get("completion")
    offered = completion.get("values") if isinstance(completion, dict) else None
    if not isinstance(completion, dict) or not isinstance(offered, list) or offered == values:
        return result
    rest = {key: value for key, value in completion.items() if key != "total"}
    has_more = {"hasMore": True} if len(offered) > MAX_VALUES else {}
    return {**result, "completion": {**rest, **has_more, "values": values}}


def _either(globs: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, dict.fromkeys(globs))) or "(?!)")


def _whole_and_root(globs: Iterable[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Returns the expressions for a whole text, and for one without query, parameters and fragment."""
    whole = tuple(globs)
    return _either(whole), _either((*whole, *(re.split("[#;]", glob, maxsplit=1)[0] for glob in whole)))


def _is_allowed(rules: tuple[re.Pattern[str], re.Pattern[str]], text: str) -> bool:
    """Returns whether rules match a text, and what remains of it where a server ignores the query."""
    whole, root = rules
    return whole.match(text) is not None and root.match(_TAIL.split(text, maxsplit=1)[0]) is not None


class _Rule:
    """One rule, normalised as URIs are; marks stand for its wildcards meanwhile."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._wildcards: list[str] = []
        marked = _WILDCARD.sub(self._mark, names.EXPRESSION.sub(r"{\1}", pattern))
        self.text: str | None = None
        self.literal: str | None = None
        self.start: str | None = None
        """The text before the first wildcard or expression."""
        plain = decoded(marked) if len(pattern) <= MAX_COMPARED_URI and _MARK not in pattern else None
        if plain is None or not _is_certain(plain):
            return
        text, literal = _normalised(_resolved(plain)), _literal(_resolved(marked))
        if text is not None and text.count(_MARK) == len(self._wildcards) and not _DOTS.search(text):
            self.text, self.literal = text, literal
            self.start = re.split(rf"[{_MARK}{{]", text, maxsplit=1)[0]

    def _mark(self, token: re.Match[str]) -> str:
        if token[1] is not None:
            return token[1]
        self._wildcards.append(token[0])
        return _MARK

    def refused(self) -> Iterator[str]:
        """Yields globs for what the rule refuses: its text, with and without case, host and slash at the end."""
        for form in _without_host(self.text or ""):
            for text in (form, form.rstrip("/")):
                yield self.glob(text)
                yield self.glob(_folded(text), fold=True)

    def glob(self, text: str | None, *, fold: bool = False) -> str:
        """Returns a glob of a text with marks."""
        first, *others = (_escaped(part) for part in (text or "").split(_MARK))
        wildcards = (wildcard.casefold() if fold else wildcard for wildcard in self._wildcards)
        return first + "".join(wildcard + part for wildcard, part in zip(wildcards, others, strict=False))


def _escaped(text: str) -> str:
    return WILDCARDS.sub(r"[\g<0>]", text)


def _resolved(text: str) -> str:
    """Returns a rule without dot segments: unlike those of a URI, they mean to everybody what a person meant."""
    while (shorter := re.sub(r"(?<=[/:])(?:\./+|[^/:]+/+\.\.(?:/+|$))", "", text, count=1)) != text:
        text = shorter
    return text


class _Query:
    """A rule with a query, such as `docs://search?q=public*`. Parameters are compared one by one, in any order."""

    def __init__(self, base: str, query: str) -> None:
        self._base = UriRules((base,))
        self._parameters = [UriRules((parameter,)) for parameter in query.split("&") if parameter]

    @classmethod
    def read(cls, rule: str) -> _Query | None:
        """Returns the query of a rule, or None if its `?` is a wildcard.

        A `?` begins a query if `=` follows somewhere, or nothing but a `*`; any other one is a wildcard.
        """
        plain = names.EXPRESSION.sub("", rule).partition("#")[0].replace("[?]", "?")
        end = plain.find("=")
        if end < 0 and plain.endswith("?*") and not plain.lower().startswith("file:"):
            end = len(plain)
        position = plain.rfind("?", 0, end) if end > 0 else -1
        return cls(plain[:position], plain[position + 1 :]) if position > 0 else None

    def covers(self, uri: str, text: str) -> bool:
        base, parameters = _split_query(text)
        parameters += _split_query(uri)[1]  # an encoded `&` is a part of a value for some servers
        parameters += [parameter.replace("+", " ") for parameter in parameters]
        if len(parameters) > MAX_PARAMETERS:
            return self._base.covers(base)
        return self._base.covers(base) and all(
            any(rule.covers(parameter) for parameter in parameters) for rule in self._parameters
        )

    def admits(self, uri: str) -> bool:
        base, parameters = _split_query(uri)
        if len(parameters) > MAX_PARAMETERS or not self._base.admits(base):
            return False
        if not all(any(rule.admits(parameter) for rule in self._parameters) for parameter in parameters):
            return False
        return all(any(rule.admits(parameter) for parameter in parameters) for rule in self._parameters)


def _split_query(uri: str) -> tuple[str, list[str]]:
    base, _, query = uri.partition("#")[0].partition("?")
    return base, [parameter for parameter in re.split("[&;]", query) if parameter]
