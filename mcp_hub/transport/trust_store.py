"""TLS contexts for the hub's outbound connections: authorities of the system and of files, and client certificates."""

from __future__ import annotations

import functools
import os
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.security.private_files import MAX_PEM, open_regular
from mcp_hub.text import printable

_USUAL_STORES: Final = (
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
)  # fmt: skip
"""Where Linux distributions keep their authorities, for a Python that was built for another system."""


class UnusableCertificates(Exception):
    """A file of certificates cannot be used. `text` says which and why, with its code."""

    def __init__(self, text: CodedText) -> None:
        super().__init__(text)
        self.text = text


@functools.cache
def trusted_certificates() -> ssl.SSLContext:
    """Returns the TLS context for clients that trusts the certificate authorities of the system, for HTTP/1.1.

    The context is cached. Loading the authorities takes 50 ms, so make the first call in a thread.
    Raises UnusableCertificates.
    """
    return tls_context()


def tls_context(
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    system: str = sys.platform,
) -> ssl.SSLContext:
    """Returns a TLS context for clients. Raises UnusableCertificates.

    It trusts the authorities in `SSL_CERT_FILE` and `SSL_CERT_DIR`, or else those of the system, and those in the file
    `ca`. It presents the client certificate in `cert`, whose private key is in `key` or also in `cert`.
    """
    authorities = environ.get("SSL_CERT_FILE", "")
    if system in ("darwin", "win32") and not authorities and not environ.get("SSL_CERT_DIR"):
        import truststore  # on Linux it would load the authorities anew for each connection

        context: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        context = _openssl_context(authorities)
    if ca is not None:
        _load(context, "ca", ca)
    if cert is not None:
        _load_client_certificate(context, cert, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _openssl_context(authorities: str) -> ssl.SSLContext:
    if authorities:
        _refuse_unreadable("SSL_CERT_FILE", authorities)  # before OpenSSL reads it by itself
    context = ssl.create_default_context()
    if authorities:
        _load(context, "SSL_CERT_FILE", authorities)
    elif not context.cert_store_stats()["x509_ca"] and ssl.get_default_verify_paths().capath is None:
        store = next((file for file in _USUAL_STORES if Path(file).is_file()), None)
        if store is not None:
            _load(context, "the system", store)
    return context


def _refuse_unreadable(source: str, file: str) -> None:
    """Refuses what is not a file: OpenSSL would wait for a pipe, and read a device to its end."""
    try:
        open_regular(file, MAX_PEM).close()
    except (OSError, ValueError) as error:
        raise _unusable(source, file, error, "cannot be read") from None


def _load(context: ssl.SSLContext, source: str, file: str) -> None:
    _refuse_unreadable(source, file)
    try:
        context.load_verify_locations(cafile=file)
    except (OSError, ValueError) as error:
        raise _unusable(source, file, error, "has no certificates in PEM (-----BEGIN CERTIFICATE-----)") from None


def _load_client_certificate(context: ssl.SSLContext, cert: str, key: str | None) -> None:
    _refuse_unreadable("client_cert", cert)
    if key is not None:
        _refuse_unreadable("client_key", key)
    try:
        # Without a password function, OpenSSL would prompt on the terminal for that of an encrypted key.
        context.load_cert_chain(cert, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        source, file = ("client_cert", cert) if key is None else ("client_key", key)
        if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
            problem = f"is not the private key of {cert}"
        elif b"ENCRYPTED" in Path(file).read_bytes():
            problem = "is encrypted; write it without a password"
        elif key is None:
            problem = "has no certificate with its private key in PEM; name the file of the key in client_key"
        else:
            problem = f"has no private key in PEM, or {cert} has no certificate"
        raise _unusable(source, file, error, problem) from None


def _unusable(source: str, file: str, error: Exception, problem: str) -> UnusableCertificates:
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.strerror:
        problem = f"cannot be read: {error.strerror}"
    elif not os.access(file, os.R_OK):
        problem = "cannot be read"
    return UnusableCertificates(CodedText(printable(f"{file} ({source}) {problem}", 500), codes.CERTIFICATE_FILE_WRONG))
