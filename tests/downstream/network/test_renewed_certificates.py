"""A certificate that is renewed while the hub runs: new connections get it, and no open one is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from cryptography import x509

from mcp_hub.config.models import Listen
from mcp_hub.transport.http1 import tls_server
from tests.downstream.fronts import HANG_BOUND
from tests.downstream.network.authority import Authority
from tests.downstream.network.visitor import ERAS, TOKENS, network_hub, visiting
from tests.downstream.raw_http import Connection, get
from tests.downstream.scripted import Served, serving
from tests.fakes.client import fake

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_server, "LOOK_EVERY", 0.02)


@contextlib.asynccontextmanager
async def connected(served: Served, context: ssl.SSLContext) -> AsyncIterator[tuple[Connection, int]]:
    """A connection, and the serial number of the certificate that it was shown."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=context)
    try:
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        yield Connection(reader, writer), x509.load_der_x509_certificate(certificate).serial_number
    finally:
        writer.transport.abort()


async def healthy(connection: Connection) -> bool:
    connection.send(get())
    return (await connection.response()).status == 200


async def shown_by(served: Served, context: ssl.SSLContext) -> int:
    async with connected(served, context) as (connection, serial):
        assert await healthy(connection)
        return serial


async def wait_until_shown(served: Served, context: ssl.SSLContext, serial: int) -> None:
    """Waits until new connections are shown another certificate."""
    async with asyncio.timeout(HANG_BOUND):
        while await shown_by(served, context) != serial:
            pass


def serial_of(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


class Renewal:
    """Makes one certificate of the hub after the other."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)

    def next(self) -> tuple[Path, Path]:
        files = self.authority.server()
        return Path(files["cert"]), Path(files["key"])


def written_one_after_the_other(directory: Path, cert: Path, key: Path) -> None:
    (directory / "tls.crt").write_bytes(cert.read_bytes())
    (directory / "tls.key").write_bytes(key.read_bytes())


def replaced(directory: Path, cert: Path, key: Path) -> None:
    """Renews as certbot does: replaces links to numbered files."""
    for name, path in (("tls.crt", cert), ("tls.key", key)):
        (directory / "new").symlink_to(path)
        (directory / "new").replace(directory / name)


def in_a_new_directory(directory: Path, cert: Path, key: Path) -> None:
    """Renews as Kubernetes does: replaces one link to a directory, through which both files are reached."""
    target = directory / f"..{serial_of(cert)}"
    target.mkdir()
    written_one_after_the_other(target, cert, key)
    (directory / "..next").symlink_to(target.name)
    (directory / "..next").replace(directory / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")


@pytest.mark.parametrize("write", [written_one_after_the_other, replaced, in_a_new_directory])
async def test_new_connections_get_the_renewed_certificate_and_open_ones_continue(
    tmp_path: Path, write: Callable[[Path, Path, Path], None]
) -> None:
    renewal, mounted = Renewal(tmp_path), tmp_path / "mounted"
    mounted.mkdir()
    old, new = renewal.next(), renewal.next()
    write(mounted, *old)
    listen = Listen.model_validate({"port": 0, "tls": {"cert": mounted / "tls.crt", "key": mounted / "tls.key"}})
    client_context = renewal.authority.client()
    async with serving(listen) as served, connected(served, client_context) as (before, serial):
        assert serial == serial_of(old[0])
        assert await healthy(before)
        write(mounted, *new)
        await wait_until_shown(served, client_context, serial_of(new[0]))
        assert await healthy(before)


async def test_mismatched_renewed_files_are_reported_once_and_the_old_certificate_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    renewal = Renewal(tmp_path)
    old, new, third = renewal.next(), renewal.next(), renewal.next()
    written_one_after_the_other(tmp_path, *old)
    tls = {"cert": tmp_path / "tls.crt", "key": tmp_path / "tls.key"}
    client_context = renewal.authority.client()
    checks = 0
    with caplog.at_level(logging.ERROR, "mcp_hub.downstream"):
        async with serving(Listen.model_validate({"port": 0, "tls": tls})) as served:
            tls["cert"].write_bytes(new[0].read_bytes())
            async with asyncio.timeout(HANG_BOUND):
                while checks < 20:  # long after it was told of
                    assert await shown_by(served, client_context) == serial_of(old[0])
                    checks += bool(caplog.records)
            tls["key"].write_bytes(new[1].read_bytes())
            await wait_until_shown(served, client_context, serial_of(new[0]))
            tls["key"].unlink()
            async with asyncio.timeout(HANG_BOUND):
                while len(caplog.records) < 2:
                    assert await shown_by(served, client_context) == serial_of(new[0])
            written_one_after_the_other(tmp_path, *third)
            await wait_until_shown(served, client_context, serial_of(third[0]))
    first, second = (record.getMessage() for record in caplog.records)
    assert "is not the private key of" in first
    assert "the certificate that was in use stays" in first
    assert "cannot be read" in second


async def test_certificates_of_a_removed_authority_are_refused_on_new_connections(tmp_path: Path) -> None:
    renewal, client_authority = Renewal(tmp_path), Authority(tmp_path, "other")
    ca_file = tmp_path / "clients.pem"
    ca_file.write_bytes(client_authority.file.read_bytes())
    tls = renewal.authority.server(client_ca=ca_file)
    listen = Listen.model_validate({"port": 0, "tls": tls, "principals": {"alice": {}}})
    context = renewal.authority.client(client_authority.signed(common="alice"))
    async with serving(listen) as served:
        assert await shown_by(served, context)
        ca_file.write_bytes(renewal.authority.file.read_bytes())
        async with asyncio.timeout(HANG_BOUND):
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                while True:
                    await shown_by(served, context)


@pytest.mark.parametrize("era", ERAS)
async def test_a_hub_keeps_its_sessions_when_its_certificate_is_renewed(tmp_path: Path, era: str) -> None:
    renewal = Renewal(tmp_path)
    old, new = renewal.next(), renewal.next()
    written_one_after_the_other(tmp_path, *old)
    listen = {"tls": {"cert": "../tls.crt", "key": "../tls.key"}, "token": TOKENS["alice"]}
    client_context = renewal.authority.client()
    async with (
        network_hub(tmp_path / "hub", {"up": fake()}, listen, "-v") as (hub, base),
        visiting(base, era, TOKENS["alice"], verify=client_context) as visitor,
    ):
        assert await visitor.text("up__echo", {"text": "before"}) == "before"
        written_one_after_the_other(tmp_path, *new)
        await hub.until(lambda: b"has changed; new connections get it" in hub.stderr)
        assert await visitor.text("up__echo", {"text": "after"}) == "after"
        port = int(base.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context)
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
        assert x509.load_der_x509_certificate(certificate).serial_number == serial_of(new[0])
