"""What servers list: each thing that a person should look at is told with the code of its cure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_hub import codes
from tests.diagnosis.looking import checked, configured, reported_codes, said
from tests.fakes.client import fake
from tests.policy.screen.test_the_screen_in_the_hub import entry


def test_a_tool_that_differs_from_its_pin_is_diagnosed(tmp_path: Path) -> None:
    late = tmp_path / "late"
    config = configured(tmp_path, {"up": fake("--more-if", str(late))}, pins="warn")
    assert said("pin", "--config", str(config)).code == 0
    assert codes.PIN_DIFFERS not in checked(config)
    late.touch()
    assert codes.PIN_DIFFERS in checked(config)
    assert codes.PIN_DIFFERS in reported_codes(config)


def test_a_description_that_is_suspicious_is_diagnosed(tmp_path: Path) -> None:
    config = configured(tmp_path, {"a": entry(tmp_path)})
    assert codes.SCREEN_FLAGGED in checked(config)
    assert codes.SCREEN_FLAGGED in reported_codes(config)


def test_a_tool_that_is_not_valid_is_diagnosed(tmp_path: Path) -> None:
    config = configured(tmp_path, {"up": fake("--bad-tool")})
    assert codes.ITEM_LEFT_OUT in checked(config)
    assert codes.ITEM_LEFT_OUT in reported_codes(config)


@pytest.mark.parametrize(("on_conflict", "level"), [("keep_first", "warn"), ("raise", "fail")])
def test_an_equal_name_of_two_servers_is_diagnosed(tmp_path: Path, on_conflict: str, level: str) -> None:
    config = configured(tmp_path, {"a": fake(namespace=""), "b": fake(namespace="")}, on_conflict=on_conflict)
    assert codes.NAME_TAKEN in checked(config)
    facts = json.loads(said("doctor", "--json", "--config", str(config)).out)
    conflicts = [
        finding
        for section in facts["sections"]
        for finding in section["findings"]
        if finding["code"] == codes.NAME_TAKEN
    ]
    assert level in {finding["level"] for finding in conflicts}


def test_lookalike_names_are_diagnosed(tmp_path: Path) -> None:
    assert codes.NAME_CONFUSABLE in checked(configured(tmp_path, {"a": fake(), "A": fake()}))
