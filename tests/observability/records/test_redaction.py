"""What is written of a call has no secret in it, is short, and still says what was asked for."""

import base64
import json
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.policy.call_record import RecordBuilder, RecordLabels
from mcp_hub.security.redaction import MASK, Redactor, is_secret_key

SECRETS = ["canary-secret-value", 'päss "wörd"\\n geheim', "line one of a key\nline two of a key\n"]
REDACTION = Redactor(SECRETS)

# fmt: off
TELLING = [
    "token", "key", "api_key", "apikey", "apiKey", "APIKEY", "X-API-Key", "password", "PaSsWoRd", "userPassword",
    "passwd", "pwd", "secret", "client.secret", "clientSecret", "authorization", "Proxy-Authorization", "cookie",
    "Set-Cookie", "credential", "credentials", "session", "sessionId", "session_id", "bearer", "private",
    "private_key", "privateKey", "accessToken", "access_tokens", "authtoken", "api_keys", "passwords", "jwt",
    "auth", "pin", "PIN", "dbPin", "user_pin", "pinCode", "pw", "dbPw", "dsn", "SENTRY_DSN", "cvv", "cvv2", "cardCVV",
    "connection_string", "connectionString", "ConnectionStrings", "db-connection-string",
]
ORDINARY = [
    "keyboard", "monkey", "tokenize_count", "turkey", "hockey", "keys", "max_tokens", "secretary", "tokenizer",
    "keyword", "author", "compass", "passenger", "assignment", "obsession", "privateer", "bearing", "url", "text",
    "query", "name", "id", "spinning", "pinned", "isPinned", "pins", "pinning", "mapping", "pipeline", "opinion",
    "pwned", "powder", "connection", "string",
]
# fmt: on


@pytest.mark.parametrize("key", TELLING)
def test_the_value_of_a_secret_key_is_hidden(key: str) -> None:
    assert is_secret_key(key)
    for value in ("x", 12345678, True, ["a", {"b": "c"}], {"deep": ["er"]}):
        assert REDACTION.value({"outer": [{key: value}]}) == {"outer": [{key: MASK}]}


@pytest.mark.parametrize("key", ORDINARY)
def test_ordinary_keys_are_shown(key: str) -> None:
    assert not is_secret_key(key)
    assert REDACTION.value({key: "x"}) == {key: "x"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:hunter2@example.org/a?b=c", "https://***@example.org/a?b=c"),
        ("see postgres://me:p%40ss@db:5432/x and ftp://u@h", "see postgres://***@db:5432/x and ftp://***@h"),
        ("https://e.org/?q=1&api_key=abc&x=2#f", "https://e.org/?q=1&api_key=***&x=2#f"),
        ("https://e.org/?key=abc;access_token=def", "https://e.org/?key=***;access_token=***"),
        ("/?u=https%3A%2F%2Fu%3Ap%40h%2F%3Ftoken%3Dabc%26q%3D1", "/?u=https%3A%2F%2F***%40h%2F%3Ftoken%3D***%26q%3D1"),
        ("Bearer abcdef", "Bearer ***"),
        ("sent bearer abc.def-123= to it", "sent bearer *** to it"),
        ('{"h": "Bearer abc123=="}', '{"h": "Bearer ***"}'),
        ("Basic dXNlcjpwYXNz", "Basic ***"),
        ("Authorization: Digest abc, response=def\nHost: e.org", "Authorization: ***\nHost: e.org"),
        ("Cookie: a=b; c=d\r\nHost: e.org", "Cookie: ***\r\nHost: e.org"),
        ("X-Api-Key: abc", "X-Api-Key: ***"),
        ("password=hunter2 user=me", "password=*** user=me"),
        ('{"apiKey": "abc", "q": "x"}', '{"apiKey": ***, "q": "x"}'),
        ('"{\\"token\\": \\"abc\\"}"', '"{\\"token\\": ***}"'),
        ("run --api-key abc --verbose", "run --api-key *** --verbose"),
    ],
)  # fmt: skip
def test_likely_secrets_in_a_text_are_hidden_by_their_context(text: str, shown: str) -> None:
    assert REDACTION.text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Basic authentication failed: the bearer token is missing",
        'Bearer realm="mcp"',
        "unknown key: retries",
        "the session: shared",
        "https://example.org/a@b?q=monkey=1",
        "'up__sleep' did not answer within 1 s (setting: servers.up.deadlines.call).",
        "it costs 5 tokens: cheap",
        "C:\\new\\table 100%",
        "",
    ],
)
def test_prose_is_not_redacted(text: str) -> None:
    assert REDACTION.text(text) == text


def forms(secret: str) -> list[str]:
    data, units = secret.encode(), secret.encode("utf-16-be").hex()
    escaped, twice = json.dumps(secret)[1:-1], json.dumps(json.dumps(secret))[1:-1]
    return [
        secret,
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        quote(quote(secret, safe=""), safe=""),
        "".join(f"%{byte:02x}" for byte in data),
        base64.b64encode(data).decode(),
        base64.urlsafe_b64encode(data).decode().rstrip("="),
        base64.b64encode(b"user:" + data + b" and more").decode(),
        base64.b64encode(b"ab" + data).decode(),
        escaped,
        json.dumps(secret, ensure_ascii=False)[1:-1],
        twice,
        "".join(f"\\u{units[n : n + 4]}" for n in range(0, len(units), 4)),
        quote(escaped, safe=""),
    ]


def leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(text for item in value.values() for text in leaves(item))]
    if isinstance(value, list):
        return [text for item in value for text in leaves(item)]
    return [value] if isinstance(value, str) else []


PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="*"), max_size=30)
SECRET = st.text(st.characters(codec="utf-8", exclude_characters="*\x00"), min_size=8, max_size=60).filter(
    lambda text: len(text.strip()) >= 8 and len(set(text)) > 3 and len(text.splitlines()) == 1
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PLAIN, inner, max_size=4),
    max_leaves=8,
)


def test_a_secret_with_escapes_in_it_is_found_in_its_escaped_form() -> None:
    secret = "0001\x1b%00"
    for form in forms(secret):
        assert form not in Redactor([secret]).text(f"a {form} b")


@given(st.data())
def test_a_known_secret_is_redacted_at_any_place_and_in_any_form(data: st.DataObject) -> None:
    secret = data.draw(SECRET)
    form = data.draw(st.sampled_from(forms(secret)))
    before, after = data.draw(PLAIN), data.draw(PLAIN)
    # Base64 around it would make it another base64 text, a backslash or a % before it another escape.
    text = f"{before} |{form}| {after}"
    tree = data.draw(JSON)
    for _ in range(data.draw(st.integers(0, 5))):
        tree = data.draw(st.sampled_from([[tree, text], {text: tree}, {"a": tree, "b": [text]}]))
    redactor = Redactor([secret, *SECRETS])
    for redacted in (redactor.value([tree, text]), redactor.redact_known([tree, text]), [redactor.text(text)]):
        for leaf in leaves(redacted):
            assert secret not in leaf
            assert form not in leaf


@given(JSON, st.integers(64, 3000))
def test_a_redacted_copy_is_bounded_and_equal_for_small_values(value: Any, budget: int) -> None:
    copy = Redactor().value([value, "x" * 5000, {"y" * 300: list(range(100))}], budget)
    assert len(json.dumps(copy)) <= budget
    small = {"text": "hello", "n": [1, 2.5, None, True], "o": {"a": {}}}
    assert Redactor().value(small) == small


def test_long_values_are_shortened_with_a_note_of_their_size() -> None:
    copy = Redactor().value({"s": "x" * 12345, "l": list(range(1000)), "n": 10**5000, "t": "short"})
    assert copy["s"] == "x" * 200 + "… (12,345 characters)"
    assert copy["l"][:3] == [0, 1, 2]
    assert copy["l"][-1] == "… 968 more"
    assert copy["n"] == "… (a number of 16,610 bits)"
    assert copy["t"] == "short"
    many = Redactor().value({str(n): n for n in range(1000)})
    assert many["…"] == "968 more"


def test_a_secret_at_the_cut_of_a_shortened_string_is_not_partly_shown() -> None:
    for offset in range(150, 210):
        redacted = REDACTION.value({"t": "." * offset + SECRETS[0] + "." * 5000})["t"]
        assert "canary" not in redacted, offset


def test_a_truncated_secret_in_a_log_line_is_hidden() -> None:
    assert REDACTION.text("said: canary-sec…") == "said: ***…"


def test_an_error_never_shows_the_beginning_of_a_secret() -> None:
    echoed = {"message": "no such thing: canary-secret-valu…", "data": ["canary-secret-valu"]}
    assert REDACTION.redact_known(echoed) is echoed
    assert REDACTION.redact_known({"message": "canary-secret-value!"}) == {"message": "***!"}


def test_a_record_never_shows_the_beginning_of_a_secret_that_an_error_repeats() -> None:
    secret = "".join(chr(ord("a") + number * 7 % 26) for number in range(65))
    records = RecordBuilder(Redactor([secret]), RecordLabels(), arguments=False)
    for before in range(0, 66, 5):
        redacted = records.text("-" * before + "\n".join([secret] * 100))
        assert secret[:10] not in redacted
        assert MASK in redacted


def test_each_line_of_a_multiline_secret_is_redacted() -> None:
    assert REDACTION.text("stderr: line two of a key") == "stderr: ***"


def test_short_values_are_not_treated_as_secrets() -> None:
    assert Redactor(["yes", "true", ""]).text("yes, it is true") == "yes, it is true"


def test_a_deep_value_is_cut_and_a_value_that_is_not_json_is_shown_by_type() -> None:
    deep: Any = "canary-secret-value"
    for _ in range(500):
        deep = [deep]
    assert "canary" not in json.dumps(REDACTION.value(deep))
    assert REDACTION.value({"b": b"bytes"}) == {"b": "… (bytes)"}


@pytest.mark.parametrize(
    "piece",
    [
        "://",
        "a:",
        "%3A%2F%2F",
        "bearer ",
        "token=",
        "\\",
        "%25",
        "'",
        'token="',
        "a",
        "--x ",
        "\\u005c",
        "canary-",
        "\x00",
    ],
)
def test_redacting_hostile_texts_terminates_with_a_bounded_copy(piece: str) -> None:
    # Where it were quadratic this would not end within the bound against hangs of the whole run.
    text = piece * (400_000 // len(piece))
    assert isinstance(REDACTION.text(text), str)
    assert len(json.dumps(REDACTION.value({"a": text, "b": [text]}))) < 2048


def test_secret_headers_in_name_value_lists_are_hidden() -> None:
    headers = [{"name": "X-Api-Key", "value": "abc"}, {"name": "Accept", "value": "text/html"}]
    assert REDACTION.value(headers) == [{"name": "X-Api-Key", "value": MASK}, headers[1]]
