"""What `tools --duplicates` prints: names that were found twice, what has them and what is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcp_hub.config import Loaded
from mcp_hub.hub.engine import Hub

Row = dict[str, str]
"""`what` (tool, server, tool set, ...), `name`, and the places: `kept`, `dropped`."""


def duplicates(loaded: Loaded, hub: Hub) -> list[Row]:
    """Those of the folders, of the files of local tools, and of the merged lists, in this order."""
    return [*_of_folders(loaded), *_of_files(hub), *_of_lists(hub)]


def _of_folders(loaded: Loaded) -> Iterator[Row]:
    for one in loaded.duplicates:
        yield {"what": one.what, "name": one.name, "kept": one.kept, "dropped": one.dropped}


def _of_files(hub: Hub) -> Iterator[Row]:
    for upstream in hub.upstreams.values():
        for one in upstream.lists.duplicates:
            yield {"what": "tool", **one}


def _of_lists(hub: Hub) -> Iterator[Row]:
    for finding in hub.catalog.findings:
        if finding.kept is not None:
            kept = f"server {finding.kept.upstream}"
            yield {"what": finding.kind, "name": finding.name, "kept": kept, "dropped": f"server {finding.upstream}"}


def lines(rows: Sequence[Row]) -> list[str]:
    """A line each."""
    return [f"{row['what']} {row['name']}: kept {row['kept']}; dropped {row['dropped']}" for row in rows]
