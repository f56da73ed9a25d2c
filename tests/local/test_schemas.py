"""What a signature, a docstring and annotations make of a function."""

import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from mcp_hub import tool
from mcp_hub.local.functions import LocalTool, WrongArguments
from mcp_hub.local.registry import mark_of


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    title: str = "origin"


@dataclass
class Size:
    width: int


class Row(TypedDict):
    id: int


def made(function: Any) -> LocalTool:
    mark = mark_of(tool(function))
    assert mark is not None
    return LocalTool(function, mark)


def properties(function: Any) -> dict[str, Any]:
    found: dict[str, Any] = made(function).definition["inputSchema"]["properties"]
    return found


def test_the_decorator_returns_the_function_itself() -> None:
    def plain() -> None: ...

    assert tool(plain) is plain
    assert tool(name="other")(plain) is plain


def test_what_the_decorator_says_stands_above_what_the_function_says() -> None:
    @tool(name="renamed", description="said", title="Title", tags="one", annotations={"readOnlyHint": True})
    def plain() -> None:
        """Documented."""

    mark = mark_of(plain)
    assert mark is not None
    assert LocalTool(plain, mark).definition == {
        "name": "renamed",
        "description": "said",
        "title": "Title",
        "annotations": {"readOnlyHint": True},
        "_meta": {"mcp-hub/tags": ["one"]},
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    }


GOOGLE = """Short text.

    Long text.

    Args:
        a: What a is.
    """
NUMPY = """Short text.

    Long text.

    Parameters
    ----------
    a : int
        What a is.
    """
REST = """Short text.

    Long text.

    :param a: What a is.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, REST])
def test_docstrings_of_the_usual_styles_describe_the_tool_and_its_parameters(docstring: str) -> None:
    def documented(a: int) -> None: ...

    documented.__doc__ = docstring
    definition = made(documented).definition
    assert definition["description"] == "Short text.\n\nLong text."
    assert definition["inputSchema"]["properties"]["a"] == {"type": "integer", "description": "What a is."}


def test_a_function_without_a_docstring_is_described_by_its_name() -> None:
    def lonely() -> None: ...

    assert made(lonely).definition["description"] == "lonely"


def test_texts_in_annotated_describe_a_parameter_and_stand_above_the_docstring() -> None:
    def f(a: Annotated[int, "left", Field(ge=0), "side"] = 3) -> None:
        """F.

        Args:
            a: from the docstring
        """

    assert properties(f)["a"] == {"type": "integer", "minimum": 0, "default": 3, "description": "left;side;Default: 3"}


def test_types_become_schemas() -> None:
    def f(
        any_one,
        choice: Literal["x", "y"],
        color: Color,
        maybe: int | None = None,
        many: list[float] = [],  # noqa: B006
    ) -> None: ...

    schema = made(f).definition["inputSchema"]
    assert schema["properties"]["any_one"] == {}
    assert schema["properties"]["choice"] == {"enum": ["x", "y"], "type": "string"}
    assert schema["properties"]["color"] == {"$ref": "#/$defs/Color"}
    assert schema["$defs"]["Color"] == {"enum": ["red", "blue"], "type": "string"}
    assert schema["properties"]["maybe"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert schema["properties"]["many"]["items"] == {"type": "number"}
    assert schema["required"] == ["any_one", "choice", "color"]


def test_titles_are_removed_but_never_a_property_of_that_name() -> None:
    def f(point: Point, title: str) -> None: ...

    schema = made(f).definition["inputSchema"]
    assert schema["properties"]["title"] == {"type": "string"}
    assert schema["$defs"]["Point"]["properties"]["title"] == {"type": "string", "default": "origin"}
    assert "title" not in schema
    assert "title" not in schema["$defs"]["Point"]


def test_self_and_variable_parameters_are_left_out_and_awkward_names_stay() -> None:
    def f(self: Any, schema: str, _hidden: int = 1, *args: Any, **kwargs: Any) -> None: ...

    assert list(properties(f)) == ["schema", "_hidden"]


@pytest.mark.parametrize(
    ("returned", "has_schema"),
    [(Size, True), (Point, True), (Row, True), (dict[str, int], True), (int, False), (list[int], False), (None, False)],
)
def test_only_what_always_is_an_object_has_an_output_schema(returned: Any, has_schema: bool) -> None:
    def f() -> Any: ...

    f.__annotations__["return"] = returned
    definition = made(f).definition
    assert ("outputSchema" in definition) is has_schema
    if has_schema:
        assert definition["outputSchema"]["type"] == "object"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "count: is missing"),
        ({"count": "3"}, "count: input should be a valid integer, got str '3'"),
        ({"count": 1.5}, "count: "),
        ({"count": 1, "extra": 2}, "extra: is not an argument"),
        ({"count": 1, "color": "green"}, "color: input should be 'red' or 'blue'"),
    ],
)
def test_arguments_that_do_not_fit_are_explained(arguments: dict[str, Any], said: str) -> None:
    def f(count: int, color: Color = Color.RED) -> None: ...

    with pytest.raises(WrongArguments, match="nothing was called") as caught:
        made(f).bind(arguments)
    assert said in str(caught.value)


def test_arguments_arrive_as_the_types_the_function_asked_for() -> None:
    def f(first: int, /, color: Color, point: Point, ratio: float = 0.5) -> None: ...

    call = made(f).bind({"first": 1, "color": "blue", "point": {"x": 2}, "ratio": 1})
    assert call.positional == [1]
    assert call.keywords == {"color": Color.BLUE, "point": Point(x=2), "ratio": 1.0}


def test_a_function_no_schema_can_be_made_of_is_a_type_error() -> None:
    def f(a: "NoSuchType") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError):
        made(f)
