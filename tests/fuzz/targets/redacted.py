"""Redaction: whatever stands around it, a known secret is not in what is written, and it is written on one line."""

from __future__ import annotations

import json
from typing import Any

from mcp_hub.protocol.frames import FrameError, decode
from mcp_hub.security.redaction import Redactor
from mcp_hub.text import printable
from tests.fuzz.supply import Supply
from tests.observability.records.test_redaction import forms, leaves

SECRET = "canary-secret value/+1"
FORMS = tuple(form.encode() for form in forms(SECRET))
TOKENS = (
    *FORMS, b"Bearer ", b"://u:p@", b"?token=", b"&key=", b'"password":', b"=", b": ", b"\n", b"\x1b[2J", b"%25",
    b"&#x", b"</", b"\\x", b"-----BEGIN ", b"{", b"}", b'"', "\u202e".encode(), b"\\", b"***", b"[", b"]", b",",
)  # fmt: skip
SEEDS = (
    b"\x00https://u:" + FORMS[1] + b"@x.example/?token=" + FORMS[0] + b" and more",
    b'\x01{"a": ["' + FORMS[6] + b'", {"password": "x"}], "b": "' + FORMS[0] + b'"}',
)
_REDACTION = Redactor([SECRET])


def target(data: bytes) -> None:
    supply = Supply(data)
    as_value, text = supply.below(2), supply.rest().decode("utf-8", "replace")
    display_text = printable(_REDACTION.text(text), 1_000_000)
    assert "\n" not in display_text
    assert "\x1b" not in display_text
    assert SECRET not in _REDACTION.text(text), "a known secret is in a text"
    assert _REDACTION.text(_REDACTION.text(text)).count(SECRET) == 0
    if as_value:
        try:
            value = decode(text.encode())
        except FrameError:
            return
        _check_value(value)


def _check_value(value: Any) -> None:
    copy = _REDACTION.value(value)
    assert len(json.dumps(copy)) <= 2048 + 64, "a copy is longer than its budget"
    assert not any(SECRET in leaf for leaf in leaves(copy)), "a known secret is in a copy"
    assert not any(SECRET in leaf for leaf in leaves(_REDACTION.redact_known(value)))
