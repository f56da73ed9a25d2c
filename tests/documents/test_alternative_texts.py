"""The pictures of the documents: each is shown, says in words what is seen, and is light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.documents.site import PICTURE, ROOT

PICTURES: Final = ROOT / "docs" / "pictures"
DOCUMENTS: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKDOWN: Final = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
HTML: Final = re.compile(r"<(?:img|source|picture)\b")
FEWEST_WORDS: Final = 6
MOST_BYTES: Final = 1_000_000


class Shown(NamedTuple):
    """A picture in a document."""

    document: Path
    alternative: str
    files: tuple[Path, ...]


def pictures() -> Iterator[Shown]:
    for document in DOCUMENTS:
        text = document.read_text()
        for dark, alternative, light in PICTURE.findall(text):
            yield Shown(document, alternative, tuple((document.parent / name).resolve() for name in (light, dark)))
        for alternative, name in MARKDOWN.findall(text):
            yield Shown(document, alternative, ((document.parent / name).resolve(),))


def test_every_picture_has_an_alternative_text() -> None:
    assert not [picture for picture in pictures() if len(picture.alternative.split()) < FEWEST_WORDS]


def test_every_picture_is_shown_by_a_document_and_exists() -> None:
    files = {path for path in PICTURES.rglob("*") if path.is_file()}
    assert {path for picture in pictures() for path in picture.files} == files


def test_every_picture_has_a_light_and_a_dark_version() -> None:
    for picture in pictures():
        if len(picture.files) == 2:
            light, dark = picture.files
            assert dark.name == f"{light.stem}-dark{light.suffix}"
        else:
            assert "@media (prefers-color-scheme: dark)" in picture.files[0].read_text(), picture


def test_html_pictures_have_the_markup_that_the_site_supports() -> None:
    assert not [path for path in DOCUMENTS if HTML.search(PICTURE.sub("", path.read_text()))]


def test_all_pictures_together_are_small() -> None:
    assert sum(path.stat().st_size for path in PICTURES.rglob("*") if path.is_file()) < MOST_BYTES
