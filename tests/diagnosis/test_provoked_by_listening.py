"""Listeners that cannot be served: each refusal to start is told with the code of its cure."""

from __future__ import annotations

import ctypes
import datetime
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mcp_hub import codes
from tests.diagnosis.looking import configured, findings, reported_codes, said
from tests.downstream.network.test_tls import certificate
from tests.fakes.client import HUB, PATIENCE, fake

WEAK, STRONG = "short", "t" * 32


def refused(
    directory: Path, *arguments: str, servers: dict[str, Any] | None = None, **root: Any
) -> tuple[int, set[str]]:
    """Serves a configuration that cannot be served; returns the exit code and the codes that it names."""
    done = said("serve", *arguments, "--config", str(configured(directory, servers or {}, **root)))
    return done.code, done.codes


@pytest.mark.parametrize(
    ("listen", "code"),
    [
        ({"host": "0.0.0.0"}, codes.TOKEN_MISSING),
        ({"public_host": "hub.test"}, codes.TOKEN_MISSING),
        ({"allowed_origins": ["null"]}, codes.TOKEN_MISSING),
        ({"token": WEAK}, codes.TOKEN_WEAK),
        ({"principals": {"a": STRONG, "b": STRONG}}, codes.TOKEN_WEAK),
        ({"host": "0.0.0.0", "verify": {"jwt": {"issuer": "https://i.test", "audience": "hub",
          "jwks_uri": "https://i.test/keys"}}}, codes.RESOURCE_MISSING),
    ],
)  # fmt: skip
def test_a_listener_with_missing_or_weak_authentication_is_diagnosed(
    tmp_path: Path, listen: dict[str, Any], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MCP_HUB_TOKEN", raising=False)
    assert refused(tmp_path, "--http", listen=listen) == (2, {code})
    assert code in reported_codes(configured(tmp_path, {}, listen=listen))


def test_a_port_that_is_taken_is_diagnosed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert refused(tmp_path, "--http", "--port", str(port)) == (1, {codes.PORT_TAKEN})
        problems = [finding for finding in findings(configured(tmp_path, {}, listen={"port": port})) if finding["code"]]
    text = next(finding["text"] for finding in problems if finding["code"] == codes.PORT_TAKEN)
    if sys.platform == "linux":
        assert f"(process {os.getpid()})" in text


@pytest.mark.parametrize("host", ["192.0.2.7", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_diagnosed(tmp_path: Path, host: str) -> None:
    code, reported = refused(tmp_path, "--http", listen={"host": host, "token": STRONG})
    assert (code, reported) == (1, {codes.ADDRESS_FOREIGN})


def limited(program: str, config: Path, limit: Callable[[], None]) -> set[str]:
    """Returns the codes that a command reports with less rights."""
    argv = [sys.executable, "-m", "mcp_hub", *program.split(), "--config", str(config)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, preexec_fn=limit, check=False)
    return {code for code in vars(codes).values() if isinstance(code, str) and f"[{code}]" in done.stdout + done.stderr}


def as_a_user() -> None:
    """Gives up the right of root to take ports below 1024."""
    ctypes.CDLL(None).prctl(24, 10, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_NET_BIND_SERVICE


def with_few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))


def test_a_privileged_port_is_diagnosed(tmp_path: Path) -> None:
    config = configured(tmp_path, {}, listen={"port": 1})
    assert limited("serve --http", config, as_a_user) == {codes.PORT_FORBIDDEN}
    assert codes.PORT_FORBIDDEN in limited("doctor", config, as_a_user)


def test_a_low_descriptor_limit_is_diagnosed(tmp_path: Path) -> None:
    assert codes.FEW_DESCRIPTORS in limited(
        "doctor", configured(tmp_path, {}, listen={"port": 0}), with_few_descriptors
    )


def test_network_options_without_a_listener_are_diagnosed(tmp_path: Path) -> None:
    assert refused(tmp_path, "--port", "9000") == (2, {codes.HTTP_OPTION_MISSING})


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda tls: {**tls, "cert": "no-such.pem"}, codes.TLS_FILE_UNREADABLE),
        (lambda tls: {**tls, "cert": tls["key"]}, codes.TLS_FILE_WRONG),
        (lambda tls: {**tls, "key": tls["other"]}, codes.TLS_FILE_WRONG),
        (lambda tls: {**tls, "key": tls["locked"]}, codes.TLS_KEY_ENCRYPTED),
    ],
)
def test_certificates_that_cannot_be_used_are_diagnosed(
    tmp_path: Path, change: Callable[[dict[str, str]], Any], code: str
) -> None:
    other_key = certificate(tmp_path, "other")["key"]
    locked_key = certificate(tmp_path, "locked", b"password")["key"]
    tls = change({**certificate(tmp_path), "other": other_key, "locked": locked_key})
    listen = {"port": 0, "tls": {"cert": tls["cert"], "key": tls["key"]}}
    assert refused(tmp_path, "--http", listen=listen) == (2, {code})
    assert code in reported_codes(configured(tmp_path, {}, listen=listen))


