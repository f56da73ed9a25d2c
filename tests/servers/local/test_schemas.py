"""What a signature, a docstring and annotations make of a function."""

import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, create_model
from typing_extensions import TypedDict

from mcp_hub import tool
from mcp_hub.library.agentscope.registered_tools import Strategy, registered_tool, take_name
from mcp_hub.schema.compact_schema import drop_titles
from mcp_hub.servers.local import Mark, mark_of
from mcp_hub.servers.local.local_tool import LocalTool
from mcp_hub.servers.local.signature import InvalidArguments, annotated


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


def local_tool(function: Any) -> LocalTool:
    mark = mark_of(tool(function))
    assert mark is not None
    return LocalTool(function, mark)


def properties(function: Any) -> dict[str, Any]:
    schemas: dict[str, Any] = local_tool(function).definition["inputSchema"]["properties"]
    return schemas


def test_the_decorator_returns_the_function_itself() -> None:
    def plain() -> None: ...

    assert tool(plain) is plain
    assert tool(name="other")(plain) is plain


def test_decorator_arguments_override_the_functions_own_description() -> None:
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
SPHINX = """Short text.

    Long text.

    :param a: What a is.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX])
def test_docstrings_of_the_usual_styles_describe_the_tool_and_its_parameters(docstring: str) -> None:
    def documented(a: int) -> None: ...

    documented.__doc__ = docstring
    definition = local_tool(documented).definition
    assert definition["description"] == "Short text.\n\nLong text."
    assert definition["inputSchema"]["properties"]["a"] == {"type": "integer", "description": "What a is."}


def test_a_function_without_a_docstring_is_described_by_its_name() -> None:
    def lonely() -> None: ...

    assert local_tool(lonely).definition["description"] == "lonely"


def test_a_text_in_annotated_overrides_the_docstring_of_a_parameter() -> None:
    def f(a: Annotated[int, "left", Field(ge=0), "side"] = 3) -> None:
        """F.

        Args:
            a: from the docstring
        """

    assert properties(f)["a"] == {"type": "integer", "minimum": 0, "default": 3, "description": "left;side;Default: 3"}


def test_annotated_texts_and_the_default_are_joined_into_one_text() -> None:
    """Check 31."""
    assert annotated(Annotated[int, "left", Field(ge=0)], 3)[:2] == (int, "left;Default: 3")
    assert annotated(Annotated[int, "left", "side"])[:2] == (int, "left;side")
    assert annotated(str, "x")[:2] == (str, "Default: x")
    assert annotated(str)[:2] == (str, "")


def test_the_description_of_a_field_overrides_the_docstring_of_a_parameter() -> None:
    def f(a: Annotated[int, Field(description="of the field")], b: Annotated[int, Field(ge=1)] = 2) -> None:
        """F.

        Args:
            a: of the docstring
            b: also of the docstring
        """

    assert properties(f)["a"]["description"] == "of the field"
    assert properties(f)["b"] == {"type": "integer", "minimum": 1, "default": 2, "description": "also of the docstring"}


def test_the_long_description_and_variable_parameters_are_optional() -> None:
    def f(a: int, *many: int, **others: str) -> None:
        """Short.

        Long.

        Args:
            a: one
            *many: more
            **others: named
        """

    mark = Mark(include_long_description=False, include_var_positional=True, include_var_keyword=True)
    definition = LocalTool(f, mark).definition
    assert definition["description"] == "Short."
    assert definition["inputSchema"]["properties"] == {
        "a": {"type": "integer", "description": "one"},
        "many": {"type": "array", "items": {"type": "integer"}, "default": [], "description": "more"},
        "others": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "default": {},
            "description": "named",
        },
    }
    call = LocalTool(f, mark).bind({"a": 1, "many": [2, 3], "others": {"x": "y"}})
    assert (call.positional, call.keywords) == ([1, 2, 3], {"x": "y"})
    assert list(properties(f)) == ["a"]


def test_titles_are_removed_at_every_depth_and_values_are_kept() -> None:
    titled = {"title": "T", "type": "object", "properties": {"title": {"type": "string", "title": "Title"}}}
    bare = {"type": "object", "properties": {"title": {"type": "string"}}}
    schema = {
        "$defs": {"title": titled},
        "properties": {
            "many": {"type": "array", "items": titled, "title": "Many"},
            "open": {"type": "object", "additionalProperties": titled},
            "fixed": {"default": {"title": "kept"}, "enum": [{"title": "kept"}]},
        },
    }
    assert drop_titles(schema) == {
        "$defs": {"title": bare},
        "properties": {
            "many": {"type": "array", "items": bare},
            "open": {"type": "object", "additionalProperties": bare},
            "fixed": {"default": {"title": "kept"}, "enum": [{"title": "kept"}]},
        },
    }


@pytest.mark.parametrize(
    "schema",
    [
        [],
        {},
        {"type": "function"},
        {"type": "function", "function": "f"},
        {"type": "function", "function": {"name": 1}},
        {"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {}, "required": "a"},
    ],
)
def test_an_invalid_handwritten_schema_is_a_type_error(schema: Any) -> None:
    """Check 41."""

    def f() -> None: ...

    with pytest.raises(TypeError, match="json_schema"):
        LocalTool(f, Mark(json_schema=schema))


def test_a_preset_needs_no_schema_and_must_be_a_parameter() -> None:
    def f(client: "NoSuchType", word: str, default: Any = object()) -> None: ...  # type: ignore[name-defined]  # noqa: F821, B008

    secret = object()
    tool = LocalTool(f, Mark(preset={"client": secret}))
    assert tool.definition["inputSchema"]["required"] == ["word"]
    assert tool.bind({"word": "x", "client": "theirs"}).keywords["client"] is secret
    assert tool.bind({"word": 3}, check=False).keywords == {"word": 3, "client": secret}
    with pytest.raises(TypeError, match="clinet"):
        LocalTool(f, Mark(preset={"clinet": secret}))


def test_an_extended_model_must_be_a_model_without_a_parameter_of_the_tool() -> None:
    class Other(BaseModel):
        point: Point

    class Clashing(BaseModel):
        word: int

    Impostor = type("Point", (BaseModel,), {"__annotations__": {"y": int}})

    def f(word: str, where: Point, **others: Any) -> None: ...

    tool = LocalTool(f)
    tool.extend(Other)
    schema = tool.listed["inputSchema"]
    assert (list(schema["properties"]), schema["required"]) == (["word", "where", "point"], ["word", "where", "point"])
    for wrong, error in ((Clashing, ValueError), (Point.model_construct(x=1), TypeError), (int, TypeError)):
        with pytest.raises(error):
            tool.extend(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\$defs"):
        tool.extend(create_model("Bad", other=(Impostor, ...)))
    assert tool.extended_model is Other
    tool.extend(None)
    assert tool.listed == tool.definition


def taken_name(name: str, taken: set[str], strategy: Strategy) -> str | None:
    return take_name(registered_tool(lambda: None, Mark(name=name, description="d")), taken, strategy)


def test_equal_names_are_refused_replaced_skipped_or_renamed_deterministically() -> None:
    """Check 37."""
    taken = {"x", "x_2"}
    with pytest.raises(ValueError, match=r"^A function with name 'x' is already registered in the toolkit\.$"):
        taken_name("x", taken, "raise")
    assert taken_name("x", taken, "override") == "x"
    assert taken_name("x", taken, "skip") is None
    assert taken_name("x", taken, "rename") == "x_3"
    assert taken_name("y", taken, "raise") == "y"
    with pytest.raises(ValueError, match="strategy"):
        taken_name("x", taken, "other")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError):
        taken_name("x", {"x", *(f"x_{number}" for number in range(200))}, "rename")


def test_python_types_become_json_schemas() -> None:
    def f(
        any_one,
        choice: Literal["x", "y"],
        color: Color,
        maybe: int | None = None,
        many: list[float] = [],  # noqa: B006
    ) -> None: ...

    schema = local_tool(f).definition["inputSchema"]
    assert schema["properties"]["any_one"] == {}
    assert schema["properties"]["choice"] == {"enum": ["x", "y"], "type": "string"}
    assert schema["properties"]["color"] == {"$ref": "#/$defs/Color"}
    assert schema["$defs"]["Color"] == {"enum": ["red", "blue"], "type": "string"}
    assert schema["properties"]["maybe"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert schema["properties"]["many"]["items"] == {"type": "number"}
    assert schema["required"] == ["any_one", "choice", "color"]


def test_titles_are_removed_but_never_a_property_of_that_name() -> None:
    def f(point: Point, title: str) -> None: ...

    schema = local_tool(f).definition["inputSchema"]
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
def test_only_return_types_that_are_always_objects_have_an_output_schema(returned: Any, has_schema: bool) -> None:
    def f() -> Any: ...

    f.__annotations__["return"] = returned
    definition = local_tool(f).definition
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
def test_invalid_arguments_are_refused_with_an_explanation(arguments: dict[str, Any], said: str) -> None:
    def f(count: int, color: Color = Color.RED) -> None: ...

    with pytest.raises(InvalidArguments, match="nothing was called") as caught:
        local_tool(f).bind(arguments)
    assert said in str(caught.value)


def test_arguments_are_converted_to_the_annotated_types() -> None:
    def f(first: int, /, color: Color, point: Point, ratio: float = 0.5) -> None: ...

    call = local_tool(f).bind({"first": 1, "color": "blue", "point": {"x": 2}, "ratio": 1})
    assert call.positional == [1]
    assert call.keywords == {"color": Color.BLUE, "point": Point(x=2), "ratio": 1.0}


def test_a_function_without_a_derivable_schema_is_a_type_error() -> None:
    def f(a: "NoSuchType") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError):
        local_tool(f)


@pytest.mark.parametrize("value", [3.0, -0.0, 2.0**52])
def test_an_integral_float_is_an_integer(value: float) -> None:
    def f(count: int, many: list[int], either: int | str, ratio: float) -> None: ...

    tool = local_tool(f)
    values = tool.bind({"count": value, "many": [value], "either": value, "ratio": value}).keywords
    assert values == {"count": int(value), "many": [int(value)], "either": int(value), "ratio": value}
    assert [type(item) for item in (values["count"], *values["many"], values["either"], values["ratio"])] == [
        int,
        int,
        int,
        float,
    ]
    for refused in (3.5, 2.0**53):
        with pytest.raises(InvalidArguments):
            tool.bind({"count": refused, "many": [], "either": 1, "ratio": 1.0})


def test_floats_stay_as_they_are_where_any_value_may_be() -> None:
    def f(value: Any) -> None: ...

    assert type(local_tool(f).bind({"value": 3.0}).keywords["value"]) is float
