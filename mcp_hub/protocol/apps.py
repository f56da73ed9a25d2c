"""What tools say of apps (SEP-1865): which `ui://` resource shows their results, and who may call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

UI: Final = "ui"
UI_RESOURCE: Final = "resourceUri"
OLD_UI_RESOURCE: Final = "ui/resourceUri"
UI_SCHEME: Final = "ui://"


def app_of(tool: Mapping[str, Any]) -> str | None:
    """Returns the URI of the app that shows a tool's results; None if there is none."""
    meta = tool.get("_meta")
    if not isinstance(meta, dict):
        return None
    ui = meta.get(UI)
    uri = (ui.get(UI_RESOURCE) if isinstance(ui, dict) else None) or meta.get(OLD_UI_RESOURCE)
    return uri if isinstance(uri, str) else None


def may_call(who: Literal["app", "model"], tool: Mapping[str, Any]) -> bool:
    """Returns whether apps of a tool's server, or models, may call it: both, unless the tool says otherwise."""
    meta = tool.get("_meta")
    ui = meta.get(UI) if isinstance(meta, dict) else None
    visibility = ui.get("visibility") if isinstance(ui, dict) else None
    return not isinstance(visibility, list) or who in visibility
