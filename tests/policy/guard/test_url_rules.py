"""The guard's rules about URLs: every way to write a guarded one, and what only looks like one."""

from __future__ import annotations

import urllib.parse
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.schema.argument_readings import argument_texts
from mcp_hub.security.url_rules import UrlRules
from mcp_hub.security.urls import parse, urls_in
from tests.tiers import EXAMPLES

RULES = UrlRules()
Json = dict[str, Any]

GUARDED = [
    "https://huggingface.co/datasets/squad",
    "HuggingFace.co/Datasets",
    "hf.co/datasets",
    "www.huggingface.co/spaces/x",
    "huggingface.co//datasets",
    "https://huggingface.co/%64atasets/x",
    "https://huggingface.co/%2564atasets/x",
    "https://huggingface.co:443/datasets",
    "http://huggingface.co:8080/datasets",
    "https://huggingface.co./datasets",
    "https://huggingface.co/models/../datasets",
    "https://huggingface.co/./spaces",
    "https://huggingface.co/models/%2e%2e/datasets",
    "https://someone-demo.hf.space/",
    "https://huggingface.co/api/datasets/x",
    "https://huggingface.co/api/spaces/x",
    "https://datasets-server.huggingface.co/rows?dataset=x",
    "https://example.com@huggingface.co/datasets",
    "https://user:pass@huggingface.co/datasets",
    "https://huggingface\u3002co/datasets",
    "https://\uff48\uff55\uff47\uff47\uff49\uff4e\uff47\uff46\uff41\uff43\uff45.co/datasets",
    "https://hugging\u200bface.co/datasets",
    "https:\\\\huggingface.co\\datasets",
    "https:huggingface.co/datasets",
    "//huggingface.co/spaces/x",
    "https://huggingface.co/dat\tasets",
    "  https://huggingface.co/datasets\n",
    "https://huggingface.co/datasets;v=1",
    "https://huggingface.co/datasets?x=1#y",
    "https://r.jina.ai/https://huggingface.co/datasets/x",
    "https://r.jina.ai/http:/huggingface.co/datasets/x",
    "https://r.jina.ai/huggingface.co/datasets/x",
    "https://web.archive.org/web/2020/https://huggingface.co/datasets",
    "https://www.google.com/url?q=https%3A%2F%2Fhuggingface.co%2Fdatasets",
    "https://example.com/go?to=https%253A%252F%252Fhuggingface.co%252Fdatasets",
    "https://example.com/go?to=//huggingface.co/datasets",
    "https://example.com/go?to=https:huggingface.co/datasets",
    "https://api.example.com/raw?url=huggingface.co%2Fdatasets%2Fx",
    "https://e.com/go?u=https%3A%2F%2Fe.com%2Fgo%3Furl%3Dhf.co%252Fdatasets",
    "https://huggingface-co.translate.goog/datasets/x?_x_tr_sl=en",
    "https://r.jina.ai/someone-demo.hf.space",
    "https://r.jina.ai/https://hugging\tface.co/datasets",
    "https://huggingface.co/dat\tasets?x=a b",
    "https://huggingface.co/models/ /../../datasets",
    "https://huggingface.co/https://../../datasets",
    "https://huggingface.co/" + "\t" * 100_000 + "datasets",
    "https://huggingface.co/" + "a" * 100_000 + "/../datasets",
    "see https://huggingface.co/" + "a" * 100_000 + "/../datasets there",
    "https://" + "x" * 100_000 + "@huggingface.co/datasets",
    "\x01https://hugging\tface.co/datasets",
    "https://example.com\\@someone-demo.hf.space",
    "https://example.com\\@huggingface.co/datasets",
    "huggingface.co:/datasets",
    "huggingface.co:443\\dat\tasets",
    "me:secret@hugging\tface.co/datasets",
    "https://huggingface.co/datasets/x/%252e%252e/%252e%252e/models",
    "https://huggingface.co/datasets/x/viewer/a;/..;/..;/..;/..;/models",
    "https://huggingface.co/datasets/x/resolve/a%2f..%2f..%2f..%2f..%2f..%2fmodels",
    "https://huggingface.co/datasets/x/viewer/a\\..\\..\\..\\..\\..\\models",
    "https://cdn-lfs.huggingface.co/datasets/x/0123",
    "https://s3.amazonaws.com/datasets.huggingface.co/x",
    "hf://datasets/owner/name/data.parquet",
    "git+https://huggingface.co/datasets/x",
    "huggingface.co/datasets,and more",
    "view-source:https://huggingface.co/datasets",
    "cache:huggingface.co/datasets/x",
    "Please open huggingface.co/datasets/squad, and read it.",
    "(see https://huggingface.co/datasets/squad)",
    '{"next": "https://huggingface.co/datasets/x"}',
    "await fetch('https://huggingface.co/datasets/x')",
]
INNOCENT = [
    "https://huggingface.co/docs/datasets",
    "https://huggingface.co/models",
    "https://huggingface.co",
    "https://huggingface.co/",
    "https://huggingface.co/bert-base-uncased",
    "https://huggingface.co/blog/datasets",
    "https://example.com/?q=huggingface.co/datasets",
    "https://duckduckgo.com/?q=huggingface.co%2Fdatasets",
    "https://huggingface.co@example.com/datasets",
    "https://example.com/datasets",
    "https://nothuggingface.co/datasets",
    "https://huggingface.co.example.com/datasets",
    "https://hf.space.example.com/",
    "The datasets of Hugging Face are nice. Datasets and spaces, too.",
    "https://[::1]:8080/datasets",
    "https://127.0.0.1/datasets",
    "https://example.com/search?query=huggingface.co/datasets&lang=en",
    "https://example.com/?next=/datasets",
    "hf://models/owner/name",
    "https://example.com/huggingface.co.html",
    "https://huggingface.co is a site and has /datasets",
    "1.5 e.g. and so on: this/that",
    "",
]


