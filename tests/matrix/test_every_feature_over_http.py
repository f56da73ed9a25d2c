"""Every feature, for clients over http of both eras and servers over every transport in both eras."""

import pytest

from tests.matrix.cells import cell, client, place  # noqa: F401 - fixtures
from tests.matrix.features import *  # noqa: F403

TRANSPORT = "http"
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),  # of the handshake era
]
