"""A certificate authority that no system knows, and the certificates that it issues."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PATIENCE = 60
"""Seconds a connection may take."""


class PrivateAuthority:
    """An authority with its files in a directory; `ca` is its certificate."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self._name = name
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        builder = self._builder(self._subject, self._key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        certificate = builder.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.ca = directory / f"{name}.pem"
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder(self._subject, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
        )

    def issue(self, name: str, password: bytes | None = None) -> tuple[Path, Path]:
        """Returns (certificate, key) for a host's name, its address, or a client; the key may have a password."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            general_name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            general_name = x509.DNSName(name)
        builder = self._builder(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]), key)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        certificate = builder.add_extension(x509.SubjectAlternativeName([general_name]), critical=False).sign(
            self._key, hashes.SHA256()
        )
        cert, secret = (self._directory / f"{self._name}-{name}.{suffix}" for suffix in ("crt", "key"))
        cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        encryption = (
            serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
        )
        form = serialization.PrivateFormat.PKCS8
        secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, encryption))
        return cert, secret

    def server(self, name: str, *, clients: Path | None = None) -> ssl.SSLContext:
        """Returns the context of a server. `clients`: the authority whose certificates its clients must show."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(name))
        if clients is not None:
            context.load_verify_locations(clients)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@contextlib.contextmanager
def strict(context: ssl.SSLContext) -> Iterator[int]:
    """A server that ends handshakes with an alert, which asyncio does not send; yields its port."""

    def serve(listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            connection.settimeout(PATIENCE)
            with connection.dup() as plain:
                try:
                    with context.wrap_socket(connection, server_side=True) as inner:
                        inner.recv(65536)
                        inner.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                except OSError:
                    plain.shutdown(socket.SHUT_WR)
                    while plain.recv(65536):  # what is unread at the end would reset the connection
                        pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE)
