"""What is dialled is an address that was checked; whom it belongs to is shown by its certificate, for the name."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mcp_hub.oauth.token_flow import CheckedTransport
from mcp_hub.oauth.token_store import TokenUnavailable
from mcp_hub.transport.egress import Egress
from mcp_hub.transport.trust_store import trusted_certificates
from tests.fakes.client import PATIENCE

pytestmark = pytest.mark.anyio

LOCAL = "http://127.0.0.1:1/mcp"


def certified(directory: Path, name: str) -> Path:
    """Key and certificate for a name, signed by themselves."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file = directory / "certified.pem"
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, plain)
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return file


async def received_head(file: Path, host: str) -> str:
    """Returns the head of the request that a server with that certificate gets. Raises what the transport raises."""
    heads: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    listening = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    trusted_certificates.cache_clear()
    checked = CheckedTransport(LOCAL, (), Egress.of())
    trusted_certificates.cache_clear()
    async with listening, httpx2.AsyncClient(transport=checked, timeout=PATIENCE) as http:
        port = listening.sockets[0].getsockname()[1]
        await http.get(f"https://{host}:{port}/x")
    return heads[0]


async def test_a_certificate_for_the_requested_name_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = certified(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    assert "Host: localhost:" in await received_head(file, "localhost")


@pytest.mark.parametrize(("name", "trusted"), [("elsewhere.example", True), ("localhost", False)])
async def test_a_certificate_for_another_name_or_of_an_unknown_authority_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, trusted: bool
) -> None:
    file = certified(tmp_path, name)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(TokenUnavailable):
        await received_head(file, "localhost")
