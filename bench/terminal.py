"""Commands in a real terminal, in a home of their own: what they leave on the screen, and a picture of it."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSCTTY, TIOCSWINSZ
from typing import Final
from xml.etree import ElementTree

ROOT: Final = Path(__file__).parents[1]
PEERS: Final = ROOT / ".peers"
SHOWN_HOME: Final = "/home/you"
"""What stands in a picture for the home that its commands ran in, whose path is as long."""
SHOWN_PORT: Final = "8808"
"""What stands in a picture for the free port that its hub listened on: the port that is the default."""
PROGRAMS: Final = {
    "mcp-hub": Path(sys.executable).parent / "mcp-hub",
    "uvx": Path(sys.executable).parent / "uvx",
    "node": PEERS / "bin" / "node",
    "mcp-server-time": PEERS / "servers" / "bin" / "mcp-server-time",
    "mcp-server-memory": PEERS / "node" / "node_modules" / ".bin" / "mcp-server-memory",
}
"""The programs of every home. Nothing else is on its PATH, so that a picture is the same on every machine."""
CLIENT_PROGRAMS: Final = {
    "codex": PEERS / "client_programs" / "node_modules" / ".bin" / "codex",
    "gemini": PEERS / "client_programs" / "node_modules" / ".bin" / "gemini",
    "opencode": PEERS / "client_programs" / "node_modules" / "opencode-linux-x64" / "bin" / "opencode",
}
"""The client programs that a home has if a scene types their names."""
PATIENCE: Final = 120.0
"""Seconds that a command may take."""
MAX_OUTPUT: Final = 1 << 20
ROWS, COLUMNS = 50, 100
QUESTION: Final = (b"[y/N] ", b"[Y/n] ")
ERASE_LINE: Final = "\x1b[2K"
CONTROL: Final = re.compile(
    r"\n|\r|\x1b\[2K|\x1b\[\?\d+[hl]|\x1b\[(?P<up>\d*)A|(?P<text>(?:\x1b\[[\d;]*m|[^\x1b\n\r])+)"
)
"""What programs write to a terminal: line ends, erased lines, the cursor hidden or moved up, text with its colours."""
COLOUR: Final = re.compile(r"\x1b\[[\d;]*m")
ONE_TIME_SECRET: Final = re.compile(r"(?<=/ui#s=)[\w-]+")
PORT: Final = re.compile(r"(?<=127\.0\.0\.1:)\d+")

LIGHT: Final = (
    "#ffffff",
    "#1f2328",
    "#d0d7de",
    ("#24292f", "#b3261e", "#116329", "#7a4e00", "#0550ae", "#8250df", "#1b6d85", "#57606a"),
)
DARK: Final = (
    "#161b22",
    "#e6edf3",
    "#444c56",
    ("#8b949e", "#ff7b72", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#b1bac4"),
)
"""Colours of a picture: behind the text, of the text, of the frame, and the eight that programs choose from."""
CHARACTER: Final = (12.2, 24.4)
"""Width and height of a character in the units that Rich draws with."""
PIXELS: Final = 0.7
"""Pixels for each of these units, in a picture that is not made smaller."""
SVG: Final = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Scene:
    """One picture: what is typed, in which files."""

    name: str
    typed: Sequence[str]
    files: Mapping[str, str] = field(default_factory=dict)
    """Name -> text, in which `{home}` is the path of the home."""
    until: str | None = None
    """The text upon which Ctrl-C is typed, for a command that does not end by itself."""
    columns: int = COLUMNS
    """Of the terminal; a picture has `COLUMNS`."""


def text_of(scene: Scene) -> str:
    """Plays a scene, and returns what stands in the terminal then, with its colours."""
    with home_of(scene) as home:
        output = "".join(f"$ \x1b[1m{command}\x1b[0m\n{run(command, home, scene)}\n" for command in scene.typed)
    output = output.replace(str(home), SHOWN_HOME).replace(str(ROOT), f"{SHOWN_HOME}/mcp-hub")
    return PORT.sub(SHOWN_PORT, ONE_TIME_SECRET.sub("…", output)).rstrip()


@contextmanager
def home_of(scene: Scene) -> Iterator[Path]:
    """Makes an empty home with the files of a scene and the programs it needs."""
    directory = Path(tempfile.mkdtemp(prefix="", dir="/tmp"))
    home = Path("/tmp") / directory.name[: len(SHOWN_HOME) - len("/tmp/")]
    directory.rename(home)
    try:
        programs = home / ".local" / "bin"
        programs.mkdir(parents=True)
        (home / ".local" / "tmp").mkdir()
        typed = {command.split()[0] for command in scene.typed}
        for name, program in {**PROGRAMS, **CLIENT_PROGRAMS}.items():
            if name in PROGRAMS or name in typed:
                (programs / name).symlink_to(program)
        for name, text in scene.files.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{home}", str(home)))
            path.chmod(0o600)
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def run(command: str, home: Path, scene: Scene) -> str:
    """Runs a command in a terminal of its own, and returns what it left there. Raises TimeoutError after `PATIENCE`."""
    parent_fd, child_fd = pty.openpty()
    ioctl(child_fd, TIOCSWINSZ, pack("HHHH", ROWS, scene.columns, 0, 0))
    environment = {
        "HOME": str(home),
        "TMPDIR": f"{home}/.local/tmp",  # as the home is in /tmp itself, in which Codex has no home
        "PATH": f"{home}/.local/bin",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "TZ": "Europe/Berlin",
    }
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=child_fd, stdout=child_fd, stderr=child_fd, cwd=home, env=environment, start_new_session=True,
        preexec_fn=lambda: ioctl(0, TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(child_fd)
    try:
        output = _conversation(command, parent_fd, scene)
        process.wait(PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
        os.close(parent_fd)
    return "\n".join(screen(output.decode()))


def _conversation(command: str, terminal: int, scene: Scene) -> bytes:
    """Reads what is written to a terminal until its other end is closed, and types what the scene says."""
    output, until, stop = b"", time.monotonic() + PATIENCE, (scene.until or "").encode()
    while len(output) < MAX_OUTPUT:
        if not select.select([terminal], [], [], max(until - time.monotonic(), 0))[0]:
            raise TimeoutError(f"{command!r} did not end within {PATIENCE:.0f} s: {output[-500:].decode()}")
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        output += chunk
        if output.endswith(QUESTION):
            os.write(terminal, b"y\n")
        if stop and stop in output:
            os.write(terminal, b"\x03")
            stop = b""
    return output


def screen(written: str) -> list[str]:
    """Returns the lines that stay on a terminal, with their colours; of a line written anew, its last text."""
    lines, row = [""], 0
    for match in CONTROL.finditer(written):
        up, text = match["up"], match["text"]
        if match[0] == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif match[0] == ERASE_LINE:
            lines[row] = ""
        elif up is not None:
            row = max(row - int(up or 1), 0)
        elif text is not None:
            lines[row] += text
    return lines


def draw(output: str) -> str:
    """Returns the SVG of a text, light or dark as the reader has it. It loads nothing: the font is the reader's own."""
    from rich.console import Console
    from rich.terminal_theme import TerminalTheme
    from rich.text import Text

    def part(name: str, colours: tuple[str, str, str, tuple[str, ...]]) -> str:
        behind, front, _, ansi = (
            _rgb(colour) if isinstance(colour, str) else [_rgb(entry) for entry in colour] for colour in colours
        )
        theme = TerminalTheme(behind, front, ansi)  # type: ignore[arg-type]
        return console.export_svg(theme=theme, clear=False, unique_id="t", code_format=f"{{{name}}}")

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    rows = 0
    for line in output.splitlines():
        text = Text.from_ansi(line)
        for row in text.divide(range(COLUMNS, len(text), COLUMNS)):
            console.print(row, soft_wrap=True)
            rows += 1
    width, height = COLUMNS * CHARACTER[0] + 24, rows * CHARACTER[1] + 20
    pixels = f'width="{width * PIXELS:.0f}" height="{height * PIXELS:.0f}"'
    matrix = re.sub(r' clip-path="[^"]*"', "", part("matrix", LIGHT)).replace("</text>", "</text>\n")
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" {pixels}>
<style>
text {{ font: 20px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }}
rect {{ fill: {LIGHT[0]}; stroke: {LIGHT[2]} }}
{part("styles", LIGHT)}
@media (prefers-color-scheme: dark) {{
rect {{ fill: {DARK[0]}; stroke: {DARK[2]} }}
{part("styles", DARK)}
}}
</style>
<rect x="1" y="1" width="{width - 2:.0f}" height="{height - 2:.0f}" rx="8"/>
<g transform="translate(12, 8)">
{matrix}</g>
</svg>
"""


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def text_in(picture: Path) -> str:
    """Returns the text of a picture that `draw` made, line by line."""
    lines: dict[float, str] = {}
    for element in ElementTree.parse(picture).iter(f"{SVG}text"):
        row = float(element.get("y", "0"))
        lines[row] = lines.get(row, "") + (element.text or "").rstrip("\n")
    return "\n".join(line.replace("\xa0", " ") for line in lines.values())
