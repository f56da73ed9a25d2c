"""Whether tools may read and write files of this machine by any path: `deny`, `warn` or `allow`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, get_args

RawTextPolicy = Literal["deny", "warn", "allow"]

VARIABLE: Final = "AGENTSCOPE_DANGEROUS_TEXT_IO"
"""The environment variable that says it, as AgentScope has it."""
DEFAULT: Final[RawTextPolicy] = "warn"
_STRICTEST_FIRST: Final[tuple[RawTextPolicy, ...]] = get_args(RawTextPolicy)


def strictest(said: Iterable[str | None]) -> RawTextPolicy:
    """The strictest word of all that were said (None: nothing was); a word nobody knows is `warn`."""
    words = {word.strip().lower() for word in said if word is not None}
    if not words <= set(_STRICTEST_FIRST):
        words.add(DEFAULT)
    return next((policy for policy in _STRICTEST_FIRST if policy in words), DEFAULT)
