"""The packages the hub is a door for, as clients of it: each in the locked environment `scripts/peers` makes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.peers.catalogue import Transport
from tests.peers.programs import HERE, PEERS, installed, run
from tests.peers.real_clients import RealClient

ROOT = Path(__file__).parents[2]
CREATION_BOUND = 60.0
"""Seconds an environment may take to be made; a bound against hangs."""

STDIO: Mapping[Transport, str | None] = {"stdio": None}
HTTP: Mapping[Transport, str | None] = {"http": None}
SSE: Mapping[Transport, str | None] = {"sse": None}


def python_of(environment: str) -> str:
    """The Python of one locked environment. Raises PeerMissing."""
    return installed(PEERS / environment / "bin" / "python")


async def python_beside(environment: str, directory: Path) -> str:
    """A Python with the packages of an environment and the hub of this repository, as one has who installs both."""
    python = python_of(environment)
    await run([python, "-m", "venv", "--without-pip", str(directory)], CREATION_BOUND)
    packages = next((PEERS / environment / "lib").glob("python*/site-packages"))
    site_packages = directory / packages.relative_to(PEERS / environment)
    (site_packages / "beside.pth").write_text(f"{packages}\n{ROOT}\n", encoding="utf-8")
    return str(directory / "bin" / "python")


def _client(name: str, driver: str, versions: Mapping[Transport, str | None], mode: str | None = None) -> RealClient:
    environment = driver.partition("_")[0]
    return RealClient(name, lambda: [python_of(environment), str(HERE / "clients" / driver)], versions, mode)


PACKAGES: Mapping[str, RealClient] = {
    client.name: client
    for client in (
        _client("agentscope1_stateful", "agentscope1_toolkit.py", {**STDIO, **HTTP, **SSE}, "stateful"),
        _client("agentscope1_stateless", "agentscope1_toolkit.py", HTTP, "stateless"),
        _client("agentscope2_stateful", "agentscope2_client.py", {**STDIO, **HTTP}, "stateful"),
        _client("agentscope2_stateless", "agentscope2_client.py", HTTP, "stateless"),
        _client("agently", "agently_tools.py", {**STDIO, **HTTP}),
    )
}
