"""HTTP/1.1 for both sides, parsed by httptools: a client with a pool of connections, and a server. No MCP in here."""
