"""Protects the user: redaction, screening, pins, rules for URLs and addresses, private files."""