@pytest.mark.parametrize("text", GUARDED)
def test_a_guarded_url_is_refused_in_every_spelling(text: str) -> None:
    assert RULES.refuses(text) == "huggingface"


@pytest.mark.parametrize("text", INNOCENT)
def test_lookalikes_of_guarded_urls_are_let_through(text: str) -> None:
    assert RULES.refuses(text) is None


HOSTS = st.sampled_from(["huggingface.co", "hf.co", "www.huggingface.co"])
PATHS = st.sampled_from(["/datasets", "/spaces", "/datasets/a/b", "/api/datasets/x"])


@st.composite
def obfuscated(draw: st.DrawFn) -> str:
    host, path = draw(HOSTS), draw(PATHS)
    host = "".join(char.upper() if draw(st.booleans()) else char for char in host)
    host = host.replace(".", draw(st.sampled_from([".", "\u3002", "\uff0e"])))
    path = "".join(f"%{ord(char):02X}" if char != "/" and draw(st.booleans()) else char for char in path)
    path = path.replace("/", draw(st.sampled_from(["/", "//", "/./", "/x/../", "\\"])))
    url = (
        draw(st.sampled_from(["https://", "http://", "HTTPS://", "https:\\\\", "//"]))
        + draw(st.sampled_from(["", "a@", "a:b@", "example.com@"]))
        + host
        + draw(st.sampled_from(["", ".", ":443", ":8080"]))
        + path
        + draw(st.sampled_from(["", "/", "?a=b", "#c", ";d"]))
    )
    wrap = draw(
        st.sampled_from(["{}", "see {} now", "https://r.jina.ai/{}", "https://e.com/?u={}", "({})", '{{"u": "{}"}}'])
    )
    inner = urllib.parse.quote(url, safe="") if wrap.endswith("u={}") and draw(st.booleans()) else url
    if wrap.startswith("https://") and not inner.lower().startswith(("http", "%", "//")):
        inner = "https:" + inner
    return wrap.format(inner)


@given(text=obfuscated())
@settings(max_examples=16 * EXAMPLES)
def test_no_disguise_gets_a_guarded_url_through(text: str) -> None:
    assert RULES.refuses(text) == "huggingface"


@given(text=st.text(max_size=200))
@settings(max_examples=10 * EXAMPLES)
def test_url_rules_accept_any_text(text: str) -> None:
    parse(text)
    list(urls_in(text))
    RULES.refuses(text)


@pytest.mark.parametrize(
    "text",
    [
        "word. " * 800_000,
        "x" * 5_000_000,
        "https:/" * 700_000,
        "%2525" * 500_000,
        "../" * 1_000_000,
        "a." * 1_000_000,
        "https://e.com/" + "a/" * 2_000_000,
        "https://e.com/" + "a/../" * 1_000_000,
        ("https://e.com/" * 16 + " ") * 20_000,
        "https://e.com/?" + "u=https://e.com&" * 300_000,
        ("https://" + "\u00e9" * 4000 + ".x/ ") * 1000,
        "data:image/png;base64," + "////A" * 1_000_000,
        ("https://" + "\ufdfa" * 4000 + ".x/ ") * 100,
        "\ufdfa.a " * 200_000,
    ],
    ids=[
        *["prose", "one word", "schemes", "percent", "dots", "labels", "segments", "up and down", "nested", "query"],
        *["hosts", "base64", "ligatures", "short names"],
    ],
)
def test_url_rules_take_linear_time_for_megabytes_of_text(text: str) -> None:
    guarded = f"{text} https://huggingface.co/datasets/x"
    # A quadratic reading of these would take hours.
    assert RULES.refuses(guarded) in ("huggingface", "too many URLs to check")


