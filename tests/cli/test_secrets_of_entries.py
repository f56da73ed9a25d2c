"""Secrets in every place of an entry: `import`, `setup` and `add` move them, and nothing prints them."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.cli import OK, UNCONFIRMED, main
from mcp_hub.cli.trial import try_servers
from mcp_hub.editing.secret_store import SecretStore, hidden
from mcp_hub.hub.composition import load_config
from tests.cli.test_import import cursor, home, own  # noqa: F401

RECORDER = """import json, os, pathlib, sys
pathlib.Path(sys.argv[1]).write_text(json.dumps({"args": sys.argv[2:], "env": dict(os.environ)}))
"""
ARGS = [
    *("--dsn=postgres://me:s3cret01@db.example/x", "Server=db;Database=x;Password=s3cret02;", "-e", "KEY=s3cret-03"),
    *("--token", "s3cretiv", "--password", "s3", '--config={"a": {"apiKey": "s3cret04"}}'),
    *("--header", "X-Custom: s3cret-05", "--header=Authorization: Bearer s3cret06", "-H", "Cookie: a=s3cret07"),
    *("https://db.example/x?api_key=s3cret08&y=1", "export A_TOKEN=s3cret-09; run --api-key s3cret10"),
    "redis://s3cret11@db.example",
]
ENVIRONMENT = {
    "DATABASE_URL": "mysql://me:s3cret21@db.example/x",
    "CONNECTION": "Server=db;Password=s3cret22;Encrypt=true",
    "DB_PASSWORD": "s3cret",
    "DB_PIN": "s323",
    "SETTINGS": '{"servers": [{"token": "s3cret24"}]}',
    "KEY": "-----BEGIN PRIVATE KEY-----\ns3cret25\n-----END PRIVATE KEY-----\n",
    "ODD_SECRET": "\ufeffs3cret26 ü\r",
    "PARTS": "postgres://me:s3cret27@${HOME}/x",
}
HEADERS = {
    "Authorization": "Basic czNjcmV0MzE=",
    "Proxy-Authorization": "s3cret32",
    "Cookie": "a=s3cret33; b=1",
    "X-Api-Key": "s3cret-34",
    "X-Custom": "s3cret-35",
    "X-Config": '{"password": "s3cret36"}',
}
PLAIN = {
    "LEVEL": "debug",
    "AUTH_TYPE": "oauth2",
    "REGION": "eu-west-1",
    "NOTES": "/home/me/notes",
    "API_KEY_FILE": "/a/b",
}
MARK = re.compile(r"s3cret|s323|czNjcmV0")


class Requests(BaseHTTPRequestHandler):
    """Records the first request, and answers none."""

    seen: list[tuple[str, dict[str, str]]]

    def do_POST(self) -> None:
        self.seen.append((self.path, dict(self.headers)))
        self.send_error(404)

    do_GET = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def requests() -> Iterator[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """An address, and the requests that it gets."""
    seen: list[tuple[str, dict[str, str]]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Requests,), {"seen": seen}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()
    thread.join()


def entries(directory: Path, address: str) -> dict[str, Any]:
    recorder, record = directory / "recorder.py", directory / "record.json"
    recorder.write_text(RECORDER)
    local = {"command": sys.executable, "args": [str(recorder), str(record), *ARGS], "env": ENVIRONMENT | PLAIN}
    return {"local": local, "web": {"url": f"http://{address}/mcp?token=s3cret41&y=1", "headers": HEADERS}}


@pytest.mark.usefixtures("home")
def test_an_imported_server_gets_the_same_texts_though_its_entry_has_no_secret(
    home: Path,  # noqa: F811
    tmp_path: Path,
    requests: tuple[str, list[tuple[str, dict[str, str]]]],
) -> None:
    cursor(home, entries(tmp_path, requests[0]))
    assert main(["import", "--yes"]) == OK
    written = own(home).read_text()
    assert not MARK.search(written)
    for text in (*PLAIN.values(), "db.example/x", "&y=1", "--token", "--password", "Bearer", "Server=db"):
        assert text in written
    asyncio.run(try_servers(load_config(own(home)).servers))
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["args"] == ARGS
    expected = {**ENVIRONMENT, **PLAIN, "PARTS": ENVIRONMENT["PARTS"].replace("${HOME}", str(home))}
    assert {name: record["env"].get(name) for name in expected} == expected
    path, headers = requests[1][0]
    assert path == "/mcp?token=s3cret41&y=1"
    assert {name: headers.get(name) for name in HEADERS} == HEADERS


def test_the_references_of_an_imported_entry_are_shown_and_not_advised_on(
    home: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    moved = {
        "local": {
            "command": sys.executable,
            "args": ["--dsn", "me:s3cret61@tcp(127.0.0.1:1)/x", "--token=s3cret62"],
            "env": {"DATABASE_URL": "mysql://me:s3cret63@127.0.0.1/x", "A_TOKEN": "s3cret64"},
        },
        "dsn": {"url": "http://127.0.0.1:1/mcp?api_key=s3cret65", "headers": {"Authorization": "Bearer s3cret66"}},
        "cache": {"command": sys.executable, "args": ["redis://:s3cret67@127.0.0.1:1/0"]},
        "ado": {"command": sys.executable, "args": ["Server=db;Password=s3cret68;Encrypt=true"]},
    }
    cursor(home, moved)
    main(["import"])
    preview = capsys.readouterr().out
    assert main(["import", "--yes"]) == OK
    references = re.findall(r"\$\{file:[^}]*\}", own(home).read_text())
    assert len(references) == 8
    assert not [reference for reference in references if reference not in preview]
    main(["check"])
    assert "[HUB-125]" not in capsys.readouterr().err


def test_no_command_prints_a_secret_of_an_entry(
    home: Path,  # noqa: F811
    tmp_path: Path,
    requests: tuple[str, list[tuple[str, dict[str, str]]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = {"command": "x", "args": "--token s3cret51", "env": {"A_TOKEN": "s3cret52"}}
    cursor(home, {**entries(tmp_path, requests[0]), "broken": broken})
    for words in (
        *(["import"], ["import", "--json"], ["setup"], ["setup", "--json"]),
        *(["import", "--yes", "--json"], ["check"], ["check", "--json"], ["doctor"], ["doctor", "--json"]),
        *(["tools"], ["tools", "--json"], ["install", "cursor"], ["install", "cursor", "--json"], ["update"]),
        *(["undo", "--list"], ["undo", "--list", "--json"], ["undo"], ["undo", "--json"]),
    ):
        main(words)
        printed = "".join(capsys.readouterr())
        assert not MARK.search(printed), words


def test_a_file_with_secrets_in_clear_is_advised_on_and_shown_without_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"servers": entries(tmp_path, "127.0.0.1:1")}, indent=1))
    config.chmod(0o600)
    main(["check", "--config", str(config)])
    advice = "".join(capsys.readouterr())
    for place in ("local.env.DATABASE_URL", "local.env.PARTS", "local.args", "web.headers.X-Custom", "web.url"):
        assert place in advice
    for name in PLAIN:
        assert f"env.{name}" not in advice
    printed = advice
    for words in (["check", "--json"], ["doctor", "--json"], ["tools"], ["disable", "local"], ["remove", "local"]):
        main([*words, "--config", str(config)])
        printed += "".join(capsys.readouterr())
    assert not MARK.search(printed)


def test_add_moves_the_secrets_of_a_command_line_and_of_an_address(
    home: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = ["--off", "--", "uvx", "notes@1.0.0", "--dsn=postgres://me:s3cret01@db.example/x", "--token", "s3cret02"]
    assert main(["add", "notes", *line]) == UNCONFIRMED
    assert main(["add", "notes", "--yes", *line]) == OK
    assert main(["add", "web", "https://me:s3cret03@x.example/mcp?api_key=s3cret04", "--off", "--yes"]) == OK
    assert main(["undo", "--list"]) == OK
    assert not MARK.search("".join(capsys.readouterr()) + own(home).read_text())
    notes, web = load_config(own(home)).servers
    assert notes.args == tuple(line[3:])
    assert web.url == "https://me:s3cret03@x.example/mcp?api_key=s3cret04"


@pytest.mark.parametrize("text", ["a\n", "a\r", "a\r\n", "a\n\n", "\ufeffa", " a ", "a$${b", "ä", "a\nb"])
def test_every_secret_is_read_back_as_it_was(tmp_path: Path, text: str) -> None:
    store = SecretStore(tmp_path / "secrets", in_keyring=False)
    values, secrets = store.without_secrets("s", {"command": "x", "env": {"A_TOKEN": f"s3cret-{text}"}})
    for _, secret in secrets:
        assert secret.edit is not None
        secret.edit.apply()
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"servers": {"s": values}}))
    config.chmod(0o600)
    server = load_config(config).servers[0]
    assert server.env["A_TOKEN"].get_secret_value() == f"s3cret-{text}".replace("$${", "${")
    assert store.without_secrets("s", {"command": "x", "env": {"A_TOKEN": f"s3cret-{text}"}})[0] == values


@pytest.mark.parametrize(
    "entry",
    [
        {
            "command": "x",
            "args": ["--auth", "oauth2", "--session-mode=persistent", "--key-count=3", "--token-file=/a/b"],
        },
        {"command": "x", "args": ["git+ssh://git@github.com/a/b", "--api-key", "YOUR_API_KEY", "https://x.example/y"]},
        {
            "command": "x",
            "args": ["postgres://${USER}:${PASSWORD}@db.example/x", "--header", "Authorization:${HEADER}"],
        },
        {
            "command": "x",
            "env": {"API_KEY": "${KEY}", "AUTH_TYPE": "oauth2", "KEY_COUNT": "100000", "USE_TOKEN": "true"},
        },
        {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${T}", "X-MCP-Toolsets": "repos,issues"}},
        {"url": "https://x.example/mcp", "headers": {"MCP-Protocol-Version": "2025-06-18", "Accept": "a/b;q=0.9x"}},
        {"url": "https://x.example/mcp", "auth": "oauth", "oauth": {"token_endpoint": "https://x.example/token"}},
        {"command": "x", "tools": {"a": {"description": "Its token: abcdef1"}}},
    ],
)
def test_what_is_no_secret_stays_where_it_is(entry: dict[str, Any]) -> None:
    assert hidden(entry) == entry
