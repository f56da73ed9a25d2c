"""The upstreams the hub brings along, each a child process: `python -m mcp_hub.servers.builtin NAME`.

Their settings come as JSON in the environment variable `MCP_HUB_BUILTIN`. What they fetch is chosen by whoever calls
them, so none of it happens in the hub's own process. `code`, `shell`, `text_files`
and `files` do to this machine what callers say: they are apart too, and there only where an entry names them.
"""
