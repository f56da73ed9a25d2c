"""Inserts, replaces and removes entries of YAML texts, in block and in flow style."""

from __future__ import annotations

import bisect
import json
import re
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.config.findings import KeyPath, dotted
from mcp_hub.editing import EditRefused, Placement, nested
from mcp_hub.editing.line_cuts import cut_lines, end_of_line, last_line_end, put_lines

if TYPE_CHECKING:
    import yaml

UNIT: Final = "  "
_WIDE: Final = 1_000_000
_COMMENT_LINE: Final = re.compile(r"(?:\r\n|\r|\n)(?:(?P<blank>[ \t]*(?=[\r\n]))|(?P<indent> *)#(?P<inner> *)[^\r\n]*)")
_BREAKS: Final = "\n\r\x85\u2028\u2029"


def insert(text: str, tree: Any, at: KeyPath, value: Any) -> tuple[str, Placement]:
    """Returns the text with a new entry after the last one of its mapping or list."""
    nodes = _Nodes(text)
    depth = len(at) - 1
    while depth > 0 and not nodes.has(at[:depth]):
        depth -= 1
    nested_value = nested(at[depth + 1 :], value)
    placement = Placement(len(at) - 1 - depth)
    container = nodes.find(at[:depth])
    if container is None or (depth == 0 and tree is None):
        return put_lines(text, last_line_end(text), _lines(at[depth], nested_value, "")), Placement(len(at) - 1)
    if isinstance(container, nodes.library.ScalarNode):
        if container.start_mark.index != container.end_mark.index:
            raise EditRefused(f"{dotted(at[:depth])} holds a value and no entries; edit it by hand")
        key, indent = nodes.key_before(at[:depth])
        offset = end_of_line(text, key.end_mark.index)
        return put_lines(text, offset, _lines(at[depth], nested_value, indent + UNIT)), placement
    if container.flow_style:
        return nodes.put_in_flow(container, at[depth], nested_value), placement
    indent = nodes.indent_in(container)
    offset = _with_commented_keys(text, end_of_line(text, nodes.content_end(container)), len(indent))
    return put_lines(text, offset, _lines(at[depth], nested_value, indent)), placement


def replace(text: str, at: KeyPath, value: Any) -> str:
    """Returns the text with another value at `at`. Only plain values are replaced, by plain values."""
    nodes = _Nodes(text)
    node = nodes.find(at)
    if not isinstance(node, nodes.library.ScalarNode) or isinstance(value, dict | list) or node.style in ("|", ">"):
        raise EditRefused(f"{dotted(at)} is more than one plain value; edit it by hand")
    scalar = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else _plain(value)
    lead = " " if node.start_mark.index == node.end_mark.index else ""
    return text[: node.start_mark.index] + lead + scalar + text[node.end_mark.index :]


def remove(text: str, at: KeyPath, placement: Placement) -> str:
    """Returns the text without the entry at `at`."""
    nodes = _Nodes(text)
    container, node = nodes.find(at[:-1]), nodes.find(at)
    if container is None or node is None or not at:
        raise EditRefused("the place cannot be found in the text; edit it by hand")
    if container.flow_style:
        return nodes.cut_from_flow(container, at[-1])
    start = nodes.start_of(container, at[-1])
    line = max(text.rfind(line_break, 0, start) for line_break in _BREAKS) + 1
    if text[line:start].strip(" "):
        raise EditRefused(f"{dotted(at)} begins in the middle of a line; edit it by hand")
    end = end_of_line(text, max(nodes.content_end(node, start), start))
    return cut_lines(text, line, _with_commented_keys(text, end, start - line))


def _with_commented_keys(text: str, offset: int, indent: int) -> int:
    """Returns the end of the last of the comments that follow the entry which ends at `offset` and are indented deeper.

    `indent` is the indentation of the entry. Such comments are keys of the entry that somebody has switched off, also
    with the `#` at the beginning of the line.
    """
    end = offset
    while match := _COMMENT_LINE.match(text, offset):
        offset = match.end()
        if match["blank"] is None:
            if len(match["indent"]) <= indent and (match["indent"] or len(match["inner"]) <= indent + 1):
                break
            end = offset
    return end


