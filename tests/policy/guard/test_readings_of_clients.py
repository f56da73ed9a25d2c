"""What some client would fetch from Hugging Face's datasets is refused, whichever client it is."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from yarl import URL

from mcp_hub.security.url_rules import UrlRules
from tests.tiers import EXAMPLES

RULES = UrlRules()

SCHEMES = ["https://", "http://", "HTTPS://", "https:", "https:/", "https:///", "https:\\\\", "\x01https://", "//", ""]
USERS = ["", "", "a@", "a:b@", "a b@", "example.com@", "%40@", "@", "a@b@", "example.com\\@", "x'y@", "a,b;c@"]
HOSTS = ["huggingface.co", "HF.co", "www.huggingface.co", "x.hf.space", "datasets-server.huggingface.co", "hf\u3002co"]
PORTS = ["", "", ":", ":443", ":8080", ":00443", "."]
SEGMENTS = [
    *["datasets", "spaces", "api/datasets", "api/spaces", "models", "x", "", ".", "..", "%2e%2e", "%2E.", "%64atasets"],
    *["Datasets", "\t", "\n", " ", "%20", "a'", 'a"', "a b", "<", "%2f", "%5c", "\\", "..;", "%252e%252e", ";x"],
    *["datasets;y", "dat\tasets", "%00", "a,b", "(x)", "?y", "#z", "datasets%3f", "\u00e9", "\u200b", "@", "a:b", "`"],
]


@st.composite
def disguised(draw: st.DrawFn) -> str:
    path = "".join(
        draw(st.sampled_from(["/", "/", "\\", "//"])) + segment
        for segment in draw(st.lists(st.sampled_from(SEGMENTS), max_size=6))
    )
    parts = [draw(st.sampled_from(choices)) for choices in (SCHEMES, USERS, HOSTS, PORTS)]
    return "".join(parts) + path + draw(st.sampled_from(["", "?a=b c", "#f g", " ", "\n"]))


def is_guarded(host: str, path: str) -> bool:
    """By the letter, of what a client has made of a URL."""
    host = host.lower().rstrip(".")
    if host.endswith(".hf.space") or host == "datasets-server.huggingface.co":
        return True
    segments = [unquote(segment) for segment in path.split("/") if segment]
    while segments and segments[0] == "api":
        del segments[0]
    hubs = ("huggingface.co", "hf.co", "www.huggingface.co")
    return host in hubs and segments[:1] != [] and segments[0].lower() in ("datasets", "spaces")


def readings(text: str) -> Iterator[tuple[str, str]]:
    """(host, path) as the standard library and as yarl have them, for those who add a scheme too."""
    added = f"https:{text}" if text.startswith("//") else f"https://{text}"
    for written in (text, added):
        try:
            parts = urlsplit(written)
            yield parts.hostname or "", parts.path
            url = URL(written)
            yield url.raw_host or "", url.raw_path
        except ValueError:
            continue


@given(text=disguised())
@settings(max_examples=40 * EXAMPLES)
@example("https://example.com\\@x.hf.space")
@example("https://huggingface.co/dat\tasets?a=b c")
@example("https://huggingface.co/datasets/..;")
def test_urls_that_clients_read_as_guarded_are_refused(text: str) -> None:
    if any(is_guarded(host, path) for host, path in readings(text)):
        assert RULES.refuses(text) == "huggingface"


LABELS = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=12)
PATH_TEXTS = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-_~%20+", max_size=12)


@st.composite
def innocent(draw: st.DrawFn) -> str:
    host = draw(
        st.one_of(
            LABELS.map(lambda label: f"{label}.example"),
            st.sampled_from(["huggingface.co.example.org", "nothuggingface.co", "hf.space.example.org", "myhf.co"]),
        )
    )
    path = "/".join(["", *draw(st.lists(st.one_of(PATH_TEXTS, st.sampled_from(["datasets", "spaces"])), max_size=5))])
    query = draw(st.sampled_from(["", "?q=huggingface.co/datasets", "?q=hf.co%2Fspaces&page=2", "?id=7", "#datasets"]))
    wrap = draw(st.sampled_from(["{}", "see {} there", "({})", "https://r.jina.ai/{}", "[datasets]({})"]))
    return wrap.format(f"https://{host}{path}{query}")


@given(text=innocent())
@settings(max_examples=20 * EXAMPLES)
def test_urls_that_are_not_guarded_are_allowed(text: str) -> None:
    assert RULES.refuses(text) is None


@pytest.mark.parametrize("path", ["", "/", "/models", "/docs/datasets", "/blog/datasets", "/google/bert?x=datasets"])
@pytest.mark.parametrize("host", ["huggingface.co", "hf.co", "www.huggingface.co"])
def test_other_pages_of_hugging_face_are_allowed(host: str, path: str) -> None:
    for written in (f"https://{host}{path}", f"{host}{path}", f"read https://{host}{path} and its datasets"):
        assert RULES.refuses(written) is None
