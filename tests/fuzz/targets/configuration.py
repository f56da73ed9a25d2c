"""The configuration loader: any file is a configuration or a ConfigError, and no secret is in what is said of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import read_config
from mcp_hub.text import printable
from tests.fuzz.supply import Supply

SECRET = "canary-0123456789-secret"
TOKENS = (
    *(b"servers:\n", b"mcpServers", b"  a:\n", b"    command: x\n", b"    url: https://x.example/mcp\n", b"${CANARY}"),
    *(
        b"    env: {A: ${CANARY}}\n",
        b"    headers:\n",
        b"listen:\n",
        b"  token: ${CANARY}\n",
        b'{"servers":',
        b"[servers.a]\n",
    ),
    *(
        b'command = "x"\n',
        b"&a ",
        b"*a",
        b"<<: ",
        b"!!python/object:os.system ",
        b"!!binary ",
        b"- ",
        b"|\n",
        b">\n",
        b"---\n",
    ),
    *(
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\0",
        b"\t",
        b"# x\n",
        b"1979-05-27",
        b"0x1F",
        b"1_000",
        b".inf",
        b"{" * 40,
        b"[" * 40,
    ),
    *(
        b"guard:\n",
        b"limits:\n",
        b"at_once: ",
        b"tools:\n",
        b"preset: {a: ${CANARY}}\n",
        b"deny_urls: [${CANARY}]\n",
        b'"',
        b"'",
    ),
    *(
        b"on_conflict: ${CANARY}\n",
        b"list_wait: ${CANARY}\n",
        b"timeout: ${CANARY}\n",
        b"transport: ${CANARY}\n",
        b"\\",
        b": ",
    ),
)
SEEDS = (
    b"\x00servers:\n  a:\n    command: x\n    args: [a, '${CANARY}']\n    env: {TOKEN: '${CANARY}', OTHER: 1}\n",
    b'\x01{"mcpServers": {"a": {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${CANARY}"}}}}',
    b'\x02[servers.a]\ncommand = "x"\nenv = {A = "${CANARY}"}\n',
    b"\x00listen: {port: 1, token: '${CANARY}'}\nservers:\n  a: {url: 'https://u:${CANARY}@x.example', "
    b"timeout: '${CANARY}'}\n",
    b"\x00servers: {a: {command: x, session: '${CANARY}', limits: {at_once: '${CANARY}'}}}\n"
    b"guard: {deny_urls: ['${CANARY}']}\n",
)
_SUFFIXES = (".yaml", ".json", ".toml", "", ".jsonc", ".YML")
_DIRECTORY = tempfile.TemporaryDirectory()


def target(data: bytes) -> None:
    supply = Supply(data)
    path = Path(_DIRECTORY.name, "servers" + supply.one_of(_SUFFIXES))
    path.write_bytes(supply.rest())
    path.chmod(0o600)
    try:
        loaded = read_config(path, {"CANARY": SECRET}, Path(_DIRECTORY.name))
    except ConfigError as error:
        text = str(error)
        assert text.strip()
    else:
        text = "\n".join((*loaded.warnings, *(server.disabled_reason or "" for server in loaded.config.servers)))
    assert SECRET not in text, "a value that may be a secret is quoted"
    assert all(printable(line, 100_000) == line for line in text.split("\n")), "what is said is not safe to show"
