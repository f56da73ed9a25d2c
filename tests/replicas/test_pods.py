"""The files of docs/examples/kubernetes: objects that the API takes, and a pod that the hub runs and answers for."""

from __future__ import annotations

import asyncio
import os
import shutil
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final

import aiohttp
import kubernetes_validate
import pytest
import yaml

from mcp_hub.cli import main
from mcp_hub.hub.composition import read_config
from tests.fakes.client import HUB, PATIENCE, fake, free_port, spawned, write_config
from tests.fakes.redis_server import redis_server
from tests.replicas.raw_client import raw, text_of

pytestmark = pytest.mark.anyio

EXAMPLE: Final = Path(__file__).parents[2] / "docs" / "examples" / "kubernetes"
VERSION: Final = "1.30"
TOKEN: Final = "0123456789abcdef0123456789abcdef"
ADDRESS: Final = "10.1.2.3"
Json = dict[str, Any]


def documents(name: str) -> list[Json]:
    return list(yaml.safe_load_all((EXAMPLE / name).read_text()))


@pytest.fixture
def objects() -> dict[str, Json]:
    return {manifest["kind"]: manifest for manifest in documents("hub.yaml")}


@pytest.fixture
def pod(objects: dict[str, Json]) -> Json:
    spec: Json = objects["Deployment"]["spec"]["template"]["spec"]
    return spec


@pytest.fixture
def container(pod: Json) -> Json:
    (container,) = pod["containers"]
    assert isinstance(container, dict)
    return container


def secret_names() -> set[str]:
    lines = (EXAMPLE / "secret.env").read_text().splitlines()
    return {line.partition("=")[0] for line in lines if not line.startswith("#")}


def command_line(container: Json, directory: Path, port: int = 8808) -> list[str]:
    """Returns the command line of a container with local paths and a local port."""
    return [
        argument.replace("/etc/mcp-hub", str(directory)).replace("8808", str(port)) for argument in container["args"]
    ]


def mounted(directory: Path, servers: Path | None = None) -> Path:
    """Makes the directory of the ConfigMap, with other servers on request."""
    (generator,) = documents("kustomization.yaml")[0]["configMapGenerator"]
    directory.mkdir()
    for name in generator["files"]:
        shutil.copy(EXAMPLE / name, directory)
    if servers is not None:
        shutil.copy(servers, directory / "servers.yaml")
    return directory


def test_the_kubernetes_api_schema_accepts_every_object(objects: dict[str, Json]) -> None:
    for manifest in objects.values():
        kubernetes_validate.validate(manifest, VERSION, strict=True)
    assert set(objects) == {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"}


def test_the_files_of_kustomize_name_each_other(objects: dict[str, Json], pod: Json, container: Json) -> None:
    (kustomization,) = documents("kustomization.yaml")
    (config_map,), (secret,), (image,) = (
        kustomization[key] for key in ("configMapGenerator", "secretGenerator", "images")
    )
    assert {file.name for file in EXAMPLE.iterdir()} == {
        "kustomization.yaml", *kustomization["resources"], *config_map["files"], *secret["envs"]
    }  # fmt: skip
    assert container["image"] == image["name"]
    assert container["envFrom"] == [{"secretRef": {"name": secret["name"]}}]
    assert pod["volumes"][0] == {"name": "config", "configMap": {"name": config_map["name"]}}
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [objects["Deployment"]["spec"]["selector"]["matchLabels"], objects["Service"]["spec"]["selector"]]
    selectors += [objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]]
    selectors += [objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]]
    assert all(selector == labels for selector in selectors)


def test_a_pod_runs_without_root_writes_only_to_its_own_volumes_and_drains(pod: Json, container: Json) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/etc/mcp-hub", "/home/hub", "/tmp"}
    assert pod["terminationGracePeriodSeconds"] > 30


def test_the_network_policy_allows_a_pod_dns_and_no_metadata_service(objects: dict[str, Json]) -> None:
    names, all_else = objects["NetworkPolicy"]["spec"]["egress"]
    assert [(port["port"], port["protocol"]) for port in names["ports"]] == [(53, "UDP"), (53, "TCP")]
    excluded = [
        ip_network(cidr) for block in all_else["to"] if "ipBlock" in block for cidr in block["ipBlock"]["except"]
    ]
    for metadata in ("169.254.169.254", "169.254.170.2", "fd00:ec2::254"):
        assert any(ip_address(metadata) in network for network in excluded)


def test_the_hub_accepts_the_configuration_of_its_pod(tmp_path: Path, container: Json) -> None:
    directory = mounted(tmp_path / "mounted")
    paths = [Path(word.removeprefix("--config=")) for word in command_line(container, directory) if "--config=" in word]
    environ = {"STORE_URL": "redis://store.example/0", "POD_IP": ADDRESS}
    loaded = read_config(paths[0], environ, overlays=tuple(paths[1:]))
    assert loaded.warnings == ()
    assert loaded.config.store is not None
    assert loaded.config.store.address == f"http://{ADDRESS}:8808"
    assert loaded.config.store.url.get_secret_value() == environ["STORE_URL"]
    assert loaded.config.listen.public_host == ("hub.example",)


async def test_a_pod_answers_the_probes_of_kubernetes_until_it_stops(tmp_path: Path, container: Json) -> None:
    port = free_port()
    line = command_line(container, mounted(tmp_path / "mounted", write_config(tmp_path, {"up": fake()})), port)

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
        secret = {"MCP_HUB_TOKEN": TOKEN, "STORE_URL": store.url}
        assert secret.keys() == secret_names()
        environ = {**os.environ, **secret, "POD_IP": ADDRESS}
        async with spawned([*HUB, *line], env=environ) as process:
            await process.until(lambda: b"Serving" in process.stderr)
            for name in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert (name, await probe(http, name)) == (name, 200)
            answer = await client.modern("tools/call", {"name": "up__echo", "arguments": {"text": "a"}})
            assert text_of(answer) == "a"
            process.process.terminate()
            async with asyncio.timeout(PATIENCE):
                while await probe(http, "readinessProbe") == 200:
                    pass
            assert await probe(http, "livenessProbe") == 200
            assert await process.exited() == 0


async def test_a_pod_does_not_start_with_an_empty_token(tmp_path: Path, container: Json) -> None:
    line = command_line(container, mounted(tmp_path / "mounted"), free_port())
    async with redis_server() as store:
        environ = {**os.environ, "MCP_HUB_TOKEN": "", "STORE_URL": store.url, "POD_IP": ADDRESS}
        async with spawned([*HUB, *line], env=environ) as process:
            assert await process.exited() == 2


def test_the_former_command_says_what_replaces_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["manifests", "--host", "hub.example", "deploy/"])
    assert raised.value.code == 2
    assert "docs/examples/kubernetes" in capsys.readouterr().err
