"""`python -m mcp_hub.servers.local DIRECTORY [--tell-presets]`: serves the functions in a directory over stdio.

With `--tell-presets`, which the hub passes, the first message lists the values preset for the functions, so that the
hub can redact them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mcp_hub.transport.standard_streams import claim


def main() -> None:
    """Serves until stdin ends, then exits without waiting for calls that still run."""
    stdin, stdout = claim()  # before anything of the user's can print
    from mcp_hub.protocol.kinds import TELL_PRESETS
    from mcp_hub.security.redaction import Redactor
    from mcp_hub.servers.local.loader import OwnedImports, load
    from mcp_hub.servers.local.local_server import LocalServer

    directory = Path(sys.argv[1])
    if not directory.is_dir():
        sys.exit(f"{directory} is not a directory: tools_dir must name the one with your Python files")
    left_out: list[str] = []
    duplicates: list[dict[str, str]] = []
    OwnedImports.install((directory,))
    presets: list[str] = []
    tools = load(directory, left_out.append, duplicates, presets)
    redaction = Redactor(presets)
    left_out = [redaction.text(text) for text in left_out]
    server = LocalServer(tools, left_out, stdin, stdout, duplicates=duplicates, redaction=redaction)
    if TELL_PRESETS in sys.argv:
        server.tell_presets(presets)
    again = [f"{one['dropped']}: {one['name']} is left out: {one['kept']} has it already" for one in duplicates]
    for text in (*left_out, *again):
        print(text, file=sys.stderr, flush=True)
    server.serve()
    sys.stderr.flush()
    os._exit(0)  # a thread that never returns must not keep the process


main()
