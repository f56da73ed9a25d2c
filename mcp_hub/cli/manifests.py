"""`mcp-hub manifests`: print the Kubernetes objects of several replicas, or write them for `kubectl apply -k`."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from mcp_hub import codes
from mcp_hub.cli import OK, json_text
from mcp_hub.cli.startup import add_config_arguments, config_path
from mcp_hub.config.config_files import MAX_FILE, read_document
from mcp_hub.config.models import Config
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import read_config
from mcp_hub.security.private_files import read_regular
from mcp_hub.text import printable
from mcp_hub.version import VERSION

EXAMPLES = """examples:
  mcp-hub manifests | kubectl apply -f -              three replicas, with the configuration that is used here
  mcp-hub manifests --host hub.example deploy/        files for `kubectl apply -k deploy/`
  mcp-hub manifests --image registry.example/mcp-hub:1.2 --replicas 5"""

NAME: Final = "mcp-hub"
PORT: Final = 8808
USER: Final = 10001
"""The id of user and group in the image."""
DELAY: Final = 5
"""Seconds for which a stopping replica still accepts requests, until load balancers have noticed."""
GRACE: Final = 45
"""Seconds until Kubernetes kills a stopping replica: the delay, the end of calls and streams, and a reserve."""
MOUNTED: Final = "/etc/mcp-hub"
MAX_REPLICAS: Final = 64
_VARIABLE: Final = re.compile(
    r"\$\{\{?\s*(?:env:|secrets\.)?([A-Za-z_][A-Za-z0-9_]*)(?::-[^{}]*)?\s*\}|\{env:([A-Za-z_]\w*)"
)
_BUILT_IN: Final = frozenset({"userHome", "workspaceFolder", "workspaceFolderBasename", "pathSeparator", "POD_IP"})
_LABELS: Final = {"app.kubernetes.io/name": NAME}

Json = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub manifests [DIRECTORY] [--config F] [--image I] [--replicas N] [--host H]`."""
    add_config_arguments(parser, "configuration file for the replicas (default: the one that is used here)")
    parser.add_argument("directory", metavar="DIRECTORY", nargs="?", type=Path, help="write files there, for `-k`")
    parser.add_argument("--image", default=f"{NAME}:{VERSION}", help="the image of the hub (default: %(default)s)")
    parser.add_argument("--replicas", type=int, default=3, metavar="N", help="number of replicas (default: 3)")
    parser.add_argument("--host", help="the name under which clients reach the hub, through an ingress or a gateway")
    parser.add_argument("--json", action="store_true", help="the objects as JSON")


def run(options: argparse.Namespace) -> int:
    """Prints the objects, or writes their files. Returns 0. Raises ConfigError."""
    if not 1 <= options.replicas <= MAX_REPLICAS:
        raise ConfigError(f"--replicas takes a number from 1 to {MAX_REPLICAS}", codes.VALUE_WRONG)
    if options.overlays:
        raise ConfigError("manifests take one configuration file: name it by a single --config")
    path = config_path(options)
    text, config, variables = _read(Path(path))
    store = read_document(Path(path)).tree.get("store")
    files = {f"servers{path.suffix}": text, "replicas.yaml": _replicas_file(store, options.host)}
    token = set() if config.listen.authenticates else {"MCP_HUB_TOKEN"}
    names = sorted(variables | token | (set() if config.store is not None else {"STORE_URL"}))
    if local_paths := _local_paths(config, Path(path).parent):
        print(
            f"The pods do not have {', '.join(local_paths)}: put it into the image, or add a volume.", file=sys.stderr
        )
    host = options.host or next(iter((*config.listen.public_host, *config.listen.allowed_hosts)), None)
    deployment = partial(_deployment, options, _container(options.image, list(files), names, host))
    if options.directory is not None:
        _write(options.directory, files, [deployment(None), *_other_objects()])
        print(f"Wrote {options.directory}/. {_secret_note(names)}\n  kubectl apply -k {options.directory}")
        return OK
    objects = [_config_map(files), deployment(_digest(files)), *_other_objects()]
    if options.json:
        print(json_text(objects))
    else:
        comment = "".join(f"# {line}\n" for line in _secret_note(names).splitlines())
        print(comment + _yaml(*objects), end="")
    return OK


def _read(path: Path) -> tuple[str, Config, set[str]]:
    """Returns the text of a configuration file, its Config, and the names of its variables.

    Raises ConfigError if the file cannot be used or contains secrets, which must not be in a ConfigMap.
    """
    try:
        text = read_regular(path, MAX_FILE)[0].decode()
    except (OSError, UnicodeDecodeError):
        text = ""  # `read_config` says what is wrong
    variables = _variables(text)
    store = _variables(str(read_document(path).tree.get("store"))) if variables else set()
    stand_ins = {name: f"{'redis' if name in store else 'https'}://{_digest({name: ''})}.example" for name in variables}
    config = read_config(path, {**os.environ, **stand_ins}).config
    literal_secrets = [secret for secret in secrets_of(config) if secret in text]
    if literal_secrets:
        raise ConfigError(
            f"{path.name} has {len(literal_secrets)} secrets in it, which a ConfigMap must not have: "
            "write ${VARIABLE} in their place, and put their values into the Secret"
        )
    return text, config, variables


def _variables(text: str) -> set[str]:
    return {first or second for first, second in _VARIABLE.findall(text)} - _BUILT_IN


