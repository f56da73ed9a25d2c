"""The tiers of the tests: what each of them needs, and so how long it takes.

`fast` runs in one process; `process` starts programs of its own; `peer` starts servers and clients of others, `browser`
a browser; `soak` takes long by its nature; `real` runs the clients of people with a scripted model. `scripts/test fast`
runs the first, `scripts/test real` the last, `scripts/test` all others.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Final, Literal, get_args

Tier = Literal["fast", "process", "peer", "browser", "soak", "real"]
TIERS: Final[tuple[Tier, ...]] = get_args(Tier)

EVERY_CELL: Final = os.environ.get("MCP_HUB_EVERY_CELL") == "1"
"""Whether each combination of transports, eras and revisions is run, where otherwise every pair of them is in one."""
EXAMPLES: Final = int(os.environ.get("MCP_HUB_EXAMPLES", "50"))
"""How many inputs a test of hypothesis makes: the same each time, or other ones each time if the variable is set."""
ROOT: Final = Path(__file__).parent
REAL: Final = ROOT / "real"
FOLDER_TIERS: Final[dict[str, Tier]] = {
    **dict.fromkeys(("browser", "scrape"), "browser"),
    **dict.fromkeys(("balancers", "conformance", "dependencies", "differential", "doors", "matrix", "peers"), "peer"),
    **dict.fromkeys(("bench", "chaos", "faults", "fuzz", "load"), "soak"),
    "real": "real",
}
_STARTS: Final = re.compile(
    r"\bsubprocess\b|\bcreate_subprocess|\bPopen\b|\bspawned\(|\bspawn\(|\bHUB\b|\bhub\(|\bfake\(|\bnetwork_hub\b"
    r"|\bcounting\(|\bopen_stdio\b|\bStdioLink\(|\bChildren\(|\bsys\.executable\b|\bpython_with_sdk\b|\blogin\("
    r"|\btests\.(peers|load|chaos|library\.tool_managers)\b|\bscripted_model\b|\bredis_server\b|\bcluster\("
)
"""What starts a program in a test, or says which one to start."""


@cache
def tier_of(path: Path) -> Tier:
    """Returns the tier of the tests in a file: that of its folder, or by whether it starts programs."""
    folders = path.relative_to(ROOT).parts[:-1]
    of_folder = next((FOLDER_TIERS[name] for name in folders if name in FOLDER_TIERS), None)
    return of_folder or ("process" if _STARTS.search(path.read_text()) else "fast")
