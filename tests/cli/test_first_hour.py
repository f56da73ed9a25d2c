"""What a new user types in the first hour, and what the hub answers."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from mcp_hub import codes
from mcp_hub.cli.report import addresses_text
from mcp_hub.cli.search import _rank
from mcp_hub.config.field_types import SecretStr
from mcp_hub.config.listen import Listen, Tls
from mcp_hub.downstream.admission import Gate, Refusal, check_tokens
from mcp_hub.errors import Overloaded
from mcp_hub.policy.quotas import Quotas
from mcp_hub.registry.sources import Seed
from mcp_hub.security import Principal
from mcp_hub.security.url_rules import HUGGINGFACE_MESSAGE, UrlRules
from tests.diagnosis.looking import configured, said, written
from tests.downstream.page.opened import served_hub
from tests.fakes.client import HUB, PATIENCE, fake

TLS = Tls(cert=Path("hub.pem"), key=Path("hub.key"))


def test_several_servers_are_switched_off_by_one_command(tmp_path: Path) -> None:
    config = configured(tmp_path, {name: {"command": "true"} for name in ("a", "b", "c")})
    assert said("disable", "a", "b", "--config", str(config)).code == 0
    entries = json.loads(config.read_text())["servers"]
    assert [entries[name].get("enabled", True) for name in entries] == [False, False, True]
    assert said("enable", "b", "nowhere", "--config", str(config)).code == 2
    assert json.loads(config.read_text())["servers"] == entries


@pytest.mark.anyio
async def test_a_search_finds_the_server_of_that_name_first() -> None:
    found = (await Seed().search("git")).listings
    assert len(found) > 1
    assert min(found, key=lambda listing: _rank(listing, "git")).short_name == "git"


@pytest.mark.parametrize(
    ("listen", "pasted"),
    [
        ({"host": "0.0.0.0", "public_host": ["hub.example"]}, "http://hub.example:8809/mcp"),
        ({"host": "127.0.0.1", "public_host": ["hub.example"]}, "https://hub.example/mcp"),
        (
            {"host": "0.0.0.0", "public_host": ["hub.example"], "trusted_proxies": ["10.0.0.5"]},
            "https://hub.example/mcp",
        ),
        ({"host": "0.0.0.0", "public_host": ["hub.example:8443"]}, "https://hub.example:8443/mcp"),
        ({"host": "0.0.0.0", "public_host": ["hub.example:8809"]}, "http://hub.example:8809/mcp"),
        ({"host": "::", "public_host": ["[2001:db8::1]"]}, "http://[2001:db8::1]:8809/mcp"),
        ({"host": "0.0.0.0", "public_host": ["hub.example"], "tls": TLS}, "https://hub.example:8809/mcp"),
        ({"host": "0.0.0.0", "allowed_hosts": ["hub.example:*", "b.example"]}, "http://hub.example:8809/mcp"),
        ({"host": "127.0.0.1"}, "http://127.0.0.1:8809/mcp"),
    ],
)
def test_the_printed_address_is_that_of_the_listener_and_is_let_in(listen: dict[str, Any], pasted: str) -> None:
    settings = Listen.model_validate({**listen, "token": "t" * 40})
    scheme, host = ("http" if settings.tls is None else "https"), settings.host.replace("::", "[::]")
    text = addresses_text([f"{scheme}://{host}:8809"], settings, sse=False)
    (line,) = (line for line in text.splitlines() if "claude mcp add" in line)
    assert line.split()[8] == pasted
    gate, address = Gate(settings), urlsplit(pasted)
    assert gate.refusal([(b"host", address.netloc.encode())], 8809) is None
    for base in settings.public_bases(8809):  # a browser may open the page there
        host_header = (b"host", urlsplit(base).netloc.encode())
        assert gate.refusal([host_header, (b"origin", base.encode())], 8809) is None


def test_a_port_of_a_proxy_is_not_the_listeners_own() -> None:
    gate = Gate(Listen(host="127.0.0.1", public_host=("hub.example",), token=SecretStr("t" * 40)))
    refusal = gate.refusal([(b"host", b"hub.example"), (b"origin", b"http://hub.example:8809")], 8809)
    assert refusal is not None
    assert refusal.status == 403


@pytest.mark.parametrize(("typed", "code", "told"), [("once", 0, "hello"), ("no", 1, "permission_denied")])
def test_a_call_at_a_terminal_asks_what_is_to_be_confirmed(tmp_path: Path, typed: str, code: int, told: str) -> None:
    config = configured(tmp_path, {"up": fake()}, confirm=["up/echo"])
    controller, terminal = pty.openpty()
    argv = [*HUB, "call", "--json", "up__echo", "text=hello", "--config", str(config)]
    with subprocess.Popen(argv, stdin=terminal, stderr=terminal, stdout=subprocess.PIPE) as call:
        os.write(controller, f"{typed}\n".encode())
        out, _ = call.communicate(timeout=PATIENCE)
    os.close(controller)
    os.close(terminal)
    assert call.returncode == code
    assert told in out.decode()


@pytest.mark.anyio
async def test_errors_of_the_listener_name_what_the_user_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    token = "0123456789" * 4
    principals = {"ann": {"token": token, "limits": {"rate": 0.001, "burst": 1}}, "bob": {"token": token[::-1]}}
    listen = Listen.model_validate({"principals": principals, "limits": {"rate": 0.001, "burst": 1}})
    gate = Gate(listen)
    bare = gate.admit([(b"authorization", token.encode())])
    assert isinstance(bare, Refusal)
    assert (bare.status, "Bearer TOKEN" in bare.text) == (401, True)
    quotas = Quotas(listen)
    for name, setting in (("ann", "listen.principals.ann.limits.rate"), ("bob", "listen.limits.rate")):
        principal = Principal(name, label=name)
        quotas.enter(principal, "tools/call")()
        with pytest.raises(Overloaded) as refused:
            quotas.enter(principal, "tools/call")
        assert setting in refused.value.message
    monkeypatch.setenv("MCP_HUB_TOKEN", "short")
    weak = check_tokens(Listen.model_validate({"token": "short"}))
    assert weak is not None
    assert (weak.code, weak.startswith("MCP_HUB_TOKEN")) == (codes.TOKEN_WEAK, True)


def test_a_url_of_deny_urls_is_not_called_one_of_hugging_face() -> None:
    rules = UrlRules(deny=("bank.example",))
    texts = [rules.refusal(f"https://{place}") for place in ("bank.example/x", "huggingface.co/datasets/x")]
    assert texts[1] == HUGGINGFACE_MESSAGE
    assert texts[0] not in (None, HUGGINGFACE_MESSAGE)
    assert UrlRules(deny=("bank.example",), message="Not here.").refusal("https://bank.example") == "Not here."


@pytest.mark.parametrize(("mode", "secret", "told"), [(0o644, True, 2), (0o600, True, 1), (0o644, False, 0)])
def test_a_file_with_a_secret_that_others_can_read_is_remarked_on(
    tmp_path: Path, mode: int, secret: bool, told: int
) -> None:
    env = {"API_TOKEN": "sk-0123456789abcdef0123456789"} if secret else {}
    config = configured(tmp_path, {"up": fake(env=env)})
    config.chmod(mode)
    assert said("check", "--config", str(config)).err.count(codes.SECRET_IN_PLAIN) == told


def test_call_and_tools_name_the_line_of_the_blacklist_that_hides_a_tool(tmp_path: Path) -> None:
    servers = json.dumps({"up": fake()})
    config = written(tmp_path, f"servers: {servers}\n\nblacklist:\n  - up/echo\n")
    done = said("call", "up__echo", "--explain", "--config", str(config))
    assert (done.code, "servers.yaml:3" in done.err) == (2, True)
    listed = said("tools", "--config", str(config))
    assert "hidden: blacklist (servers.yaml:3): up/echo\n" in listed.err
    assert "up__echo" not in listed.out


@pytest.mark.anyio
async def test_the_page_names_the_lines_of_all_blacklists_that_hide_a_tool(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"up": fake()}, blacklist=["up/echo"]) as served, served.looking() as page:
        tool = await page.found("tools/up__echo")
        lines = served.config.read_text().splitlines()
        (number,) = (at for at, line in enumerate(lines, 1) if '"blacklist"' in line)
        assert tool["hidden_by"] == f"blacklist ({served.config.name}:{number})"
        served.config.write_text("{")  # a file that somebody is editing
        assert (await page.found("tools/up__echo"))["hidden_by"] == "blacklist"
