"""Exposed names: legal, the same every time, and reversed where nothing had to change; the rest is the catalog's."""

from __future__ import annotations

import re

from mcp_hub.catalog import names
from tests.fuzz.supply import Supply

TOKENS = (
    b"__",
    b"_",
    b"-",
    b"/",
    b".",
    b"a" * 40,
    b"\0",
    "é".encode(),
    "\ud800".encode("utf-8", "surrogatepass"),
    b"{id}",
)
SEEDS = (b"\x05spaceget_page", b"\x02a_b__c", b"\x03x/y" + b"z" * 90, b"\x08fake://sfake://s/item/{id}")

_LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")


def target(data: bytes) -> None:
    supply = Supply(data)
    namespace, name = _text(supply.piece(40)), _text(supply.rest()) or "x"
    exposed = names.expose(namespace, name)
    assert _LEGAL.fullmatch(exposed)
    assert exposed == names.expose(namespace, name)
    plain = f"{namespace}{names.SEPARATOR}{name}" if namespace else name
    if _LEGAL.fullmatch(plain):
        assert exposed == plain
        if namespace and names.SEPARATOR not in namespace and not namespace.endswith("_"):
            # What follows may begin with `_`; then the first separator is still the one that was put in.
            assert tuple(exposed.split(names.SEPARATOR, 1)) == (namespace, name)
    alternatives = {names.renamed(namespace, name, attempt) for attempt in range(3)}
    assert len(alternatives) == 3, "two attempts at another name gave the same"
    assert all(_LEGAL.fullmatch(alternative) and alternative != exposed for alternative in alternatives)
    assert (
        names.lookalike(namespace, name) == names.lookalike(namespace, name.upper().lower().upper())
        or not name.isascii()
    )
    if namespace:
        assert names.original_uri(names.expose_uri(namespace, name)) == (namespace, name)
    pattern = names.template_pattern(name)
    if pattern is not None:
        assert pattern.fullmatch(namespace) in (None, namespace)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape").encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
