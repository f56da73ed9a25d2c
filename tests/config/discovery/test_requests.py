"""What the arguments of a native tool make of its endpoint: only the values it has places for."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.config.native_tools import (
    InvalidArgument,
    NativeParameter,
    NativeToolDefinition,
    PointerNotFound,
    resolve_pointer,
)

VALUES = (
    st.text() | st.integers() | st.floats(allow_nan=False) | st.booleans() | st.sampled_from(["..", "a/../b", "%2e%2e"])
)


def tool(**fields: Any) -> NativeToolDefinition:
    parameters = (
        NativeParameter("id", "path", {"type": "string"}, True),
        NativeParameter("q", "query", {"type": "string"}),
        NativeParameter("X-Region", "header", {"type": "string"}),
        NativeParameter("note", "body", {"type": "string"}),
    )
    values: dict[str, Any] = {"method": "POST", "parameters": parameters, "query": (("key", "fixed"),), **fields}
    return NativeToolDefinition("t", "words", "http://api.test:8080/v1/users/{id}/notes", **values)


@given(VALUES, VALUES, VALUES)
def test_no_argument_value_changes_the_endpoint(one: Any, two: Any, three: Any) -> None:
    try:
        request = tool().request({"id": one, "q": two, "X-Region": three})
    except InvalidArgument:
        return
    parts = urlsplit(request.url)
    segments = parts.path.split("/")
    assert (parts.scheme, parts.netloc, parts.fragment) == ("http", "api.test:8080", "")
    assert [segments[index] for index in (0, 1, 2, 4)] == ["", "v1", "users", "notes"]
    assert len(segments) == 5
    assert segments[3]
    assert not {".", ".."} & set(unquote(parts.path).replace("\\", "/").split("/"))
    assert parts.query.startswith("key=fixed&q=")
    assert parts.query.count("&") == 1
    assert request.headers["X-Region"].isprintable()


@pytest.mark.parametrize("value", ["..", ".", "", "a/../../admin", "..\\x", "\ud800"])
def test_an_argument_that_would_change_the_path_is_refused(value: str) -> None:
    with pytest.raises(InvalidArgument):
        tool().request({"id": value})


@pytest.mark.parametrize("value", ["a\r\nHost: evil", "ä", "\x00"])
def test_a_header_argument_must_be_one_line_of_ascii(value: str) -> None:
    with pytest.raises(InvalidArgument):
        tool().request({"id": "1", "X-Region": value})


def test_defaults_are_used_and_null_counts_as_missing() -> None:
    parameters = (
        NativeParameter("days", "query", {"type": "integer", "default": 3}),
        NativeParameter("tags", "query", {"type": "array"}),
        NativeParameter("gone", "query", {"type": "string"}),
    )
    definition = tool(method="GET", parameters=(NativeParameter("id", "path", {}, True), *parameters), query=())
    request = definition.request({"id": "a b", "gone": None, "tags": ["x", True]})
    assert request.url == "http://api.test:8080/v1/users/a%20b/notes?days=3&tags=x&tags=true"
    assert request.body is None


def test_a_request_body_is_sent_as_json_or_as_a_form() -> None:
    arguments = {"id": 7, "note": "ä&b"}
    assert tool().request(arguments).body == '{"note": "ä&b"}'.encode()
    form = tool(form=True).request(arguments)
    assert (form.body, form.headers["Content-Type"]) == (b"note=%C3%A4%26b", "application/x-www-form-urlencoded")


def test_a_native_tool_survives_serialization() -> None:
    assert NativeToolDefinition.from_json(tool().to_json()) == tool()


def test_a_json_pointer_selects_through_objects_and_lists() -> None:
    value = {"a/b": [{"~": 1}]}
    assert resolve_pointer(value, "/a~1b/0/~0") == 1
    assert resolve_pointer(value, "") is value
    for wrong in ("/a~1b/1", "/x", "/a~1b/-1"):
        with pytest.raises(PointerNotFound):
            resolve_pointer(value, wrong)
