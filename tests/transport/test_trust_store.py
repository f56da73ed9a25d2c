"""Which authorities the hub trusts as a client, by system and environment."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import truststore

from mcp_hub import codes
from mcp_hub.transport.trust_store import UnusableCertificates, tls_context
from tests.fakes.private_authority import PrivateAuthority


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_certificates_on_macos_and_windows_are_verified_by_the_system(system: str, tmp_path: Path) -> None:
    context = tls_context(environ={}, system=system)
    assert type(context) is truststore.SSLContext
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    authority = PrivateAuthority(tmp_path)
    cert, key = authority.issue("hub")
    tls_context(str(authority.ca), str(cert), str(key), environ={}, system=system)


@pytest.mark.parametrize("system", ["darwin", "win32", "linux"])
def test_a_ca_file_named_by_the_environment_replaces_the_systems_trust_store(system: str, tmp_path: Path) -> None:
    authority = PrivateAuthority(tmp_path)
    context = tls_context(environ={"SSL_CERT_FILE": str(authority.ca)}, system=system)
    assert type(context) is ssl.SSLContext
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert "authority" in str(context.get_ca_certs())


@pytest.mark.parametrize("system", ["darwin", "linux"])
def test_a_missing_ca_file_named_by_the_environment_is_reported(system: str, tmp_path: Path) -> None:
    for text in (None, "nothing"):
        file = tmp_path / "named.pem"
        if text is not None:
            file.write_text(text)
        with pytest.raises(UnusableCertificates, match=r"named\.pem \(SSL_CERT_FILE\) ") as caught:
            tls_context(environ={"SSL_CERT_FILE": str(file)}, system=system)
        assert caught.value.text.code == codes.CERTIFICATE_FILE_WRONG
