"""The acceptance checks of the rules, and that each of them has a test that says so."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

CHECKS = {
    1: "the lists of every transport stand side by side with their schemas",
    2: "a blacklisted tool is listed on no transport",
    3: "and refused as an unknown name is",
    5: "a scrape of a dataset gets the exact sentence, and nobody is asked",
    7: "guarded tools say the rule; guarded resources are neither listed nor readable",
    12: "a browser keeps its state between calls",
    14: "all blocks of a result arrive, in order",
    16: "a deadline ends a call and leaves the session",
    19: "a page whose server dies comes from the hub",
    22: "where that fails too, the first error is reported; other tools have no fallback",
    23: "docintel_endpoint is passed only when set",
    24: "a server that refuses twice and then accepts is called with success",
    25: "failures of the transport open the breaker, answers never do",
    26: "check fails where a required server does",
    29: "no child is left after the end",
    31: "Annotated is a type with texts, and the schema has them and the default",
    35: "a preset is not listed and always sent",
    36: "filters hold at listing and at the call",
    37: "namesakes are refused, left out, replaced or renamed, always the same",
    38: "tools of an inactive group are unlisted, say how they are switched on, and then are there",
    40: "every kind of function is a stream that ends in its last chunk, and none holds up another",
    41: "a schema by hand is used, and a property named title stays",
    42: "raw text files are denied, warned of or allowed, and always marked",
    45: "a tool set serves exactly its tools",
    46: "arguments that do not fit are refused before the server is asked",
    47: "a key reaches its server and no log",
    49: "a model without function calling gets a prompt, or an error where that is not allowed",
    50: "a call is a span with its result or its error; nothing needs opentelemetry",
}
ROOT = Path(__file__).parent


def claimed() -> dict[int, list[str]]:
    """Check -> tests whose docstring begins with its number."""
    found: dict[int, list[str]] = {}
    for path in sorted(ROOT.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                words = re.match(r"Checks? ([\d, and]+)", ast.get_docstring(node) or "")
                for number in re.findall(r"\d+", words[1]) if words else []:
                    found.setdefault(int(number), []).append(f"{path.name}::{node.name}")
    return found


@pytest.mark.parametrize("number", CHECKS)
def test_every_check_has_a_test(number: int) -> None:
    assert claimed().get(number), f"no test says that it shows check {number}: {CHECKS[number]}"


def test_no_test_claims_a_check_there_is_not() -> None:
    assert set(claimed()) <= set(CHECKS)
