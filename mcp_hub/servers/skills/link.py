"""The server of skills, as a link without bytes or a process: it answers on the spot, in both eras."""

from __future__ import annotations

import asyncio
import base64
import mimetypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp_hub.config.skill import SKILL_FILE, Skill
from mcp_hub.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND, ProtocolError
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.frames import Message
from mcp_hub.servers.skills import uri_of
from mcp_hub.servers.skills.files import read_file
from mcp_hub.transport.link import LinkLost, Receiver, RequestId
from mcp_hub.version import VERSION

Json = dict[str, Any]

_CAPABILITIES: Final[Json] = {"resources": {}}


class SkillLink:
    """A `Link`. The skills are those it was made with: with others there is another one."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        self._files = {uri_of(skill, file): (skill, file) for skill in skills for file in skill.files}
        self._receiver: Receiver | None = None
        self._reading: dict[RequestId, asyncio.Task[None]] = {}

    async def open(self, receiver: Receiver) -> None:
        """Nothing to start."""
        self._receiver = receiver

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Take one message in; its answer comes on a later turn of the loop. Raises LinkLost once it is closed."""
        if self._receiver is None:
            raise LinkLost("it was closed", executed=False)
        if "method" in message and "id" in message:
            request_id = message["id"]
            task = self._reading[request_id] = asyncio.get_running_loop().create_task(self._answer(message))
            task.add_done_callback(lambda _: self._reading.pop(request_id, None))

    async def _answer(self, message: Message) -> None:
        params = message.get("params") or {}
        modern = eras.is_modern(params) or message["method"] in eras.MODERN_ONLY
        try:
            result = await self._result(str(message["method"]), params)
            shaped = eras.result_for("modern" if modern else "handshake", "handshake", message["method"], result)
            answer: Message = {"result": shaped}
        except ProtocolError as error:
            told = {"code": error.code, "message": error.message}
            answer = {"error": eras.error_for("modern" if modern else "handshake", message["method"], told)}
        if self._receiver is not None:
            self._receiver.received({"jsonrpc": "2.0", "id": message["id"], **answer})

    async def _result(self, method: str, params: Json) -> Json:
        if method == "resources/read":
            return await self._read(params.get("uri"))
        if method == "resources/list":
            return {"resources": await asyncio.to_thread(self._listed)}
        if method == "resources/templates/list":
            return {"resourceTemplates": []}
        if method == "ping":
            return {}
        info = {"name": "mcp-hub skills", "version": VERSION}
        if method == "initialize":
            version = eras.negotiated(params.get("protocolVersion"))
            return {"protocolVersion": version, "capabilities": _CAPABILITIES, "serverInfo": info}
        if method == eras.DISCOVER:
            versions = [*eras.MODERN_REVISIONS, *reversed(eras.HANDSHAKE_REVISIONS)]
            return {"supportedVersions": versions, "capabilities": _CAPABILITIES}
        raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {method}")

    def _listed(self) -> list[Json]:
        return [_item(uri, skill, file) for uri, (skill, file) in self._files.items()]

    async def _read(self, uri: Any) -> Json:
        if not isinstance(uri, str):
            raise ProtocolError(INVALID_PARAMS, "params.uri must be a text.")
        if uri not in self._files:
            raise ProtocolError(RESOURCE_NOT_FOUND, f"Resource not found: {uri}")
        skill, file = self._files[uri]
        try:
            content = await asyncio.to_thread(read_file, skill.directory, file)
        except OSError:
            raise ProtocolError(RESOURCE_NOT_FOUND, f"Resource not found: {uri}") from None
        except ValueError as error:
            raise ProtocolError(INTERNAL_ERROR, str(error)) from None
        kind = _type(file)
        try:
            return {"contents": [{"uri": uri, "mimeType": kind, "text": content.decode("utf-8")}]}
        except UnicodeDecodeError:
            return {"contents": [{"uri": uri, "mimeType": kind, "blob": base64.b64encode(content).decode()}]}

    def abandon(self, request_id: RequestId) -> None:
        """Nobody waits for it any more."""
        if (task := self._reading.get(request_id)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Nothing more is answered."""
        self._receiver = None
        for task in list(self._reading.values()):
            task.cancel()

    @property
    def last_words(self) -> tuple[str, ...]:
        """There is no process."""
        return ()


def _item(uri: str, skill: Skill, file: str) -> Json:
    item: Json = {"uri": uri, "name": f"{skill.name}/{file}", "mimeType": _type(file)}
    if file == SKILL_FILE:
        item["description"] = skill.description
    return item


def _type(file: str) -> str:
    if file.endswith(".md"):
        return "text/markdown"
    return mimetypes.guess_type(file, strict=False)[0] or "text/plain"
