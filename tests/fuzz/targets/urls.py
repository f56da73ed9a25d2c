"""The URL guard: any text is judged, and what a client would take from a guarded place is refused."""

from __future__ import annotations

from urllib.parse import urlsplit

from mcp_hub.security.url_rules import UrlRules
from tests.fuzz.supply import Supply
from tests.policy.guard import test_readings_of_clients as readings

TOKENS = tuple(
    part.encode("utf-8", "surrogatepass")
    for part in dict.fromkeys(
        [*readings.SCHEMES, *readings.USERS, *readings.HOSTS, *readings.PORTS, *readings.SEGMENTS, "/", "\\", "//"]
    )
    if part
)
SEEDS = (
    b"\x00https://huggingface.co/datasets/x",
    b"\x00see https://example.com/?next=https%3A%2F%2Fhf.co%2Fdatasets there",
    b"\x01https://denied.example:443/a/../b",
)

_RULES = UrlRules()
_DENYING = UrlRules(False, ("denied.example",))


def target(data: bytes) -> None:
    supply = Supply(data)
    denying, text = supply.below(2), supply.rest().decode("utf-8", "surrogateescape")
    rules = _DENYING if denying else _RULES
    try:
        verdict = rules.refuses(text)
    except ValueError:
        return  # nothing the guard could read, which it refuses
    assert verdict == rules.refuses(text)
    if verdict is None and _is_fetched(text):
        for host, path in readings.readings(text):
            if "\\" in host:
                continue  # the standard library's idea; no resolver has such a name
            if denying:
                assert host.lower().rstrip(".") != "denied.example", f"{text!r} leads to a denied host"
            else:
                assert not readings.is_guarded(host, path), f"{text!r} leads to what is guarded"


def _is_fetched(text: str) -> bool:
    """Whether an HTTP client would try: the standard library splits what has any scheme, `20s:` as well."""
    try:
        return urlsplit(text).scheme in ("", "http", "https")
    except ValueError:
        return False
