"""The syntaxes of configuration files: JSON as people write it, TOML and YAML.

Each parser returns a plain tree and the line of each key.
"""

from __future__ import annotations

import bisect
import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub import codes
from mcp_hub.config.findings import KeyPath, dotted
from mcp_hub.config.key_spans import JSON_COMMENTS, JSON_TOKEN, LOOSE_COMMA, json_spans, toml_lines

if TYPE_CHECKING:
    import yaml

MAX_DEPTH = 32
MAX_VALUES = 100_000
"""The maximum number of values. Aliases of YAML can make a small file expand to any number."""


class ParsedText(msgspec.Struct, frozen=True):
    """The result of a parser."""

    tree: Any
    """Made of dict, list, str, int, float, bool, None, and the dates of TOML."""
    line_of: Callable[[KeyPath], int | None] = lambda at: None
    """Returns the line of exactly this key; None if it is not known."""
    written: Mapping[KeyPath, str] = msgspec.field(default_factory=dict)
    """The spelling of values that are not texts, as `1.10`, `no` and `0755` must stay so in environment variables."""
    faults: tuple[tuple[int | None, str], ...] = ()
    """(line, text) of errors that leave the rest readable, such as a duplicate key."""


class UnreadableText(Exception):
    """The text has a syntax error; `line` counts from 1."""

    def __init__(self, text: str, line: int | None = None, code: str = codes.FILE_BROKEN) -> None:
        super().__init__(text)
        self.line = line
        self.code = code


def _check_bounds(tree: Any) -> None:
    """Raises UnreadableText for a tree that is deeper or larger than a configuration can be."""
    level, count = [tree], 0
    for _ in range(MAX_DEPTH):
        count += len(level)
        if count > MAX_VALUES:
            raise UnreadableText("has too many values", code=codes.FILE_TOO_LARGE)
        inner = [
            value.values() if isinstance(value, dict) else value for value in level if isinstance(value, dict | list)
        ]
        if not inner:
            return
        level = [value for values in inner for value in values]
    raise UnreadableText("is nested too deeply", code=codes.FILE_TOO_LARGE)


