"""The user's Python functions as a server of the hub: `python -m mcp_hub.servers.local DIRECTORY`.

They run in a child process, so a function that blocks, prints or crashes does not affect the hub.
"""
