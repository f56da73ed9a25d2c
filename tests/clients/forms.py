"""Further forms that clients write: what their programs and test suites have beside the form of their documentation.

Each was written for these tests after the source that is named, with names and addresses of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.clients.documented import Documented


class Form(NamedTuple):
    """A file of a client, and where its form is from."""

    client: str
    source: str
    """Repository and file, and the licence of the repository."""
    file: Documented


FORMS = [
    Form(
        "cline",
        "cline/cline, apps/cli/src/commands/mcp.test.ts and apps/vscode/src/services/mcp/schemas.ts; Apache-2.0",
        Documented(
            """{
  "mcpServers": {
    "notes": {
      "transport": {
        "type": "stdio",
        "command": "node",
        "args": ["notes.js", "--stdio"],
        "env": {"LEVEL": "2"}
      },
      "disabled": false,
      "timeout": 90,
      "metadata": {"addedBy": "wizard"}
    },
    "wiki": {
      "transport": {"type": "streamableHttp", "url": "https://wiki.example/mcp"},
      "oauthClient": {"clientId": "abc"}
    }
  },
  "otherKey": true
}
""",
            {"notes": "node notes.js --stdio", "wiki": "https://wiki.example/mcp"},
        ),
    ),
    Form(
        "cline",
        "cline/cline, docs/mcp/mcp-overview.mdx; Apache-2.0",
        Documented(
            """{
  "mcpServers": {
    "wiki": {
      "type": "streamableHttp",
      "url": "https://wiki.example/mcp",
      "headers": {"X-Team": "blue"},
      "disabled": false,
      "autoApprove": ["search"]
    },
    "older": {"transportType": "sse", "url": "https://old.example/sse", "remoteConfigured": true}
  }
}
""",
            {"wiki": "https://wiki.example/mcp", "older": "https://old.example/sse"},
        ),
    ),
    Form(
        "gemini",
        "google-gemini/gemini-cli, packages/cli/src/commands/mcp/add.ts; Apache-2.0",
        Documented(
            """{
  // written by `gemini mcp add`
  "mcpServers": {
    "wiki": {"url": "https://wiki.example/mcp", "type": "http", "headers": {"X-Team": "blue"}, "trust": true},
    "events": {"url": "https://events.example/stream", "type": "sse", "description": "What happens"},
    "notes": {"command": "notes", "args": ["serve"], "env": {}, "timeout": 20000, "excludeTools": ["wipe"]}
  },
  "mcp": {"excluded": ["events"]}
}
""",
            {
                "wiki": "https://wiki.example/mcp",
                "events": "https://events.example/stream",
                "notes": "notes serve",
            },
        ),
    ),
    Form(
        "codex",
        "openai/codex, codex-rs/core/src/config/types.rs; Apache-2.0",
        Documented(
            """[mcp_servers."notes"]
command = "notes"
args = ["serve"]
cwd = "/srv/notes"
required = true
startup_timeout_ms = 20000

[mcp_servers.wiki]
url = "https://wiki.example/mcp"
env_http_headers = { "X-Team" = "EXTERNAL_API_KEY" }
scopes = ["read"]
oauth_resource = "https://wiki.example"
enabled = false
""",
            {"notes": "notes serve", "wiki": "https://wiki.example/mcp"},
        ),
    ),
    Form(
        "zed",
        "zed-industries/zed, docs/src/ai/mcp.md; GPL-3.0-or-later",
        Documented(
            """{
  "context_servers": {
    "notes": {"source": "custom", "command": "notes", "args": ["serve"], "env": {}, "timeout": 120},
    "of-an-extension": {"enabled": true, "settings": {"database": "main"}}
  }
}
""",
            {"notes": "notes serve"},
        ),
    ),
    Form(
        "goose",
        "block/goose, crates/goose/src/config/extensions.rs; Apache-2.0",
        Documented(
            """extensions:
  wiki:
    enabled: true
    type: streamable_http
    name: wiki
    uri: https://wiki.example/mcp
    headers: {}
    envs: {}
    env_keys: []
    timeout: 300
    bundled: null
    available_tools: []
  memory:
    enabled: false
    type: platform
    name: memory
GOOSE_MODEL: some-model
""",
            {"wiki": "https://wiki.example/mcp"},
        ),
    ),
]
