"""What a running hub records: calls, counts, spans and stalls of the event loop."""
