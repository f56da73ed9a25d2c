"""The text of OpenMetrics 1.0: families of samples in, bytes out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

CONTENT_TYPE: Final = b"application/openmetrics-text; version=1.0.0; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram", "info", "stateset"]
Labels = Mapping[str, str]

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


@dataclass
class Family:
    """One metric with all its samples."""

    name: str
    kind: Kind
    help: str
    unit: str = ""
    """The end of the name, where it has one."""
    lines: list[str] = field(default_factory=list)

    def add(self, value: float, labels: Labels | None = None, suffix: str = "") -> None:
        """One sample; `suffix` is what the kind asks for, `_total` say."""
        self.lines.append(f"{self.name}{suffix}{_braces(labels or {})} {number(value)}")

    def add_state(self, state: str, states: Iterable[str], labels: Labels) -> None:
        """A state of several: 1 for it, 0 for the others."""
        for one in states:
            self.add(float(one == state), {**labels, self.name: one})

    def text(self) -> str:
        """Its lines, with what it is in front."""
        unit = [f"# UNIT {self.name} {self.unit}"] if self.unit else []
        head = [f"# TYPE {self.name} {self.kind}", *unit, f"# HELP {self.name} {_escaped(self.help)}"]
        return "\n".join([*head, *self.lines])


def exposition(families: Iterable[Family]) -> bytes:
    """All of them, to the end."""
    text = "\n".join([*(family.text() for family in families), "# EOF", ""])
    return text.encode("utf-8", "replace")


def number(value: float) -> str:
    """A number as the format writes it."""
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


def bound(value: float) -> str:
    """The end of a bucket: a float, always."""
    return "+Inf" if value == float("inf") else repr(float(value))


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)
