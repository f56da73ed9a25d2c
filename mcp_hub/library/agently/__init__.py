"""Agently's tool calls on the hub: tools by name, and Agently's format for arguments."""
