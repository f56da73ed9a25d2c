"""A tool system of the program's own on the hub: tools by tool set, executor, formatter and protocols."""
