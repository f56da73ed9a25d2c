"""The files of the page: small, of standards, and without a way for a text to become code."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import mcp_hub.downstream

STATIC = Path(mcp_hub.downstream.__file__).parent / "page" / "static"
FILES = sorted(STATIC.iterdir())
MODULES = [path for path in FILES if path.suffix == ".js"]
MAX_BYTES = 165_000
MAX_LINES = 400


class Index(HTMLParser):
    """The tags of the HTML file of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed((STATIC / "index.html").read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_all_files_of_the_page_are_smaller_than_165_kb_together() -> None:
    assert 0 < sum(path.stat().st_size for path in FILES) < MAX_BYTES


def test_the_page_has_no_inline_script_style_or_handler() -> None:
    for tag, attributes in Index().tags:
        assert tag not in ("style", "iframe", "object", "embed", "base", "form")
        assert not any(name == "style" or name.startswith("on") for name in attributes)
        if tag == "script":
            assert attributes == {"type": "module", "src": "/ui/static/app.js"}


def test_every_script_module_is_preloaded_and_every_resource_is_local() -> None:
    preloaded = {
        attributes["href"]
        for tag, attributes in Index().tags
        if tag == "link" and attributes.get("rel") == "modulepreload"
    }
    assert preloaded == {f"/ui/static/{path.name}" for path in MODULES}
    addresses = [
        value
        for _, attributes in Index().tags
        for name in ("href", "src")
        if (value := attributes.get(name)) is not None
    ]
    assert all(address.startswith("/ui/static/") or address == "data:," for address in addresses)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_no_script_module_parses_text_as_markup_or_code(path: Path) -> None:
    text = path.read_text()
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|setHTML"
        r"|\beval\(|new Function|srcdoc|setTimeout\(\s*[\"'`]|import\(|localStorage|document\.cookie"
    )
    assert not re.findall(forbidden, text)
    imported = re.findall(r"from \"([^\"]+)\"", text)
    assert all(re.fullmatch(r"\./\w+\.js", address) and (STATIC / address).is_file() for address in imported)
    assert len(text.splitlines()) <= MAX_LINES


def test_every_module_of_the_page_is_used() -> None:
    used = {name for path in MODULES for name in re.findall(r"from \"\./(\w+\.js)\"", path.read_text())}
    assert used | {"app.js"} == {path.name for path in MODULES}


def test_every_export_of_a_module_is_used_elsewhere() -> None:
    texts = {path: path.read_text() for path in MODULES}
    for path, text in texts.items():
        for name in re.findall(r"^export (?:async )?(?:function\*?|class|const) (\w+)", text, re.MULTILINE):
            assert any(
                re.search(rf"\b{name}\b", other_text) for other_path, other_text in texts.items() if other_path != path
            ), (path.name, name)
