"""Tools with every kind of argument that a Python signature has, on FastMCP or on the SDK, as the first argument says.

`fastmcp` is FastMCP of any version, `sdk` the class of the SDK of the environment it runs in.
"""

import sys
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AnyUrl, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

if sys.argv[1] == "fastmcp":
    from fastmcp import FastMCP as Framework
else:
    try:
        from mcp.server.mcpserver import MCPServer as Framework
    except ImportError:
        from mcp.server.fastmcp import FastMCP as Framework

server: Any = Framework("typed")


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Point(BaseModel):
    x: int
    y: float = 0.0
    tag: str | None = None


class Exact(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(min_length=1, max_length=8)]
    parts: list[Point] = []


class Options(TypedDict, total=False):
    verbose: bool
    limit: int


@server.tool()
def scalars(text: str, count: int, ratio: float, flag: bool) -> str:
    """One of each."""
    return f"{text} {count} {ratio} {flag}"


@server.tool()
def optional(text: str | None = None, count: int | None = None, flag: bool = False, ratio: float = 0.5) -> str:
    """What may be left out."""
    return f"{text} {count} {flag} {ratio}"


@server.tool()
def chosen(
    colour: Colour, level: Level = Level.LOW, mode: Literal["fast", "slow"] = "fast", number: Literal[1, 2] = 1
) -> str:
    """Enumerations."""
    return f"{colour} {level} {mode} {number}"


@server.tool()
def lists(
    names: list[str], numbers: list[int] | None = None, pair: tuple[int, str] = (1, "a"), unique: set[int] | None = None
) -> str:
    """Lists of some kinds."""
    return f"{names} {numbers} {pair} {unique}"


@server.tool()
def mappings(of_int: dict[str, int], anything: dict[str, Any] | None = None, options: Options | None = None) -> str:
    """Objects without a model."""
    return f"{of_int} {anything} {options}"


@server.tool()
def models(point: Point, exact: Exact | None = None, points: list[Point] | None = None) -> str:
    """Objects with one."""
    return f"{point} {exact} {points}"


@server.tool()
def unions(either: int | str, shape: Point | str = "none", many: str | list[str] = "a", number: int | float = 1) -> str:
    """What may be one or the other."""
    return f"{either} {shape} {many} {number}"


@server.tool()
def moments(day: date, at: datetime | None = None, clock: time | None = None, wait: timedelta | None = None) -> str:
    """Dates and times."""
    return f"{day} {at} {clock} {wait}"


@server.tool()
def formats(
    id: UUID | None = None, url: AnyUrl | None = None, path: Path | None = None, price: Decimal | None = None,
    raw: bytes | None = None, anything: Any = None,
) -> str:  # fmt: skip
    """Texts that mean something."""
    return f"{id} {url} {path} {price} {raw!r} {anything}"


@server.tool()
def bounds(
    few: Annotated[int, Field(ge=1, le=5)], step: Annotated[int, Field(multiple_of=2)] = 2,
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5, code: Annotated[str, Field(pattern="^[A-Z]{2}$")] = "AA",
    short: Annotated[list[int], Field(max_length=2)] | None = None,
) -> str:  # fmt: skip
    """Numbers and texts within bounds."""
    return f"{few} {step} {share} {code} {short}"


server.run(**({"transport": "stdio", "show_banner": False} if sys.argv[1] == "fastmcp" else {"transport": "stdio"}))
