"""What the commands print, so that any terminal, pipe and parser can take it."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any

from mcp_hub.protocol.frames import encode
from mcp_hub.text import json_escaped


def json_text(value: Any) -> str:
    """Indented JSON in which hidden characters are \\u escapes, so that none of an upstream steers a terminal."""
    # What the encoding of stdout does not have must be an escape of JSON's, not of Python's.
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    try:
        text = json.dumps(value, indent=2, ensure_ascii=ascii_only)
    except RecursionError:
        text = encode(value).decode()
    return json_escaped(text, keep="\n")


def never_fail_to_print() -> None:
    """Characters that the encoding of a stream does not have are printed as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def nobody_reads() -> None:
    """Whoever read our output is gone: throw the rest away, or the interpreter would complain of it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)
