"""A scripted model of the OpenAI Agents SDK."""

import json

from agents import Model, ModelResponse, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class ScriptedModel(Model):
    """Makes `calls` one after the other. `tools` are the names that it was shown, `results` what it was answered."""

    def __init__(self, calls):
        self.calls, self.tools, self.results = calls, [], []

    async def get_response(self, system_instructions, input, model_settings, tools, *args, **options):
        self.tools = [tool.name for tool in tools]
        items = [] if isinstance(input, str) else input
        self.results = [text_of(item["output"]) for item in items if item.get("type") == "function_call_output"]
        number = len(self.results)
        if number < len(self.calls):
            name, arguments = self.calls[number]
            output = ResponseFunctionToolCall(
                type="function_call", call_id=f"call_{number}", name=name, arguments=json.dumps(arguments)
            )
        else:
            text = ResponseOutputText(type="output_text", text=" ".join(self.results), annotations=[])
            output = ResponseOutputMessage(
                id="answer", type="message", role="assistant", status="completed", content=[text]
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *args, **options):
        raise NotImplementedError


def text_of(output):
    return output if isinstance(output, str) else "".join(block["text"] for block in output)
