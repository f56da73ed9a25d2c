"""The hub's own servers. Most of them run in their own process: `python -m mcp_hub.servers ...`."""
