"""What documents say of other hubs: their files are read and imported, and every claim has a source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from mcp_hub.cli import OK, main
from mcp_hub.config import LoadedConfig
from mcp_hub.hub.composition import read_config

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGES: Final = sorted((DOCS / "coming-from").glob("*.md"))
COMPARISON: Final = (DOCS / "comparison.md").read_text()
BLOCK: Final = re.compile(r"^```(?:json|yaml) (before|after|added)(?: (\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
VARIABLES: Final = {
    **dict.fromkeys(("API_TOKEN", "SHELL_TOKEN"), "a-value"),
    "ANN_TOKEN": "0123456789abcdef0123456789abcdef",
    "LANG": "C.UTF-8",
}
EXPECTED: Final = {
    "mcpproxy": [
        "tools_limit is not known",
        "mcpServers[2]: is switched off: the quarantine of mcpproxy",
        "profiles[0].servers is not known",
    ],
    "mcphub": [
        "mcpServers.api.visibility: has no effect",
        "mcpServers.api.sharedWithUsers: has no effect",
        "groups[0].id is not known",
    ],
}
"""What the hub says of the file as it is, where it says something."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "MCP_HUB_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**VARIABLES, "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks(page: Path) -> dict[str, str]:
    return {kind: text for kind, _, text in BLOCK.findall(page.read_text())}


def before(page: Path, directory: Path) -> Path:
    """Writes the file before, under the name that the page gives it."""
    (name,) = (name for kind, name, _ in BLOCK.findall(page.read_text()) if kind == "before")
    return written(directory / name, blocks(page)["before"])


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def loaded(path: Path) -> LoadedConfig:
    return read_config(path, VARIABLES, path.parent)


def name_of(page: Path) -> str:
    return page.stem


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_hub_reads_the_other_hubs_file_and_names_what_it_ignores(page: Path, home: Path) -> None:
    warnings = loaded(before(page, home)).warnings
    expected = EXPECTED.get(page.stem, [])
    assert len(warnings) == len(expected)
    assert all(part in line for part, line in zip(expected, warnings, strict=True))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_importing_the_other_hubs_file_writes_the_documented_result(page: Path, home: Path) -> None:
    assert main(["import", str(before(page, home)), "--yes"]) == OK
    assert (home / ".config/mcp-hub/servers.yaml").read_text() == blocks(page)["after"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_imported_file_has_the_same_servers(page: Path, home: Path) -> None:
    old = loaded(before(page, home)).config.servers
    after, added = (blocks(page).get(kind, "") for kind in ("after", "added"))
    new = loaded(written(home / "servers.yaml", after + added))
    assert new.config.servers == old
    assert all("is switched off: the quarantine" in line for line in new.warnings)
    assert yaml.safe_load(added or "{}").keys() <= yaml.safe_load(after + added).keys()


def test_fastmcp_itself_reads_the_documented_fastmcp_file(home: Path) -> None:
    from fastmcp.mcp_config import MCPConfig

    (page,) = (page for page in PAGES if page.stem == "fastmcp")
    path = before(page, home)
    theirs, ours = MCPConfig.from_file(path), loaded(path).config.servers
    assert list(theirs.mcpServers) == [server.id for server in ours]
    assert [server.transport for server in theirs.mcpServers.values()] == [server.transport for server in ours]


def test_every_hub_of_the_comparison_has_a_migration_page() -> None:
    linked = set(re.findall(r"\]\(coming-from/(\w+)\.md\)", COMPARISON))
    assert linked == {page.stem for page in PAGES} == {"1mcp", "fastmcp", "mcphub", "mcpproxy", "metamcp"}


def test_every_claim_of_the_comparison_has_a_source() -> None:
    tables = re.findall(r"^\| \| what \| source \|\n\|[-|]+\n((?:\|.*\n)+)", COMPARISON, re.MULTILINE)
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for table in tables for row in table.splitlines()]
    assert len(rows) > 50
    assert not [row for row in rows if len(row) != 3 or not (row[2] or row[1] in ("not found", "not looked at"))]
    named = set(re.findall(r"\]\[([\w-]+)\]", COMPARISON))
    defined = re.findall(
        r"^\[([\w-]+)\]: https://github\.com/[\w.-]+/[\w.-]+/blob/[0-9a-f]{40}/\S+$", COMPARISON, re.MULTILINE
    )
    assert sorted(named) == sorted(defined)


def test_every_file_of_fastmcp_that_the_comparison_names_is_in_the_package() -> None:
    import fastmcp

    package = Path(fastmcp.__file__).parents[1]
    named = set(re.findall(r"`(fastmcp/[\w/.]+)`", COMPARISON))
    assert named
    assert not [name for name in named if not (package / name).exists()]


def test_the_figures_of_the_comparison_match_the_benchmark_results() -> None:
    bench = (DOCS.parent / "bench" / "README.md").read_text()
    rows = re.findall(r"^\|[^|]+\| ([\d.,]+)[^|]*\| ([\d.,]+) \| (?:above )?([\d.,]+) \|$", COMPARISON, re.MULTILINE)
    assert len(rows) == 5
    assert not [figure for row in rows for figure in row if figure not in bench]
