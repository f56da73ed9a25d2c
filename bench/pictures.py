"""The pictures of the documents, by `scripts/pictures`: commands in a terminal, drawn as SVG, and the live page."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from bench import page_pictures
from bench.terminal import ROOT, Scene, draw, text_of

PICTURES: Final = ROOT / "docs" / "pictures"
CLIENT_PAGES: Final = sorted((ROOT / "docs" / "clients").glob("*.md"))
BLOCK: Final = re.compile(r"^```\w+ (before|after|http)(?: (\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""A file of a client on its page: its kind, its path below the home, its text."""

SERVERS: Final = """\
servers:
  time:
    command: mcp-server-time
  memory:
    command: mcp-server-memory
  github:
    url: https://api.githubcopilot.com/mcp/
    headers:
      Authorization: Bearer ${GITHUB_TOKEN}
  notes:
    command: notes-server
"""
CLAUDE: Final = """\
{
  "mcpServers": {
    "time": {
      "command": "mcp-server-time"
    }
  }
}
"""
CURSOR: Final = """\
{
  "mcpServers": {
    "clock": {
      "command": "mcp-server-time"
    },
    "memory": {
      "command": "mcp-server-memory"
    }
  }
}
"""
GRAPH: Final = """\
servers:
  memory:
    command: mcp-server-memory
    env: {MEMORY_FILE_PATH: "${HOME}/memory.jsonl"}
    disable_tools: [delete_*]
listen: {port: 0}
"""
MEMORY: Final = """\
{"type":"entity","name":"Ada","entityType":"person","observations":["asks before she deletes"]}
"""
ONE_SERVER: Final = """\
servers:
  time:
    command: mcp-server-time
"""
FIRST: Final = {"servers.yaml": SERVERS}
AT_WORK: Final = {"servers.yaml": GRAPH, "memory.jsonl": MEMORY}

SCENES: Final = (
    Scene(
        "first-run",
        ("mcp-hub check", "mcp-hub call time__get_current_time timezone=Asia/Tokyo"),
        FIRST,
    ),
    Scene(
        "setup",
        ("mcp-hub setup",),
        {".config/Claude/claude_desktop_config.json": CLAUDE, ".cursor/mcp.json": CURSOR},
    ),
    Scene("doctor", ("mcp-hub doctor",), {**FIRST, ".cursor/mcp.json": CURSOR}),
    Scene(
        "explain",
        (
            "mcp-hub call memory__search_nodes query=Ada --explain",
            "mcp-hub call memory__delete_entities entityNames=Ada --explain",
        ),
        AT_WORK,
    ),
    Scene("serve", ("mcp-hub serve --http",), AT_WORK, until="makes another one."),
)
OF_CLIENTS: Final = {
    "codex": ("codex mcp get hub", {}),
    "gemini": ("gemini mcp list", {".gemini/trustedFolders.json": '{"{home}": "TRUST_FOLDER"}'}),
    "opencode": ("opencode mcp list", {}),
}
"""What client programs say themselves of the hub, and the files that they need for it besides."""


def scenes_of_clients() -> Iterator[Scene]:
    """Yields a scene for each page of a client: the hub is put into the file that the page shows."""
    for page in CLIENT_PAGES:
        path, text = next((path, text) for kind, path, text in BLOCK.findall(page.read_text()) if kind == "before")
        own, files = OF_CLIENTS.get(page.stem, ("", {}))
        yield Scene(
            f"clients/{page.stem}",
            tuple(filter(None, (f"mcp-hub install {page.stem}", own))),
            {path: text, ".config/mcp-hub/servers.yaml": ONE_SERVER, **files},
        )


def main(names: Sequence[str]) -> int:
    """Draws the pictures of these names; without names, all of them."""
    terminal_scenes = {scene.name: scene for scene in (*SCENES, *scenes_of_clients())}
    page_scenes = {scene.name: scene for scene in page_pictures.SCENES}
    if unknown := [name for name in names if name not in terminal_scenes | page_scenes]:
        print(
            f"no such picture: {', '.join(unknown)}; there are {', '.join([*terminal_scenes, *page_scenes])}",
            file=sys.stderr,
        )
        return 2
    selected = names or [*terminal_scenes, *page_scenes]
    for name in (name for name in selected if name in terminal_scenes):
        path = PICTURES / f"{name}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(draw(text_of(terminal_scenes[name])))
        print(path.relative_to(ROOT))
    if pages := [page_scenes[name] for name in selected if name in page_scenes]:
        page_pictures.take(pages, PICTURES)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