def _replicas_file(store_setting: Any, host: str | None) -> str:
    """Returns the text of a second configuration file, for replicas only, with the `store` of the first file."""
    settings = store_setting if isinstance(store_setting, dict) else {"url": store_setting or "${STORE_URL}"}
    store = {**settings, "address": f"http://${{POD_IP}}:{PORT}"}
    listen: Json = {"shutdown_delay": f"{DELAY}s", **({"public_host": host} if host else {})}
    return _yaml({"store": store, "listen": listen})


def _local_paths(config: Config, home: Path) -> list[str]:
    """Returns the printable paths of files and directories below `home` that a configuration names."""
    paths: set[Path] = set()

    def collect_path(value: Any) -> str:
        if (
            isinstance(value, Path)
            and value != config.path
            and value.is_relative_to(home.absolute())
            and value.exists()
        ):
            paths.add(value)
        return ""

    msgspec.to_builtins({name: getattr(config, name) for name in config.__struct_fields__}, enc_hook=collect_path)
    return [printable(str(path)) for path in sorted(paths)]


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines in YAML's block style."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def _yaml(*documents: Json) -> str:
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=160)


def _digest(files: Mapping[str, str]) -> str:
    return hashlib.sha256("\0".join(f"{name}\0{text}" for name, text in files.items()).encode()).hexdigest()[:16]


def _secret_note(names: list[str]) -> str:
    flags = " ".join(f"--from-literal={name}=..." for name in names)
    return f"The Secret {NAME} is yours to make, before the rest:\n  kubectl create secret generic {NAME} {flags}"


def _write(directory: Path, files: Mapping[str, str], objects: list[Json]) -> None:
    """Writes new files. If one exists already, nothing is written. Raises ConfigError."""
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["hub.yaml"],
        "configMapGenerator": [{"name": NAME, "files": list(files)}],
    }
    contents = {
        **files,
        "hub.yaml": _yaml(*objects),
        "kustomization.yaml": _yaml(kustomization),
    }
    existing = [name for name in contents if (directory / name).exists()]
    if existing:
        raise ConfigError(f"{directory / existing[0]} exists already; name another directory, or remove it")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{directory} cannot be written: {error.strerror}", codes.STATE_NOT_WRITABLE) from None


# --- the objects -------------------------------------------------------------------------------------------------


def _metadata(**fields: Any) -> Json:
    return {"name": NAME, "labels": dict(_LABELS), **fields}


def _config_map(files: Mapping[str, str]) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(), "data": dict(files)}


def _other_objects() -> list[Json]:
    return [_service(), _budget(), _network_policy()]


def _deployment(options: argparse.Namespace, container: Json, digest: str | None) -> Json:
    """Returns the Deployment. With `digest`, a change of the configuration replaces the pods."""
    annotations = {"annotations": {"mcp-hub/configuration": digest}} if digest is not None else {}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(_LABELS)},
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [spread],
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": NAME}},
            {"name": "home", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(),
        "spec": {
            "replicas": options.replicas,
            "selector": {"matchLabels": dict(_LABELS)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {"metadata": {"labels": dict(_LABELS), **annotations}, "spec": pod},
        },
    }


def _container(image: str, files: list[str], names: list[str], host: str | None) -> Json:
    configs = [argument for name in files for argument in ("--config", f"{MOUNTED}/{name}")]
    secrets = [{"name": name, "valueFrom": {"secretKeyRef": {"name": NAME, "key": name}}} for name in names]
    return {
        "name": "hub",
        "image": image,
        "args": ["serve", "--http", "--host", "0.0.0.0", "--port", str(PORT), *configs],
        "ports": [{"name": "http", "containerPort": PORT}],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}, *secrets],
        "startupProbe": {**_probe("live", host), "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": {**_probe("live", host), "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {**_probe("ready", host), "periodSeconds": 2, "failureThreshold": 3},
        "resources": {"requests": {"cpu": "250m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": MOUNTED, "readOnly": True},
            {"name": "home", "mountPath": "/home/hub"},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _probe(endpoint: str, host: str | None) -> Json:
    """Returns a probe. It sends `host` as the Host header, as such a hub refuses requests for a pod's address."""
    headers = {} if host is None else {"httpHeaders": [{"name": "Host", "value": host.removesuffix(":*")}]}
    return {"httpGet": {"path": f"/healthz/{endpoint}", "port": "http", **headers}, "timeoutSeconds": 3}


def _service() -> Json:
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    spec = {"selector": dict(_LABELS), "ports": ports, "sessionAffinity": "None"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(), "spec": spec}


def _budget() -> Json:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(_LABELS)}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": _metadata(), "spec": spec}


def _network_policy() -> Json:
    """Returns a policy that admits traffic to the hub's port only, and blocks the metadata services of clouds.

    DNS is allowed to any address, as a node's DNS cache has a link-local address, like those services.
    """
    names = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    outside = [
        {"namespaceSelector": {}},
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}},
        {"ipBlock": {"cidr": "::/0", "except": ["fe80::/10", "fd00:ec2::/32"]}},
    ]
    spec = {
        "podSelector": {"matchLabels": dict(_LABELS)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"port": "http", "protocol": "TCP"}]}],
        "egress": [{"ports": names}, {"to": outside}],
    }
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": _metadata(), "spec": spec}
