"""`python -m mcp_hub` is `mcp-hub`."""

import sys

from mcp_hub.cli import main

sys.exit(main())