@pytest.mark.parametrize("padding", ["x" * 9000, "x" * 200_000])
def test_a_long_text_does_not_hide_a_guarded_url(padding: str) -> None:
    assert RULES.refuses(padding + "https://huggingface.co/datasets/x") == "huggingface"
    assert RULES.refuses(f"https://{padding[:9000]}@huggingface.co/datasets") == "huggingface"


HAN_20 = ("한" * 20).encode("punycode").decode()


@pytest.mark.parametrize(
    ("written", "host", "path"),
    [
        ("http://0x7f.1/", "127.0.0.1", "/"),
        ("http://2130706433/a", "127.0.0.1", "/a"),
        ("http://0177.0.0.1", "127.0.0.1", "/"),
        ("http://[::FFFF:127.0.0.1]:80/", "::ffff:7f00:1", "/"),
        ("HTTP://B\u00fccher.example/\u00e4//b/../c", "xn--bcher-kva.example", "/\u00e4/c"),
        ("example.com:8080/x", "example.com", "/x"),
        ("http://" + "\u1112\u1161\u11ab" * 20 + ".example/", "xn--" + HAN_20 + ".example", "/"),
        ("http://a" + "\u00ad" * 2000 + "b.example/", "ab.example", "/"),
    ],
)
def test_a_url_is_read_as_a_client_would(written: str, host: str, path: str) -> None:
    url = parse(written)
    assert url is not None
    assert (url.host, url.path) == (host, path)


@pytest.mark.parametrize(
    "text", ["", "word", "mailto:a@b.example", "javascript:alert(1)", "/path", "?q", "file:///etc"]
)
def test_texts_that_no_client_would_fetch_are_not_urls(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    "text",
    [
        ",".join(f"https://example{number}.org/page/{number}" for number in range(300)),
        "\n".join(f"https://example{number}.org/page/{number}" for number in range(500)),
        "See https://en.wikipedia.org/wiki/X, e.g. this. " * 4000,
        "data:image/png;base64," + "Ab1+/" * 400_000,
    ],
    ids=["commas", "lines", "prose", "base64"],
)
def test_a_long_text_without_urls_stays_within_the_budget(text: str) -> None:
    assert RULES.refuses(text) is None


@pytest.mark.parametrize(
    ("pattern", "covered", "not_covered"),
    [
        ("example.org/a%20b*", "https://example.org/a%20bc", "https://example.org/a"),
        ("example.org/x//y*", "https://example.org/x/y/z", "https://example.org/x"),
        ("example.org/a/../b", "https://example.org/b/c", "https://example.org/a"),
        ("example.org/watch?v=1", "https://example.org/watch?t=2&v=1", "https://example.org/watch?v=2"),
        ("example.org/[a]*", "https://example.org/[a]b", "https://example.org/ab"),
        ("https://example.org:443/x", "https://example.org/x", "https://example.org:444/x"),
        ("example.org:80", "http://example.org", "https://example.org"),
        ("127.0.0.1:81", "https://r.example/127.0.0.1:81/x", "https://r.example/127.0.0.1:82/x"),
        ("example.org/a/b", "https://example.org/a/..;/../b", "https://example.org/a/c"),
        ("B\u00fccher.example/*/x", "http://xn--bcher-kva.example/y/X", "http://xn--bcher-kva.example/x"),
    ],
)
def test_a_pattern_is_normalised_like_a_url(pattern: str, covered: str, not_covered: str) -> None:
    rules = UrlRules(huggingface=False, deny=(pattern,))
    assert rules.refuses(covered) == pattern
    assert rules.refuses(not_covered) is None


@pytest.mark.parametrize(
    "text", ["https://hf.co/datasets/ours", "see https://hf.co/datasets/ours.", "[x](https://hf.co/datasets/ours)"]
)
def test_an_allowed_url_inside_a_sentence_is_allowed(text: str) -> None:
    assert UrlRules(allow=("hf.co/datasets/ours",)).refuses(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "https://hf.co/datasets/other/%252e%252e/ours",
        "https://hf.co/datasets/other/../ours",
        "https://hf.co/datasets/Ours",
        "https://hf.co/datasets/ours-too",
        "https://hf.co/spaces/x",
        "https://hf.co/spaces/x?v=2",
        "https://hf.co:8443/spaces/x?v=1",
        "hf.co/spaces/x?v=1",
    ],
)
def test_an_allowed_url_allows_no_other(text: str) -> None:
    rules = UrlRules(allow=("hf.co/datasets/ours", "hf.co:443/spaces/x?v=1"))
    assert rules.refuses(text) == "huggingface"
    assert rules.refuses("https://hf.co/spaces/x?v=1") is None


