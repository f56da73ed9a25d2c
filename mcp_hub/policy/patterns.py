"""Patterns over original names, rules about resource URIs, and the rules of one tool that patterns select.

`readings` normalises both rule and URI. A rule that refuses applies if it covers the URI in one of its readings; a rule
that allows applies only if it covers the URI in all of them. A URI without a certain reading is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Final
from urllib.parse import unquote

from mcp_hub.catalog import Route, names
from mcp_hub.config.entry_rules import ToolRules
from mcp_hub.config.models import Server
from mcp_hub.policy.uri_readings import LITERAL, MARKS, UriReading, folded, readings, trimmed

MAX_REMEMBERED: Final = 10_000
"""Names whose rules are cached; an upstream may list new names without end."""
_GLOB: Final = re.compile(r"[*?\[]")


class Patterns:
    """Names given exactly or with the wildcards `*`, `?` and `[...]`, case-sensitively."""

    def __init__(self, patterns: Iterable[str]) -> None:
        all_patterns = tuple(patterns)
        self._exact = frozenset(all_patterns)
        globs = [translate(pattern) for pattern in all_patterns if _GLOB.search(pattern)]
        self._glob = re.compile("|".join(globs)) if globs else None

    def __bool__(self) -> bool:
        return bool(self._exact)

    def match(self, name: str) -> bool:
        """Returns whether one of the patterns covers the name."""
        return name in self._exact or (self._glob is not None and self._glob.match(name) is not None)


class ToolRulesTable(dict[Route, ToolRules]):
    """The ToolRules of each tool, merged from all matching patterns; for each key the last pattern in the file wins."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        super().__init__()
        self._rules = {
            id: [(Patterns((pattern,)), rules) for pattern, rules in server.tools.items()]
            for id, server in servers.items()
            if server.tools
        }

    def __missing__(self, route: Route) -> ToolRules:
        if len(self) >= MAX_REMEMBERED:
            self.clear()
        self[route] = rules = self._merged(route) if route.kind.name == "tools" else NO_RULES
        return rules

    def _merged(self, route: Route) -> ToolRules:
        merged = NO_RULES
        for patterns, rules in self._rules.get(route.upstream, ()):
            if patterns.match(route.name):
                fields = {field: getattr(rules, field) for field in rules.model_fields_set}
                fields["preset"] = {**merged.preset, **rules.preset}
                merged = merged.model_copy(update=fields)
        return merged


NO_RULES: Final = ToolRules()


_TOKEN: Final = re.compile(r"(?P<expression>\{[^{}]*\})|(?P<class>\[!?\]?[^\]]*\])|[*?]")
_EXPRESSION_MARKS: Final = dict(zip(("", "+", "#", ".", "/", ";", "?", "&"), MARKS, strict=False))
_STAR, _ANY, _CLASS_MARKS = MARKS[8], MARKS[9], MARKS[10:]
_WILDCARDS: Final = "*?["
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.*?-]*")
"""A pattern for names of tools and prompts, such as `write_*`, which is not a rule about URIs."""
_CACHED_READINGS: Final = 16
"""URIs whose readings are cached, because several sets of rules check the same URI."""


MAX_PARAMETERS: Final = 64
"""Parameters of one query that are compared. A query with more is refused, as a rule may refuse one of them."""


