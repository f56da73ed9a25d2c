"""Bytes to messages and back; nothing here knows what a method means."""