_JSON5_ERROR: Final = re.compile(r"<string>:(\d+) Unexpected (.{1,40}) at column (\d+)", re.DOTALL)
_JSON_ESCAPE: Final = re.compile(
    r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[\"'\\/bfnrtv0\n\r\u2028\u2029]|(?P<unknown>.))", re.DOTALL
)
_BEGINS_VALUE: Final = re.compile(r"\"[\"'{\[\w]\"$")
_YAML_CURES: Final = {
    "did not find expected key": "the indentation does not fit the lines above, or a quote or bracket is open",
    "mapping values are not allowed in this context": "a text with ': ' needs quotes, or the line above lacks its ':'",
    "did not find expected hexdecimal number": "a backslash in double quotes begins an escape; use single quotes",
    "found unknown escape character": "a backslash in double quotes begins an escape; use single quotes",
    "found unexpected end of stream": "a quote is not closed",
    "found character that cannot start any token": "a text that begins with this character needs quotes",
}
"""What a person can do about a problem that libyaml names."""


def parse_json(text: str) -> ParsedText:
    """Parses JSON with comments, trailing commas and, if need be, JSON5. A duplicate key is a fault.

    Raises:
        UnreadableText: the text is not even JSON5.
    """
    repeated: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(items)
        if len(values) != len(items):
            repeated.append(items[0][0])
        return values

    tree = _load_json(text, pairs)
    _check_bounds(tree)
    lines = functools.cache(lambda: _lines_of_json(text))
    faults: list[tuple[int | None, str]] = []
    if repeated:
        faults = [
            (line, f"{dotted(at)}: this key is already given in line {first_line}")
            for at, line, first_line in lines()[1]
        ]
        # The scanner may miss a key that is repeated in another spelling, such as with an escape.
        faults = faults or [(None, "a key is given twice in the same object")]
    return ParsedText(tree, lambda at: lines()[0].get(at), faults=tuple(faults))


def _load_json(text: str, pairs: Any) -> Any:
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        pass
    # The json5 parser is slow, and nearly always there are only comments and trailing commas.
    uncommented = JSON_COMMENTS.sub(lambda match: re.sub(r"[^\n]", " ", match[1]) if match[1] else match[0], text)
    try:
        return json.loads(
            LOOSE_COMMA.sub(lambda match: " " if match[1] else match[0], uncommented), object_pairs_hook=pairs
        )
    except RecursionError:
        raise UnreadableText("is nested too deeply", code=codes.FILE_TOO_LARGE) from None
    except ValueError:
        return _load_json5(text, pairs)


def _load_json5(text: str, pairs: Any) -> Any:
    import json5

    _refuse_unknown_escapes(text)
    try:
        return json5.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise UnreadableText("is nested too deeply", code=codes.FILE_TOO_LARGE) from None
    except Exception as error:  # errors of converting numbers and texts pass through
        match = _JSON5_ERROR.match(str(error))
        if match is None:
            raise UnreadableText("is not valid JSON") from None
        token = match[2].replace("\n", "\\n").replace('"""', "'\"'")
        hint = "; is a comma missing before it?" if _BEGINS_VALUE.match(match[2]) else ""
        raise UnreadableText(
            f"is not valid JSON: Unexpected {token} at column {match[3]}{hint}", int(match[1])
        ) from None


def _refuse_unknown_escapes(text: str) -> None:
    r"""Raises UnreadableText for an escape such as `\U` in `"C:\Users"`. JSON5 would silently drop the backslash."""
    for token in JSON_TOKEN.finditer(text):
        if token["text"] is None:
            continue
        for escape in _JSON_ESCAPE.finditer(token["text"]):
            if escape["unknown"] is not None:
                sequence = escape[0]
                line = text.count("\n", 0, token.start() + escape.start()) + 1
                hint = f"a backslash in a text is written twice: \\{sequence}, as in C:\\\\Users"
                raise UnreadableText(f"is not valid JSON: the escape {sequence} does not exist ({hint})", line)


def _lines_of_json(text: str) -> tuple[dict[KeyPath, int], list[tuple[KeyPath, int, int]]]:
    """Returns the lines of all keys and list items, and duplicate keys as (key, its line, line of the first)."""
    spans = json_spans(text)
    line_at = _line_counter(text)
    lines = {at: line_at(span.name) for at, span in spans.of.items() if at}
    return lines, [(at, line_at(start), line_at(first)) for at, start, first in spans.repeated]


def _line_counter(text: str) -> Callable[[int], int]:
    """Returns a function that gives the line of an offset, counted from 1."""
    ends = [match.start() for match in re.finditer("\n", text)]
    return lambda offset: bisect.bisect_left(ends, offset) + 1


_TOML_POSITION: Final = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
_TOML_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")


def parse_toml(text: str) -> ParsedText:
    """Parses TOML, and finds the lines of keys as far as the layout shows them.

    Raises:
        UnreadableText: the text is not TOML, or has a duplicate key.
    """
    import tomllib

    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        match = _TOML_POSITION.search(message)
        line = int(match[1]) if match is not None and match[1] else None
        # The parser quotes keys and characters of the file; a value in the wrong place may be a secret.
        problem = _TOML_QUOTED.sub("…", message[: match.start()] if match is not None else message)
        raise UnreadableText(f"is not valid TOML: {problem}", line) from None
    except RecursionError:
        raise UnreadableText("is nested too deeply", code=codes.FILE_TOO_LARGE) from None
    except ValueError:
        raise UnreadableText("is not valid TOML: a number or date that does not exist") from None
    _check_bounds(tree)
    lines = functools.cache(lambda: _lines_of_toml(text))
    return ParsedText(tree, lambda at: lines().get(at))


def _lines_of_toml(text: str) -> dict[KeyPath, int]:
    line_at = _line_counter(text)
    lines: dict[KeyPath, int] = {}
    for toml_line in toml_lines(text):
        lines.setdefault(toml_line.path, line_at(toml_line.span.name))
    return lines


_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = _TAG + "merge"
_TEXTS: Final = frozenset({_TAG + "str", _TAG + "timestamp", _TAG + "value", _TAG + "merge", _TAG + "binary"})
_NUMBERS: Final = frozenset({_TAG + "int", _TAG + "float", _TAG + "bool"})


def parse_yaml(text: str) -> ParsedText:
    """Parses YAML of plain data; no tag creates an object. Duplicate keys and tags are faults.

    Raises:
        UnreadableText: the text is not YAML, contains itself, or is too deep or too large.
    """
    import yaml

    # The compiled loader is ten times faster, but not built everywhere.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_yaml_depth(yaml.parse(text, Loader=loader))
        node = yaml.compose(text, Loader=loader)
    except yaml.composer.ComposerError as error:
        raise _unreadable_composition(error) from None
    except yaml.MarkedYAMLError as error:
        raise _unreadable_yaml(error, text) from None
    except (yaml.YAMLError, ValueError):
        # Reader errors: a control character, a lone surrogate. They carry no line.
        raise UnreadableText("holds a character that YAML does not allow") from None
    tree = _YamlTree(yaml)
    value = None if node is None else tree.value(node, ())
    _check_bounds(value)
    return ParsedText(value, tree.lines.get, tree.written, tuple(tree.faults))


def _check_yaml_depth(events: Iterable[Any]) -> None:
    """Raises UnreadableText for deep nesting, at which the compiled composer would overflow the C stack."""
    import yaml

    depth = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                line = event.start_mark.line + 1 if event.start_mark else None
                raise UnreadableText("is nested too deeply", line, codes.FILE_TOO_LARGE)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _unreadable_yaml(error: yaml.MarkedYAMLError, text: str) -> UnreadableText:
    line = _line_of_error(error)
    problem = error.problem or "syntax error"
    if line is not None and "\t" in "".join(text.split("\n")[line - 1 : line]):
        problem = "a tab; YAML needs spaces"
    elif problem in _YAML_CURES:
        problem += f" ({_YAML_CURES[problem]})"
    return UnreadableText(f"is not valid YAML: {problem}", line)


def _unreadable_composition(error: yaml.MarkedYAMLError) -> UnreadableText:
    # Messages of the composer quote the file, and the quoted word may be a password that begins with `*`.
    if "single document" in (error.context or ""):
        return UnreadableText("a second document begins here; one file holds one document", _line_of_error(error))
    text = "an alias without its anchor; a text that begins with '*' or '&' needs quotes"
    return UnreadableText(text, _line_of_error(error))


def _line_of_error(error: yaml.MarkedYAMLError) -> int | None:
    mark = error.problem_mark or error.context_mark
    return mark.line + 1 if mark else None


class _YamlTree:
    """The values, lines and spellings of one composed document."""

    def __init__(self, library: ModuleType) -> None:
        """`library` is PyYAML, which is imported only for YAML files."""
        self._yaml = library
        self.lines: dict[KeyPath, int] = {}
        self.written: dict[KeyPath, str] = {}
        self.faults: list[tuple[int | None, str]] = []
        self._open: set[int] = set()
        self._count = 0

    def value(self, node: yaml.Node, at: KeyPath) -> Any:
        self._count += 1
        line = node.start_mark.line + 1
        if self._count > MAX_VALUES or len(at) > MAX_DEPTH:
            raise UnreadableText("expands to too many values", line, codes.FILE_TOO_LARGE)
        if id(node) in self._open:
            raise UnreadableText("an alias that contains itself", line)
        if isinstance(node, self._yaml.ScalarNode):
            return self._scalar(node, at)
        if node.tag not in (_TAG + "map", _TAG + "seq"):
            return self._fault(node, at, "a tag that is not supported; only plain data is")
        self._open.add(id(node))
        try:
            if isinstance(node, self._yaml.MappingNode):
                return self._mapping(node, at)
            return [self._item(item, (*at, index)) for index, item in enumerate(node.value)]
        finally:
            self._open.discard(id(node))

    def _item(self, node: yaml.Node, at: KeyPath) -> Any:
        self.lines[at] = node.start_mark.line + 1
        return self.value(node, at)

    def _mapping(self, node: yaml.MappingNode, at: KeyPath) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if not isinstance(key, self._yaml.ScalarNode):
                self._fault(key, at, "a key must be a text")
            elif key.tag == _MERGE:
                merged.extend(value.value if isinstance(value, self._yaml.SequenceNode) else [value])
            elif key.value in own:
                first_line = self.lines[(*at, key.value)]
                self._fault(key, (*at, key.value), f"this key is already given in line {first_line}")
            else:
                # A key is a text as written: `on`, `1.10` and `null` are names too.
                inner = (*at, key.value)
                self.lines[inner] = key.start_mark.line + 1
                own[key.value] = self.value(value, inner)
        for source in merged:
            if not isinstance(source, self._yaml.MappingNode):
                self._fault(source, at, "'<<' needs a mapping")
                continue
            for name, value in self._merged(source, at).items():
                own.setdefault(name, value)
        return own

    def _merged(self, source: yaml.MappingNode, at: KeyPath) -> dict[str, Any]:
        if id(source) in self._open:
            raise UnreadableText("an alias that contains itself", source.start_mark.line + 1)
        snapshot = dict(self.lines), dict(self.written)
        values = self.value(source, at)
        # The keys of the mapping itself keep their own lines and spellings.
        self.lines.update(snapshot[0])
        self.written.update(snapshot[1])
        return values if isinstance(values, dict) else {}

    def _scalar(self, node: yaml.ScalarNode, at: KeyPath) -> Any:
        text: str = node.value
        if node.tag in _TEXTS:
            return text
        if node.tag == _TAG + "null":
            return None
        if node.tag not in _NUMBERS:
            return self._fault(node, at, "a tag that is not supported; only plain data is")
        self.written[at] = text
        try:
            return self._yaml.constructor.SafeConstructor().construct_object(node)
        except (ValueError, OverflowError, KeyError, self._yaml.YAMLError):
            return self._fault(node, at, "not a number")

    def _fault(self, node: yaml.Node, at: KeyPath, text: str) -> None:
        prefix = f"{dotted(at)}: " if at else ""
        self.faults.append((node.start_mark.line + 1, prefix + text))
