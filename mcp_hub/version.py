"""The version, in one place; reading it from the installed metadata would cost every start 20 ms."""

VERSION = "0.1.0"
