"""Transports: bytes to JSON-RPC messages and back, for both sides. Nothing here knows what a method means."""
