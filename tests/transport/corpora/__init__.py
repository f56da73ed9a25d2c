"""What other projects hold their readers of HTTP/1.1 against: texts, and what each of them is.

`convert.py` makes the files and names their origin; the licences stand beside them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """One text. `messages` and `end` are None where its project says nothing of them.

    `messages`: the requests or responses whose head is in the text, `{"method", "target" | "status", "headers", "body",
    "whole"}`. `end`: `open` (another may follow), `closed` (none may), `pending` (the text is cut), `refused`,
    `switched` (what follows is another protocol). `lenient`: the setting under which their reader finds that.
    """

    name: str
    side: str
    text: bytes
    messages: list[dict[str, Any]] | None
    end: str | None
    lenient: str = ""


def cases(corpus: str) -> list[Case]:
    """The cases of one corpus, in the order of its files."""
    return [
        Case(
            name=case["name"],
            side=case["side"],
            text=case["bytes"].encode("latin-1"),
            messages=case["messages"],
            end=case["end"],
            lenient=case.get("lenient", ""),
        )
        for case in read(corpus)["cases"]
    ]


def read(corpus: str) -> Any:
    return json.loads((HERE / f"{corpus}.json").read_text(encoding="utf-8"))


HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
BODY = b"0\r\n\r\n" + HIDDEN
"""A body that ends at its first line if a reader takes it for chunks; another request follows then."""
HIDING = ("smuggler", "portswigger")


def hiding(corpus: str) -> list[tuple[str, bytes]]:
    """Lines that some readers take for a transfer coding or a length and others do not, and requests with them."""
    requests = []
    for case in read(corpus)["cases"]:
        line = case["bytes"].encode("latin-1")
        length = b"" if b"{length}" in line else b"Content-Length: %d\r\n" % len(BODY)
        line = line.replace(b"{length}", b"%d" % len(BODY))
        requests.append((case["bytes"], b"POST / HTTP/1.1\r\n" + line + b"\r\nHost: a\r\n" + length + b"\r\n" + BODY))
    return requests
