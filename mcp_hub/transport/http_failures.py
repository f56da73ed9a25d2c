"""Turns failures of HTTP into sentences for the user: what happened and, where known, what to do."""

from __future__ import annotations

import http.client
import logging
import os
import re
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.models import Server
from mcp_hub.security.proxies import ForwardProxy
from mcp_hub.text import printable
from mcp_hub.transport import LinkError, SignInNeeded, Unauthorized
from mcp_hub.transport.egress import egress_failure
from mcp_hub.transport.http1 import client_response

if TYPE_CHECKING:
    from yarl import URL

log = logging.getLogger("mcp_hub.transport")

SHOWN: Final = 200
"""Characters of a server's text that an error message shows."""
_CHALLENGE: Final = re.compile(r'(?:error|error_description)="[^"]{0,200}"')
_TITLE: Final = re.compile(rb"<title[^>]{0,200}>([^<]{1,300})", re.IGNORECASE)
_PAGE: Final = re.compile(rb"\s*<(?:!doctype html|html|head|body)\b", re.IGNORECASE)
_NO_SERVER: Final = "no MCP server answers at this address: check the path of the url (often /mcp or /sse)"
_NOT_FORWARDED: Final = frozenset({"ERR_ACCESS_DENIED", "ERR_CONNECT_FAIL", "ERR_DNS_FAIL", "ERR_CANNOT_FORWARD"})
"""Values of the proxy Squid's `X-Squid-Error` for requests that it did not forward."""
_ELSEWHERE: Final = frozenset({404, 405, 410, 501})
"""Statuses with which a web server answers a POST to a path without an MCP server."""


class HostUnreachable(LinkError):
    """No connection could be made (refused, unknown name, TLS failure, timeout). Nothing was sent."""


def connect_wait(server: Server) -> float:
    """Returns the seconds for a connection: less than `deadlines.connect`, so that the error names the cause."""
    return 0.9 * server.deadlines.connect


def where(url: URL) -> str:
    """Returns `scheme://host:port/path` of a URL: no user, password, query or fragment."""
    return printable(str(url.with_user(None).with_query(None).with_fragment(None)), SHOWN)


def refusal(server: Server, status: int, challenge: str) -> Unauthorized:
    """Returns the error for a response with status 401 or 403; `challenge` is its WWW-Authenticate header."""
    scheme = challenge.partition(" ")[0]
    challenge_text = ", ".join([scheme, *_CHALLENGE.findall(challenge)]) if scheme else ""
    text = _status_line(status) + (f": {challenge_text}" if challenge_text else "")
    if status == 401 and server.can_sign_in and scheme.lower() in ("", "bearer"):
        step = f"run: mcp-hub login {shlex.quote(printable(server.id, 100))}"
        if not scheme:
            step += f", or set a token (servers.{printable(server.id, 100)}.headers: Authorization)"
        return SignInNeeded(f"it requires you to sign in (HTTP 401); {step}", executed=False, status=status)
    if status == 401 and "authorization" in {name.lower() for name in server.headers}:
        text += f"; it does not accept the Authorization of servers.{printable(server.id, 100)}.headers"
    code = codes.ACCESS_REFUSED if status == 403 else codes.CREDENTIALS_REFUSED
    return Unauthorized(text, executed=False, status=status, code=code)


def error_text(status: int, body: bytes, mask: Callable[[str], str]) -> CodedText:
    """Returns the sentence for an error response; it quotes only the title of a web page. `mask` replaces secrets."""
    text = _status_line(status)
    page = _PAGE.match(body) is not None
    title = _TITLE.search(body) if page else None
    raw = title[1] if title is not None else b"" if page else body
    excerpt = excerpt_of(raw, mask)
    if page:
        text += f" (a web page{f': {excerpt}' if excerpt else ''})"
    elif excerpt:
        text += f": {excerpt}"
    if b"https port" in body[:2000].lower():
        return CodedText(f"{text}; the port speaks TLS: begin the url with https://", codes.TLS_WANTED)
    if status in _ELSEWHERE:
        return CodedText(f"{text}; {_NO_SERVER}", codes.NO_MCP_HERE)
    return CodedText(text, codes.RATE_LIMITED if status == 429 else codes.SERVER_FAILED)


def excerpt_of(body: bytes, mask: Callable[[str], str]) -> str:
    """Returns the beginning of a body on one line. `mask` replaces secrets."""
    return printable(mask(" ".join(body.decode("utf-8", "replace").split())), SHOWN)


