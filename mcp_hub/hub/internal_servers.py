"""Internal servers that no client sees: for the fallback's pages, post-processors, search and programs of models."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp_hub.config.egress_settings import with_root_proxy
from mcp_hub.config.extras import default_model_there, missing
from mcp_hub.config.models import Config, Server
from mcp_hub.errors import ServerUnavailable, ToolFailed, error_facts
from mcp_hub.policy.confirm import CODE_MODE
from mcp_hub.policy.guard import GuardBlocked
from mcp_hub.policy.long_results import without_lone_surrogates
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.frames import encode
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security import address_rules
from mcp_hub.security.proxies import ProxyRules
from mcp_hub.upstream import Upstream

Json = dict[str, Any]

WEB: Final = "mcp-hub web"
FUNCTIONS: Final = "mcp-hub functions"
SEARCH: Final = "mcp-hub search"
PROGRAMS: Final = "mcp-hub programs"
KEPT_PROCESSES: Final = 2
"""Processes for programs that are kept for the next ones."""
SCRAPE: Final = "scrape_website"
MAX_ARGUMENTS: Final = 63 * 1024 * 1024
"""Bytes of arguments of a function; its process reads lines of at most 64 MiB."""


def built_in_settings(config: Config, environ: Mapping[str, str] | None, server: Server) -> Mapping[str, str]:
    """Returns the environment variables that configure the process of a built-in server.

    `environ` is the hub's own environment, which may name proxies; None: that of the process.
    """
    from mcp_hub.policy.guard import GUARD, url_rules
    from mcp_hub.servers.builtin import VARIABLE, Settings, native_to_environ

    if server.builtin == "skills":
        return {}
    # The fallback's own server has no entry.
    egress = with_root_proxy(server.egress, config.proxy)
    proxy = None if egress.proxy is None else egress.proxy.get_secret_value()
    proxies = ProxyRules.of(os.environ if environ is None else environ, proxy, own=egress.own)
    if server.native is not None:
        return native_to_environ(server.native.get_secret_value(), proxies)
    if server.builtin not in ("web", "browser"):
        roots = tuple((root.at, str(root.path), root.mode) for root in server.roots)
        settings = Settings(policy=server.policy, roots=roots)
    else:
        web = config.web
        settings = Settings(
            url_rules=url_rules(GUARD.of(config)),
            address_rules=address_rules.AddressRules(web.allow_addresses),
            proxies=proxies,
            max_bytes=web.max_bytes,
            timeout=web.timeout,
            max_memory=web.max_memory,
            docintel_endpoint=web.docintel_endpoint,
            javascript=web.javascript,
            profile=None if server.profile is None else str(server.profile),
            headless=server.headless,
            executable=None if server.executable is None else str(server.executable),
        )
    return {VARIABLE: json.dumps(settings.to_json())}


class InternalServers:
    """Starts each internal server when it is first needed. `connect(server)` makes an upstream without starting it."""

    def __init__(
        self, config: Config, upstreams: Mapping[str, Upstream], connect: Callable[[Server], Upstream]
    ) -> None:
        self._config = config
        self._connect = connect
        self._upstreams = upstreams
        self._running: dict[str, Upstream] = {}
        """The servers that were started here, by id."""
        self._idle_processes: list[Upstream] = []
        self._process_count = 0

    def _listed_web(self) -> Upstream | None:
        """Returns the configured server that fetches pages; None if there is none or it is switched off."""
        listed = (u for u in self._upstreams.values() if u.server.builtin == "web" and u.server.enabled)
        return next(listed, None)

    async def scrape(self, url: str, seconds: float) -> Json:
        """Returns a page as the result of `scrape_website`. Raises CallError, and TimeoutError after `seconds`."""
        if self._listed_web() is None and (problem := missing("web")) is not None:
            raise ServerUnavailable(problem)
        server = Server(id=WEB, transport="stdio", builtin="web", namespace="", keep_catalog=False)
        async with asyncio.timeout(seconds):
            # The whole page, as the tool that the caller knows cannot go on.
            result = await self._call_tool(server, SCRAPE, {"url": url, "max_length": sys.maxsize})
        if not result.get("isError"):
            return result
        text, code, rule = _failure(result)
        # A refused address is a failure like any other; a refused URL is the answer to the caller.
        raise GuardBlocked(text) if code == "guard_blocked" and rule != address_rules.RULE else ToolFailed(text)

    async def run_function(self, function: str, call: Json, result: Json, options: Json) -> Json | None:
        """Returns the result that `module:function` makes of a result, or None for no change.

        Raises CallError and ProtocolError.
        """
        arguments = without_lone_surrogates({"call": call, "result": result, "options": options})
        if len(encode(arguments)) > MAX_ARGUMENTS:
            raise ToolFailed(f"the call and its result are longer than {MAX_ARGUMENTS:,} bytes")
        answer = await self._call_tool(self._functions(), function, arguments)
        if answer.get("isError"):
            raise ToolFailed(_failure(answer)[0])
        structured = answer.get("structuredContent")
        replaced = structured.get("result", False) if isinstance(structured, dict) else False
        if replaced is not None and not isinstance(replaced, dict):
            raise ToolFailed("its process did not answer with a result")
        return replaced

    def meaning(self) -> Upstream | None:
        """Returns the process that compares meanings, started with its first use; None without packages or model."""
        if SEARCH not in self._running:
            model = self._config.search.model
            if missing("search") is not None or (model is None and not default_model_there()):
                return None
            self._start(_process(SEARCH, "search", *([f"--model={model}"] if model is not None else [])))
        return self._running[SEARCH]

    def take_process(self) -> Upstream:
        """Returns a process that runs one program: an idle one, or a new one."""
        if self._idle_processes:
            return self._idle_processes.pop()
        self._process_count += 1
        memory = CODE_MODE.of(self._config).memory
        return self._start(_process(f"{PROGRAMS} {self._process_count}", "programs", str(memory)))

    def keep(self, process: Upstream) -> bool:
        """Keeps a process for another program; returns False if enough are kept."""
        if len(self._idle_processes) >= KEPT_PROCESSES:
            return False
        self._idle_processes.append(process)
        return True

    async def stop(self, process: Upstream) -> None:
        """Stops a process, and the program in it."""
        await process.stop()
        self._running.pop(process.server.id, None)

    def _functions(self) -> Server:
        servers = self._config.servers
        steps = [step for server in servers for step in server.postprocess]
        steps += [step for server in servers for rules in server.tools.values() for step in rules.postprocess]
        names = sorted({step.step for step in steps if ":" in step.step})
        paths = [self._config.path.parent] if self._config.path is not None else []
        paths += [server.tools_dir for server in servers if server.tools_dir is not None]
        return _process(FUNCTIONS, "steps", *(f"--path={path}" for path in paths), *names)

    async def _call_tool(self, server: Server, tool: str, arguments: Json) -> Json:
        listed = self._listed_web() if server.id == WEB else None
        upstream = listed or self._running.get(server.id) or self._start(server)
        response = await upstream.request(TOOLS.act_method, {"name": tool, "arguments": arguments})
        return eras.result_for("handshake", response.era, TOOLS.act_method, response.result)

    def _start(self, server: Server) -> Upstream:
        upstream = self._running[server.id] = self._connect(server)
        upstream.start()
        return upstream

    async def close(self) -> None:
        """Stops the servers that were started here; a listed one belongs to the hub."""
        await asyncio.gather(*(upstream.stop() for upstream in self._running.values()), return_exceptions=True)


def _process(id: str, *arguments: str) -> Server:
    """Returns an entry whose process is `python -m mcp_hub.servers WORDS...`."""
    args = ("-P", "-m", "mcp_hub.servers", *arguments)
    return Server(id=id, transport="stdio", command=sys.executable, args=args, namespace="", keep_catalog=False)


def _failure(result: Json) -> tuple[str, str, str]:
    """Returns (text, code, rule) of an error result."""
    content = result.get("content")
    texts = [str(block.get("text", "")) for block in content if isinstance(block, dict)] if content else []
    facts = error_facts(result)
    return "\n".join(texts), str(facts.get("code", "")), str(facts.get("rule", ""))
