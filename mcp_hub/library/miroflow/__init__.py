"""MiroFlow's tool manager on the hub: tools by server, its task log, `PlaywrightSession` and `with_timeout`."""
