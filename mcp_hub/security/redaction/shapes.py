"""Secrets that are known by their shape: private keys in PEM, JSON Web Tokens, what services begin theirs with."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "***"

_SHORTEST: Final = 20
"""Characters the shortest of them has."""
_BEGINNINGS: Final = (
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),  # GitHub
    *("glpat-", "gldt-", "glrt-", "glptt-"),  # GitLab
    *("npm_", "pypi-", "hf_"),
    *("dop_v1_", "doo_v1_", "dor_v1_"),  # DigitalOcean
    *("shpat_", "shpss_", "shpca_", "shppa_"),  # Shopify
    *("xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-"),  # Slack
    *("sk-", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"),  # OpenAI, Anthropic and others; Stripe
)
_RARE: Final = ("AKIA", "ASIA", "AIza", "ya29.", "SG.", "SK", "eyJ")
_SHAPES: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    rf"(?:{'|'.join(map(re.escape, _BEGINNINGS))})[A-Za-z0-9_-]{{16,}}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"  # Amazon
    r"|AIza[A-Za-z0-9_-]{35}"  # Google
    r"|ya29\.[A-Za-z0-9_-]{16,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"  # SendGrid
    r"|SK[0-9a-f]{32}(?![A-Za-z0-9])"  # Twilio
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*)?"
    r")"
)
_PEM: Final = "-----BEGIN "
_PEM_BEGIN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY[A-Z ]{0,16}-----")
_PEM_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,64}(?:-----)?")
_PEM_REST: Final = re.compile(r"(?:[A-Za-z0-9+/=\s]|\\[rn])*+")
"""What may stand in one whose end was cut off."""


def is_secret_value(text: str) -> bool:
    """Whether a text has the shape of a secret, wherever it stands."""
    return _PEM in text or _SHAPES.search(text) is not None


def hide_shapes(text: str) -> str:
    """`text` with `***` for what has the shape of a secret. Linear in its length; cheap where there is nothing."""
    if len(text) < _SHORTEST:
        return text
    if _PEM in text:
        text = _hide_keys(text)
    if _may_have_shapes(text):
        text = _SHAPES.sub(MASK, text)
    return text


def _may_have_shapes(text: str) -> bool:
    # A search for each of these is far cheaper than one for all of them by a regular expression.
    if "_" in text or "-" in text:
        for beginning in _BEGINNINGS:
            if beginning in text:
                return True
    for beginning in _RARE:  # noqa: SIM110 - a loop takes half the time of `any`
        if beginning in text:
            return True
    return False


def _hide_keys(text: str) -> str:
    kept: list[str] = []
    done = 0
    end: re.Match[str] | None = None
    for found in _PEM_BEGIN.finditer(text):
        if found.start() < done:
            continue
        if done == 0 or end is not None:
            end = _PEM_END.search(text, found.end())  # once there is no end, there is none further on
        until = end.end() if end is not None else _PEM_REST.match(text, found.end()).end()  # type: ignore[union-attr]
        kept += text[done : found.start()], MASK
        done = until
    return "".join((*kept, text[done:])) if kept else text
