"""The real clients: their programs, and how each is told of its servers and of the provider that plays its model."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.peers.programs import NODE, PEERS

Json = dict[str, Any]
PACKAGES: Final = PEERS / "real" / "node_modules"
CODEX_PERSON: Final = Path(__file__).with_name("codex_person.py")
PROMPT: Final = "go"


class ClientMissing(Exception):
    """A real client is not installed."""


def _installed(path: Path) -> str:
    if not path.exists():
        raise ClientMissing(f"{path} is missing: run scripts/test real")
    return str(path)


@dataclass(frozen=True)
class Place:
    """The home and the project of one user, who works with one client."""

    home: Path
    project: Path
    provider: str
    """The address of the provider."""

    def write(self, name: str, text: str) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)


class ClaudeCode:
    """Claude Code in print mode."""

    name = "claude-code"

    def command(self, *words: str) -> list[str]:
        program = PACKAGES / "@anthropic-ai" / "claude-code-linux-x64" / "claude"
        return [_installed(program), "--dangerously-skip-permissions", "--model", "claude-sonnet-4-5", "-p", *words]

    def words_of_prompt(self, server: str, name: str, argument: str) -> list[str] | None:
        """Returns what its user writes for a prompt of a server that takes `who`; None if prompts are not taken."""
        return [f"/mcp__{server}__{name} {argument}"]

    def command_with_person(self, place: Place, answer: Json) -> list[str] | None:
        """Returns the command of a turn in which a person answers every question so; None if nobody is ever asked."""
        shown = {"hookSpecificOutput": {"hookEventName": "Elicitation", **answer}}
        hook = {"type": "command", "command": f"echo {shlex.quote(json.dumps(shown))}"}
        place.write(".claude/settings.json", json.dumps({"hooks": {"Elicitation": [{"hooks": [hook]}]}}))
        return self.command(PROMPT)

    def environment(self, place: Place) -> dict[str, str]:
        return {
            "ANTHROPIC_API_KEY": "sk-ant-fake",
            "ANTHROPIC_BASE_URL": place.provider,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "IS_SANDBOX": "1",
        }

    def configure(self, place: Place, servers: Mapping[str, Json]) -> None:
        known = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        document = {
            "hasCompletedOnboarding": True,
            "bypassPermissionsModeAccepted": True,
            "customApiKeyResponses": {"approved": ["sk-ant-fake"], "rejected": []},
            "projects": {str(place.project): known},
            "mcpServers": {
                name: {"type": "http", **entry} if "url" in entry else entry for name, entry in servers.items()
            },
        }
        place.write(".claude.json", json.dumps(document))


class GeminiCli:
    """Gemini CLI with a prompt."""

    name = "gemini"

    def command(self, *words: str) -> list[str]:
        program = PACKAGES / "@google" / "gemini-cli" / "bundle" / "gemini.js"
        return [_installed(NODE), _installed(program), "-y", "-m", "gemini-2.5-flash", "-p", *words]

    def words_of_prompt(self, server: str, name: str, argument: str) -> list[str] | None:
        return [f'/{name} --who="{argument}"']

    def command_with_person(self, place: Place, answer: Json) -> list[str] | None:
        return None

    def environment(self, place: Place) -> dict[str, str]:
        return {
            "GEMINI_API_KEY": "fake",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GOOGLE_GEMINI_BASE_URL": place.provider,
        }

    def configure(self, place: Place, servers: Mapping[str, Json]) -> None:
        document = {
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
            "mcpServers": {name: {"trust": True, **_renamed(entry, url="httpUrl")} for name, entry in servers.items()},
        }
        place.write(".gemini/settings.json", json.dumps(document))


class Codex:
    """`codex exec`."""

    name = "codex"

    def command(self, *words: str) -> list[str]:
        program = PACKAGES / "@openai" / "codex" / "bin" / "codex.js"
        switches = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return [_installed(NODE), _installed(program), "exec", *switches, *words]

    def words_of_prompt(self, server: str, name: str, argument: str) -> list[str] | None:
        return None

    def command_with_person(self, place: Place, answer: Json) -> list[str] | None:
        codex = [_installed(NODE), _installed(PACKAGES / "@openai" / "codex" / "bin" / "codex.js"), "app-server"]
        return [sys.executable, str(CODEX_PERSON), json.dumps(answer), PROMPT, *codex]

    def environment(self, place: Place) -> dict[str, str]:
        return {"CODEX_HOME": str(place.home / ".codex"), "FAKE_KEY": "x"}

    def configure(self, place: Place, servers: Mapping[str, Json]) -> None:
        tables: Json = {
            "": {"model": "gpt-5", "model_provider": "fake", "check_for_update_on_startup": False},
            "analytics": {"enabled": False},
            "model_providers.fake": {
                "name": "fake",
                "base_url": f"{place.provider}/v1",
                "wire_api": "responses",
                "env_key": "FAKE_KEY",
                "request_max_retries": 0,
                "stream_max_retries": 0,
            },
            f"projects.{json.dumps(str(place.project))}": {"trust_level": "trusted"},
            **{f"mcp_servers.{name}": _renamed(entry, headers="http_headers") for name, entry in servers.items()},
        }
        lines = []
        for table, values in tables.items():
            lines += [f"[{table}]"] if table else []
            lines += [f"{key} = {_toml(value)}" for key, value in values.items()]
        place.write(".codex/config.toml", "\n".join(lines) + "\n")


class OpenCode:
    """`opencode run`."""

    name = "opencode"

    def command(self, *words: str) -> list[str]:
        return [_installed(PACKAGES / "opencode-linux-x64" / "bin" / "opencode"), "run", *words]

    def words_of_prompt(self, server: str, name: str, argument: str) -> list[str] | None:
        return ["--command", f"{server}:{name}", argument]

    def command_with_person(self, place: Place, answer: Json) -> list[str] | None:
        return None

    def environment(self, place: Place) -> dict[str, str]:
        switches = ("AUTOUPDATE", "LSP_DOWNLOAD", "MODELS_FETCH")
        return {f"OPENCODE_DISABLE_{switch}": "1" for switch in switches}

    def configure(self, place: Place, servers: Mapping[str, Json]) -> None:
        model = {
            "name": "m",
            "tool_call": True,
            "attachment": True,
            "limit": {"context": 200_000, "output": 8_000},
            "modalities": {"input": ["text", "image"], "output": ["text"]},
        }
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "fake",
            "options": {"baseURL": f"{place.provider}/v1", "apiKey": "x"},
            "models": {"m": model},
        }
        document = {
            "provider": {"fake": provider},
            "model": "fake/m",
            "small_model": "fake/m",
            "permission": "allow",
            "autoupdate": False,
            "share": "disabled",
            "mcp": {name: self._entry(entry) for name, entry in servers.items()},
        }
        place.write(".config/opencode/opencode.json", json.dumps(document))

    def _entry(self, entry: Json) -> Json:
        if "url" in entry:
            return {"type": "remote", "oauth": False, **entry}
        command = [entry["command"], *entry.get("args", ())]
        return {"type": "local", "command": command, "environment": entry.get("env", {})}


Client = ClaudeCode | GeminiCli | Codex | OpenCode
CLIENTS: Final[tuple[Client, ...]] = (ClaudeCode(), GeminiCli(), Codex(), OpenCode())


def _renamed(entry: Json, **names: str) -> Json:
    return {names.get(key, key): value for key, value in entry.items()}


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(member)}" for key, member in value.items()) + "}"
    return json.dumps(value)  # its texts, numbers, booleans and lists are TOML
