"""The certificate of the listener, from files."""

from __future__ import annotations

import ssl
from pathlib import Path

from mcp_hub.config.listen import Tls
from mcp_hub.errors import ConfigError


def tls_context(tls: Tls) -> ssl.SSLContext:
    """What the listener speaks TLS with. Raises ConfigError, in words for the user, for files that cannot be used."""
    for key, path in (("cert", tls.cert), ("key", tls.key)):
        _check_readable(f"listen.tls.{key}", path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without this, OpenSSL would ask whoever sits at the terminal for the password of an encrypted key.
        context.load_cert_chain(tls.cert, tls.key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"listen.tls: {tls.key} is not the private key of {tls.cert}") from None
        raise ConfigError(f"listen.tls: {_what_is_wrong(tls)}") from None
    except (OSError, ValueError):
        raise ConfigError(f"listen.tls: {_what_is_wrong(tls)}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password() -> bytes:
    return b""


def _check_readable(setting: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise ConfigError(f"{setting}: {path} cannot be read: {error.strerror or error}") from None


def _what_is_wrong(tls: Tls) -> str:
    if b"-----BEGIN CERTIFICATE-----" not in tls.cert.read_bytes():
        return f"{tls.cert} has no certificate in PEM (-----BEGIN CERTIFICATE-----)"
    key = tls.key.read_bytes()
    if b"ENCRYPTED" in key:
        return f"{tls.key} is encrypted; write it without a password, for this user's eyes only (chmod 600)"
    if b"PRIVATE KEY-----" not in key:
        return f"{tls.key} has no private key in PEM (-----BEGIN PRIVATE KEY-----)"
    return f"{tls.cert} and {tls.key} cannot be used; they must be a certificate and its private key, in PEM"
