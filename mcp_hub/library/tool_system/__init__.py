"""The tool system of the project's own API on the hub: tools by tool set, executor, formatter and protocols."""
