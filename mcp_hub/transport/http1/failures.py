"""What can go wrong between two ends of HTTP, without words for users: those are `wire/http.py`'s."""

from __future__ import annotations


class HttpFailure(Exception):
    """No answer, or no whole one."""


class NameUnknown(HttpFailure):
    """The host has no address."""


class CertificateRefused(HttpFailure):
    """The host's certificate does not hold; `str()` is what the check said."""


class TlsFailed(HttpFailure):
    """The other end speaks no TLS that fits."""


class NotConnected(HttpFailure):
    """No address took a connection; `error` is the last one's."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class ConnectTimeout(HttpFailure):
    """There was no connection to be had within the deadline."""


class NotHttp(HttpFailure):
    """What came is no answer in HTTP/1; `str()` is what the parser said."""


class ConnectionBroke(HttpFailure):
    """The connection failed before the answer's head was here."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Unanswered(HttpFailure):
    """The other end closed the connection before the answer's head was here."""


class BrokenOff(HttpFailure):
    """The answer's body is not whole."""


class PoolClosed(HttpFailure):
    """The connections were closed before one was had. Nothing was sent."""
