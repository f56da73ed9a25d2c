"""The servers that belong to the hub. Each runs in a process of its own: `python -m mcp_hub.servers ...`."""
