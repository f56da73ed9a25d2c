"""A private authority that signs certificates of servers and clients."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOUR = datetime.timedelta(hours=1)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else [])


_SIGNS = x509.KeyUsage(
    digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip
"""The key usage of an authority. Python 3.13 refuses an authority that does not say so."""


class Authority:
    """Its certificate is `file`; everything is written into `directory`."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name(name)
        self._count = 0
        now = datetime.datetime.now(datetime.UTC)
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(self._subject)
            .issuer_name(self._subject)
            .public_key(self._key.public_key())
            .serial_number(1)
            .not_valid_before(now - HOUR)
            .not_valid_after(now + 24 * HOUR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_SIGNS, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def signed(
        self,
        names: Sequence[x509.GeneralName] = (),
        *,
        common: str = "",
        usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
        ends: datetime.timedelta = HOUR,
    ) -> tuple[Path, Path]:
        """The files of a certificate and of its key."""
        self._count += 1
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(common))
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(1000 + self._count)
            .not_valid_before(now - HOUR)
            .not_valid_after(now + ends)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        stem = self._directory / f"{self._subject.rfc4514_string()}-{self._count}".replace("=", "-")
        cert, private = stem.with_suffix(".crt"), stem.with_suffix(".key")
        cert.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return cert, private

    def server(self, **extra_files: Path) -> dict[str, str]:
        """The setting `listen.tls` with a certificate of 127.0.0.1."""
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        cert, key = self.signed([address], common="hub", usage=ExtendedKeyUsageOID.SERVER_AUTH)
        return {"cert": str(cert), "key": str(key), **{name: str(path) for name, path in extra_files.items()}}

    def revocations(self, *certificates: Path) -> bytes:
        """The list, as PEM, that revokes these certificates."""
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._subject)
        builder = builder.last_update(now - HOUR).next_update(now + HOUR)
        for path in certificates:
            serial = x509.load_pem_x509_certificate(path.read_bytes()).serial_number
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - HOUR).build()
            builder = builder.add_revoked_certificate(revoked)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def client(self, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """The TLS context of a client that trusts this authority."""
        context = ssl.create_default_context(cafile=str(self.file))
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return context
