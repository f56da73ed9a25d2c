"""Every feature, for clients over stdio of both eras and servers over every transport in both eras."""

import pytest

from tests.matrix.cells import cell, client, place  # noqa: F401 - fixtures
from tests.matrix.features import *  # noqa: F403

TRANSPORT = "stdio"
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),  # of the handshake era
]
