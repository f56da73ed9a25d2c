"""What `mcp-hub manifests` prints: objects that the API takes, and a configuration that the hub takes."""

from __future__ import annotations

import json
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from mcp_hub.cli import main
from mcp_hub.hub.composition import read_config
from tests.fakes.client import fake, write_config

VERSION = "1.30"
Json = dict[str, Any]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Json]:
    assert main(["manifests", *arguments]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def by_kind(objects: list[Json]) -> dict[str, Json]:
    return {manifest["kind"]: manifest for manifest in objects}


def test_the_kubernetes_api_schema_accepts_every_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path, {"up": fake()})
    objects = printed(capsys, "--config", str(config), "--host", "hub.example")
    for manifest in objects:
        kubernetes_validate.validate(manifest, VERSION, strict=True)
    assert set(by_kind(objects)) == {"ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"}


def test_a_pod_runs_without_root_writes_only_to_its_own_volumes_and_drains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path, {"up": fake()})
    pod = by_kind(printed(capsys, "--config", str(config)))["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/etc/mcp-hub", "/home/hub", "/tmp"}
    assert container["readinessProbe"]["httpGet"]["path"] == "/healthz/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz/live"
    assert pod["terminationGracePeriodSeconds"] > 30


def test_the_network_policy_allows_a_pod_dns_and_no_metadata_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path, {"up": fake()})
    names, all_else = by_kind(printed(capsys, "--config", str(config)))["NetworkPolicy"]["spec"]["egress"]
    assert [(port["port"], port["protocol"]) for port in names["ports"]] == [(53, "UDP"), (53, "TCP")]
    excluded = [
        ip_network(cidr) for block in all_else["to"] if "ipBlock" in block for cidr in block["ipBlock"]["except"]
    ]
    for metadata in ("169.254.169.254", "169.254.170.2", "fd00:ec2::254"):
        assert any(ip_address(metadata) in network for network in excluded)


@pytest.mark.parametrize("store", [None, "${THE_STORE}", {"url": "${THE_STORE}", "prefix": "mine"}])
def test_the_hub_accepts_the_configuration_of_its_pod(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], store: Any
) -> None:
    remote = {"url": "https://mcp.example/mcp", "headers": {"Authorization": "Bearer ${UP_TOKEN}"}}
    config = write_config(tmp_path, {"up": remote}, **({} if store is None else {"store": store}))
    manifests = by_kind(printed(capsys, "--config", str(config), "--host", "hub.example"))
    (container,) = manifests["Deployment"]["spec"]["template"]["spec"]["containers"]
    environ = {variable["name"]: "redis://store.example/0" for variable in container["env"]} | {"POD_IP": "10.1.2.3"}
    assert set(environ) == {"POD_IP", "UP_TOKEN", "MCP_HUB_TOKEN", "STORE_URL" if store is None else "THE_STORE"}
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    for name, text in manifests["ConfigMap"]["data"].items():
        (mounted / name).write_text(text)
    paths = [mounted / Path(argument).name for argument in container["args"] if argument.startswith("/etc/mcp-hub/")]
    loaded = read_config(paths[0], environ, overlays=tuple(paths[1:])).config
    assert loaded.store is not None
    assert loaded.store.address == "http://10.1.2.3:8808"
    assert loaded.store.url.get_secret_value() == "redis://store.example/0"
    assert loaded.store.prefix == ("mine" if isinstance(store, dict) else "mcp-hub")
    assert loaded.listen.public_host == ("hub.example",)


def test_a_configuration_with_a_secret_in_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = "sk-0123456789abcdef0123456789"
    remote = {"url": "https://mcp.example/mcp", "headers": {"Authorization": f"Bearer {secret}"}}
    config = write_config(tmp_path, {"up": remote})
    assert main(["manifests", "--config", str(config)]) == 2
    captured = capsys.readouterr()
    assert "a ConfigMap must not have" in captured.err
    assert secret not in captured.out + captured.err


def test_manifests_names_files_beside_the_configuration_that_pods_lack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tools").mkdir()
    config = write_config(tmp_path, {"up": fake()}, tools_dir="./tools")
    assert main(["manifests", "--config", str(config)]) == 0
    captured = capsys.readouterr()
    assert f"The pods do not have {tmp_path / 'tools'}:" in captured.err
    assert "The pods do not have" not in captured.out


def test_kustomize_files_reference_each_other_and_overwrite_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, directory = write_config(tmp_path, {"up": fake()}), tmp_path / "deploy"
    assert main(["manifests", "--config", str(config), str(directory)]) == 0
    assert "kubectl apply -k" in capsys.readouterr().out
    kustomization = yaml.safe_load((directory / "kustomization.yaml").read_text())
    named = [*kustomization["resources"], *kustomization["configMapGenerator"][0]["files"]]
    assert {path.name for path in directory.iterdir()} == {*named, "kustomization.yaml"}
    for manifest in yaml.safe_load_all((directory / "hub.yaml").read_text()):
        kubernetes_validate.validate(manifest, VERSION, strict=True)
    assert main(["manifests", "--config", str(config), str(directory)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_json_output_has_the_same_objects_as_yaml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path, {"up": fake()})
    objects = printed(capsys, "--config", str(config))
    assert main(["manifests", "--config", str(config), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == objects
