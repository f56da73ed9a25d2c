"""AgentScope's tool system on the hub: `Toolkit`, its groups and skills, and the three MCP clients."""
