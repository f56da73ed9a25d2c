"""The files of clients as their documentation or their own programs write them, and the servers that are in each."""

from __future__ import annotations

from typing import NamedTuple


class Documented(NamedTuple):
    """A file of a client."""

    text: str
    runs: dict[str, str]
    """Server -> its command line or URL, as far as the file has it."""


GITHUB = "npx -y @modelcontextprotocol/server-github"
FILES = {
    # modelcontextprotocol.io, "Connect to local MCP servers"
    "claude-desktop": Documented(
        """{
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": [
        "-y",
        "@modelcontextprotocol/server-filesystem",
        "/Users/username/Desktop",
        "/Users/username/Downloads"
      ]
    }
  },
  "preferences": {"quickEntryShortcut": "off"}
}
""",
        {
            "filesystem": "npx -y @modelcontextprotocol/server-filesystem /Users/username/Desktop "
            "/Users/username/Downloads"
        },
    ),
    # What `claude mcp add --scope user` leaves behind, with its own bookkeeping
    "claude-code": Documented(
        """{
  "numStartups": 12,
  "tipsHistory": {"new-user-warmup": 3},
  "projects": {
    "/home/me/app": {"allowedTools": [], "mcpServers": {"local": {"type": "stdio", "command": "node"}}}
  },
  "mcpServers": {
    "airtable": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "airtable-mcp-server"],
      "env": {"AIRTABLE_API_KEY": "${AIRTABLE_KEY}"}
    },
    "sentry": {"type": "http", "url": "https://mcp.sentry.example/mcp"}
  }
}""",
        {"airtable": "npx -y airtable-mcp-server", "sentry": "https://mcp.sentry.example/mcp"},
    ),
    # code.visualstudio.com, "MCP configuration reference"
    "vscode": Documented(
        """{
\t"inputs": [
\t\t{ "type": "promptString", "id": "perplexity-key", "description": "Perplexity API Key", "password": true }
\t],
\t"servers": {
\t\t// https://github.com/ppl-ai/modelcontextprotocol/
\t\t"Perplexity": {
\t\t\t"type": "stdio",
\t\t\t"command": "npx",
\t\t\t"args": ["-y", "server-perplexity-ask"],
\t\t\t"env": { "PERPLEXITY_API_KEY": "${input:perplexity-key}" },
\t\t},
\t\t"github": { "type": "http", "url": "https://api.githubcopilot.example/mcp/" },
\t},
}
""",
        {"Perplexity": "npx -y server-perplexity-ask", "github": "https://api.githubcopilot.example/mcp/"},
    ),
    # cursor.com/docs, "Using mcp.json"
    "cursor": Documented(
        """{
  "mcpServers": {
    "server-name": {
      "command": "npx",
      "args": ["-y", "mcp-server"],
      "env": {
        "LEVEL": "value"
      }
    }
  }
}""".replace("\n", "\r\n"),
        {"server-name": "npx -y mcp-server"},
    ),
    # developers.openai.com/codex/mcp
    "codex": Documented(
        """model = "gpt-5"
# approval_policy = "on-request"

[mcp_servers.context7]
command = "npx"
args = ["-y", "@upstash/context7-mcp"]
env_vars = ["LOCAL_TOKEN"]

[mcp_servers.context7.env]
MY_ENV_VAR = "MY_ENV_VALUE"

[mcp_servers.figma]
url = "https://mcp.figma.example/mcp"
bearer_token_env_var = "FIGMA_OAUTH_TOKEN"
http_headers = { "X-Figma-Region" = "us-east-1" }

[mcp_servers.chrome_devtools]
url = "http://localhost:3000/mcp"
enabled_tools = ["open", "screenshot"]
disabled_tools = ["screenshot"] # applied after enabled_tools
startup_timeout_sec = 20
tool_timeout_sec = 45
enabled = true

[tui]
notifications = true
""",
        {
            "context7": "npx -y @upstash/context7-mcp",
            "figma": "https://mcp.figma.example/mcp",
            "chrome_devtools": "http://localhost:3000/mcp",
        },
    ),
    # google-gemini/gemini-cli, docs/tools/mcp-server.md
    "gemini": Documented(
        """{
  "theme": "Default",
  "mcpServers": {
    "pythonTools": {
      "command": "python",
      "args": ["-m", "my_mcp_server", "--port", "8080"],
      "cwd": "./mcp-servers/python",
      "env": {"DATABASE_URL": "$DB_CONNECTION_STRING", "API_KEY": "${EXTERNAL_API_KEY}"},
      "timeout": 15000
    },
    "sseServer": {"url": "http://localhost:3000/events"},
    "httpServer": {"httpUrl": "http://localhost:3000/mcp", "timeout": 5000, "includeTools": ["safe_tool"]}
  }
}
""",
        {
            "pythonTools": "python -m my_mcp_server --port 8080",
            "sseServer": "http://localhost:3000/events",
            "httpServer": "http://localhost:3000/mcp",
        },
    ),
    # docs.windsurf.com, "Cascade MCP integration"
    "windsurf": Documented(
        """{
  "mcpServers": {
    "github": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "${env:GITHUB_TOKEN}"}
    },
    "remote-http-mcp": {"serverUrl": "https://mcp.example/mcp", "headers": {"API_KEY": "value"}}
  }
}
""",
        {"github": GITHUB, "remote-http-mcp": "https://mcp.example/mcp"},
    ),
    # zed.dev/docs/ai/mcp, within the settings that Zed writes
    "zed": Documented(
        """// Zed settings
//
// For information on how to configure Zed, see the Zed
// documentation: https://zed.dev/docs/configuring-zed
{
  "ui_font_size": 16,
  "context_servers": {
    "local-mcp-server": {
      "command": "some-command",
      "args": ["arg-1", "arg-2"],
      "env": {},
    },
    "remote-mcp-server": {
      "url": "https://custom.example/mcp",
      "headers": { "X-Any": "1" },
    },
  },
  "theme": {
    "mode": "system",
  },
}
""",
        {"local-mcp-server": "some-command arg-1 arg-2", "remote-mcp-server": "https://custom.example/mcp"},
    ),
    # lmstudio.ai/docs/app/mcp
    "lm-studio": Documented(
        '{\n  "mcpServers": {\n    "hf-mcp-server": {\n      "url": "https://huggingface.example/mcp",\n'
        '      "headers": {\n        "Authorization": "Bearer ${HF_TOKEN}"\n      }\n    }\n  }\n}',
        {"hf-mcp-server": "https://huggingface.example/mcp"},
    ),
    # goose-docs, "Configuration files"
    "goose": Documented(
        """# Model Configuration
GOOSE_PROVIDER: "anthropic"
GOOSE_MODEL: "claude-sonnet-4"
extensions:
  developer:
    bundled: true
    enabled: true
    name: developer
    timeout: 300
    type: builtin
  github:
    name: GitHub
    cmd: npx
    args: [-y, "@modelcontextprotocol/server-github"]
    enabled: true
    envs: { "LEVEL": "debug" }
    type: stdio
    timeout: 300
""",
        {"github": GITHUB},
    ),
    # docs.cline.bot, "Configuring MCP servers"
    "cline": Documented(
        """{
  "mcpServers": {
    "local-server": {
      "command": "node",
      "args": ["/path/to/server.js"],
      "env": {"LEVEL": "3"},
      "alwaysAllow": ["tool1", "tool2"],
      "disabled": false
    }
  }
}
""",
        {"local-server": "node /path/to/server.js"},
    ),
    # opencode.ai/docs/mcp-servers
    "opencode": Documented(
        """{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    "my-local-mcp-server": {
      "type": "local",
      // Or ["bun", "x", "my-mcp-command"]
      "command": ["npx", "-y", "my-mcp-command"],
      "enabled": true,
      "environment": {
        "MY_ENV_VAR": "my_env_var_value",
      },
    },
    "my-remote-mcp": { "type": "remote", "url": "https://my-mcp-server.example", "enabled": false }
  },
}
""",
        {"my-local-mcp-server": "npx -y my-mcp-command", "my-remote-mcp": "https://my-mcp-server.example"},
    ),
    # docs.continue.dev/reference, "mcpServers"
    "continue": Documented(
        """name: My Config
version: 1.0.0
schema: v1
mcpServers:
  - name: My MCP Server
    command: uvx
    args:
      - mcp-server-sqlite
      - --db-path
      - ./test.db
    cwd: /Users/NAME/project
    env:
      NODE_ENV: production
models: []
""",
        {"My MCP Server": "uvx mcp-server-sqlite --db-path ./test.db"},
    ),
    # kiro.dev/docs/mcp/configuration
    "kiro": Documented(
        """{
  "mcpServers": {
    "local-server-name": {
      "command": "command-to-run-server",
      "args": ["arg1", "arg2"],
      "env": {"ENV_VAR1": "hard-coded-variable", "ENV_VAR2": "${EXPANDED_VARIABLE}"},
      "disabled": false,
      "autoApprove": ["tool_name1", "tool_name2"],
      "disabledTools": ["tool_name3"]
    }
  }
}
""",
        {"local-server-name": "command-to-run-server arg1 arg2"},
    ),
    # docs.github.com, "Adding MCP servers for GitHub Copilot CLI"
    "copilot": Documented(
        """{
  "mcpServers": {
    "playwright": {
      "type": "local",
      "command": "npx",
      "args": ["@playwright/mcp@latest"],
      "env": {},
      "tools": ["*"]
    },
    "context7": {
      "type": "http",
      "url": "https://mcp.context7.example/mcp",
      "headers": {"X-Level": "1"},
      "tools": ["resolve-library-id"]
    }
  }
}
""",
        {"playwright": "npx @playwright/mcp@latest", "context7": "https://mcp.context7.example/mcp"},
    ),
    # ampcode.com/manual, "MCP"
    "amp": Documented(
        """{
  "amp.mcpServers": {
    "playwright": {"command": "npx", "args": ["-y", "@playwright/mcp@latest", "--headless"]},
    "semgrep": {"url": "https://mcp.semgrep.example/mcp"}
  },
  "amp.tools.disable": ["builtin:edit_file"]
}
""",
        {"playwright": "npx -y @playwright/mcp@latest --headless", "semgrep": "https://mcp.semgrep.example/mcp"},
    ),
}
PATHS = {
    "linux": {
        "claude-desktop": ".config/Claude/claude_desktop_config.json",
        "claude-code": ".claude.json",
        "vscode": ".config/Code/User/mcp.json",
        "cursor": ".cursor/mcp.json",
        "codex": ".codex/config.toml",
        "gemini": ".gemini/settings.json",
        "windsurf": ".codeium/windsurf/mcp_config.json",
        "zed": ".config/zed/settings.json",
        "lm-studio": ".lmstudio/mcp.json",
        "goose": ".config/goose/config.yaml",
        "cline": ".cline/data/settings/cline_mcp_settings.json",
        "opencode": ".config/opencode/opencode.jsonc",
        "continue": ".continue/config.yaml",
        "kiro": ".kiro/settings/mcp.json",
        "copilot": ".copilot/mcp-config.json",
        "amp": ".config/amp/settings.json",
    }
}
_SUPPORT = "Library/Application Support"
PATHS["macos"] = PATHS["linux"] | {
    "claude-desktop": f"{_SUPPORT}/Claude/claude_desktop_config.json",
    "vscode": f"{_SUPPORT}/Code/User/mcp.json",
}
_ROAMING = "AppData/Roaming"
PATHS["windows"] = PATHS["linux"] | {
    "claude-desktop": f"{_ROAMING}/Claude/claude_desktop_config.json",
    "vscode": f"{_ROAMING}/Code/User/mcp.json",
    "zed": f"{_ROAMING}/Zed/settings.json",
    "goose": f"{_ROAMING}/Block/goose/config/config.yaml",
}
