"""What a signature has to tell of a schema, read apart from the program."""

from __future__ import annotations

import json
import re
from typing import Any

from mcp_hub.search.signatures import signature


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
