"""TLS by certificate files: real clients are served, and files that cannot be used are told of before the start."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.downstream.network.visitor import ERAS, TOKENS, bearer, network_hub, visiting
from tests.fakes.client import HUB, PATIENCE, fake, spawned, write_config

pytestmark = pytest.mark.anyio


def certificate(directory: Path, name: str = "one", password: bytes | None = None) -> dict[str, str]:
    """The setting `listen.tls`, with a certificate of 127.0.0.1 that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mcp-hub test")])
    now = datetime.datetime.now(datetime.UTC)
    issued = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encryption = (
        serialization.BestAvailableEncryption(password) if password is not None else serialization.NoEncryption()
    )
    cert, private = directory / f"{name}.pem", directory / f"{name}.key"
    cert.write_bytes(issued.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
    private.chmod(0o600)
    return {"cert": str(cert), "key": str(private)}


@pytest.mark.parametrize("era", ERAS)
async def test_clients_that_trust_the_certificate_are_served(tmp_path: Path, era: str) -> None:
    tls = certificate(tmp_path)
    client_context = ssl.create_default_context(cafile=tls["cert"])
    listen = {"tls": tls, "principals": {"alice": TOKENS["alice"]}}
    async with network_hub(tmp_path / "hub", {"up": fake()}, listen) as (_, base):
        assert base.startswith("https://127.0.0.1:")
        async with visiting(base, era, TOKENS["alice"], verify=client_context) as visitor:
            assert await visitor.text("up__echo", {"text": "hello"}) == "hello"
        headers = {**bearer(TOKENS["alice"]), "origin": base}
        async with httpx2.AsyncClient(verify=client_context, headers=headers, timeout=PATIENCE) as http:
            transport = streamable_http_client(f"{base}/mcp", http_client=http)
            async with Client(transport, mode="legacy" if era == "handshake" else "auto") as client:
                assert "up__echo" in [tool.name for tool in (await client.list_tools()).tools]
            foreign = await http.post(f"{base}/mcp", headers={"origin": base.replace("https", "http")})
            assert foreign.status_code == 403


async def test_a_tls_listener_answers_neither_plain_http_nor_old_tls_versions(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    async with network_hub(tmp_path / "hub", {}, {"tls": tls}) as (_, base):
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            with pytest.raises(httpx2.TransportError):
                await http.get(base.replace("https", "http") + "/healthz")
        old = ssl.create_default_context(cafile=tls["cert"])
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        async with httpx2.AsyncClient(verify=old, timeout=PATIENCE) as http:
            with pytest.raises(httpx2.ConnectError):
                await http.get(f"{base}/healthz")
        client_context = ssl.create_default_context(cafile=tls["cert"])
        async with httpx2.AsyncClient(verify=client_context, timeout=PATIENCE) as http:
            assert (await http.get(f"{base}/healthz")).status_code == 200


def spoiled(directory: Path, case: str) -> dict[str, str]:
    tls = certificate(directory)
    if case == "of another key":
        return {**tls, "key": certificate(directory, "two")["key"]}
    if case == "exchanged":
        return {"cert": tls["key"], "key": tls["cert"]}
    if case == "encrypted":
        return certificate(directory, "three", b"password")
    for name in ("cert", "key"):
        if case == f"{name} missing":
            Path(tls[name]).unlink()
        elif case == f"{name} empty":
            Path(tls[name]).write_bytes(b"")
        elif case == f"{name} cut":
            Path(tls[name]).write_bytes(Path(tls[name]).read_bytes()[:120])
        elif case == f"{name} a directory":
            Path(tls[name]).unlink()
            Path(tls[name]).mkdir()
    return tls


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("cert missing", "listen.tls.cert: "),
        ("key missing", "listen.tls.key: "),
        ("cert a directory", "listen.tls.cert: "),
        ("key a directory", "listen.tls.key: "),
        ("cert empty", "has no certificate in PEM"),
        ("key empty", "has no private key in PEM"),
        ("cert cut", "cannot be used"),
        ("key cut", "cannot be used"),
        ("exchanged", "has no certificate in PEM"),
        ("of another key", "is not the private key of"),
        ("encrypted", "is encrypted"),
    ],
)
async def test_unusable_tls_files_are_reported_in_one_line(tmp_path: Path, case: str, words: str) -> None:
    record = tmp_path / "record"
    tls = spoiled(tmp_path, case)
    config = write_config(tmp_path, {"up": fake("--record", str(record))}, listen={"tls": tls, "port": 0})
    async with spawned([*HUB, "serve", "--http", "--config", str(config)]) as client:
        assert await client.exited() == 2
        await client.until(lambda: words.encode() in client.stderr)
        assert client.stderr.count(b"\n") == 1
        assert b"PRIVATE KEY-----\n" not in client.stderr
    assert not record.exists()


@pytest.mark.parametrize(
    ("tls", "line"),
    [
        ({"cert": "c.pem"}, b"listen.tls.key: is missing"),
        ("c.pem", b"listen.tls: must be a mapping with cert, key"),
        ({"cert": "c.pem", "key": 7}, b"listen.tls.key: "),
    ],
)
async def test_an_invalid_tls_setting_is_reported(tmp_path: Path, tls: Any, line: bytes) -> None:
    config = write_config(tmp_path, {}, listen={"tls": tls})
    async with spawned([*HUB, "serve", "--http", "--config", str(config)]) as client:
        assert await client.exited() == 2
        await client.until(lambda: line in client.stderr)


@pytest.mark.parametrize("over_tls", [True, False], ids=["TLS", "plain"])
async def test_hundreds_of_silent_connections_do_not_exhaust_the_descriptors(tmp_path: Path, over_tls: bool) -> None:
    tls = certificate(tmp_path)
    listen = {"token": TOKENS["alice"], **({"tls": tls} if over_tls else {})}
    with_low_limit = ("sh", "-c", 'ulimit -n 512 && exec "$@"', "sh")
    async with network_hub(tmp_path / "hub", {"up": fake()}, listen, before=with_low_limit) as (_, base):
        client_context = ssl.create_default_context(cafile=tls["cert"])
        host, port = base.rpartition("/")[2].split(":")
        with contextlib.ExitStack() as silent:
            for _ in range(600):
                silent.enter_context(socket.create_connection((host, int(port)), PATIENCE))
            for _ in range(3):
                async with visiting(base, "modern", TOKENS["alice"], verify=client_context) as visitor:
                    assert await visitor.text("up__echo", {"text": "hello"}) == "hello"
