"""The rules of MCP without I/O: eras, kinds, headers, extensions, and the bridge between the eras."""
