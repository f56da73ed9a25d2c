"""Host, Origin and token: whatever the headers are, only requests that the configuration allows are admitted."""

from __future__ import annotations

from mcp_hub.config.field_types import SecretStr
from mcp_hub.config.models import Listen
from mcp_hub.downstream.admission import Gate, Refusal
from tests.fuzz.supply import Supply

TOKEN = "0123456789abcdef0123456789abcdef"
HOSTS = (
    *(b"localhost", b"127.0.0.1", b"[::1]", b"localhost:8808", b"127.0.0.1:80", b"hub.example", b"hub.example:8443"),
    *(b"HUB.example", b"evil.example", b"localhost.evil.example", b"localhost@evil.example", b"evil.example#localhost"),
    *(b"localhost:8808:1", b"[::1].evil", b"127.1", b"0", b"[::ffff:127.0.0.1]", b"localhost\0", b" localhost", b""),
)
ORIGINS = (
    *(b"http://localhost:8808", b"http://127.0.0.1:8808", b"https://page.example", b"null", b"", b"http://localhost"),
    *(
        b"http://localhost:8808.evil.example",
        b"http://localhost:88080",
        b"HTTP://LOCALHOST:8808",
        b"https://hub.example",
    ),
    *(
        b"http://localhost:8808/",
        b"http://localhost:8808 ",
        b"http://localhost:8808,null",
        b"https://page.example.evil",
    ),
)
SITES = (b"none", b"same-origin", b"same-site", b"cross-site", b"Same-Origin", b"same-origin ", b"none, none", b"")
NAMES = (
    b"host",
    b"origin",
    b"authorization",
    b"forwarded",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-other",
    b"cookie",
    b"sec-fetch-site",
)
TOKENS = (*HOSTS, *ORIGINS, b"Bearer ", b"Bearer " + TOKEN.encode(), TOKEN.encode(), b"bearer  ", b"Basic ")
SEEDS = (b"\x00\x02\x00\x00\x01\x00", b"\x01\x02\x00\x05\x02\x00", b"\x02\x03\x00\x06\x01\x09\x02\x00")

PORT = 8808
OPEN = Listen()
CLOSED = Listen(token=SecretStr(TOKEN))
PUBLIC = Listen(token=SecretStr(TOKEN), public_host=("hub.example",), allowed_origins=("https://page.example",))
_LOOPBACK = {b"localhost", b"127.0.0.1", b"[::1]"}
_LISTENS = (OPEN, CLOSED, PUBLIC)


def target(data: bytes) -> None:
    supply = Supply(data)
    listen = supply.one_of(_LISTENS)
    lines = []
    for _ in range(supply.below(8)):
        name = supply.one_of(NAMES)
        candidates = (
            HOSTS
            if name == b"host"
            else ORIGINS
            if name == b"origin"
            else SITES
            if name == b"sec-fetch-site"
            else (b"Bearer " + TOKEN.encode(), b"Bearer x", b"")
        )
        lines.append((name, supply.one_of(candidates) if supply.below(4) else supply.piece()))
    gate = Gate(listen)
    refusal, admission = gate.refusal(lines, PORT), gate.admit(lines)
    expected = _may_ask(listen, lines)
    assert (refusal is None) == expected, f"{lines} was {'let in' if refusal is None else 'refused'}"
    if refusal is not None:
        assert refusal.status in (403, 421)
    credentials = [value for name, value in lines if name == b"authorization"]
    assert isinstance(admission, Refusal) == (listen.token is not None and not _carries(credentials))
    for outcome in (refusal, admission):
        if isinstance(outcome, Refusal):
            outcome.text.encode("ascii")


def _may_ask(listen: Listen, lines: list[tuple[bytes, bytes]]) -> bool:
    """Implements the rules a second time, by allow lists only."""
    hosts = [value.lower() for name, value in lines if name == b"host"]
    origins = [value.lower() for name, value in lines if name == b"origin"]
    sites = [value for name, value in lines if name == b"sec-fetch-site"]
    forwarded = any(name == b"forwarded" or name.startswith(b"x-forwarded-") for name, _ in lines)
    names = _LOOPBACK | {name.encode() for name in listen.public_host}
    pages = {b"http://%s:%d" % (name, PORT) for name in _LOOPBACK}
    pages |= {page.encode() for page in listen.allowed_origins}
    pages |= {f"{scheme}://{name}".encode() for name in listen.public_host for scheme in ("http", "https")}
    return (
        len(hosts) == 1
        and any(hosts[0] == name or _is_port(hosts[0].removeprefix(name + b":"), hosts[0]) for name in names)
        and (not origins or (len(origins) == 1 and origins[0] in pages))
        and not (forwarded and listen.token is None)
        and (bool(origins) or all(site.strip(b" \t").lower() in (b"none", b"same-origin") for site in sites))
    )


def _is_port(port: bytes, host: bytes) -> bool:
    return port != host and 1 <= len(port) <= 5 and all(48 <= byte <= 57 for byte in port)


def _carries(credentials: list[bytes]) -> bool:
    if len(credentials) != 1 or credentials[0][:7].lower() != b"bearer ":
        return False
    return credentials[0][7:].strip(b" ") == TOKEN.encode()
