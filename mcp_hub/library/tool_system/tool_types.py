"""A tool and the outcome of a call, as one type each whatever the tool is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from mcp_hub.library.running import ToolCard

Json = dict[str, Any]
Source = Literal["native", "mcp", "builtin"]


class Parameter(BaseModel):
    """One argument of a tool."""

    model_config = ConfigDict(frozen=True)

    name: str
    type: str = "any"
    description: str = ""
    required: bool = False


class BaseTool(BaseModel):
    """A tool of any kind: the name it is called by, what it is for, what it takes."""

    model_config = ConfigDict(frozen=True)
    source: ClassVar[Source]

    name: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    json_schema: Json = Field(default_factory=dict)
    """Of all arguments together."""
    server: str = ""
    tool_name: str = ""
    """Its name at its server."""

    def to_langchain(self, executor: Any) -> Any:
        """A LangChain tool that calls by `executor` (a ToolExecutor). Raises ImportError without langchain-core."""
        try:
            from langchain_core.tools import StructuredTool  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise ImportError("LangChain is not installed: pip install langchain-core") from None

        async def call(**arguments: Any) -> Any:
            message = await executor.async_execute(self, arguments)
            if message.error is not None:
                raise RuntimeError(message.error)
            return message.output

        return StructuredTool.from_function(
            coroutine=call, name=self.name, description=self.description or self.name, args_schema=self.json_schema
        )


class NativeTool(BaseTool):
    """A REST API."""

    source: ClassVar[Source] = "native"


class MCPTool(BaseTool):
    """A tool of an MCP server."""

    source: ClassVar[Source] = "mcp"


class BuiltinTool(BaseTool):
    """A Python function."""

    source: ClassVar[Source] = "builtin"


@dataclass(frozen=True)
class ToolMessage:
    """What became of a call: `output`, or else `error`, which begins with the code: `timeout: ...`."""

    tool_name: str
    output: Any = None
    error: str | None = None
    code: str | None = None


def tool_of(card: ToolCard, source: Source) -> BaseTool:
    """A listed tool."""
    kind = {"native": NativeTool, "mcp": MCPTool, "builtin": BuiltinTool}[source]
    schema = card.schema
    properties = schema.get("properties")
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    parameters = [
        Parameter(name=name, type=_type(one), description=_description(one), required=name in names)
        for name, one in (properties.items() if isinstance(properties, dict) else ())
    ]
    return kind(
        name=card.exposed,
        description=card.description,
        parameters=tuple(parameters),
        json_schema=schema,
        server=card.server,
        tool_name=card.name,
    )


def _type(schema: Any) -> str:
    said = schema.get("type") if isinstance(schema, dict) else None
    return " | ".join(map(str, said)) if isinstance(said, list) else str(said or "any")


def _description(schema: Any) -> str:
    return str(schema.get("description") or "") if isinstance(schema, dict) else ""
