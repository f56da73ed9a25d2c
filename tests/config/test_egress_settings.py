"""The keys that say by which way servers are reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_hub.config.secret_values import secrets_of
from mcp_hub.transport.egress import Egress
from tests.config.written import only, read, refused, servers, switched_off

URL = "https://mcp.example/mcp"


def routes(directory: Path, text: str) -> dict[str, str]:
    return {
        id: Egress.of(server.egress, {}).describe_route(server.url or "")
        for id, server in servers(directory, text).items()
    }


def test_a_server_without_its_own_proxy_uses_the_root_proxy(tmp_path: Path) -> None:
    text = f"""
        proxy: http://me:${{PASS:-s3cret-word}}@proxy.example:3128
        servers:
          far: {{url: {URL}}}
          own: {{url: {URL}, proxy: "socks5h://other.example"}}
          near: {{url: {URL}, proxy: direct}}
          here: {{url: "http://127.0.0.1:9/mcp"}}
          program: {{command: cat}}
    """
    assert routes(tmp_path, text) == {
        "far": "through http://proxy.example:3128 (proxy)",
        "own": "through socks5h://other.example:1080 (proxy)",
        "near": "direct",
        "here": "direct",
        "program": "direct",
    }
    loaded = read(tmp_path, text)
    assert "s3cret-word" in set(secrets_of(loaded.config))
    assert "s3cret-word" not in repr(loaded.config)


def test_a_plain_text_proxy_password_is_a_warning(tmp_path: Path) -> None:
    text = f"servers: {{far: {{url: {URL}, proxy: 'http://me:s3cret-word-9@proxy.example'}}}}"
    assert any("plain text" in line for line in read(tmp_path, text).advice)


@pytest.mark.parametrize("value", ["ftp://proxy.example", "http://", "http://a/b", "[1]", "7", "http://me:s3cret@a b"])
def test_an_invalid_proxy_url_is_an_error_at_its_key(tmp_path: Path, value: str) -> None:
    for text, key in (
        (f"proxy: {value}\nservers: {{}}", "proxy: "),
        (f"servers: {{far: {{url: {URL}, proxy: {value}}}}}", "servers.far: is switched off: proxy: "),
    ):
        lines = refused(tmp_path, text) if key == "proxy: " else switched_off(tmp_path, text)
        assert any(key in line for line in lines)
        assert "s3cret" not in "".join(lines)


def test_certificate_file_paths_are_relative_to_the_configuration(tmp_path: Path) -> None:
    for name in ("ca.pem", "hub.pem", "hub.key"):
        (tmp_path / name).touch()
    entry = f"{{url: {URL}, ca: ca.pem, client_cert: hub.pem, client_key: hub.key, cookies: true}}"
    egress = only(tmp_path, f"servers: {{far: {entry}}}").egress
    assert (egress.ca, egress.client_cert) == (str(tmp_path / "ca.pem"), str(tmp_path / "hub.pem"))
    assert egress.client_key == str(tmp_path / "hub.key")
    assert egress.cookies


def test_a_missing_certificate_file_disables_its_entry(tmp_path: Path) -> None:
    server = only(tmp_path, f"servers: {{far: {{url: {URL}, ca: missing.pem}}}}")
    assert not server.enabled
    assert "missing.pem" in (server.disabled_reason or "")


def test_a_key_without_its_certificate_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "hub.key").touch()
    assert any(
        "client_cert" in line for line in switched_off(tmp_path, f"servers: {{a: {{url: {URL}, client_key: hub.key}}}}")
    )


def test_network_keys_of_a_command_entry_have_no_effect_and_cause_a_warning(tmp_path: Path) -> None:
    loaded = read(tmp_path, "servers: {a: {command: cat, proxy: direct, ca: x.pem, cookies: true}}")
    assert sum("has no effect" in line for line in loaded.warnings) == 3


def test_a_changed_proxy_changes_the_connection_settings_of_an_entry(tmp_path: Path) -> None:
    direct = only(tmp_path, f"servers: {{far: {{url: {URL}}}}}")
    proxied = only(tmp_path, f"proxy: http://proxy.example:1\nservers: {{far: {{url: {URL}}}}}")
    assert direct.connection != proxied.connection
