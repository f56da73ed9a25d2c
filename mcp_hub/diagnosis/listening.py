"""Checks what `listen` needs before the hub is started: a free port, tokens, a certificate, descriptors."""

from __future__ import annotations

import errno
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mcp_hub import codes
from mcp_hub.config.listen import UNIX, Listen, Tls
from mcp_hub.config.models import Config
from mcp_hub.diagnosis import Finding, Section, fail, ok, warn
from mcp_hub.diagnosis.probes import holder_of, port_problem
from mcp_hub.downstream.admission import check_listener
from mcp_hub.errors import ConfigError
from mcp_hub.text import printable
from mcp_hub.transport.http1.listening_sockets import connections_possible, path_problem
from mcp_hub.transport.http1.tls_server import tls_context

SOON: Final = 14
"""Days. A certificate that ends sooner is a warning."""
FEW: Final = 1000
"""Connections. It is a warning if the limit of descriptors allows fewer."""
_DAY: Final = 86400


def listening_section(config: Config, ports_of_hubs: set[int | str]) -> Section:
    """Returns `doctor`'s findings on `listen`. `ports_of_hubs`: ports and sockets of running hubs of this user."""
    listen = config.listen
    if not listen.model_fields_set:
        return Section("Listening", (ok("listen", "not configured; clients start the hub over stdio"),))
    findings: list[Finding] = []
    if (objection := check_listener(listen)) is not None:
        findings.append(fail("listen", printable(objection, 500), objection.code))
    findings += (
        _port(listen, ports_of_hubs) if listen.socket_path is None else _socket(listen.socket_path, ports_of_hubs)
    )
    if listen.tls is not None:
        findings += _certificate(listen.tls)
    connections = connections_possible()
    if connections < FEW:
        text = f"the limit of descriptors (ulimit -n) allows {connections} connections"
        findings.append(warn("listen", text, codes.FEW_DESCRIPTORS))
    return Section("Listening", tuple(findings))


def _socket(path: Path, ports_of_hubs: set[int | str]) -> Iterator[Finding]:
    address = f"{UNIX}:{path}"
    about = printable(address, 150)
    if address in ports_of_hubs:
        yield ok(
            about, "a hub of yours listens on it; clients reach it through a reverse proxy, or start one over stdio"
        )
    elif (problem := path_problem(path)) is not None:
        yield fail(about, printable(str(problem), 500), problem.hub_code)
    else:
        yield ok(about, "the socket can be opened")


def _port(listen: Listen, ports_of_hubs: set[int | str]) -> Iterator[Finding]:
    about = f"port {listen.port}"
    address = f"{printable(listen.host) or '*'}:{listen.port}"
    if listen.port == 0:
        yield ok(about, "any free port is taken at the start")
        return
    if listen.port in ports_of_hubs:
        yield ok(about, "a hub of yours listens on it")
        return
    problem = port_problem(listen.host, listen.port)
    if problem is None:
        yield ok(about, f"{address} is free")
    elif problem.errno == errno.EADDRINUSE:
        holder = holder_of(listen.port)
        holder_text = printable(holder, 300) if holder is not None else "another program, perhaps of another user"
        yield fail(about, f"{holder_text} listens on it already", codes.PORT_TAKEN)
    elif problem.errno == errno.EACCES:
        yield fail(about, f"{address} is not permitted to this user", codes.PORT_FORBIDDEN)
    else:
        yield fail(about, f"the hub cannot listen on {address}: {problem.strerror or problem}", codes.ADDRESS_FOREIGN)


def _certificate(tls: Tls) -> Iterator[Finding]:
    file_name = printable(tls.cert.name, 100)
    try:
        context = tls_context(tls)
    except ConfigError as error:
        yield fail("listen.tls", printable(str(error), 500), error.hub_code)
        return
    try:
        end_time = _end_of(context, tls)
    except ssl.SSLCertVerificationError as error:
        yield fail("listen.tls", f"{file_name} is not valid: {error.verify_message}", codes.TLS_EXPIRED)
        return
    days_left = (end_time - time.time()) / _DAY
    if days_left < SOON:
        yield warn("listen.tls", f"{file_name} ends in {days_left:.0f} days", codes.TLS_EXPIRED)
    else:
        yield ok("listen.tls", f"{file_name} is valid for {days_left:.0f} days")


def _end_of(server_context: ssl.SSLContext, tls: Tls) -> float:
    """Returns the end of the certificate in seconds since 1970, by a TLS handshake in memory.

    Raises SSLCertVerificationError if it is not valid now.
    """
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    client_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trusts the certificate itself, whoever signed it
    client_context.load_verify_locations(tls.cert)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, server = client_context.wrap_bio(down, up), server_context.wrap_bio(up, down, server_side=True)
    completed = 0
    while completed < 2:
        completed = 0
        for endpoint in (client, server):
            try:
                endpoint.do_handshake()
                completed += 1
            except ssl.SSLWantReadError:
                continue
    certificate = client.getpeercert() or {}
    return ssl.cert_time_to_seconds(str(certificate["notAfter"]))