def wrong_type_text(status: int, kind: str) -> CodedText:
    """Returns the sentence for a response that is neither JSON nor events. `kind`: its content type, `""` for none."""
    type_text = f"the content type {kind[:60]!r}" if kind else "no content type"
    page = f"; {_NO_SERVER}" if kind == "text/html" else ""
    return CodedText(f"HTTP {status} with {type_text} instead of JSON or events{page}", codes.NO_MCP_HERE)


def _status_line(status: int) -> str:
    return f"HTTP {status} {http.client.responses.get(status, '')}".rstrip()


def refused_by_proxy(proxy: ForwardProxy, response: client_response.HttpResponse) -> CodedText | None:
    """Returns why the proxy did not forward a request; None if the response seems to be the server's."""
    proxy_name = f"the proxy {proxy} (set by {proxy.source})"
    is_tinyproxy = response.status == 401 and (response.get("server") or "").startswith("tinyproxy/")
    if response.status == 407 or is_tinyproxy:
        demand = "does not accept its user and password" if proxy.authorization else "wants a user and a password"
        return CodedText(f"{proxy_name} {demand}", codes.PROXY_CREDENTIALS)
    if (response.get("x-squid-error") or "").partition(" ")[0] not in _NOT_FORWARDED:
        return None
    return CodedText(f"{proxy_name} did not forward the request ({_status_line(response.status)})", codes.PROXY_REFUSED)


def failure_of(
    error: Exception, url: URL, server: Server, mask: Callable[[str], str], proxy: ForwardProxy | None = None
) -> LinkError:
    """Returns a failure as a LinkError. Error texts of libraries are not used, as they may contain URLs and headers.

    `mask` replaces secrets in what the server sent. `proxy` is the proxy in use, if any.
    """
    address = where(url)
    if (failure := _connection_failure(error, address, server, proxy)) is not None:
        return HostUnreachable(failure, executed=False, code=failure.code)
    match error:
        case LinkError():
            return error
        case client_response.PoolClosed():
            return LinkError("the connection is not open", executed=False)
        case client_response.NotHttp():
            text = f"the answer of {address} is not valid HTTP: {printable(mask(str(error)), SHOWN)}"
            return LinkError(text, code=codes.NOT_HTTP)
        case client_response.IncompleteBody():
            return LinkError(f"the answer of {address} broke off", code=codes.NOT_HTTP)
        case client_response.EmptyReply():
            return LinkError(f"{address} closed the connection before it answered", code=codes.NOT_HTTP)
        case client_response.ConnectionBroke(error=cause):
            number = getattr(cause, "errno", None)
            detail = f": {os.strerror(number)}" if number else ""
            return LinkError(f"the connection to {address} broke{detail}", code=codes.NOT_HTTP)
    log.error("unexpected %s while talking to %s", type(error).__name__, address)
    return LinkError(f"unexpected {type(error).__name__} while talking to {address}")


def link_failure(error: Exception) -> LinkError:
    """Returns a failure as a LinkError; one that is a fault of the hub is logged."""
    if isinstance(error, LinkError):
        return error
    log.error("a request over HTTP failed with an unexpected %s", type(error).__name__)
    return LinkError(f"unexpected {type(error).__name__}")


def _connection_failure(error: Exception, address: str, server: Server, proxy: ForwardProxy | None) -> CodedText | None:
    """Returns why no connection could be made, so that nothing was sent; None for any other failure."""
    match error:
        case client_response.NameUnknown():
            return CodedText(f"cannot find the host of {address}", codes.HOST_UNKNOWN)
        case client_response.CertificateRefused():
            reason = printable(str(error) or "it does not fit the host", 100)
            return CodedText(f"the certificate of {address} is not valid: {reason}", codes.CERTIFICATE_REFUSED)
        case client_response.CertificateWanted():
            text = f"{address} wants a certificate that it knows: set client_cert and client_key"
            return CodedText(text, codes.CERTIFICATE_WANTED)
        case client_response.TlsFailed(spoken=False):
            text = f"no TLS connection to {address} could be made: the port does not speak TLS; try http:// in the url"
            return CodedText(text, codes.TLS_UNKNOWN)
        case client_response.TlsFailed():
            text = f"no TLS connection to {address} could be made; it may want a certificate of the hub's (client_cert)"
            return CodedText(text, codes.CERTIFICATE_REFUSED)
        case client_response.ConnectFailed(error=cause):
            reason = os.strerror(cause.errno) if cause.errno else printable(str(cause), 100)
            return CodedText(f"cannot connect to {address}: {reason}", codes.CONNECTION_REFUSED)
        case client_response.ConnectTimeout():
            return CodedText(f"no connection to {address} within {server.deadlines.connect:g} s", codes.CONNECT_LATE)
    failure = egress_failure(error, proxy)
    return None if failure is None else CodedText(f"cannot connect to {address}: {failure}", failure.code)
