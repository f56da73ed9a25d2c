"""The user's Python functions as a server of the hub's own: `python -m mcp_hub.servers.local DIRECTORY`.

Blocking, printing or dying, they never touch the hub.
"""
