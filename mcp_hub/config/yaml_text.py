"""YAML: the tree and the lines of its keys, from the composed nodes. Only plain data; no tag constructs anything."""

from __future__ import annotations

from typing import Any, Final

import yaml

from mcp_hub.config.document import MAX_DEPTH, MAX_VALUES, Parsed, Unreadable
from mcp_hub.config.findings import KeyPath, dotted

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = _TAG + "merge"
_TEXTS: Final = frozenset({_TAG + "str", _TAG + "timestamp", _TAG + "value", _TAG + "merge", _TAG + "binary"})
_NUMBERS: Final = frozenset({_TAG + "int", _TAG + "float", _TAG + "bool"})
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The compiled one is ten times faster, where it was built."""


def parse(text: str) -> Parsed:
    """`Unreadable` with a line for what is not YAML, or is endless or huge; duplicate keys and tags are faults."""
    try:
        _check_depth(text)
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        raise _unreadable(error, text) from None
    except (yaml.YAMLError, ValueError):
        # Reader errors: a control character, a lone surrogate. They carry no line.
        raise Unreadable("holds a character that YAML does not allow") from None
    tree = _Tree()
    value = None if node is None else tree.value(node, ())
    return Parsed(value, tree.lines.get, tree.written, tuple(tree.faults))


def _check_depth(text: str) -> None:
    """Unreadable for deep nesting. The compiled composer would recurse on the C stack, and end the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise Unreadable("is nested too deeply", event.start_mark.line + 1 if event.start_mark else None)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _unreadable(error: yaml.MarkedYAMLError, text: str) -> Unreadable:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else None
    # Messages of the composer quote the file, and the quoted word may be a password that begins with `*`.
    if isinstance(error, yaml.composer.ComposerError):
        if "single document" in (error.context or ""):
            return Unreadable("a second document begins here; one file holds one document", line)
        return Unreadable("an alias without its anchor; a text that begins with '*' or '&' needs quotes", line)
    problem = error.problem or "syntax error"
    if line is not None and "\t" in "".join(text.split("\n")[line - 1 : line]):
        problem = "a tab; YAML wants spaces"
    return Unreadable(f"is not valid YAML: {problem}", line)


class _Tree:
    """Values, lines and spellings of one composed document."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.written: dict[KeyPath, str] = {}
        self.faults: list[tuple[int | None, str]] = []
        self._open: set[int] = set()
        self._count = 0

    def value(self, node: yaml.Node, at: KeyPath) -> Any:
        self._count += 1
        line = node.start_mark.line + 1
        if self._count > MAX_VALUES or len(at) > MAX_DEPTH:
            raise Unreadable("unfolds into too many values", line)
        if id(node) in self._open:
            raise Unreadable("an alias that contains itself", line)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, at)
        if node.tag not in (_TAG + "map", _TAG + "seq"):
            return self._fault(node, at, "a tag that is not supported; only plain data is")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
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
            if not isinstance(key, yaml.ScalarNode):
                self._fault(key, at, "a key must be a text")
            elif key.tag == _MERGE:
                merged.extend(value.value if isinstance(value, yaml.SequenceNode) else [value])
            elif key.value in own:
                before = self.lines[(*at, key.value)]
                self._fault(key, (*at, key.value), f"this key is already given in line {before}")
            else:
                # A key is what is written: `on`, `1.10` and `null` are names too.
                inner = (*at, key.value)
                self.lines[inner] = key.start_mark.line + 1
                own[key.value] = self.value(value, inner)
        for source in merged:
            if not isinstance(source, yaml.MappingNode):
                self._fault(source, at, "'<<' needs a mapping")
                continue
            for name, value in self._merged(source, at).items():
                own.setdefault(name, value)
        return own

    def _merged(self, source: yaml.MappingNode, at: KeyPath) -> dict[str, Any]:
        if id(source) in self._open:
            raise Unreadable("an alias that contains itself", source.start_mark.line + 1)
        known = dict(self.lines), dict(self.written)
        values = self.value(source, at)
        # The keys of the mapping itself keep their own lines and spellings.
        self.lines.update(known[0])
        self.written.update(known[1])
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
            return yaml.constructor.SafeConstructor().construct_object(node)
        except (ValueError, OverflowError, KeyError, yaml.YAMLError):
            return self._fault(node, at, "not a number")

    def _fault(self, node: yaml.Node, at: KeyPath, text: str) -> None:
        where = f"{dotted(at)}: " if at else ""
        self.faults.append((node.start_mark.line + 1, where + text))
