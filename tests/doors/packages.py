"""The packages the hub is a door for, as clients of it: each in the locked environment `scripts/peers` makes."""

from __future__ import annotations

import venv
from collections.abc import Mapping
from pathlib import Path

from tests.peers.catalogue import HERE, PEERS, RealClient, Transport, installed

ROOT = Path(__file__).parents[2]
STDIO: Mapping[Transport, str | None] = {"stdio": None}
HTTP: Mapping[Transport, str | None] = {"http": None}
SSE: Mapping[Transport, str | None] = {"sse": None}


def python_of(environment: str) -> str:
    """The Python of one locked environment. Raises PeerMissing."""
    return installed(PEERS / environment / "bin" / "python")


def python_with_the_hub(environment: str, directory: Path) -> str:
    """The Python of a new environment in `directory` with the packages of a locked one and the hub of this checkout."""
    source = Path(python_of(environment))
    venv.create(directory, symlinks=True)
    (packages,) = source.parent.parent.glob("lib/python*/site-packages")
    (own,) = directory.glob("lib/python*/site-packages")
    (own / "hub.pth").write_text(f"{packages}\n{ROOT}\n", encoding="utf-8")
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
