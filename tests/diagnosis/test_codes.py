"""The table of the codes: complete, documented, provoked by a test each."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from mcp_hub import codes
from mcp_hub.diagnosis import OF_CALLS, remedies
from mcp_hub.diagnosis.page import anchor
from tests.diagnosis.looking import said
from tests.syntax import parsed

ROOT = Path(__file__).parents[2]
NAMES = {name: code for name, code in vars(codes).items() if isinstance(code, str) and re.fullmatch(r"HUB-\d+", code)}


def names_in(path: Path) -> set[str]:
    """The codes that a module names as `codes.NAME`."""
    return {
        node.attr
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "codes"
    } & NAMES.keys()


def test_the_table_lists_every_diagnosis_code_exactly_once() -> None:
    assert len(set(NAMES.values())) == len(NAMES)
    assert list(remedies()) == sorted(NAMES.values())


def test_the_table_of_failed_calls_lists_every_code_that_a_call_may_end_with() -> None:
    in_code: set[str] = set()
    declared = re.compile(r"^    code(?:, rpc_code)?(?:, retryable)? = \"([a-z_]+)\"", re.MULTILINE)
    for path in (ROOT / "mcp_hub").rglob("*.py"):
        in_code |= set(declared.findall(path.read_text()))
    assert in_code <= set(remedies(OF_CALLS))
    documented = set(re.findall(r"^\| `([a-z_]+)` \|", (ROOT / "docs/failures.md").read_text(), re.MULTILINE))
    assert set(remedies(OF_CALLS)) <= documented


@pytest.mark.parametrize("word", ["permission_denied", "GUARD_BLOCKED"])
def test_explain_knows_the_codes_of_failed_calls(word: str) -> None:
    done = said("explain", word)
    assert done.code == 0
    assert remedies(OF_CALLS)[word.lower()].title in done.out
    assert said("explain", "permision_denied").code == 2


def test_every_diagnosis_code_has_its_own_remedy() -> None:
    for part in ("title", "cause", "cure"):
        texts = [getattr(remedy, part) for remedy in remedies().values()]
        assert all(texts)
        assert len(set(texts)) == len(texts)


def test_every_diagnosis_code_is_used_in_the_code() -> None:
    used = set()
    for path in (ROOT / "mcp_hub").rglob("*.py"):
        if path.name != "codes.py":
            used |= NAMES.keys() & re.findall(r"\w+", path.read_text())
    assert not NAMES.keys() - used


def test_every_code_is_provoked_by_a_test() -> None:
    provoked = set().union(*map(names_in, Path(__file__).parent.glob("test_provoked_by_*.py")))
    assert not NAMES.keys() - provoked


@pytest.mark.parametrize("word", ["HUB-201", "hub-201", "201"])
def test_explain_prints_cause_remedy_and_documentation_section(word: str) -> None:
    done = said("explain", word)
    remedy = remedies()["HUB-201"]
    text = " ".join(done.out.split())
    assert (done.code, done.err) == (0, "")
    assert all(part in text for part in ("HUB-201", remedy.title, remedy.cause, remedy.cure, anchor("HUB-201")))


def test_explain_without_a_code_lists_all_codes() -> None:
    by_code = remedies() | remedies(OF_CALLS)
    assert said("explain").out.splitlines() == [f"{code}  {remedy.title}" for code, remedy in by_code.items()]


def test_explain_as_json_has_the_same_facts() -> None:
    facts = json.loads(said("explain", "104", "--json").out)
    assert facts == [
        {
            "code": "HUB-104",
            "title": remedies()["HUB-104"].title,
            "cause": remedies()["HUB-104"].cause,
            "cure": remedies()["HUB-104"].cure,
            "fix": remedies()["HUB-104"].fix,
            "page": "docs/reference/codes-configuration.md#hub-104",
        }
    ]


@pytest.mark.parametrize("word", ["HUB-999", "x", "\x1b[31m"])
def test_explain_refuses_an_unknown_code(word: str) -> None:
    done = said("explain", word)
    assert (done.code, done.out) == (2, "")
    assert "`mcp-hub explain` lists them all" in done.err
    assert "\x1b" not in done.err
