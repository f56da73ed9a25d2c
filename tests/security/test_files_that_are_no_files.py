"""A pipe, a device, a directory or an endless file in place of one that the hub reads never stops the hub."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from mcp_hub.config.builtin_servers import read_skill
from mcp_hub.config.config_files import read_document, stamp_of, syntax_error_in
from mcp_hub.config.discovery import read_executed
from mcp_hub.config.listen import Tls
from mcp_hub.diagnosis import installation, token_costs
from mcp_hub.downstream.page import log_lines
from mcp_hub.editing.edit import read_bytes
from mcp_hub.errors import HubError
from mcp_hub.hub.composition import config_of, read_config
from mcp_hub.policy.pins import read_pins
from mcp_hub.registry import package_index, sources
from mcp_hub.security.private_files import FileTooLarge, NotAFile, PrivateDirectory, open_regular, read_regular
from mcp_hub.servers import skill_server
from mcp_hub.servers.local.loader import refuse_writable_module
from mcp_hub.transport import trust_store
from mcp_hub.transport.http1 import tls_server
from tests.fakes.client import PATIENCE

LIMIT: Final = 1000


def read_env_file(path: Path) -> None:
    config = config_of({"servers": {"a": {"command": "x", "envFile": str(path)}}})
    assert not config.servers[0].enabled


def read_variable(path: Path) -> None:
    config = config_of({"servers": {"a": {"command": "x", "env": {"A": f"${{file:{path}}}"}}}})
    assert not config.servers[0].enabled


def read_tool_file(path: Path) -> None:
    config = path.parent / "configuration.json"
    config.write_text('{"servers": {}, "tools_dir": "."}')
    config.chmod(0o600)
    (path.parent / "mcp").mkdir()
    (path.parent / "mcp/x.yaml").symlink_to(path)
    read_executed(config)
    read_config(config)


def read_python_file(path: Path) -> None:
    stamp = stamp_of(path)
    assert stamp is not None
    assert syntax_error_in([stamp]) is None


def import_python_file(path: Path) -> None:
    spec = importlib.util.spec_from_file_location("x", path.with_suffix(".py"))
    assert spec is not None
    path.rename(path.with_suffix(".py"))
    refuse_writable_module(spec)


def read_skill_file(path: Path) -> None:
    skill_server.read_file(path.parent, path.name)


def read_skill_folder(path: Path) -> None:
    path.rename(path.parent / "SKILL.md")
    read_skill(path.parent)


READERS: Final[dict[str, Callable[[Path], Any]]] = {
    "configuration": read_document,
    "variable": read_variable,
    "environment": read_env_file,
    "tool file": read_tool_file,
    "python file": read_python_file,
    "imported file": import_python_file,
    "skill": read_skill_folder,
    "file of a skill": read_skill_file,
    "pins": read_pins,
    "edited file": read_bytes,
    "private file": lambda path: PrivateDirectory(path.parent).read(path.name, LIMIT),
    "registry": sources._content,
    "settings of uv": package_index._settings,
    "call log of the page": lambda path: log_lines._tail(path, "x"),
    "call log of costs": lambda path: token_costs._read(path, token_costs.CallCounts()),
    "command on PATH": lambda path: installation._is_same(path, Path("/bin/sh")),
    "certificate": lambda path: tls_server.tls_context(Tls(cert=path, key=path)),
    "authorities": lambda path: trust_store.tls_context(ca=str(path)),
    "client certificate": lambda path: trust_store.tls_context(cert=str(path)),
    "SSL_CERT_FILE": lambda path: trust_store.tls_context(environ={"SSL_CERT_FILE": str(path)}),
}


def make_pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 * 1024**3)  # sparse
    path.chmod(0o600)


@pytest.mark.parametrize("make", [make_pipe, make_device, Path.mkdir, make_huge])
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_waits_or_reads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "file.yaml"
    make(path)
    if reader == "SSL_CERT_FILE":
        monkeypatch.setenv(reader, str(path))
    ended: list[str] = []

    def read() -> None:
        with contextlib.suppress(HubError, OSError, ValueError, ImportError, trust_store.UnusableCertificates):
            READERS[reader](path)
        ended.append("read")

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert ended


def test_the_errors_say_what_is_wrong(tmp_path: Path) -> None:
    make_pipe(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(NotAFile):
            read_regular(path, LIMIT)
    make_huge(tmp_path / "huge")
    with pytest.raises(FileTooLarge):
        read_regular(tmp_path / "huge", LIMIT)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none", LIMIT)
    (tmp_path / "file").write_bytes(b"x" * LIMIT)
    assert read_regular(tmp_path / "file", LIMIT) == (b"x" * LIMIT, ())


def test_a_file_that_grows_while_it_is_read_has_the_same_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")

    def opened(path: Path, limit: int) -> Any:
        stream = open_regular(path, limit)
        file.write_bytes(b"x" * (LIMIT + 1))
        return stream

    monkeypatch.setattr("mcp_hub.security.private_files.open_regular", opened)
    with pytest.raises(FileTooLarge):
        read_regular(file, LIMIT)
