"""The trivial server over stdio: reads block, and what one read has brought is answered with one write."""

from __future__ import annotations

import os
import threading

from answers import Answers


def serve(answers: Answers) -> None:
    """Answer until stdin ends."""
    lock = threading.Lock()

    def write(data: bytes) -> None:
        with lock:
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]

    remainder = b""
    while data := os.read(0, 1 << 18):
        *lines, remainder = (remainder + data).split(b"\n")
        out = []
        for line in lines:
            answer, wait = answers.answer(line)
            if wait:
                timer = threading.Timer(wait, write, [answer + b"\n"])
                timer.daemon = True
                timer.start()
            elif answer:
                out.append(answer + b"\n")
        write(b"".join(out))