def dated(directory: Path, *, begins: int, ends: int) -> dict[str, str]:
    """A certificate that is valid from and until so many days from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hub")])
    now = datetime.datetime.now(datetime.UTC)
    issued = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=begins))
        .not_valid_after(now + datetime.timedelta(days=ends, hours=1))
        .sign(key, hashes.SHA256())
    )
    cert, private = directory / "dated.pem", directory / "dated.key"
    cert.write_bytes(issued.public_bytes(serialization.Encoding.PEM))
    pem, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, pem, plain))
    private.chmod(0o600)
    return {"cert": str(cert), "key": str(private)}


@pytest.mark.parametrize(
    ("begins", "ends", "level", "text"),
    [
        (-30, -2, "fail", "expired"),
        (2, 30, "fail", "not yet valid"),
        (-30, 5, "warn", "ends in 5 days"),
        (-30, 60, "ok", "valid for 60 days"),
    ],
)
def test_the_expiry_of_a_certificate_is_reported(tmp_path: Path, begins: int, ends: int, level: str, text: str) -> None:
    tls = dated(tmp_path, begins=begins, ends=ends)
    matches = [
        finding
        for finding in findings(configured(tmp_path, {}, listen={"port": 0, "tls": tls}))
        if text in finding["text"]
    ]
    assert [finding["level"] for finding in matches] == [level]
    assert (matches[0]["code"] == codes.TLS_EXPIRED) is (level != "ok")


def test_a_missing_required_server_is_diagnosed(tmp_path: Path) -> None:
    dead = {"dead": {"command": "no-such-command", "required": True}, "good": fake()}
    code, reported = refused(tmp_path, "--http", "--port", "0", servers=dead)
    assert (code, reported) == (1, {codes.REQUIRED_FAILED})
    assert codes.REQUIRED_FAILED in said("check", "--config", str(configured(tmp_path, dead))).codes
    assert codes.REQUIRED_FAILED in reported_codes(configured(tmp_path, dead))


@pytest.mark.parametrize(
    ("case", "code"),
    [("in use", codes.PORT_TAKEN), ("no directory", codes.SOCKET_UNUSABLE), ("open", codes.OPEN_TO_OTHERS)],
)
def test_a_unix_socket_that_cannot_be_opened_is_diagnosed(tmp_path: Path, case: str, code: str) -> None:
    path = tmp_path / "in" / "hub.sock"
    if case != "no directory":
        path.parent.mkdir()
        path.parent.chmod(0o777 if case == "open" else 0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        if case == "in use":
            listener.bind(str(path))
            listener.listen()
        listen = f"unix:{path}"
        assert refused(tmp_path, "--http", listen=listen) == (1, {code})
        problems = [finding for finding in findings(configured(tmp_path, {}, listen=listen)) if finding["code"] == code]
    assert str(path) in problems[0]["text"]


def test_a_working_unix_socket_is_reported(tmp_path: Path) -> None:
    results = findings(configured(tmp_path, {}, listen=f"unix:{tmp_path}/hub.sock"))
    assert "the socket can be opened" in [finding["text"] for finding in results]


def test_an_unreadable_client_ca_file_is_diagnosed(tmp_path: Path) -> None:
    listen = {"tls": {**certificate(tmp_path), "client_ca": str(tmp_path / "none.pem")}, "principals": {"alice": {}}}
    assert refused(tmp_path, "--http", listen=listen) == (2, {codes.TLS_FILE_UNREADABLE})
    assert codes.TLS_FILE_UNREADABLE in reported_codes(configured(tmp_path, {}, listen=listen))


def test_an_activated_descriptor_that_is_not_a_socket_is_diagnosed(tmp_path: Path) -> None:
    argv = [*HUB, "serve", "--http", "--config", str(configured(tmp_path, {}))]
    script = 'LISTEN_FDS=1 LISTEN_PID=$$ exec "$@" 3</dev/null'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *argv], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 2
    assert f"[{codes.SOCKET_HANDED}]" in done.stderr
