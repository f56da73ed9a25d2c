"""A pod of `mcp-hub manifests`: the hub with its arguments and files, probed as Kubernetes probes it."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mcp_hub.cli import main
from tests.fakes.client import HUB, PATIENCE, fake, free_port, spawned, write_config
from tests.fakes.redis_server import redis_server
from tests.replicas.raw_client import raw, text_of

pytestmark = pytest.mark.anyio
TOKEN = "0123456789abcdef0123456789abcdef"
ADDRESS = "10.1.2.3"
Json = dict[str, Any]


def pod_of(capsys: pytest.CaptureFixture[str], directory: Path, port: int, *options: str) -> tuple[Json, list[str]]:
    """Returns the container of the printed pod, and its command line with local paths and a local port."""
    config = write_config(directory, {"up": fake()})
    assert main(["manifests", "--json", "--config", str(config), *options]) == 0
    manifests = {manifest["kind"]: manifest for manifest in json.loads(capsys.readouterr().out)}
    (container,) = manifests["Deployment"]["spec"]["template"]["spec"]["containers"]
    mounted = directory / "mounted"
    mounted.mkdir()
    for name, text in manifests["ConfigMap"]["data"].items():
        (mounted / name).write_text(text)
    line = [argument.replace("/etc/mcp-hub", str(mounted)).replace("8808", str(port)) for argument in container["args"]]
    return container, line


@pytest.mark.parametrize("words", [[], ["--host", "hub.example"]])
async def test_a_pod_answers_the_probes_of_kubernetes_until_it_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    port = free_port()
    container, line = pod_of(capsys, tmp_path, port, *words)

    async def probe(http: aiohttp.ClientSession, name: str) -> int:
        """The status that the kubelet sees, which names the address of the pod unless it is told another host."""
        get = container[name]["httpGet"]
        headers = {header["name"]: header["value"] for header in get.get("httpHeaders", ())}
        url = f"http://127.0.0.1:{port}{get['path']}"
        async with http.get(url, headers={"Host": f"{ADDRESS}:{port}", **headers}) as response:
            return response.status

    async with (
        redis_server() as store,
        aiohttp.ClientSession() as http,
        raw(f"http://127.0.0.1:{port}", TOKEN) as client,
    ):
        environ = {"POD_IP": ADDRESS, "MCP_HUB_TOKEN": TOKEN, "STORE_URL": store.url}
        assert {variable["name"] for variable in container["env"]} == set(environ)
        async with spawned([*HUB, *line], env={**os.environ, **environ}) as process:
            await process.until(lambda: b"Serving" in process.stderr)
            for name in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert (name, await probe(http, name)) == (name, 200)
            if not words:
                answer = await client.modern("tools/call", {"name": "up__echo", "arguments": {"text": "a"}})
                assert text_of(answer) == "a"
            process.process.terminate()
            async with asyncio.timeout(PATIENCE):
                while await probe(http, "readinessProbe") == 200:
                    pass
            assert await probe(http, "livenessProbe") == 200
            assert await process.exited() == 0
