"""A known secret is gone in every form that SECURITY.md promises, and a text without one stays as it is."""

import base64
import html
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_hub.security.redaction import MASK, Redactor

Form = Callable[[str], str]


def hexadecimal(separator: str, upper: bool = False, group: int = 1) -> Form:
    def form(secret: str) -> str:
        digits = secret.encode().hex().upper() if upper else secret.encode().hex()
        return separator.join(digits[start : start + 2 * group] for start in range(0, len(digits), 2 * group))

    return form


def base64_of(before: bytes = b"", after: bytes = b"", *, url: bool = False) -> Form:
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    return lambda secret: encode(before + secret.encode() + after).decode()


def wrapped(form: Form, columns: int, end: str = "\n") -> Form:
    return lambda secret: end.join(textwrap.wrap(form(secret), columns, drop_whitespace=False))


def broken_at(columns: int, end: str) -> Form:
    return lambda secret: end.join(secret[start : start + columns] for start in range(0, len(secret), columns))


def utf16_escapes(secret: str) -> str:
    units = secret.encode("utf-16-be").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


FORMS: dict[str, Form] = {
    "as it is": str,
    "upper case": str.upper,
    "lower case": str.lower,
    "swapped case": str.swapcase,
    "percent": lambda secret: quote(secret, safe=""),
    "percent, lower case": lambda secret: "".join(f"%{byte:02x}" for byte in secret.encode()),
    "percent, partly": quote,
    "percent, plus": quote_plus,
    "percent twice": lambda secret: quote(quote(secret, safe=""), safe=""),
    "JSON": lambda secret: json.dumps(secret)[1:-1],
    "JSON, not ASCII": lambda secret: json.dumps(secret, ensure_ascii=False)[1:-1],
    "JSON twice": lambda secret: json.dumps(json.dumps(secret))[1:-1],
    "JSON, all of it": utf16_escapes,
    "JSON in percent": lambda secret: quote(json.dumps(secret)[1:-1], safe=""),
    "bytes of Python": lambda secret: repr(secret.encode())[2:-1],
    "HTML, named": html.escape,
    "HTML, decimal": lambda secret: "".join(f"&#{ord(char)};" for char in secret),
    "HTML, hexadecimal": lambda secret: "".join(f"&#x{ord(char):X};" for char in secret),
    "HTML in JSON": lambda secret: json.dumps(html.escape(secret))[1:-1],
    "HTML twice": lambda secret: html.escape(html.escape(secret)),
    "base64": base64_of(),
    "base64, in others, 1": base64_of(b"a", b"and more"),
    "base64, in others, 2": base64_of(b"ab", b"a"),
    "base64, in others, 3": base64_of(b"user:", b"."),
    "base64, URL": base64_of(b"user:", url=True),
    "base64 twice": lambda secret: base64_of()(base64_of()(secret)),
    "base64 twice, in others": lambda secret: base64_of(b"x")(base64_of(b"user:", b"?")(secret)),
    "base64 twice, URL": lambda secret: base64_of(b"ab", url=True)(base64_of(b"a", url=True)(secret)),
    "base64 in JSON of HTML": lambda secret: html.escape(json.dumps(base64_of()(secret))),
    "base64, 76 columns": wrapped(base64_of(b"user:" * 20, b"and more" * 20), 76),
    "base64, 64 columns, CRLF": wrapped(base64_of(b"user:" * 20, b"and more" * 20), 64, "\r\n"),
    "base64, 20 columns, indented": wrapped(base64_of(b"a"), 20, "\n    "),
    "base64 twice, 76 columns": lambda secret: wrapped(base64_of(b"a" * 50), 76)(base64_of(b"ab")(secret)),
    "base64, 20 columns, in JSON": lambda secret: json.dumps(wrapped(base64_of(b"a"), 20)(secret)),
    "hex": hexadecimal(""),
    "hex, upper case": hexadecimal("", upper=True),
    "hex, colons": hexadecimal(":"),
    "hex, blanks": hexadecimal(" ", upper=True),
    "hex, hyphens": hexadecimal("-"),
    "hex, commas": hexadecimal(", "),
    "hex, as in C": lambda secret: "0x" + hexadecimal(", 0x")(secret),
    "hex, \\x": lambda secret: "\\x" + hexadecimal("\\x")(secret),
    "hex, groups of two": hexadecimal(" ", group=2),
    "hex, wrapped": wrapped(hexadecimal(" "), 30),
    "broken by a line end": broken_at(5, "\n"),
    "broken by line ends and indented": broken_at(3, "\r\n    "),
    "broken in JSON": lambda secret: json.dumps(broken_at(4, "\n")(secret))[1:-1],
}  # fmt: skip
SECRETS = [
    "s3cr3t",
    "hunter2-Horse",
    "pässwörd ist geheim",
    "q\"u\\o'te<&>%41",
    "a" * 5 + "b" * 40,
    "x y z 0 1 2 3",
    "straße-77",
]
SECRET = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=6, max_size=60).filter(
    lambda text: len(set(text)) > 3
)
AROUND = st.text(st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters="*"), max_size=30)


def plain_letters(text: str) -> str:
    return "".join(char for char in text.casefold() if char.isalnum())


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_masked_in_every_documented_encoding(name: str, secret: str) -> None:
    form = FORMS[name](secret)
    redacted = Redactor([secret, "another-one"]).text(f"before | {form} | after")
    assert redacted.startswith("before | ")
    assert redacted.endswith(" | after")
    assert MASK in redacted
    assert plain_letters(form) not in plain_letters(redacted)


