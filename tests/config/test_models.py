"""Models made from Python are checked as those of a file are, and say all that is wrong at once."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from mcp_hub.config.checks import ValidationError
from mcp_hub.config.listen import Introspection, Jwt, Verify
from mcp_hub.config.models import Config, Deadlines, Server
from mcp_hub.config.rules import Breaker, Limits, Retry, Screen, ToolRules, Tracing
from mcp_hub.config.secret_str import SecretStr

SECRET = "s3cr3t-t0k3n"
ENTRY = {"id": "a", "transport": "stdio", "command": "x", "namespace": "a"}


def test_all_that_does_not_fit_is_said_at_once_with_its_place_and_without_its_value() -> None:
    wrong = {
        "transport": SECRET, "command": 3, "namespace": "a", "args": ["a", 3, [SECRET]], "env": {"A": {"B": SECRET}},
        "retry": {"attempts": 11, "budget": "much", SECRET[:3]: 1}, "labels": {"odd": SECRET}, "lazy": "perhaps",
    }  # fmt: skip
    with pytest.raises(ValidationError) as caught:
        Server.model_validate(wrong)
    assert {at for at, _ in caught.value.errors} == {
        ("id",), ("transport",), ("command",), ("args", 1), ("args", 2), ("env", "A"),
        ("retry", "attempts"), ("retry", "budget"), ("retry", "s3c"), ("labels", "odd"), ("lazy",),
    }  # fmt: skip
    assert SECRET not in str(caught.value)
    assert dict(caught.value.errors)["id",] == "is missing"
    assert dict(caught.value.errors)["retry", "s3c"] == "is not known"


def test_values_are_kept_as_what_their_types_are() -> None:
    server = Server.model_validate({**ENTRY, "args": ["a"], "cwd": "/x", "env": {"A": "b"}, "lazy": "yes"})
    assert (server.args, server.cwd, server.env, server.lazy) == (("a",), Path("/x"), {"A": SecretStr("b")}, True)
    assert Retry(attempts="3", backoff="500ms").backoff == 0.5  # type: ignore[arg-type]
    assert repr(Limits.model_validate({"rate": 2}).rate) == "2.0"
    assert Breaker.model_validate({"failures": 4.0}).failures == 4


@pytest.mark.parametrize(
    ("model", "wrong"),
    [
        (Retry, {"attempts": 0}), (Retry, {"attempts": 2.5}), (Retry, {"budget": 1.1}), (Limits, {"rate": 0}),
        (Limits, {"rate": float("nan")}), (Deadlines, {"call": -1}), (Deadlines, {"call": None}),
        (Retry, {"tools": "a"}),
        (Screen, {"ignore": ["nothing"]}), (Tracing, {"endpoint": "x"}), (Verify, {}), (Verify, {"jwt": {}}),
        (Jwt, {"issuer": "https://a", "audience": [], "jwks_uri": "https://a/k"}), (Config, {"blacklist": [["a"]]}),
        (Introspection, {"issuer": "http://a", "endpoint": "https://a", "client_id": "c", "client_secret": "s"}),
        (Server, {**ENTRY, "url": "http://a"}), (Server, [ENTRY]),
    ],
)  # fmt: skip
def test_what_is_out_of_bounds_is_refused(model: type[Server], wrong: object) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(wrong)


def test_a_model_knows_what_was_said_and_keeps_knowing_it_when_copied() -> None:
    said = Screen(mode="flag")
    assert said == Screen()
    assert said.model_fields_set == {"mode"}
    assert not Screen().model_fields_set
    assert hash(said) == hash(Screen())
    changed = said.model_copy(update={"allow": ("a",)})
    assert (changed.allow, changed.model_fields_set) == (("a",), {"mode", "allow"})
    assert (said.allow, copy.copy(said).model_fields_set) == ((), {"mode"})
    with pytest.raises(TypeError):
        said.model_copy(update={"alow": ()})
    with pytest.raises(AttributeError):
        said.mode = "off"  # type: ignore[misc]


def test_no_secret_is_in_what_a_model_shows_of_itself() -> None:
    server = Server.model_validate({**ENTRY, "env": {"A": SECRET}, "tools": {"*": {"preset": {"key": SECRET}}}})
    assert "SecretStr('**********')" in repr(server)
    assert SECRET not in repr(server)
    assert SECRET not in f"{server.env['A']} {server}"
    assert server.env["A"].get_secret_value() == SECRET


def test_equal_entries_are_described_alike_and_secrets_count() -> None:
    one, same = (Server.model_validate({**ENTRY, "env": {"A": SECRET}, "deadlines": {"call": 5}}) for _ in range(2))
    assert one == same
    assert one.connection == same.connection
    assert one.connection == one.model_copy(update={"deadlines": Deadlines(call=6)}).connection
    assert one.connection != one.model_copy(update={"env": {"A": SecretStr("another")}}).connection
    assert one.tools == {} == ToolRules().preset
