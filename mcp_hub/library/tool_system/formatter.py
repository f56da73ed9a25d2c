"""`ToolFormatter`: describes tools to a model and reads its calls, depending on what the model supports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from mcp_hub.config.root_rules import OutputStrategy
from mcp_hub.errors import HubError
from mcp_hub.library import formats
from mcp_hub.library.formats import ToolCall

Json = dict[str, Any]
Strategy = Literal["function_calling", "structured_output"]


class StrategyUnavailable(HubError):
    """The model has no function calling, and the configuration allows nothing else."""


class ToolFormatter:
    """Formats tools and calls by `strategy`, which `detect_strategy` sets.

    `output_strategy` is that part of a configuration, or a mapping with its keys.
    """

    def __init__(self, output_strategy: OutputStrategy | Mapping[str, bool] | None = None) -> None:
        if not isinstance(output_strategy, OutputStrategy):
            output_strategy = OutputStrategy.model_validate(dict(output_strategy or {}))
        self._allowed = output_strategy
        self.strategy: Strategy = "function_calling" if output_strategy.function_calling else "structured_output"

    def detect_strategy(self, client: Any) -> Strategy:
        """Sets and returns the strategy by `client.supports_function_calling()`.

        Raises StrategyUnavailable if the model does not support it and the configuration allows no fallback.
        """
        self.strategy = self._detected(client)
        return self.strategy

    def _detected(self, client: Any) -> Strategy:
        if not self._allowed.function_calling:
            return "structured_output"
        failure: Exception | None = None
        try:
            if client.supports_function_calling() is True:
                return "function_calling"
        except Exception as error:  # the client may raise anything
            failure = error
        if self._allowed.fallback_to_structured_output:
            return "structured_output"
        raise StrategyUnavailable(
            "The model does not support function calling, and output_strategy.fallback_to_structured_output is off."
        ) from failure

    def format(self, tool: Any, parameters: Mapping[str, Any]) -> Json:
        """Returns a call as the model would write it: OpenAI's `function_call`, or the object of the prompt.

        Raises FormatError.
        """
        style: formats.Style = "openai" if self.strategy == "function_calling" else "structured"
        return formats.call(tool if isinstance(tool, str) else formats.describe_tool(tool).name, parameters, style)

    def format_for_llm(self, tools: Iterable[Any]) -> list[Json] | str:
        """Returns the tools for a model: a list for its `tools` parameter, or a prompt. Raises FormatError."""
        return formats.openai_tools(tools) if self.strategy == "function_calling" else formats.prompt(tools)

    def prompt(self, tools: Iterable[Any]) -> str:
        """Returns a prompt with the tools and how to call them. Raises FormatError."""
        return formats.prompt(tools)

    def parse(self, text_or_message: Any, tools: Iterable[Any] | None = None) -> list[ToolCall]:
        """Returns the calls in what a model wrote, in either strategy. With `tools`, only calls of these count.

        Raises FormatError if a call of the model's interface cannot be read.
        """
        known = None if tools is None else [formats.describe_tool(tool).name for tool in tools]
        return formats.calls_in(text_or_message, known)
