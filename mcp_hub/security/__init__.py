"""What protects a user: redaction, screening, pins, rules about URLs and addresses, private files."""
