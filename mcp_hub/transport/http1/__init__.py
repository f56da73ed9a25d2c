"""HTTP/1.1 to one origin: requests written, answers parsed by httptools, connections kept. It knows nothing of MCP."""
