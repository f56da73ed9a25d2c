"""What a page shows can be pasted: configurations load, command lines are those of the hub, programs are Python."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from mcp_hub.codes import VALUE_WRONG, code_of
from mcp_hub.config import ConfigError
from mcp_hub.hub.composition import read_config
from tests.documents.keys import root_keys
from tests.documents.reference import parser_of

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")} - {ROOT / "docs" / "extending.md"})
"""All but that of additions to the code, whose examples have keys of their own, which another test adds."""
BLOCK: Final = re.compile(
    r"^( *)```(\w+)(?: (before|after|added|http)\b)?[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL
)
LEFT_OUT: Final = re.compile(r"^\s*\.\.\.|: \.\.\.$|\{\.\.\.\}|\[\.\.\.\]| \.\.\. ", re.MULTILINE)
"""What stands for more in an example, which then is none to be pasted."""
VARIABLE: Final = re.compile(r"\$\{(?:env:)?(\w+)")
FILE: Final = re.compile(r"\$\{file:[^}]+\}")
TOKEN: Final = "0123456789abcdef0123456789abcdef"


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """Yields the examples of a page in some languages that can be pasted."""
    for indent, language, marked, text in BLOCK.findall(page.read_text()):
        if language in languages and not marked:
            yield re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_configuration_of_a_page_loads(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    (tmp_path / "secret").write_text(TOKEN)
    (tmp_path / "secret").chmod(0o600)
    wrong = []
    for number, block in enumerate(blocks(page, "yaml", "json")):
        text = FILE.sub(f"${{file:{tmp_path}/secret}}", block)
        tree = yaml.safe_load(text)
        if LEFT_OUT.search(text) or not isinstance(tree, dict) or not tree.keys() & root_keys().keys() - {"name"}:
            continue
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(completed(tree)))
        path.chmod(0o600)
        try:
            loaded = read_config(path, dict.fromkeys(VARIABLE.findall(text), TOKEN), tmp_path)
            reasons = [server.disabled_reason for server in loaded.config.servers]
            wrong += [f"{text}\n{reason}" for reason in reasons if code_of(reason) == VALUE_WRONG]
        except ConfigError as error:
            wrong.append(f"{text}\n{error}")
    assert not wrong, "\n".join(wrong)


def completed(tree: dict[str, Any]) -> dict[str, Any]:
    """Returns a configuration with what an example of one part of it refers to."""
    servers = "servers" if not any(key in tree for key in ("mcpServers", "mcp")) else "mcpServers"
    listen = tree.get("listen")
    principals = listen.get("principals", {}) if isinstance(listen, dict) else {}
    named = {principal["profile"]: {"tools": ["x/*"]} for principal in principals.values() if "profile" in principal}
    return {servers: {}, **tree, **({"profiles": {**named, **tree.get("profiles", {})}} if named else {})}


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_line_of_a_page_is_accepted_by_the_parser(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for command, arguments in command_lines(page):
        parser, _ = parser_of(command)
        try:
            parser.parse_args(arguments)
        except SystemExit:
            wrong.append(f"mcp-hub {command} {' '.join(arguments)}: {capsys.readouterr().err}")
    assert not wrong, "\n".join(wrong)


def command_lines(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields command and arguments of each line of a shell on a page that runs the hub."""
    for text in blocks(page, "sh", "console"):
        for line in text.splitlines():
            match = re.match(r"(?:\$ )?(?:\S+/)?mcp-hub ([a-z]+)( [^>|]*)?(?:[>|].*)?$", line)
            if match is not None and (text.lstrip().startswith("$") is line.startswith("$")):
                arguments = shlex.split(match[2] or "", comments=True)
                yield match[1], [argument for argument in arguments if argument != "help"] if match[1] != "help" else []


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_code_block_of_a_page_parses(page: Path) -> None:
    for text in blocks(page, "python", "py"):
        compile(text, ids(page), "exec")
    for text in blocks(page, "toml"):
        tomllib.loads(text)
    for text in blocks(page, "json"):
        if not LEFT_OUT.search(text):
            json.loads(text)
    for text in blocks(page, "sh"):
        done = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, timeout=10, check=False)
        assert done.returncode == 0, done.stderr


def test_a_configuration_with_a_wrong_value_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("```yaml\nservers: {a: {command: x, timeout: soon}}\n```\n")
    with pytest.raises(AssertionError, match=r"timeout: not a duration"):
        test_every_configuration_of_a_page_loads(page, tmp_path, monkeypatch)


def test_a_command_line_with_a_wrong_argument_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\nmcp-hub serve --htp\n```\n")
    with pytest.raises(AssertionError, match="--htp"):
        test_every_command_line_of_a_page_is_accepted_by_the_parser(page, capsys)