@given(SECRET, st.sampled_from(sorted(FORMS)), AROUND, AROUND)
@example("000000&a", "HTML, named", "", "")
def test_no_encoding_of_any_secret_survives_redaction(secret: str, name: str, before: str, after: str) -> None:
    form = FORMS[name](secret)
    # A bar keeps what is around it from making another encoding or another escape of it.
    text = f"{before} | {form} | {after}"
    redactor = Redactor([secret])
    for redacted in (redactor.text(text), redactor.redact_known(text)):
        assert form not in redacted
        assert MASK in redacted


@pytest.mark.parametrize("name", FORMS)
def test_a_text_cut_anywhere_shows_no_beginning_of_a_secret_in_any_encoding(name: str) -> None:
    form = FORMS[name]("sécret-of-€-" * 3)
    redactor = Redactor(["sécret-of-€-" * 3, "another-one"])
    for before in range(50, 310, 23):
        text = f"{'~' * before} | {form} | {'after ' * 1_000}"
        shown = redactor.beginning(text, 300)
        assert len(shown) == 301
        assert redactor.text(text).startswith(shown.removesuffix("…"))


@pytest.mark.parametrize(
    "text",
    [
        "The bead of a deaf dad: a faded cafe, added by bee 12:34:56 on 2024-11-05 10:20:30.",
        "aa:bb:cc:dd:ee:ff and 2001:0db8:85a3:0000:0000:8a2e:0370:7334",
        "C:\\new\\table &amp; 100%20of it &copy; \\u00e4",
        "let\nme\nin said the wolf,\r\n    and huffed",
        "aGVsbG8gd29ybGQgdGhpcyBpcyBub3RoaW5nIHNlY3JldA==",
        "def f(x):\n    return x + 1\n",
        "hunter of horses, 2 hunters",
    ],
)
def test_a_text_without_a_secret_is_unchanged(text: str) -> None:
    redaction = Redactor([*SECRETS, "let me in now", "Bead-of-a-deaf-Dad-0"])
    assert redaction.text(text) == text
    assert redaction.redact_known(text) is text


@given(AROUND, AROUND)
def test_any_text_that_does_not_hold_the_secret_is_returned_as_the_same_object(before: str, after: str) -> None:
    text = f"{before}\n{after}"
    assert Redactor(["fj39-DKw0-qpX7-zzT1"]).redact_known(text) is text


def test_a_secret_split_by_blanks_is_not_masked_but_one_split_by_a_line_break_is() -> None:
    # Only what a line end breaks is put together.
    redaction = Redactor(["letmein"])
    assert redaction.text("let me in, said\nthe wolf") == "let me in, said\nthe wolf"
    assert redaction.text("let\nmein") == MASK


def test_only_the_secret_is_masked_and_the_surrounding_text_stays() -> None:
    redaction = Redactor(["hunter2-Horse"])
    assert redaction.text("a %68unter2-Horse&b") == f"a {MASK}&b"
    assert redaction.text("a hunter2\n  -Horse\n b") == f"a {MASK}\n b"
    assert redaction.text("ä &#104;unter2-Horse; 68 75 6e 74 65 72 32 2d 48 6f 72 73 65.") == f"ä {MASK}; {MASK}."


def test_a_long_secret_is_masked_as_a_whole() -> None:
    secret = "".join(chr(33 + index * 7919 % 90) for index in range(20_000))
    redactor = Redactor([secret])
    for form in (secret, base64_of(b"a")(secret), hexadecimal("")(secret), wrapped(base64_of(), 76)(secret)):
        redacted = redactor.text(f"<< {form} >>")
        assert set(redacted) <= set("<< * >>") | set(form[:4] + form[-4:])
        assert len(redacted) < len(form) // 100


def test_a_multiline_secret_is_masked_when_its_lines_are_rewrapped() -> None:
    key = "\n".join(f"{'abcdefghij'[index]}{index * 7919}{'k' * index}QrStUv" for index in range(10))
    assert Redactor([key]).text("x " + "".join(key.split()) + " y") == f"x {MASK} y"


HOSTILE = [
    *(
        "%25",
        "%",
        "&",
        "&amp;",
        "&#38;",
        "\\",
        "\\u005c",
        "\\x5c",
        "de ad be ef ",
        "hunt",
        "hunter2-Hors",
        "\n",
        "aa\n",
    ),
    *("ß", "…", "<password>", "<a", "<a name='password'>", "password: |\n", "password:\n  ", "password: |", "--pw "),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "eyJaaaaaaaaaa.", "ghp_", "ghp_aaaaaaaaaaaaaaaa.", "pw=", "a:b@"),
    *("SG.aaaaaaaaaaaaaaaaa", '\\"pw\\":'),
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_redacting_a_hostile_text_takes_linear_time(piece: str) -> None:
    program = (
        "import json, sys, time\n"
        "from mcp_hub.security.redaction import Redactor\n"
        "piece = json.loads(sys.argv[1])\n"
        "redaction = Redactor([f'hunter2-Horse{n}-{n * 7919}' for n in range(200)])\n"
        "redaction.text('once, so that everything is made')\n"
        "def cost(size):\n"
        "    text = piece * (size // len(piece))\n"
        "    began = time.process_time(); redaction.text(text); return time.process_time() - began\n"
        "small = max(min(cost(20_000) for _ in range(3)), 0.001)\n"
        "print(cost(400_000) / small)\n"
    )
    argv = [sys.executable, "-c", program, json.dumps(piece)]
    completed = subprocess.run(argv, capture_output=True, timeout=60, cwd=Path(__file__).parents[3])
    # Twenty times the length; were it quadratic, it would be four hundred times the work.
    assert float(completed.stdout) < 120, completed.stderr