def test_deny_and_allow_patterns_can_be_configured() -> None:
    rules = UrlRules(
        deny=("example.org/private*", "*.evil.example", "https://127.0.0.1:81/secret", "bad.example"),
        allow=("ok.evil.example", "huggingface.co/datasets/ours"),
    )
    refused = ["https://example.org/Private/x", "a.evil.example/x", "http://127.0.0.1:81/secret/x", "bad.example"]
    assert all(rules.refuses(text) for text in [*refused, "http://2130706433:81/secret", "huggingface.co/datasets/y"])
    passed = ["https://example.org/", "evil.example", "https://ok.evil.example/x", "http://127.0.0.1:81/secrets"]
    assert not any(rules.refuses(text) for text in [*passed, "https://huggingface.co/datasets/ours/x"])
    assert rules.refuses("https://ok.evil.example/?u=https://huggingface.co/datasets/y") == "huggingface"
    assert UrlRules.from_json(rules.to_json()) == rules


OTHER_SCHEMES = [
    "view-source:https://example.org", "VIEW-SOURCE:https://example.org", " \t\x01view-source:https://example.org",
    "view\n-source:https://example.org", "data:text/html,<p>hello there", "data:;base64,PGI+",
    "data:image/svg+xml,<svg>",
    "javascript:location='//example.org'", "java\tscript:1/alert(1)", "vbscript:x", "blob:https://example.org/1",
    "filesystem:https://example.org/temporary/x", "file:///etc/passwd", "file:\\\\host\\x", "chrome://settings",
    "chrome-extension://x/y.html", "devtools://devtools/bundled/inspector.html", "about:config", "edge://flags",
    "ftp://example.org/x", "view-source:view-source:https://example.org",
]  # fmt: skip
ONLY_AS_A_URL = ["mailto:me@example.org", "C:\\x.html", "whatever:x", "urn:isbn:1", "gopher://example.org"]
WEB = [
    "https://example.org", "HTTP://example.org/a:b", "example.org", "example.org/view-source:x", "localhost:3000",
    "example.org:8080/x", "//example.org", "/path", "?q=data:x", "about:blank", "about:blank#x", "",
    "https:example.org",
]  # fmt: skip
TEXTS_WITHOUT_URL = [
    "note: buy milk", "javascript: the good parts", "data: see below", "file: report.pdf", "std::vector", "12:30",
    "content:foo", "data:image/png;base64,iVBORw0KGgo=", "Control+A", "site:example.org filetype:pdf", "about: me",
    "() => { const data = {file: 1}; return `chrome: ${data}` }", "mailto:me@example.org", "C:\\x.html",
]  # fmt: skip


def refused_scheme(arguments: Json, rules: UrlRules = RULES) -> str | None:
    texts = argument_texts(arguments, None)
    return next(filter(None, (rules.refused_scheme(found.text, for_url=found.for_url) for found in texts)), None)


@pytest.mark.parametrize("text", OTHER_SCHEMES)
@pytest.mark.parametrize("place", ["url", "page", "element"])
def test_a_non_web_url_is_found_in_any_argument(text: str, place: str) -> None:
    assert refused_scheme({"options": [{place: text}]}) is not None
    assert refused_scheme({place: text}, UrlRules(huggingface=False)) is None  # there are no rules


@pytest.mark.parametrize("key", ["url", "URL", "pageUrl", "start_urls", "href", "uri"])
def test_url_arguments_accept_only_schemes_known_to_be_harmless(key: str) -> None:
    for text in (*OTHER_SCHEMES, *ONLY_AS_A_URL):
        assert refused_scheme({key: [text]}) is not None, text
    for text in WEB:
        assert refused_scheme({key: [text]}) is None, text


@pytest.mark.parametrize("text", [*TEXTS_WITHOUT_URL, *WEB])
@pytest.mark.parametrize("key", ["text", "element", "function", "curly"])
def test_words_before_a_colon_are_not_schemes(key: str, text: str) -> None:
    assert refused_scheme({key: text}) is None


def test_a_scheme_can_be_allowed() -> None:
    rules = UrlRules(allow=("file:", "DATA:"))
    assert refused_scheme({"url": "FILE:///x"}, rules) is None
    assert refused_scheme({"url": "data:text/html,x"}, rules) is None
    assert refused_scheme({"url": "view-source:file:///x"}, rules) == "view-source"
    assert rules.refuses("https://huggingface.co/datasets/x") is not None
