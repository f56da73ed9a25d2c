"""The user's Python functions as a server of the hub's own, in a child process: `python -m mcp_hub.local DIRECTORY`.

Blocking, printing or dying, they never touch the hub.
"""
