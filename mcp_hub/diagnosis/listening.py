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
    found: list[Finding] = []
    if (objection := check_listener(listen)) is not None:
        found.append(fail("listen", printable(objection, 500), objection.code))
    found += _port(listen, ports_of_hubs) if listen.socket_path is None else _socket(listen.socket_path, ports_of_hubs)
    if listen.tls is not None:
        found += _certificate(listen.tls)
    possible = connections_possible()
    if possible < FEW:
        text = f"the limit of descriptors (ulimit -n) allows {possible} connections"
        found.append(warn("listen", text, codes.FEW_DESCRIPTORS))
    return Section("Listening", tuple(found))


def _socket(path: Path, ports_of_hubs: set[int | str]) -> Iterator[Finding]:
    where = f"{UNIX}:{path}"
    about = printable(where, 150)
    if where in ports_of_hubs:
        yield ok(
            about, "a hub of yours listens on it; clients reach it through a reverse proxy, or start one over stdio"
        )
    elif (problem := path_problem(path)) is not None:
        yield fail(about, printable(str(problem), 500), problem.hub_code)
    else:
        yield ok(about, "the socket can be opened")


def _port(listen: Listen, ports_of_hubs: set[int | str]) -> Iterator[Finding]:
    about = f"port {listen.port}"
    where = f"{printable(listen.host) or '*'}:{listen.port}"
    if listen.port == 0:
        yield ok(about, "any free port is taken at the start")
        return
    if listen.port in ports_of_hubs:
        yield ok(about, "a hub of yours listens on it")
        return
    problem = port_problem(listen.host, listen.port)
    if problem is None:
        yield ok(about, f"{where} is free")
    elif problem.errno == errno.EADDRINUSE:
        holder = holder_of(listen.port)
        who = printable(holder, 300) if holder is not None else "another program, perhaps of another user"
        yield fail(about, f"{who} listens on it already", codes.PORT_TAKEN)
    elif problem.errno == errno.EACCES:
        yield fail(about, f"{where} is not permitted to this user", codes.PORT_FORBIDDEN)
    else:
        yield fail(about, f"the hub cannot listen on {where}: {problem.strerror or problem}", codes.ADDRESS_FOREIGN)


def _certificate(tls: Tls) -> Iterator[Finding]:
    shown = printable(tls.cert.name, 100)
    try:
        serving = tls_context(tls)
    except ConfigError as error:
        yield fail("listen.tls", printable(str(error), 500), error.hub_code)
        return
    try:
        ends = _end_of(serving, tls)
    except ssl.SSLCertVerificationError as error:
        yield fail("listen.tls", f"{shown} is not valid: {error.verify_message}", codes.TLS_EXPIRED)
        return
    left = (ends - time.time()) / _DAY
    if left < SOON:
        yield warn("listen.tls", f"{shown} ends in {left:.0f} days", codes.TLS_EXPIRED)
    else:
        yield ok("listen.tls", f"{shown} is valid for {left:.0f} days")


def _end_of(serving: ssl.SSLContext, tls: Tls) -> float:
    """Returns the end of the certificate in seconds since 1970, by a TLS handshake in memory.

    Raises SSLCertVerificationError if it is not valid now.
    """
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname = False
    asking.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trusts the certificate itself, whoever signed it
    asking.load_verify_locations(tls.cert)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, server = asking.wrap_bio(down, up), serving.wrap_bio(up, down, server_side=True)
    done = 0
    while done < 2:
        done = 0
        for side in (client, server):
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                continue
    found = client.getpeercert() or {}
    return ssl.cert_time_to_seconds(str(found["notAfter"]))
