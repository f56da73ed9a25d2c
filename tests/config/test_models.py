"""Models made from Python are checked as those of a file are, and say all that is wrong at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_hub.config.entry_rules import ToolRules
from mcp_hub.config.field_types import SecretStr, ValidationError
from mcp_hub.config.listen import Introspection, Jwt, TokenVerification
from mcp_hub.config.models import Config, Deadlines, Server
from mcp_hub.config.root_rules import TracingSettings
from mcp_hub.policy.breaker import BreakerSettings
from mcp_hub.policy.limits import LimitSettings
from mcp_hub.policy.retry import RetrySettings
from mcp_hub.policy.screen import ScreenSettings

SECRET = "s3cr3t-t0k3n"
ENTRY = {"id": "a", "transport": "stdio", "command": "x", "namespace": "a"}


def test_all_invalid_values_are_reported_at_once_by_place_and_not_quoted() -> None:
    wrong = {
        "transport": SECRET, "command": 3, "namespace": "a", "args": ["a", 3, [SECRET]], "env": {"A": {"B": SECRET}},
        "health": {"ping": -1, "relist": "much", SECRET[:3]: 1}, "lazy": "perhaps",
    }  # fmt: skip
    with pytest.raises(ValidationError) as caught:
        Server.model_validate(wrong)
    assert {at for at, _ in caught.value.errors} == {
        ("id",), ("transport",), ("command",), ("args", 1), ("args", 2), ("env", "A"),
        ("health", "ping"), ("health", "relist"), ("health", "s3c"), ("lazy",),
    }  # fmt: skip
    assert SECRET not in str(caught.value)
    assert dict(caught.value.errors)["id",] == "is missing"
    assert dict(caught.value.errors)["health", "s3c"] == "is not known"


def test_values_are_converted_to_their_types() -> None:
    server = Server.model_validate({**ENTRY, "args": ["a"], "cwd": "/x", "env": {"A": "b"}, "lazy": "yes"})
    assert (server.args, server.cwd, server.env, server.lazy) == (("a",), Path("/x"), {"A": SecretStr("b")}, True)
    assert RetrySettings(attempts="3", backoff="500ms").backoff == 0.5  # type: ignore[arg-type]
    assert repr(LimitSettings.model_validate({"rate": 2}).rate) == "2.0"
    assert BreakerSettings.model_validate({"failures": 4.0}).failures == 4


@pytest.mark.parametrize(
    ("model", "wrong"),
    [
        (RetrySettings, {"attempts": 0}), (RetrySettings, {"attempts": 2.5}), (RetrySettings, {"budget": 1.1}),
        (LimitSettings, {"rate": 0}), (LimitSettings, {"rate": float("nan")}), (Deadlines, {"call": -1}),
        (Deadlines, {"call": None}),
        (ScreenSettings, {"ignore": ["nothing"]}), (TracingSettings, {"endpoint": "x"}),
        (TokenVerification, {}), (TokenVerification, {"jwt": {}}),
        (Jwt, {"issuer": "https://a", "audience": [], "jwks_uri": "https://a/k"}), (Config, {"tool_sets": [["a"]]}),
        (Introspection, {"issuer": "http://a", "endpoint": "https://a", "client_id": "c", "client_secret": "s"}),
        (Server, {**ENTRY, "url": "http://a"}), (Server, [ENTRY]),
    ],
)  # fmt: skip
def test_values_out_of_bounds_are_refused(model: type[Server], wrong: object) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(wrong)


def test_a_model_and_its_copies_know_which_fields_were_given() -> None:
    settings = ScreenSettings(mode="flag")
    assert settings == ScreenSettings()
    assert settings.model_fields_set == {"mode"}
    assert not ScreenSettings().model_fields_set
    assert hash(settings) == hash(ScreenSettings())
    changed = settings.model_copy(update={"allow": ("a",)})
    assert (changed.allow, changed.model_fields_set) == (("a",), {"mode", "allow"})
    assert (settings.allow, settings.model_fields_set) == ((), {"mode"})
    with pytest.raises(TypeError):
        settings.model_copy(update={"alow": ()})
    with pytest.raises(AttributeError):
        settings.mode = "off"  # type: ignore[misc]


def test_the_repr_of_a_model_has_no_secret() -> None:
    server = Server.model_validate({**ENTRY, "env": {"A": SECRET}, "tools": {"*": {"preset": {"key": SECRET}}}})
    assert "SecretStr('**********')" in repr(server)
    assert SECRET not in repr(server)
    assert SECRET not in f"{server.env['A']} {server}"
    assert server.env["A"].get_secret_value() == SECRET


def test_equal_entries_have_equal_descriptions_which_include_secrets() -> None:
    server, same = (Server.model_validate({**ENTRY, "env": {"A": SECRET}, "deadlines": {"call": 5}}) for _ in range(2))
    assert server == same
    assert server.connection == same.connection
    assert server.connection == server.model_copy(update={"deadlines": Deadlines(call=6)}).connection
    assert server.connection != server.model_copy(update={"env": {"A": SecretStr("another")}}).connection
    assert server.tools == {} == ToolRules().preset
