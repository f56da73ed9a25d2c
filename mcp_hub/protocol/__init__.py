"""The rules of MCP, without I/O: eras, kinds, headers, JSON text, and requests of servers to clients."""
