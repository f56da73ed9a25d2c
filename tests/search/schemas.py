"""What a signature and a stub have to tell of a schema, read apart from the program."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from mcp_hub.search.signatures import identifier_of, signature, stub
from tests.syntax import parsed_text


def parameters(shown: str) -> dict[str, str]:
    """{parameter, with its question mark: type} of a signature."""
    found, part, depth, quoted, at = {}, "", 0, False, 0
    text = shown[shown.index("(") + 1 : -1] + ", "
    while at < len(text):
        char = text[at]
        if quoted and char == "\\":
            part += text[at : at + 2]
            at += 2
            continue
        quoted = quoted != (char == '"')
        depth += 0 if quoted else (char in "({[") - (char in ")}]")
        if char == "," and not depth and not quoted:
            name, colon, kind = re.match(r'("(?:\\.|[^"\\])*"\??|[^:]*)(:? ?)(.*)', part, re.DOTALL).groups()  # type: ignore[union-attr]
            if part:
                found[name] = kind if colon else ""
            part, at = "", at + 2
            continue
        part += char
        at += 1
    return found


def check_signature(name: str, schema: Any) -> None:
    """Every required parameter is in the signature, without a question mark, with its type."""
    shown = signature(name, schema)
    assert shown.startswith(f"{name}(")
    assert shown.endswith(")")
    assert "\n" not in shown
    found, properties = parameters(shown), schema.get("properties") or {}
    for parameter in schema.get("required") or []:
        plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", parameter)
        kind = found[parameter if plain else json.dumps(parameter, ensure_ascii=False)]
        assert kind
        of = properties.get(parameter)
        if not isinstance(of, dict) or {"enum", "const", "anyOf", "oneOf", "$ref"} & set(of):
            continue
        if of.get("type") in ("string", "integer", "number", "boolean"):
            assert kind == of["type"], (parameter, shown)
        if of.get("type") == "array":
            assert kind.endswith("[]"), (parameter, shown)


PYTHON = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}


def check_stub(name: str, schema: Any, output: Any = None) -> None:
    """The stub is one line of Python, and has every required parameter with its type and without a default."""
    shown = stub(name, schema, output)
    assert "\n" not in shown
    (function,) = parsed_text(shown).body
    assert isinstance(function, ast.AsyncFunctionDef)
    assert function.name == identifier_of(name)
    spec = function.args
    without = spec.args[: len(spec.args) - len(spec.defaults)]
    found = {one.arg: ast.unparse(one.annotation) for one in without if one.annotation is not None}
    if spec.kwarg is not None:
        assert isinstance(spec.kwarg.annotation, ast.Dict)
        for key, kind in zip(spec.kwarg.annotation.keys, spec.kwarg.annotation.values, strict=True):
            assert isinstance(key, ast.Constant)
            found |= {} if ast.unparse(kind).startswith("NotRequired[") else {str(key.value): ast.unparse(kind)}
    assert found.keys() == set(schema.get("required") or [])
    for parameter, kind in found.items():
        of = (schema.get("properties") or {}).get(parameter)
        if not isinstance(of, dict) or {"enum", "const", "anyOf", "oneOf", "$ref"} & set(of):
            continue
        if isinstance(of.get("type"), str) and of["type"] in PYTHON:
            assert kind == PYTHON[of["type"]], (parameter, shown)
        if of.get("type") == "array":
            assert kind.startswith("list["), (parameter, shown)
