"""A scripted chat model of LangChain."""

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class ScriptedModel(BaseChatModel):
    """Makes `calls` one after the other. `tools` are the names that it was shown, `results` what it was answered."""

    calls: list
    tools: list
    results: list

    def __init__(self, calls):
        super().__init__(calls=calls, tools=[], results=[])

    def bind_tools(self, tools, **options):
        self.tools = [tool.name for tool in tools]
        return self

    def _generate(self, messages, stop=None, run_manager=None, **options):
        self.results = [message.text for message in messages if message.type == "tool"]
        number = len(self.results)
        if number < len(self.calls):
            name, arguments = self.calls[number]
            message = AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call_{number}"}])
        else:
            message = AIMessage(" ".join(self.results))
        return ChatResult(generations=[ChatGeneration(message=message)])

    @property
    def _llm_type(self):
        return "scripted"
