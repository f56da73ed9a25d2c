"""The keys that policies own are keys of a configuration like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from mcp_hub.config import ConfigReader, LoadedConfig
from mcp_hub.config.dialect import FILTERS, ROOT_KEYS
from mcp_hub.config.entry_keys import ENTRY_KEYS, NAMES, OFFERS
from mcp_hub.config.field_types import SecretStr
from mcp_hub.config.fields import FieldValue
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.config.settings import EntryKey, Frozen, KeyReading, KeyTable, RootKey, model_key
from mcp_hub.downstream.page.config_view import ENTRY_RULES
from mcp_hub.errors import ConfigError
from mcp_hub.policy.chain import KEYS
from tests.documents.test_documents_name_what_exists import DOCUMENTS


class Hours(Frozen):
    first: int = 0
    last: int = 24


class Webhook(Frozen):
    url: str
    tokens: dict[str, SecretStr]


def read_flag(field: FieldValue, reading: KeyReading) -> bool | None:
    if isinstance(field.value, bool):
        return field.value
    reading.findings.error(field.at, "must be true or false")
    return None


HOOKS: Final = RootKey("hooks", model_key(Webhook), None)
HOURS: Final = EntryKey("hours", model_key(Hours), Hours(), spellings=("openingHours",), in_defaults=True)
QUARANTINED: Final = EntryKey("quarantined", read_flag, False)
NIGHT: Final = RootKey("night", model_key(Hours), Hours(), spellings=("nightTime",))


def read(tmp_path: Path, text: str, *keys: EntryKey[Any] | RootKey[Any]) -> LoadedConfig:
    path = tmp_path / "servers.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return ConfigReader(KeyTable.of(keys)).read_config(path, {})


def test_a_policy_key_is_read_in_every_spelling_and_defaults_if_absent(tmp_path: Path) -> None:
    text = "{servers: {a: {command: x, openingHours: {first: 9}}, b: {command: x}}, nightTime: {last: 6}}"
    config = read(tmp_path, text, HOURS, NIGHT).config
    assert [HOURS.of(server) for server in config.servers] == [Hours(first=9), Hours()]
    assert NIGHT.of(config) == Hours(last=6)
    assert NIGHT.of(NIGHT.changed(config, Hours(first=1))) == Hours(first=1)
    assert HOURS.of(HOURS.changed(config.servers[0], Hours())) == Hours()


def test_a_key_that_no_policy_owns_is_unknown(tmp_path: Path) -> None:
    text = "{servers: {a: {command: x, hours: {first: 9}}}, nigt: {last: 6}}"
    assert set(read(tmp_path, text, NIGHT).warnings) == {
        "servers.yaml:1: servers.a.hours is not known and is ignored",
        "servers.yaml:1: nigt is not known; did you mean 'night'?",
    }


def test_all_errors_of_a_key_are_reported_with_those_of_other_keys(tmp_path: Path) -> None:
    text = "servers:\n  a:\n    command: 3\n    hours: {first: x, last: y}\n  b:\n    command: x\n    hours: off\n"
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, HOURS)
    assert [line.partition(": ")[2].rpartition(": ")[0] for line in str(caught.value).splitlines()] == [
        "servers.a: is switched off: command", "servers.a.hours.first", "servers.a.hours.last", "servers.b.hours",
    ]  # fmt: skip


def test_defaults_may_set_only_the_keys_that_say_so(tmp_path: Path) -> None:
    text = "{defaults: {hours: {first: 8}, quarantined: true}, servers: {a: {command: x}}}"
    loaded = read(tmp_path, text, HOURS, QUARANTINED)
    (server,) = loaded.config.servers
    assert (HOURS.of(server), QUARANTINED.of(server)) == (Hours(first=8), False)
    assert [warning.partition(": ")[2] for warning in loaded.warnings] == [
        "defaults.quarantined is not known and is ignored"
    ]


def test_an_unsupported_restriction_disables_its_entry_until_a_policy_supports_it(tmp_path: Path) -> None:
    text = "{servers: {a: {command: x, quarantined: true}}}"
    (disabled,) = read(tmp_path, text).config.servers
    (enabled,) = read(tmp_path, text, QUARANTINED).config.servers
    assert (disabled.enabled, enabled.enabled, QUARANTINED.of(enabled)) == (False, True, True)


def test_an_unset_variable_in_a_policy_key_disables_its_entry(tmp_path: Path) -> None:
    (server,) = read(tmp_path, "{servers: {a: {command: x, hours: {first: '${FIRST}'}}}}", HOURS).config.servers
    assert not server.enabled
    assert "FIRST" in (server.disabled_reason or "")


def test_secrets_in_the_settings_of_a_policy_are_secrets_of_the_configuration(tmp_path: Path) -> None:
    text = "{servers: {}, hooks: {url: x, tokens: {a: s3cr3t-t0k3n}}}"
    assert "s3cr3t-t0k3n" in set(secrets_of(read(tmp_path, text, HOOKS).config))


@pytest.mark.parametrize("keys", [(HOURS, HOURS), (HOURS, EntryKey("openingHours", read_flag, False))])
def test_two_policies_cannot_have_one_key(keys: tuple[EntryKey[Any], ...]) -> None:
    with pytest.raises(ValueError, match="two policies have one key"):
        KeyTable.of(keys)


MAY_HOLD_SECRETS = (
    "command",
    "args",
    "env",
    "url",
    "headers",
    "apiKey",
    "auth",
    "preset",
    "proxy",
    "client_key",
    "roots",
)
GRANT = ("allow", "allow_over_network", "postprocess", "policy", "tools", "builtin", "tools_dir", "executable")


@pytest.mark.parametrize("key", MAY_HOLD_SECRETS)
def test_a_key_that_may_hold_secrets_is_not_on_the_page(key: str) -> None:
    assert key in ENTRY_KEYS
    assert key not in ENTRY_RULES


@pytest.mark.parametrize("key", [*MAY_HOLD_SECRETS, *GRANT])
def test_a_key_that_grants_or_reaches_something_belongs_to_what_is_trusted(key: str) -> None:
    assert key in ENTRY_KEYS
    assert key not in OFFERS


def test_an_entry_and_the_root_can_have_keys_of_one_name() -> None:
    table = KeyTable.of((EntryKey("night", read_flag, False), NIGHT))
    assert (len(table.entry), len(table.root)) == (1, 1)


def test_a_policy_cannot_claim_a_key_that_other_parts_read() -> None:
    assert not KEYS.entry_names.keys() & {*NAMES, *FILTERS}
    assert not KEYS.root_names & ROOT_KEYS


@pytest.mark.parametrize("name", sorted({key.name for key in (*KEYS.entry, *KEYS.root)}))
def test_every_key_of_a_policy_is_documented(name: str) -> None:
    texts = [path.read_text() for path in DOCUMENTS]
    assert any(f"`{name}`" in text or f"{name}:" in text for text in texts)
