"""The benchmark: `scripts/bench`. What it measures and how is in bench/README.md."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench import rows
from bench.cells import BY_NAME, Cell
from bench.chart import chart
from bench.client.messages import ERAS
from bench.measures import MEASURES, USUAL
from bench.plan import Cast, Plan
from bench.report import report
from bench.sheet import Scene, Sheet
from bench.targets import targets

RESULTS = Path(__file__).with_name("results")


def _several(kind: str, choices: Iterable[str]) -> Callable[[str], list[str]]:
    """Returns an argparse type: a comma-separated list of `choices`."""
    allowed = list(choices)

    def read(text: str) -> list[str]:
        values = [value for value in text.split(",") if value]
        unknown = [value for value in values if value not in allowed]
        if unknown or not values:
            invalid = ", ".join(unknown) or "none"
            raise argparse.ArgumentTypeError(f"unknown {kind}: {invalid}; there are {', '.join(allowed)}")
        return values

    return read


def _peer(text: str) -> rows.Row:
    try:
        return rows.peer(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a file: letters, digits, '.', '_' and '-' only")
    return text


def options(argv: list[str] | None = None) -> argparse.Namespace:
    description = "Measures the hub beside what it is compared with."
    parser = argparse.ArgumentParser(prog="scripts/bench", description=description)
    parser.add_argument("--short", action="store_true", help="small numbers, few cells: shows that it works")
    parser.add_argument("--long", action="store_true", help="twice the repetitions, each twice as long")
    parser.add_argument("--measures", type=_several("measure", MEASURES), default=USUAL)
    parser.add_argument("--cells", type=_several("cell", BY_NAME), help="client-server, for example http-stdio")
    parser.add_argument("--eras", type=_several("era", ERAS))
    parser.add_argument("--rows", help="those of direct, hub, sdk, fastmcp and the peers that are to be measured")
    peers = "another proxy; {config} (mcpServers), {transport}, {port} and {era} are replaced in its command"
    parser.add_argument("--peer", type=_peer, action="append", default=[], metavar="NAME=COMMAND", help=peers)
    parser.add_argument("--repeat", type=int, help="repetitions, of which the median counts")
    parser.add_argument("--seconds", type=float, help="the length of one timed stretch")
    parser.add_argument("--data", type=Path, help="the directory of the sets that `retrieval` and `context` read")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the directory that is written to")
    parser.add_argument("--name", type=_name, default="latest", help="the name of the files that are written")
    chosen = parser.parse_args(argv)
    rows_by_name = {row.name: row for row in (*rows.OWN, *chosen.peer)}
    try:
        names = _several("row", rows_by_name)(chosen.rows) if chosen.rows else list(rows_by_name)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    chosen.rows = tuple(rows_by_name[name] for name in rows_by_name if name in names)
    if (chosen.repeat is not None and chosen.repeat < 1) or (chosen.seconds is not None and chosen.seconds <= 0):
        parser.error("--repeat and --seconds must be more than nothing")
    return chosen


def plan(chosen: argparse.Namespace) -> Plan:
    repeat, seconds = (1, 0.1) if chosen.short else (6, 0.8) if chosen.long else (3, 0.4)
    return Plan(chosen.rows, chosen.repeat or repeat, chosen.seconds or seconds, small=chosen.short, data=chosen.data)


def scenes(chosen: argparse.Namespace) -> list[Scene]:
    """Returns the scenes to measure, in order."""
    selected = []
    for name in chosen.measures:
        table = MEASURES[name].table
        usual = table.small_cells if chosen.short else table.cells
        cells: Iterable[Cell] = [BY_NAME[cell] for cell in chosen.cells] if chosen.cells else usual
        for cell in cells:
            if cell in table.possible:
                selected += [Scene(name, cell, era) for era in chosen.eras or table.eras]
    return selected


def head(chosen: argparse.Namespace, planned: Plan, took: float) -> list[str]:
    """Returns the head of the report: the machine, the versions and the repetitions."""
    versions = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    how = f"{planned.repeat} repetitions of {planned.seconds:g} s, taking turns; medians; × is the ratio to `direct`"
    return [f"# {chosen.name}", "", f"{time.strftime('%Y-%m-%d')}, {versions}. {how}. The run took {took:.0f} s."]


def main() -> int:
    """Exit code 1 when the hub could not do something, 2 for options that make no sense, 130 when ended early."""
    chosen = options()
    planned, sheet, began = plan(chosen), Sheet(), time.perf_counter()
    selected = scenes(chosen)
    if not selected:
        print("scripts/bench: none of these measures has one of these cells", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended
    exit_code = 0
    try:
        for count, scene in enumerate(selected, 1):
            passed = time.perf_counter() - began
            print(
                f"{passed:4.0f} s  {count}/{len(selected)}  {scene.measure}, {scene.cell}, {scene.era}", file=sys.stderr
            )
            MEASURES[scene.measure].run(Cast(planned, sheet, scene))
    except KeyboardInterrupt:
        print("scripts/bench: ended early; what was measured until now is written", file=sys.stderr)
        exit_code = 130
    text = report(sheet, head(chosen, planned, time.perf_counter() - began), targets(sheet))
    print(text)
    chosen.out.mkdir(parents=True, exist_ok=True)
    for ending, content in (
        ("md", f"{text}\n![The same as bars]({chosen.name}.svg)\n"),
        ("svg", chart(sheet, chosen.name)),
        ("json", json.dumps(sheet.as_json(), indent=1) + "\n"),
    ):
        chosen.out.joinpath(f"{chosen.name}.{ending}").write_text(content)
    failed = any(row == rows.HUB for _, row in sheet.missing)
    return exit_code or int(failed)


if __name__ == "__main__":
    sys.exit(main())
