"""Every fault of an upstream, and the possible outcomes of a call to it during the fault."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

OK = "ok"
"""The call is answered as if nothing were wrong."""
UNAVAILABLE, TIMEOUT, TOO_LARGE = "server_unavailable", "timeout", "result_too_large"
DENIED, INTERNAL = "permission_denied", "internal"
ERROR = "an error of its own"
"""The server's own JSON-RPC error, passed on."""


@dataclass(frozen=True)
class Fault:
    """`comes_to`: possible outcomes of a call. `words`: text of its error. `again`: only a new connection shows it."""

    name: str
    comes_to: frozenset[str]
    words: str = ""
    again: bool = False
    era: str = "handshake"
    seconds: float = 2.0
    """The deadline of a call."""

    @property
    def http(self) -> bool:
        return self.name.startswith("http-")


def fault(name: str, *comes_to: str, **fields: Any) -> Fault:
    return Fault(name, frozenset(comes_to), **fields)


FAULTS = (
    fault("exit-at-start", UNAVAILABLE, words="API_KEY is not set", again=True),
    fault("silent-at-start", UNAVAILABLE, TIMEOUT, again=True),
    fault("slow-start", OK, again=True, seconds=20),
    fault("closes-stdout", UNAVAILABLE, TIMEOUT, again=True),
    fault("hang", TIMEOUT, words="deadlines.call"),
    fault("crash", UNAVAILABLE, words="Segmentation fault (not really)"),
    fault("grandchild", UNAVAILABLE, words="my child outlives me"),
    fault("deaf", TIMEOUT, words="deadlines.call"),
    fault("noise", OK),
    fault("invalid-utf8", OK),
    fault("stderr-flood", OK),
    fault("not-json", UNAVAILABLE, words="is not valid JSON"),
    fault("half-line", UNAVAILABLE),
    fault("byte-by-byte", OK),
    fault("deep-nesting", UNAVAILABLE, words="nested too deeply"),
    fault("lone-surrogate", OK),
    fault("nan", OK),
    fault("null-result", INTERNAL),
    fault("odd-error", ERROR),
    fault("no-message", INTERNAL),
    fault("duplicate", OK),
    fault("stray", OK),
    fault("out-of-order", OK),
    fault("batch", OK),
    fault("blank", OK),
    fault("bad-schema", OK, again=True),
    fault("cursor-loop", OK, again=True),
    fault("sixty-pages", OK, again=True),
    fault("storm", OK),
    fault("changes", OK),
    fault("huge", OK, seconds=25),
    fault("too-large", TOO_LARGE, words="max_frame", seconds=25),
    fault("asks", OK),
    fault("http-401", DENIED, words="401"),
    fault("http-404", UNAVAILABLE, words="404"),
    fault("http-429", UNAVAILABLE, words="429"),
    fault("http-500", UNAVAILABLE, words="500"),
    fault("http-html", UNAVAILABLE, words="text/html"),
    fault("http-redirect", UNAVAILABLE, words="redirect"),
    fault("http-type", UNAVAILABLE, words="text/plain"),
    fault("http-cut", UNAVAILABLE),
    fault("http-cut-json", UNAVAILABLE),
    fault("http-empty", UNAVAILABLE),
    fault("http-garbage", UNAVAILABLE),
    fault("http-hanging-header", TIMEOUT, words="deadlines.call"),
    fault("http-session-lost", OK),
    fault("http-no-session", OK, again=True),
)
ERAS = ("handshake", "modern")
IN_BOTH = frozenset({
    "exit-at-start", "silent-at-start", "hang", "crash", "deaf", "not-json", "null-result", "storm", "out-of-order",
    "http-401", "http-500", "http-cut", "http-hanging-header",
})  # fmt: skip
EVERY = tuple(
    replace(entry, era=era) for entry in FAULTS for era in ERAS if era == "handshake" or entry.name in IN_BOTH
)
"""Each fault of a server of the handshake era, and of a modern one where the eras are served in different ways."""
