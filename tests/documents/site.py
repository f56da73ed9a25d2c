"""The site of the documents, built from the pages as they stand in the repository, with a navigation by task."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ("*.md", "LICENSE", "docs/**/*", "bench/*.md", "bench/results/*", "examples/**/*", "scripts/*")
"""What documents link to, as patterns: pages, and files that are shown as they are."""
INDEX: Final = "docs/README.md"
ROW: Final = re.compile(r"^\| ([A-Z][^|]*) \| (.*) \|$", re.MULTILINE)
LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)#]+)\)")
"""A link to a whole page; one to a section of it is found on the page itself."""
PICTURE: Final = re.compile(
    r'<picture>\n<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\n'
    r'<img alt="([^"]+)" src="([^"]+)">\n</picture>'
)
"""A picture for light and for dark readers, as GitHub shows it."""
NOTED: Final = re.compile(r"^( *```\w+) .+$", re.MULTILINE)
"""The first line of a block of code with more than its language, which is for the tests."""

GENERATOR: Final = ROOT / ".peers" / "docs" / "bin" / "zensical"
PATIENCE: Final = 120
"""Seconds that a build may take; it takes about three."""

COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")

Navigation = dict[str, dict[str, str]]
"""Task -> title of a page -> its path in the repository."""


def navigation(index: str) -> Navigation:
    """Returns the pages by task, as the table of the index has them."""
    by_task: Navigation = {}
    for task, links in ROW.findall(index):
        pages = {title: as_path(link) for title, link in LINK.findall(links)}
        if pages:
            by_task[task] = pages
    return by_task


def as_path(link: str) -> str:
    """Returns the path in the repository of what the index links to."""
    return (ROOT / INDEX).parent.joinpath(link).resolve().relative_to(ROOT).as_posix()


def settings(tasks: Navigation) -> str:
    """Returns the configuration of the generator."""
    sections = []
    for task, pages in tasks.items():
        listed = ", ".join(f"{{{json.dumps(title)} = {json.dumps(path)}}}" for title, path in pages.items())
        sections.append(f"  {{{json.dumps(task)} = [{listed}]}},\n")
    nav = f'nav = [\n  {{"mcp-hub" = "README.md"}},\n  {{"All pages" = "{INDEX}"}},\n{"".join(sections)}]\n'
    return (ROOT / "docs" / "site.toml").read_text().replace("[project]\n", f"[project]\n{nav}", 1)


def for_site(text: str) -> str:
    """Returns a page in the generator's spelling of what GitHub has another one for."""
    text = PICTURE.sub(r"![\2](\3#only-light)![\2](\1#only-dark)", text)
    return NOTED.sub(r"\1", text)


def write_sources(into: Path) -> None:
    """Writes the pages, and the configuration of the generator, into an empty directory."""
    for pattern in PAGES:
        for path in ROOT.glob(pattern):
            if path.is_file() and "__pycache__" not in path.parts:
                target = into / "pages" / path.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
                if path.suffix == ".md":
                    target.write_text(for_site(path.read_text()))
    (into / "zensical.toml").write_text(settings(navigation((ROOT / INDEX).read_text())))


def built(sources: Path) -> tuple[Path | None, str]:
    """Builds the site; returns its directory, None if the documents are not in order, and what the generator says."""
    if not GENERATOR.exists():
        raise SystemExit(f"{GENERATOR} is missing: run scripts/docs")
    done = subprocess.run(
        [GENERATOR, "build", "--strict"],
        cwd=sources,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    output = COLOUR.sub("", done.stdout)
    if done.returncode:
        # What follows the warnings is a traceback of the generator's own, except where it has no warnings.
        return None, output.partition("Traceback")[0] if "Warning" in output else output
    return sources / "site", output


def main(target: Path) -> int:
    """Builds the site in place of the one in a directory."""
    if target.exists() and not (target / "sitemap.xml").exists():
        print(f"docs: {target} is there and is no site; name another directory", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as sources:
        write_sources(Path(sources))
        site, output = built(Path(sources))
        if site is None:
            print(f"{output}docs: the documents are not in order", file=sys.stderr)
            return 1
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(site, target)
    print(f"docs: {target}; to read it: python3 -m http.server -b 127.0.0.1 -d {target}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
