"""The built-in upstreams, each a child process: `python -m mcp_hub.servers NAME`.

The settings of such a process come as JSON in the environment variable `MCP_HUB_BUILTIN`. Callers choose which pages
are fetched and which programs run, so none of that happens in the process of the hub. `code`, `shell`, `text_files` and
`files` act on this machine and start only where an entry of the configuration names them.
"""
