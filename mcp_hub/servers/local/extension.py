"""Extended models: fields of a pydantic model as further arguments of a tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from mcp_hub.protocol.frames import encode
from mcp_hub.schema.extended_schemas import extended
from mcp_hub.schema.titles import without_titles
from mcp_hub.servers.local.arguments import WrongArguments, plainly


class Extension:
    """A model whose fields a tool takes besides its own. Raises TypeError for what is no model."""

    def __init__(self, model: type[BaseModel]) -> None:
        if not isinstance(model, type) or not issubclass(model, BaseModel):
            raise TypeError(f"The extended model must be a child class of pydantic BaseModel, but got {model!r}.")
        self.model = model
        self._schema: dict[str, Any] = without_titles(model.model_json_schema(by_alias=True))
        self.names = frozenset(self._schema.get("properties", {}))

    def merged(self, schema: Mapping[str, Any], tool: str) -> dict[str, Any]:
        """The tool's schema with the fields. Raises ValueError where it has one of them itself."""
        return extended(schema, self._schema, tool)

    def checked(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Its fields of the arguments, as they came. Raises WrongArguments."""
        given = {name: value for name, value in arguments.items() if name in self.names}
        try:
            self.model.model_validate_json(encode(given))
        except ValidationError as error:
            raise WrongArguments(plainly(tool, error)) from None
        return given