def _lines(key: str | int, value: Any, indent: str) -> list[str]:
    """Returns an entry as lines of block style."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, indentless=False)

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
        plain = not any(isinstance(item, dict | list) for item in data)
        return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=plain)

    def represent_text(dumper: yaml.SafeDumper, data: str) -> yaml.Node:
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, _style(data))

    Dumper.add_representer(list, represent)
    Dumper.add_representer(str, represent_text)
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "default_flow_style": False, "width": _WIDE}
    entry: Any = {key: value} if isinstance(key, str) else [value]
    if isinstance(entry, list):
        # A list of plain values would be written in flow style.
        dumped = yaml.dump({"-": value}, Dumper=Dumper, **options)
        first, *rest = dumped.split("\n")
        if not isinstance(value, dict):
            return [indent + "- " + first.partition(":")[2].strip(), *(indent + line for line in rest if line)]
        inner = [line for line in rest if line]
        return [indent + "- " + inner[0].strip(), *(indent + line for line in inner[1:])]
    return [
        indent + line if line else "" for line in yaml.dump(entry, Dumper=Dumper, **options).rstrip("\n").split("\n")
    ]


def _plain(value: str) -> str:
    import yaml

    options: dict[str, Any] = {"allow_unicode": True, "default_flow_style": True, "width": _WIDE}
    return str(yaml.safe_dump([value], default_style=_style(value), **options)).strip()[1:-1]


def _style(text: str) -> str | None:
    """Returns the style in which a text is on one line: with escapes if it has line breaks, else any."""
    return '"' if any(line_break in text for line_break in _BREAKS) else None


class _Nodes:
    """The nodes of a text, and the offsets at which its tokens end."""

    def __init__(self, text: str) -> None:
        import yaml

        self.library = yaml
        self._text = text
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self._root = yaml.compose(text, Loader=loader)
        tokens = yaml.scan(text, Loader=loader)
        self._ends = [token.end_mark.index for token in tokens if token.start_mark.index < token.end_mark.index]

    def has(self, at: KeyPath) -> bool:
        return self.find(at) is not None

    def find(self, at: KeyPath) -> Any:
        """Returns the node at `at`; None if there is none."""
        node: Any = self._root
        for part in at:
            if isinstance(node, self.library.MappingNode):
                node = next((value for key, value in node.value if key.value == part), None)
            elif isinstance(node, self.library.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
            else:
                return None
        return node

    def content_end(self, node: yaml.Node, start: int = 0) -> int:
        """Returns the offset of the end of a node's last token, but at least `start`."""
        number = bisect.bisect_right(self._ends, node.end_mark.index)
        end = self._ends[number - 1] if number else 0
        return len(self._text[: max(end, start)].rstrip())

    def indent_in(self, container: Any) -> str:
        """Returns the indentation of the entries of a block."""
        first = container.value[0]
        if isinstance(container, self.library.SequenceNode):
            column = container.start_mark.column
        else:
            column = first[0].start_mark.column
        return " " * column

    def key_before(self, at: KeyPath) -> tuple[yaml.Node, str]:
        """Returns the key of an empty value and the indentation of the key."""
        container = self.find(at[:-1]) if at else None
        if container is None or container.flow_style or not isinstance(container, self.library.MappingNode):
            raise EditRefused("the place is not one that an entry can be put into; edit it by hand")
        key = next(key for key, _ in container.value if key.value == at[-1])
        return key, " " * key.start_mark.column

    def start_of(self, container: Any, part: str | int) -> int:
        """Returns where an entry of a block begins: at its key, or at the dash of a list item."""
        if isinstance(part, str):
            return int(next(key for key, _ in container.value if key.value == part).start_mark.index)
        item = container.value[part].start_mark.index
        return self._text.rfind("-", 0, item)

    def put_in_flow(self, container: Any, part: str | int, value: Any) -> str:
        """Returns the text with one more entry between the brackets of a flow collection."""
        text, end = self._text, container.end_mark.index - 1
        offset = self._ends[bisect.bisect_right(self._ends, end) - 1]
        name = f"{json.dumps(part, ensure_ascii=False)}: " if isinstance(part, str) else ""
        if text[offset:end].strip() or text[offset - 1] == ",":
            raise EditRefused("a list in brackets with a comment or a last comma; edit it by hand")
        lead = ", " if container.value else ""
        written = name + json.dumps(value, ensure_ascii=False)
        for line_break in "\x85\u2028\u2029":  # no line breaks in JSON
            written = written.replace(line_break, f"\\u{ord(line_break):04x}")
        return text[:offset] + lead + written + text[offset:]

    def cut_from_flow(self, container: Any, part: str | int) -> str:
        """Returns the text without one entry of a flow collection and its comma."""
        text = self._text
        pairs = [item if isinstance(item, tuple) else (item, item) for item in container.value]
        index = part if isinstance(part, int) else [key.value for key, _ in pairs].index(part)
        if index + 1 < len(pairs) and index == 0:
            return text[: pairs[0][0].start_mark.index] + text[pairs[1][0].start_mark.index :]
        start = pairs[index - 1][1].end_mark.index if index else pairs[0][0].start_mark.index
        return text[:start] + text[pairs[index][1].end_mark.index :]
