"""What the pages for those who come from another system show as `after` runs, and prints what they say."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from mcp_hub.hub.composition import read_config
from tests.doors.packages import python_of
from tests.doors.programs import EXAMPLES, PAGES, RUN, SERVER, blocks, documented_output, output, search_engine
from tests.fakes.forks import python_with_sdk
from tests.peers.programs import NPM, installed

pytestmark = pytest.mark.anyio

PYTHON = "with_await.py"
ORIGINALS = {"agentscope.md": "agentscope1"}
"""Page -> the environment of the package it is about, where its program is written for that version."""
PAGE_NAMES = ["agently.md", "agentscope-sop.md", "agentscope.md", "miroflow.md", "tool-system.md"]


@pytest.mark.parametrize("page", PAGE_NAMES)
async def test_the_code_of_a_page_prints_the_output_shown_on_the_page(tmp_path: Path, page: str) -> None:
    code = "\n".join(blocks(page, "python"))
    program = tmp_path / "page.py"
    program.write_text(code, encoding="utf-8")
    (tmp_path / "examples").symlink_to(EXAMPLES)
    (tmp_path / "node_modules").symlink_to(installed(NPM))
    env = {"DEMO_PYTHON": python_with_sdk(), "DEMO_SERVER": str(SERVER)}
    async with search_engine(tmp_path) if "SEARCH_URL" in code else nullcontext("") as url:
        env["SEARCH_URL"] = url
        printed = await output(Path(__file__).with_name(PYTHON), str(program), cwd=tmp_path, env=env)
    assert printed
    assert printed == documented_output(code)


@pytest.mark.parametrize("page", ORIGINALS)
async def test_the_code_of_a_page_prints_the_same_on_the_original(tmp_path: Path, page: str) -> None:
    """The imports before the hub, then the block that stays."""
    unchanged_block = blocks(page, "python")[1]
    program = tmp_path / "page.py"
    program.write_text("\n".join([*blocks(page, "python", "before"), unchanged_block]), encoding="utf-8")
    (tmp_path / "examples").symlink_to(EXAMPLES)
    assert documented_output(unchanged_block)
    runner = Path(__file__).with_name(PYTHON)
    assert await output(runner, str(program), cwd=tmp_path, python=python_of(ORIGINALS[page])) == documented_output(
        unchanged_block
    )


async def test_the_code_of_agentlys_page_prints_the_same_on_agently(tmp_path: Path) -> None:
    """All but the end: Agently has nothing to close."""
    _, *code = blocks("agently.md", "python")
    (imports,) = blocks("agently.md", "python", "before")
    lines = [line for line in "\n".join([imports, *code]).splitlines() if "tools.close()" not in line]
    program = tmp_path / "page.py"
    program.write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "examples").symlink_to(EXAMPLES)
    runner = Path(__file__).with_name(PYTHON)
    printed = await output(runner, str(program), cwd=tmp_path, python=python_of("agently"))
    assert printed == documented_output("\n".join(code))


@pytest.mark.parametrize("page", PAGE_NAMES)
def test_the_configuration_in_a_page_is_valid_without_warnings(tmp_path: Path, page: str) -> None:
    configurations = blocks(page, "yaml")
    assert configurations
    for number, text in enumerate(configurations):
        file = tmp_path / f"{number}.yaml"
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
        for name in ("tools", "work"):
            (tmp_path / name).mkdir(exist_ok=True)
        loaded = read_config(file)
        assert loaded.config.servers
        assert loaded.warnings == ()


@pytest.mark.parametrize("page", PAGE_NAMES)
async def test_the_commands_of_a_page_print_the_output_shown_on_the_page(tmp_path: Path, page: str) -> None:
    """They are run beside the configuration that the page shows last, one after the other."""
    file = tmp_path / "servers.yaml"
    file.touch(mode=0o600)
    file.write_text(blocks(page, "yaml")[-1], encoding="utf-8")
    for name in ("tools", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "examples").symlink_to(EXAMPLES)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(python_with_sdk())
    path = os.pathsep.join([str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "HOME": str(tmp_path), "COLUMNS": "200"}
    commands = [command for text in blocks(page, "console", "") for command in re.split(r"^\$ ", text, flags=re.M)[1:]]
    assert commands
    for command, shown_output in (command.split("\n", 1) for command in commands):
        completed = subprocess.run(
            shlex.split(command), cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=RUN, check=False,
        )  # fmt: skip
        expected = re.escape(shown_output).replace(re.escape("..."), ".*")
        assert re.fullmatch(expected, completed.stdout, re.DOTALL), f"{command}\n{completed.stdout}"


def test_every_page_is_tested_and_linked() -> None:
    assert sorted(path.name for path in PAGES.glob("*.md")) == PAGE_NAMES
    readme = (PAGES.parents[1] / "README.md").read_text(encoding="utf-8")
    assert [page for page in PAGE_NAMES if f"docs/doors/{page}" not in readme] == []
