"""A scripted model of PydanticAI."""

from pydantic_ai.messages import ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel


class ScriptedModel(FunctionModel):
    """Makes `calls` one after the other. `tools` are the names that it was shown, `results` what it was answered."""

    def __init__(self, calls):
        super().__init__(self.answer)
        self.calls, self.tools, self.results = calls, [], []

    async def answer(self, messages, info):
        self.tools = [tool.name for tool in info.function_tools]
        self.results = [text for message in messages for part in message.parts if (text := text_of(part)) is not None]
        number = len(self.results)
        if number < len(self.calls):
            return ModelResponse([ToolCallPart(*self.calls[number])])
        return ModelResponse([TextPart(" ".join(self.results))])


def text_of(part):
    if isinstance(part, ToolReturnPart):
        return part.model_response_str()
    return part.model_response() if isinstance(part, RetryPromptPart) else None