class UriRules:
    """A set of rules about URIs. It applies if one of them does."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(pattern for pattern in patterns if pattern)
        self._raw = Patterns(self._patterns)
        self._uri_patterns = tuple(pattern for pattern in self._patterns if not _NAME.fullmatch(pattern))

    @cached_property
    def _exact(self) -> frozenset[str]:
        return frozenset(
            pattern
            for pattern in self._patterns
            if names.is_template(pattern) or not any(char in pattern for char in _WILDCARDS)
        )

    @cached_property
    def _covers_everything(self) -> bool:
        return any(not pattern.strip("*") for pattern in self._patterns)

    def covers(self, uri: str) -> bool:
        """Returns whether some server may read a URI, or a template, as one that a rule names, ignoring case.

        Every rule about URIs covers a URI without a certain reading, and a rule without a certain reading covers every
        URI.
        """
        if not self._uri_patterns or self._raw.match(uri):
            return self._raw.match(uri)
        uri_readings = _uri_readings(uri)
        if uri_readings is None or not all(rule.readings for rule in self._rules):
            return True
        return self._is_covered(uri_readings) or any(query.covers(uri) for query in self._queries)

    def admits(self, uri: str) -> bool:
        """Returns whether every server reads a URI, or a template, as one that a rule names, respecting case."""
        if uri in self._exact or self._covers_everything:
            return True
        uri_readings = _uri_readings(uri) if self._uri_patterns else None
        if uri_readings is None:
            return False
        matches, root_matches = self._globs.match, self._root_globs.match
        if all(
            matches(index, reading.text) and root_matches(index, reading.root)
            for index, reading in self._distinct_readings(uri_readings)
        ):
            return True
        if any(query.admits(uri) for query in self._queries):
            return True
        literal = {text for reading in uri_readings[LITERAL::3] for text in reading}
        return any(all(template.fullmatch(text) for text in literal) for template in self._templates)

    def admits_some(self, template: str) -> bool:
        """Returns whether a template may make URIs that a rule names.

        Each URI is checked again when a client reads it.
        """
        if self.admits(template):
            return True
        start = _literal_prefix(_uri_readings(template))
        return start is not None and any(
            start.startswith(rule_start) or rule_start.startswith(start)
            for rule in self._rules
            if not names.is_template(rule.pattern) and (rule_start := _literal_prefix(rule.readings)) is not None
        )

    def makes(self, uri: str) -> bool:
        """Returns whether one of the rules is a template that the URI may have been made from."""
        if not self._templates:
            return False
        texts = {uri, *(text for reading in _uri_readings(uri) or () for text in reading)}
        return any(template.fullmatch(text) for template in self._templates for text in texts)

    def _is_covered(self, uri_readings: tuple[UriReading, ...]) -> bool:
        for index, reading in self._distinct_readings(uri_readings):
            for text in dict.fromkeys(reading):
                plain = folded(text)
                if self._globs.match(index, text) or self._folded.match(index, plain):
                    return True
                if index % 3 != LITERAL and self._trimmed.match(index, trimmed(plain)):
                    return True
        return False

    def _distinct_readings(self, uri_readings: tuple[UriReading, ...]) -> Iterator[tuple[int, UriReading]]:
        """Yields the readings, without those that equal another one and are compared with the same rules."""
        if not self._root_globs.first:
            return iter(enumerate(uri_readings[:1]))
        indices = {pair: index for index, pair in enumerate(zip(self._root_globs.first, uri_readings, strict=True))}
        return ((index, reading) for (_, reading), index in indices.items())

    @cached_property
    def _rules(self) -> tuple[_Rule, ...]:
        return tuple(_Rule(pattern) for pattern in self._uri_patterns)

    @cached_property
    def _globs(self) -> _Globs:
        return _Globs(rule.globs() for rule in self._rules)

    @cached_property
    def _root_globs(self) -> _Globs:
        """Returns the globs for `UriReading.root`: of each rule, whole and without its `#` and `;` parts."""
        return _Globs(globs for rule in self._rules for globs in (rule.globs(), rule.globs(root=True)))

    @cached_property
    def _folded(self) -> _Globs:
        return _Globs(rule.globs(folded) for rule in self._rules)

    @cached_property
    def _trimmed(self) -> _Globs:
        return _Globs(rule.globs(lambda text: trimmed(folded(text))) for rule in self._rules)

    @cached_property
    def _queries(self) -> tuple[_Query, ...]:
        return tuple(query for pattern in self._uri_patterns if (query := _Query.read(pattern)) is not None)

    @cached_property
    def _templates(self) -> tuple[names.UriPattern, ...]:
        compiled = (names.template_pattern(pattern) for pattern in self._uri_patterns if names.is_template(pattern))
        return tuple(template for template in compiled if template is not None)


def alike(uri: str) -> frozenset[str] | None:
    """Returns the keys of a URI, or None if no reading is certain.

    Two URIs that some server may take for the same one have a key in common.
    """
    uri_readings = _uri_readings(uri)
    return None if uri_readings is None else frozenset(folded(text) for reading in uri_readings for text in reading)


@lru_cache(_CACHED_READINGS)
def _uri_readings(uri: str) -> tuple[UriReading, ...] | None:
    """Returns the readings of a URI or a template. Expressions with the same operator are treated as equal."""
    if not uri.isascii() and any(mark in uri for mark in MARKS):
        return None
    return readings(names.EXPRESSION.sub(lambda match: _EXPRESSION_MARKS[match[1]], uri) if "{" in uri else uri)


def _literal_prefix(uri_readings: tuple[UriReading, ...] | None) -> str | None:
    """Returns the text before the first wildcard or expression."""
    return None if not uri_readings else re.split(f"[{MARKS}]", uri_readings[LITERAL].text, maxsplit=1)[0]


class _Rule:
    """One rule, normalised like a URI, with marks in place of its wildcards and expressions."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._classes: list[str] = []
        marked = _TOKEN.sub(self._mark, pattern)
        is_certain = len(self._classes) <= len(_CLASS_MARKS) and not any(mark in pattern for mark in MARKS)
        self.readings = readings(marked) if is_certain else None
        self._root_readings = readings(re.split("[#;]", marked, maxsplit=1)[0]) if is_certain else None

    def _mark(self, token: re.Match[str]) -> str:
        if token["expression"] is not None:
            operator = token[0][1:2]
            return _EXPRESSION_MARKS.get(operator, _EXPRESSION_MARKS[""])
        if token["class"] is None:
            return _STAR if token[0] == "*" else _ANY
        self._classes.append(token[0])
        return _CLASS_MARKS[min(len(self._classes), len(_CLASS_MARKS)) - 1]

    def globs(self, change: Callable[[str], str] = str, *, root: bool = False) -> tuple[str, ...]:
        """Returns a glob for each reading of the normalised text after a change; `root` removes `#` and `;` parts."""
        selected = self._root_readings if root else self.readings
        return tuple(self._glob(change(reading.text), change) for reading in selected or ())

    def _glob(self, text: str, change: Callable[[str], str]) -> str:
        parts = []
        for char in text:
            if char == _STAR:
                parts.append("*")
            elif char == _ANY:
                parts.append("?")
            elif char in _CLASS_MARKS:
                char_class = self._classes[_CLASS_MARKS.index(char)]
                parts.append(char_class if change is str else char_class.casefold())
            else:
                parts.append(f"[{char}]" if char in _WILDCARDS else char)
        return "".join(parts)


class _Globs:
    """The globs of several rules, one regular expression for each reading; equal ones are shared."""

    def __init__(self, rules: Iterable[tuple[str, ...]]) -> None:
        columns = list(zip(*(globs for globs in rules if globs), strict=True))
        self.first = tuple(columns.index(globs) for globs in columns)
        """For each reading, the first reading that has the same globs."""
        compiled = {globs: re.compile("|".join(map(translate, dict.fromkeys(globs)))) for globs in set(columns)}
        self._expressions = tuple(compiled[globs] for globs in columns)

    def match(self, index: int, text: str) -> bool:
        return bool(self._expressions) and self._expressions[index].match(text) is not None


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

    def covers(self, uri: str) -> bool:
        base, parameters = _split_query(uri)
        decoded = _split_query(f"?{unquote(uri.partition('?')[2])}")[1]
        parameters += [parameter.replace("+", " ") for parameter in parameters] + decoded
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
