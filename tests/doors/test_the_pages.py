"""What the pages for those who come from another system show as `after` runs, and prints what they say."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from mcp_hub.hub.composition import read_config
from tests.doors.programs import EXAMPLES, PAGES, SERVER, blocks, output, promised

pytestmark = pytest.mark.anyio

PYTHON = "with_await.py"
PAGE_NAMES = ["agently.md", "agentscope-sop.md", "agentscope.md", "miroflow.md", "tool-system.md"]


@pytest.mark.parametrize("page", PAGE_NAMES)
async def test_the_code_of_a_page_runs_and_prints_what_the_page_says(tmp_path: Path, page: str) -> None:
    code = "\n".join(blocks(page, "python"))
    program = tmp_path / "page.py"
    program.write_text(code, encoding="utf-8")
    (tmp_path / "examples").symlink_to(EXAMPLES)
    env = {"DEMO_PYTHON": sys.executable, "DEMO_SERVER": str(SERVER)}
    printed = await output(Path(__file__).with_name(PYTHON), str(program), cwd=tmp_path, env=env)
    assert printed
    assert printed == promised(code)


@pytest.mark.parametrize("page", PAGE_NAMES)
def test_the_configuration_in_a_page_is_valid_without_warnings(tmp_path: Path, page: str) -> None:
    found = blocks(page, "yaml")
    assert found
    for number, text in enumerate(found):
        file = tmp_path / f"{number}.yaml"
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
        for name in ("tools", "work"):
            (tmp_path / name).mkdir(exist_ok=True)
        loaded = read_config(file)
        assert loaded.config.servers
        assert loaded.warnings == ()


def anchors(file: Path) -> set[str]:
    """Of the headings of a page, as they are made on the web."""
    headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGE_NAMES)
def test_links_of_a_page_lead_to_existing_targets(page: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", (PAGES / page).read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        file = PAGES / path
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_every_page_is_tested_and_linked() -> None:
    assert sorted(path.name for path in PAGES.glob("*.md")) == PAGE_NAMES
    readme = (PAGES.parents[1] / "README.md").read_text(encoding="utf-8")
    assert [page for page in PAGE_NAMES if f"docs/doors/{page}" not in readme] == []
