"""Agently's tool calls on the hub: tools by name, and the format in which Agently writes arguments."""
