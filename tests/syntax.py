"""Parses Python sources for the tests that read them."""

from __future__ import annotations

import ast
import gc
from pathlib import Path


def parsed(path: Path) -> ast.Module:
    """Returns the syntax tree of a file."""
    return parsed_text(path.read_text(encoding="utf-8"), str(path))


def parsed_text(source: str, name: str = "<text>") -> ast.Module:
    """Returns the syntax tree of a text.

    The garbage collector is off meanwhile. CPython 3.11 keeps the recursion depth of the tree under construction in
    one place per interpreter: a collection whose finalizers parse something too ends `ast.parse` with `SystemError:
    AST constructor recursion depth mismatch`.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source, name)
    finally:
        if was_enabled:
            gc.enable()
