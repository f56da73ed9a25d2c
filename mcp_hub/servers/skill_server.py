"""Serves the user's skills as resources, without a process: plain files that are read when they are requested."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import mimetypes
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final
from urllib.parse import quote, unquote

from mcp_hub.config.builtin_servers import SKILL_FILE, Skill, front_matter
from mcp_hub.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    ConfigError,
    ProtocolError,
    to_wire,
)
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.era import Era
from mcp_hub.protocol.frames import Message
from mcp_hub.protocol.kinds import LEFT_OUT_KEY, MAX_NAME, RESOURCES, SKILLS, TEMPLATES
from mcp_hub.protocol.skill_entries import MAX_BYTES, READ_DIRECTORY, SKILLS_EXTENSION
from mcp_hub.security.private_files import open_regular, refuse_foreign
from mcp_hub.transport import Link, LinkLost, Receiver, RequestId
from mcp_hub.version import VERSION

log = logging.getLogger("mcp_hub.upstream")

MAX_FILE: Final = 8 * 1024 * 1024
"""Most bytes of a file that is served."""
_DIRECTORY_FLAGS: Final = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


def read_file(directory: Path, file: str) -> bytes:
    """Returns the content of a file of a skill.

    Raises OSError if it does not exist, is not a regular file or can be written by other users, and ValueError if it is
    larger than `MAX_FILE`.
    """
    with _open_file(directory, file.split("/")) as stream:
        try:
            refuse_foreign(directory.joinpath(*file.split("/")), stream.fileno(), "what models are told")
        except ConfigError as error:
            raise OSError(str(error)) from None
        content = stream.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise ValueError(f"{file} is larger than {MAX_FILE:,} bytes")
    return content


def _open_file(directory: Path, parts: list[str]) -> BinaryIO:
    if os.open not in os.supports_dir_fd:
        path = directory.joinpath(*parts)
        if path.resolve() != directory.resolve().joinpath(*parts):
            raise OSError("a link leads elsewhere")
        return open_regular(path)
    folder = os.open(directory, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | _DIRECTORY_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = inner
        return open_regular(parts[-1], flags=getattr(os, "O_NOFOLLOW", 0), directory=folder)
    finally:
        os.close(folder)


MAX_DESCRIPTION: Final = 1000
"""Most characters of a description in the instructions; the resource has all of it."""
_ABOUT: Final = (
    "Skills are instructions for particular tasks. Before a task that one is for, read its resource with "
    "resources/read; the other files it names lie beside it."
)


def uri_of(skill: Skill, file: str = SKILL_FILE) -> str:
    """Returns the URI `skill://NAME/FILE`, percent-encoded."""
    return f"skill://{quote(skill.name, safe='')}/{quote(file)}"


def skill_notes(skills: Iterable[Skill], exposed: Callable[[str], str | None]) -> str | None:
    """Returns the part of the instructions that lists the skills, or None if the client sees none.

    `exposed(uri)` returns the URI by which the client knows a resource, or None.
    """
    lines = []
    for skill in skills:
        if (uri := exposed(uri_of(skill))) is not None:
            text = " ".join(skill.description.split())
            lines.append(
                f"- {skill.name}: {text[:MAX_DESCRIPTION]}{'…' if len(text) > MAX_DESCRIPTION else ''} ({uri})"
            )
    return "\n".join([_ABOUT, *lines]) if lines else None


Json = dict[str, Any]

_CAPABILITIES: Final[Json] = {"resources": {}, "extensions": {SKILLS_EXTENSION: {"directoryRead": True}}}


def skill_entry(skill: Skill) -> Json:
    """Returns the entry of a skill for `skills/list`, with the digests of its files as they are now.

    Raises ValueError, for the user, if a file cannot be read or is not valid, or if all are larger than `MAX_BYTES`.
    """
    files: list[Json] = []
    front: Json = {}
    remaining = MAX_BYTES
    for file in skill.files:
        try:
            content = read_file(skill.directory, file)
        except OSError as error:
            raise ValueError(f"its {file} cannot be read: {error.strerror or error}") from None
        remaining -= len(content)
        if remaining < 0:
            raise ValueError(f"its files have more than {MAX_BYTES:,} bytes")
        if file == SKILL_FILE:
            front = front_matter(content, skill.directory / file)
        digest = hashlib.sha256(content).hexdigest()
        files.append({"uri": uri_of(skill, file), "digest": f"sha256:{digest}", "size": len(content)})
    return {"uri": uri_of(skill), "frontmatter": front, "resources": files}


class SkillLink(Link):
    """A `Link` to a fixed list of skills. When the skills change, a new link is needed."""

    is_local = True
    sole_era: ClassVar[Era | None] = "modern"
    """The era that has `skills/list`."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        self._skills = {uri_of(skill): skill for skill in skills}
        self._files = {uri_of(skill, file): (skill, file) for skill in skills for file in skill.files}
        self._receiver: Receiver | None = None
        self._tasks: dict[RequestId, asyncio.Task[None]] = {}

    async def open(self, receiver: Receiver) -> None:
        """Sets the receiver; there is no process to start."""
        self._receiver = receiver

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Takes one message; the response follows in a later iteration of the loop. Raises LinkLost after `close`."""
        if self._receiver is None:
            raise LinkLost("it was closed", executed=False)
        if "method" in message and "id" in message:
            request_id = message["id"]
            task = self._tasks[request_id] = asyncio.get_running_loop().create_task(self._answer(message))
            task.add_done_callback(lambda _: self._tasks.pop(request_id, None))

    async def _answer(self, message: Message) -> None:
        params = message.get("params") or {}
        era = eras.era_of(message)
        try:
            result = await self._result(str(message["method"]), params)
            shaped = eras.result_for(era, "handshake", message["method"], result)
            answer: Message = {"result": shaped}
        except Exception as error:  # without an answer the call would wait for its deadline
            if not isinstance(error, ProtocolError):
                log.exception("a request to %s failed inside the hub", message["method"])
            answer = {"error": eras.error_for(era, message["method"], to_wire(error)["error"])}
        if self._receiver is not None:
            self._receiver.received({"jsonrpc": "2.0", "id": message["id"], **answer})

    async def _result(self, method: str, params: Json) -> Json:
        if method == RESOURCES.act_method:
            return await self._read_resource(params.get("uri"))
        if method == RESOURCES.list_method:
            return {"resources": await asyncio.to_thread(self._resources)}
        if method == TEMPLATES.list_method:
            return {"resourceTemplates": []}
        if method == SKILLS.list_method:
            return await asyncio.to_thread(self._skill_entries)
        if method == SKILLS.act_method:
            return {"skill": await self._skill_entry(params.get("uri"))}
        if method == READ_DIRECTORY:
            return {"resources": await asyncio.to_thread(self._read_directory, params.get("uri"))}
        if method == "ping":
            return {}
        info = {"name": "mcp-hub skills", "version": VERSION}
        if method == "initialize":
            version = eras.negotiated_revision(params.get("protocolVersion"))
            return {"protocolVersion": version, "capabilities": _CAPABILITIES, "serverInfo": info}
        if method == eras.DISCOVER:
            versions = [*eras.MODERN_REVISIONS, *reversed(eras.HANDSHAKE_REVISIONS)]
            return {"supportedVersions": versions, "capabilities": _CAPABILITIES}
        raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {method}")

    def _resources(self) -> list[Json]:
        return [_resource_entry(uri, skill, file) for uri, (skill, file) in self._files.items()]

    def _skill_entries(self) -> Json:
        entries: list[Json] = []
        left_out: list[str] = []
        for skill in self._skills.values():
            try:
                entries.append(skill_entry(skill))
            except ValueError as error:
                left_out.append(f"the skill {skill.name} is not listed: {error}")
        return {"skills": entries, **({"_meta": {LEFT_OUT_KEY: left_out}} if left_out else {})}

    async def _skill_entry(self, uri: Any) -> Json:
        skill = self._skills.get(uri) if isinstance(uri, str) else None
        if skill is None:
            raise ProtocolError(INVALID_PARAMS, f"No skill is served at {str(uri)[:MAX_NAME]}")
        try:
            return await asyncio.to_thread(skill_entry, skill)
        except ValueError as error:
            raise ProtocolError(INTERNAL_ERROR, f"The skill {skill.name} cannot be served: {error}") from None

    def _read_directory(self, directory: Any) -> list[Json]:
        entries: dict[str, Json] = {}
        for uri, (skill, file) in self._files.items():
            if isinstance(directory, str) and uri.startswith(f"{directory}/"):
                name, slash, _ = uri[len(directory) + 1 :].partition("/")
                folder = {"uri": f"{directory}/{name}", "name": unquote(name), "mimeType": "inode/directory"}
                entries[name] = folder if slash else _resource_entry(uri, skill, file)
        if not entries:
            raise ProtocolError(INVALID_PARAMS, f"Not a directory of a skill: {str(directory)[:MAX_NAME]}")
        return list(entries.values())

    async def _read_resource(self, uri: Any) -> Json:
        if not isinstance(uri, str):
            raise ProtocolError(INVALID_PARAMS, "params.uri must be a string.")
        if uri not in self._files:
            raise ProtocolError(RESOURCE_NOT_FOUND, f"Resource not found: {uri}")
        skill, file = self._files[uri]
        try:
            content = await asyncio.to_thread(read_file, skill.directory, file)
        except OSError:
            raise ProtocolError(RESOURCE_NOT_FOUND, f"Resource not found: {uri}") from None
        except ValueError as error:
            raise ProtocolError(INTERNAL_ERROR, str(error)) from None
        kind = _mime_type(file)
        try:
            return {"contents": [{"uri": uri, "mimeType": kind, "text": content.decode("utf-8")}]}
        except UnicodeDecodeError:
            return {"contents": [{"uri": uri, "mimeType": kind, "blob": base64.b64encode(content).decode()}]}

    def abandon(self, request_id: RequestId) -> None:
        """Cancels a request that nobody waits for any more."""
        if (task := self._tasks.get(request_id)) is not None:
            task.cancel()

    async def end(self) -> None:
        """Cancels all requests; nothing more is answered."""
        self._receiver = None
        for task in list(self._tasks.values()):
            task.cancel()


def _resource_entry(uri: str, skill: Skill, file: str) -> Json:
    if file == SKILL_FILE:
        return {"uri": uri, "name": skill.name, "mimeType": _mime_type(file), "description": skill.description}
    return {"uri": uri, "name": f"{skill.name}/{file}", "mimeType": _mime_type(file)}


def _mime_type(file: str) -> str:
    if file.endswith(".md"):
        return "text/markdown"
    return mimetypes.guess_type(file, strict=False)[0] or "text/plain"
