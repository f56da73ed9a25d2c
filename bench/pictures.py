"""The pictures of the documents, by `scripts/pictures`: commands in a terminal, drawn as SVG, and the live page."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ
from typing import Final

from bench import page_pictures

ROOT: Final = Path(__file__).parents[1]
PICTURES: Final = ROOT / "docs" / "pictures"
SHOWN_HOME: Final = "/home/you"
"""What stands in a picture for the home that its commands ran in, whose path is as long."""
PATIENCE: Final = 300.0
"""Seconds that a command may take; servers are downloaded at the first run."""
MAX_OUTPUT: Final = 1 << 20
ERASE_LINE: Final = "\x1b[2K"
CONTROL: Final = re.compile(
    r"\n|\r|\x1b\[2K|\x1b\[\?\d+[hl]|\x1b\[(?P<up>\d*)A|(?P<text>(?:\x1b\[[\d;]*m|[^\x1b\n\r])+)"
)
"""What programs write to a terminal: line ends, erased lines, the cursor hidden or moved up, text with its colours."""


@dataclass(frozen=True)
class Scene:
    """One picture: what is typed, in which files."""

    name: str
    title: str
    typed: Sequence[str]
    files: dict[str, str] = field(default_factory=dict)
    columns: int = 100
    before: Sequence[str] = ()
    """What runs before, not shown: it downloads what the commands need."""
    answer: str = "y"
    """What is typed where a command asks."""


SERVERS: Final = """\
servers:
  time:
    command: uvx
    args: [mcp-server-time==2026.10.19]
  memory:
    command: npx
    args: [-y, "@modelcontextprotocol/server-memory@2026.8.31"]
  github:
    url: https://api.githubcopilot.com/mcp/
    headers:
      Authorization: Bearer ${GITHUB_TOKEN}
"""

CLAUDE: Final = """\
{
  "mcpServers": {
    "time": {
      "command": "uvx",
      "args": ["mcp-server-time==2026.10.19"]
    }
  }
}
"""
CURSOR: Final = """\
{
  "mcpServers": {
    "clock": {
      "command": "uvx",
      "args": ["mcp-server-time==2026.10.19"]
    },
    "memory": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-memory@2026.8.31"]
    }
  }
}
"""

SCENES: Final = (
    Scene(
        "first-run",
        "mcp-hub",
        ("mcp-hub check", "mcp-hub call time__get_current_time timezone=Europe/Berlin"),
        {"servers.yaml": SERVERS},
        before=("mcp-hub check",),
    ),
    Scene(
        "setup",
        "mcp-hub setup",
        ("mcp-hub setup",),
        {".config/Claude/claude_desktop_config.json": CLAUDE, ".cursor/mcp.json": CURSOR},
        before=("mcp-hub setup --yes", "mcp-hub undo --yes"),
    ),
)


@contextmanager
def home_of(scene: Scene) -> Iterator[Path]:
    """Makes an empty home with the files of a scene and the programs it needs."""
    length = len(SHOWN_HOME)
    directory = Path(tempfile.mkdtemp(prefix="", dir="/tmp"))
    short = Path("/tmp") / directory.name[: length - len("/tmp/")]
    directory.rename(short)
    try:
        programs = short / ".local/bin"
        programs.mkdir(parents=True)
        for name in ("mcp-hub", "uvx"):
            (programs / name).symlink_to(Path(sys.executable).parent / name)
        for name, text in scene.files.items():
            path = short / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o600)
        yield short
    finally:
        shutil.rmtree(short, ignore_errors=True)


def run_in_terminal(command: str, home: Path, columns: int, answer: str) -> str:
    """Runs a command in a terminal of its own and returns what it wrote there. Raises TimeoutError after `PATIENCE`."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, pack("HHHH", 50, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name in ("SSL_CERT_FILE", "SSL_CERT_DIR")}
    environment = {
        **inherited,
        "HOME": str(home),
        "PATH": f"{home}/.local/bin:/usr/local/bin:/usr/bin:/bin",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "TZ": "Europe/Berlin",
    }
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=home, env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    said, until = b"", time.monotonic() + PATIENCE
    try:
        while len(said) < MAX_OUTPUT:
            if not select.select([ours], [], [], max(until - time.monotonic(), 0))[0]:
                raise TimeoutError(f"{command!r} did not end within {PATIENCE:.0f} s")
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            said += chunk
            if chunk.endswith(b"[y/N] "):
                os.write(ours, f"{answer}\n".encode())
        process.wait(timeout=PATIENCE)
    finally:
        process.kill()
        os.close(ours)
    return "\n".join(screen(said.decode()))


def screen(written: str) -> list[str]:
    """Returns the lines that stay on a terminal, with their colours; of a line written anew, its last text."""
    lines, row = [""], 0
    for found in CONTROL.finditer(written):
        up, text = found["up"], found["text"]
        if found[0] == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif found[0] == ERASE_LINE:
            lines[row] = ""
        elif up is not None:
            row = max(row - int(up or 1), 0)
        elif text is not None:
            lines[row] += text
    return lines


def draw(scene: Scene, said: str) -> str:
    """Returns the SVG of a scene. It loads nothing: browsers show it in their own font of fixed width."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=scene.columns, file=io.StringIO(), force_terminal=True)
    for line in said.splitlines():
        text = Text.from_ansi(line)
        for row in text.divide(range(scene.columns, len(text), scene.columns)):
            console.print(row, soft_wrap=True)
    svg = console.export_svg(title=scene.title, unique_id=scene.name)
    svg = re.sub(r"@font-face \{.*?\}\n?", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas")


def main(names: Sequence[str]) -> int:
    """Draws the scenes of these names, without one all of them."""
    known = {scene.name: scene for scene in SCENES}
    of_page = {scene.name: scene for scene in page_pictures.SCENES}
    if unknown := [name for name in names if name not in known | of_page]:
        print(f"no such picture: {', '.join(unknown)}; there are {', '.join([*known, *of_page])}", file=sys.stderr)
        return 2
    PICTURES.mkdir(exist_ok=True)
    wanted = [of_page[name] for name in names or of_page if name in of_page]
    if wanted:
        page_pictures.take(wanted, PICTURES)
    for name in names or known:
        if name not in known:
            continue
        scene = known[name]
        with home_of(scene) as home:
            for command in scene.before:
                run_in_terminal(command, home, scene.columns, scene.answer)
            said = ""
            for command in scene.typed:
                said += f"$ {command}\n{run_in_terminal(command, home, scene.columns, scene.answer)}\n"
            said = said.replace(str(home), SHOWN_HOME).replace(str(ROOT), f"{SHOWN_HOME}/mcp-hub")
        (PICTURES / f"{name}.svg").write_text(draw(scene, said.rstrip()))
        print(f"docs/pictures/{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
