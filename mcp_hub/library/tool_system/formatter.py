"""ToolFormatter: how a model is told of tools, and how its calls are read, by what the model can do."""

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
    """`strategy` is what `detect_strategy` found last, and what the other methods go by.

    `output_strategy` is the part of a configuration with that name, or the same as a mapping.
    """

    def __init__(self, output_strategy: OutputStrategy | Mapping[str, bool] | None = None) -> None:
        if not isinstance(output_strategy, OutputStrategy):
            output_strategy = OutputStrategy.model_validate(dict(output_strategy or {}))
        self._allowed = output_strategy
        self.strategy: Strategy = "function_calling" if output_strategy.function_calling else "structured_output"

    def detect_strategy(self, client: Any) -> Strategy:
        """By `client.supports_function_calling()`. Raises StrategyUnavailable where there is no way left."""
        self.strategy = self._detected(client)
        return self.strategy

    def _detected(self, client: Any) -> Strategy:
        if not self._allowed.function_calling:
            return "structured_output"
        failure: Exception | None = None
        try:
            if client.supports_function_calling() is True:
                return "function_calling"
        except Exception as error:  # to ask it has failed, whatever its reason
            failure = error
        if self._allowed.fallback_to_structured_output:
            return "structured_output"
        raise StrategyUnavailable(
            "The model does not support function calling, and output_strategy.fallback_to_structured_output is off."
        ) from failure

    def format(self, tool: Any, parameters: Mapping[str, Any]) -> Json:
        """A call as the model would write it: a `function_call` of OpenAI's, or the object of the prompt.

        Raises FormatError.
        """
        style: formats.Style = "openai" if self.strategy == "function_calling" else "structured"
        return formats.call(tool if isinstance(tool, str) else formats.described(tool).name, parameters, style)

    def format_for_llm(self, tools: Iterable[Any]) -> list[Json] | str:
        """The tools for a model: definitions for its `tools`, or the prompt. Raises FormatError."""
        return formats.openai_tools(tools) if self.strategy == "function_calling" else formats.prompt(tools)

    def prompt(self, tools: Iterable[Any]) -> str:
        """The tools and how to call them as a text. Raises FormatError."""
        return formats.prompt(tools)

    def parse(self, text_or_message: Any, tools: Iterable[Any] | None = None) -> list[ToolCall]:
        """The calls in what a model said, in either strategy; with `tools`, only calls of these.

        Raises FormatError where a call of the model's interface cannot be read.
        """
        known = None if tools is None else [formats.described(tool).name for tool in tools]
        return formats.calls_in(text_or_message, known)
