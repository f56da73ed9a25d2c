"""A small host of apps: it shows the app of a tool in a sandboxed frame, and passes on what the app asks for."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from playwright.async_api import Browser, FrameLocator, Page

from tests.fakes.client import PATIENCE

Json = dict[str, Any]

HOST = """
window.open_app = (html, context, input, result) => {
  const frame = document.createElement("iframe");
  frame.sandbox = "allow-scripts";
  const send = (message) => frame.contentWindow.postMessage({jsonrpc: "2.0", ...message}, "*");
  addEventListener("message", async ({source, data}) => {
    if (source !== frame.contentWindow || !data.method) return;
    const {id, method, params} = data;
    if (method === "ui/initialize") {
      send({id, result: context(params)});
    } else if (method === "ui/notifications/initialized") {
      send({method: "ui/notifications/tool-input", params: {arguments: input}});
      send({method: "ui/notifications/tool-result", params: result});
    } else if (id !== undefined) {
      send({id, ...await window.ask(method, params ?? {})});
    }
  });
  frame.srcdoc = html;
  document.body.append(frame);
};
window.context = (params) => ({
  protocolVersion: params.protocolVersion,
  hostInfo: {name: "a host", version: "1"},
  hostCapabilities: {serverTools: {}, serverResources: {}, logging: {}, openLinks: {}},
  hostContext: {},
});
"""
"""The side of the page: the handshake of SEP-1865, then each request of the app goes to `ask`."""


@dataclass
class OpenApp:
    """An app that is shown, and what it has asked for."""

    page: Page
    tool: Json
    resource: Json
    """The content of its `ui://` resource."""
    result: Json
    """The result of the tool that opened it."""
    asked: list[tuple[str, Json, Json]] = field(default_factory=list)
    """(method, params, answer) of each request; the answer has a `result` or an `error`."""

    @property
    def frame(self) -> FrameLocator:
        return self.page.frame_locator("iframe")


class AppHost:
    """Shows the apps of whatever `client` is connected to."""

    def __init__(self, browser: Browser, client: Client) -> None:
        self.browser, self.client = browser, client

    async def answer(self, method: str, params: Json) -> Json:
        """What a server answers to a request of an app."""
        try:
            if method == "tools/call":
                made: Any = await self.client.call_tool(params["name"], params.get("arguments") or {})
            elif method == "resources/read":
                made = await self.client.read_resource(params["uri"])
            else:
                return {"result": {}}
        except MCPError as error:
            return {"error": {"code": error.error.code, "message": error.error.message, "data": error.error.data}}
        return {"result": made.model_dump(by_alias=True, mode="json", exclude_none=True)}

    @contextlib.asynccontextmanager
    async def opened(self, tool_name: str, arguments: Json | None = None) -> AsyncIterator[OpenApp]:
        """The app of a tool, opened with its result as a host does: call, read the resource, show it."""
        tools = (await self.client.list_tools()).model_dump(by_alias=True, mode="json", exclude_none=True)["tools"]
        (tool,) = (entry for entry in tools if entry["name"] == tool_name)
        result = (await self.answer("tools/call", {"name": tool_name, "arguments": arguments}))["result"]
        read = await self.answer("resources/read", {"uri": tool["_meta"]["ui"]["resourceUri"]})
        (resource,) = read["result"]["contents"]
        page = await self.browser.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        app = OpenApp(page, tool, resource, result)

        async def ask(method: str, params: Json) -> Json:
            answer = await self.answer(method, params)
            app.asked.append((method, params, answer))
            return answer

        try:
            await page.expose_function("ask", ask)
            await page.set_content(f"<!doctype html><title>host</title><script>{HOST}</script>")
            shown = [resource["text"], arguments or {}, result]
            await page.evaluate("([html, input, result]) => open_app(html, context, input, result)", shown)
            yield app
        finally:
            await page.close()
