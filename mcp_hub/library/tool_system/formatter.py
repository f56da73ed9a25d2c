"""`ToolFormatter`: describes tools to a model and reads its calls, depending on what the model supports."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Protocol, runtime_checkable

from mcp_hub.config.root_rules import OutputStrategy
from mcp_hub.errors import HubError
from mcp_hub.library import formats
from mcp_hub.library.formats import ToolCall

Json = dict[str, Any]
Strategy = Literal["function_calling", "structured_output"]


@runtime_checkable
class ILLMClient(Protocol):
    """The client of a model, as far as ToolFormatter needs it. The method may be async."""

    def supports_function_calling(self) -> bool | Awaitable[bool]:
        """Returns whether the model supports function calling."""
        ...


@runtime_checkable
class IToolFormatter(Protocol):
    """Writes calls of tools in the way that a model supports."""

    def format(self, tool: Any, parameters: Mapping[str, Any]) -> Json:
        """Returns a call of the tool as the model writes it."""
        ...

    def detect_strategy(self, llm_client: ILLMClient) -> str:
        """Returns `function_calling` or `structured_output`, whichever the model supports and the user allows."""
        ...


class StrategyUnavailable(HubError):
    """The model has no function calling, and the configuration allows nothing else."""


def _settled(value: Any) -> Any:
    """Returns a value, or the result of an awaitable, which is run in a thread: the caller's may run an event loop."""
    if not inspect.isawaitable(value):
        return value

    async def settle() -> Any:
        return await value

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(contextvars.copy_context().run, asyncio.run, settle()).result()


class ToolFormatter:
    """Formats tools and calls by `strategy`, which `detect_strategy` sets.

    `output_strategy` is that part of a configuration, or a mapping with its keys.
    """

    def __init__(self, output_strategy: OutputStrategy | Mapping[str, bool] | None = None) -> None:
        if not isinstance(output_strategy, OutputStrategy):
            output_strategy = OutputStrategy.model_validate(dict(output_strategy or {}))
        self._allowed = output_strategy
        self.strategy: Strategy = "function_calling" if output_strategy.function_calling else "structured_output"

    def detect_strategy(self, llm_client: ILLMClient) -> Strategy:
        """Sets and returns the strategy by `llm_client.supports_function_calling()`.

        Where that is async it runs in a thread of its own; coroutines use `async_detect_strategy`. Raises
        StrategyUnavailable if the model does not support it and the configuration allows no fallback.
        """
        try:
            supports = self._allowed.function_calling and _settled(llm_client.supports_function_calling())
        except Exception as error:  # the client may raise anything
            supports = error
        return self._choose(supports)

    async def async_detect_strategy(self, llm_client: ILLMClient) -> Strategy:
        """Does what `detect_strategy` does; a coroutine of the client runs on the running loop.

        Raises StrategyUnavailable.
        """
        try:
            supports: Any = self._allowed.function_calling and llm_client.supports_function_calling()
            supports = await supports if inspect.isawaitable(supports) else supports
        except Exception as error:
            supports = error
        return self._choose(supports)

    def _choose(self, supports: Any) -> Strategy:
        allowed = self._allowed
        if supports is not True and allowed.function_calling and not allowed.fallback_to_structured_output:
            raise StrategyUnavailable(
                "The model does not support function calling, and output_strategy.fallback_to_structured_output is off."
            ) from (supports if isinstance(supports, Exception) else None)
        self.strategy = "function_calling" if supports is True else "structured_output"
        return self.strategy

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
        names = None if tools is None else [formats.describe_tool(tool).name for tool in tools]
        return formats.calls_in(text_or_message, names)
