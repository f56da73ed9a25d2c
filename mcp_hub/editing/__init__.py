"""Edits text files by span: an entry is set, inserted or removed, and no other byte of the file changes.

Every edit is checked: the new text is parsed, and its content must equal the old content with the change. An edit that
fails the check is refused, and nothing is written.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, Literal

import msgspec

from mcp_hub.config.config_files import MAX_FILE
from mcp_hub.config.findings import KeyPath, dotted
from mcp_hub.config.syntax import ParsedText, UnreadableText, parse_json, parse_toml, parse_yaml
from mcp_hub.errors import ConfigError
from mcp_hub.text import printable

Syntax = Literal["json", "toml", "yaml"]
"""`json` is also JSON with comments and JSON5."""

_PARSERS: Final = {"json": parse_json, "toml": parse_toml, "yaml": parse_yaml}
_SUFFIXES: Final[dict[str, Syntax]] = {
    ".json": "json", ".jsonc": "json", ".json5": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml",
}  # fmt: skip
_BOM: Final = "\ufeff"


class EditRefused(ConfigError):
    """A text cannot be edited: it is not valid, or the place is written in a form that cannot be edited safely."""


class Placement(msgspec.Struct, frozen=True):
    """What an insertion added around the entry. `remove` needs it to restore the text byte for byte."""

    made: int = 0
    """The number of objects around the entry that were made."""
    before: str = ""
    """Text that was added in front of the entry, or of the outermost of these objects."""
    after: str = ""
    """Text that was added behind it."""


class EditedText(msgspec.Struct, frozen=True):
    """A text after an edit."""

    text: str
    tree: Any
    """Its parsed content, kept for the next edit, as parsing a large file takes seconds."""
    placement: Placement = Placement()


UNREAD: Final = object()
"""Stands for the tree of a text that was not parsed yet."""


def syntax_of(name: str) -> Syntax:
    """Returns the syntax of a file by the suffix of its name; `json` for any other suffix."""
    return _SUFFIXES.get("." + name.lower().rpartition(".")[2], "json")


def parse(text: str, syntax: Syntax) -> ParsedText:
    """Parses a text that is to be edited. The tree is None if it holds no value.

    Raises:
        EditRefused: it is not valid, or a key is given twice.
    """
    try:
        if syntax == "json" and not _holds_json(text):
            return ParsedText(None)
        parsed: ParsedText = _PARSERS[syntax](text.removeprefix(_BOM))
    except UnreadableText as error:
        location = "" if error.line is None else f"line {error.line}: "
        raise EditRefused(f"{location}{printable(str(error))}") from None
    except RecursionError:
        raise EditRefused("is nested too deeply") from None
    if parsed.faults:
        line, problem = parsed.faults[0]
        raise EditRefused(f"{'' if line is None else f'line {line}: '}{printable(problem)}")
    return parsed


def _holds_json(text: str) -> bool:
    from mcp_hub.config.key_spans import JSON_TOKEN

    rest = JSON_TOKEN.sub(lambda token: "" if token["comment"] is not None else token[0], text.removeprefix(_BOM))
    return bool(rest.strip())


def insert(text: str, syntax: Syntax, at: KeyPath, value: Any, tree: Any = UNREAD) -> EditedText:
    """Returns `text` with a new key, or a new last list item, at `at`. Missing objects around it are made.

    `tree` is the parsed `text`, if it was parsed already.

    Raises:
        EditRefused: the key is already there, or there is no safe place for it.
    """
    tree = parse(text, syntax).tree if tree is UNREAD else tree
    expected = _with(tree, at, value, new=True)
    bom, body = _split(text)
    edited, placement = _module(syntax).insert(body, tree, at, value)
    return EditedText(bom + edited, _check_result(edited, syntax, expected, at, added=True), placement)


def put(text: str, syntax: Syntax, at: KeyPath, value: Any, tree: Any = UNREAD) -> EditedText:
    """Returns `text` with the value at `at` replaced, or inserted if there is none.

    Raises:
        EditRefused: there is no safe place for it.
    """
    tree = parse(text, syntax).tree if tree is UNREAD else tree
    if not has(tree, at):
        return insert(text, syntax, at, value, tree)
    expected = _with(tree, at, value, new=False)
    bom, body = _split(text)
    edited: str = _module(syntax).replace(body, at, value)
    return EditedText(bom + edited, _check_result(edited, syntax, expected, at, added=True))


def remove(
    text: str, syntax: Syntax, at: KeyPath, placement: Placement | None = None, tree: Any = UNREAD
) -> EditedText:
    """Returns `text` without the key or list item at `at`, and without what `insert` made around it.

    Raises:
        EditRefused: it is not there, or cannot be removed safely.
    """
    placement = placement or Placement()
    tree = parse(text, syntax).tree if tree is UNREAD else tree
    if not has(tree, at):
        raise EditRefused(f"{dotted(at)} is not there")
    outermost, target = at, at
    for _ in range(placement.made):
        parent = target[:-1]
        members = get(tree, parent)
        if not target or len(members) != 1:
            break
        target = parent
    else:
        outermost = target
    bom, body = _split(text)
    edited: str = _module(syntax).remove(body, target, placement if outermost == target else Placement())
    return EditedText(bom + edited, _check_result(edited, syntax, _without(tree, target), target, added=False))


def _module(syntax: Syntax) -> Any:
    return import_module(f"mcp_hub.editing.{syntax}_text")


def _split(text: str) -> tuple[str, str]:
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)


def newline_of(text: str) -> str:
    """Returns the line end of a text: that of its first line, a line feed if it has one line."""
    at = text.find("\n")
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def nested(at: KeyPath, value: Any) -> Any:
    """Returns `value` with new objects and lists around it, as `at` names them."""
    for part in reversed(at):
        value = {part: value} if isinstance(part, str) else [value]
    return value


def get(tree: Any, at: KeyPath) -> Any:
    """Returns the value at `at`, which must exist."""
    for part in at:
        tree = tree[part]
    return tree


def has(tree: Any, at: KeyPath) -> bool:
    """Returns whether a tree has a value at `at`."""
    for part in at:
        if isinstance(tree, dict):
            if part not in tree:
                return False
        elif not isinstance(tree, list) or not isinstance(part, int) or not 0 <= part < len(tree):
            return False
        tree = tree[part]
    return True


def _with(tree: Any, at: KeyPath, value: Any, *, new: bool, around: KeyPath = ()) -> Any:
    """Returns a copy of `tree` with the value at `at`. `around` is the path of `tree`, for messages."""
    if not at:
        return value
    part, rest = at[0], at[1:]
    if tree is None:
        tree = {} if isinstance(part, str) else []
    if isinstance(tree, list) and isinstance(part, int):
        if part > len(tree):
            raise EditRefused(f"item {part} of a list of {len(tree)} is not there")
        if new and not rest and part != len(tree):
            raise EditRefused(f"item {part} is already there")
        inner = tree[part] if part < len(tree) else None
        return [*tree[:part], _with(inner, rest, value, new=new, around=(*around, part)), *tree[part + 1 :]]
    if not isinstance(tree, dict) or not isinstance(part, str):
        raise EditRefused(f"{dotted((*around, *at))} has no place: what should hold it is not an object")
    if new and not rest and part in tree:
        raise EditRefused(f"{dotted((*around, *at))} is already there")
    return {**tree, part: _with(tree.get(part), rest, value, new=new, around=(*around, part))}


def _without(tree: Any, at: KeyPath) -> Any:
    if not at:
        return None
    part, rest = at[0], at[1:]
    if isinstance(tree, list):
        number = int(part)
        inner = [_without(tree[number], rest)] if rest else []
        return [*tree[:number], *inner, *tree[number + 1 :]]
    if rest:
        return {**tree, part: _without(tree[part], rest)}
    return {key: value for key, value in tree.items() if key != part}


def _check_result(text: str, syntax: Syntax, expected: Any, at: KeyPath, *, added: bool) -> Any:
    """Returns the tree of the new text. Raises EditRefused unless it equals `expected`."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise EditRefused(f"{dotted(at)} has bytes or half characters that are not text") from None
    if size > MAX_FILE:
        raise EditRefused(f"the file would become larger than {MAX_FILE:,} bytes")
    try:
        tree = parse(text, syntax).tree
    except EditRefused:
        tree = EditRefused
    # An object whose only entry was removed becomes empty, null or absent, depending on the syntax.
    if not same(tree, expected) and (added or not same(_pruned(tree, at), _pruned(expected, at))):
        raise EditRefused(
            f"{dotted(at) or 'the top'} is written in a way that cannot be edited safely; edit it by hand"
        )
    return tree


def _pruned(tree: Any, at: KeyPath) -> Any:
    """Returns `tree` without empty values on the path `at`."""
    if tree is None or tree in ({}, []) or not at:
        return None if tree in (None, {}, []) else tree
    if isinstance(tree, dict) and at[0] in tree:
        inner = _pruned(tree[at[0]], at[1:])
        remaining = {key: value for key, value in tree.items() if key != at[0]}
        return (remaining | {at[0]: inner} if inner is not None else remaining) or None
    return tree


def same(left: Any, right: Any) -> bool:
    """Returns whether two trees are equal, types of values and NaN included."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right or (left != left and right != right))
