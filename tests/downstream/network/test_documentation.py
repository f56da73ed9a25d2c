"""What docs/network.md shows can be pasted, and the numbers in it are those of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_hub.config.listen import CallerLimits, TokenVerification
from mcp_hub.downstream import handshake, sse, verifier
from mcp_hub.downstream.admission import MIN_TOKEN, check_listener
from mcp_hub.hub.composition import load_config
from mcp_hub.policy import quotas
from mcp_hub.transport.http1 import heads, server_connection

PAGE = (Path(__file__).parents[3] / "docs" / "network.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(3))
def test_every_documented_network_configuration_may_start(tmp_path: Path, number: int) -> None:
    tree: dict[str, Any] = yaml.safe_load(EXAMPLES[number])
    tree |= {"servers": {}, "profiles": tree.get("profiles", {"some": ["x/*"]})}
    path = tmp_path / "servers.yaml"
    path.write_text(yaml.safe_dump(tree))
    path.chmod(0o600)
    environ = {name: name.lower() + "-" + "t" * 32 for name in ("ALICE_TOKEN", "CI_TOKEN", "ADMIN_TOKEN")}
    config = load_config(path, environ=environ)
    assert check_listener(config.listen) is None
    assert config.listen.authenticates or config.listen.tls is not None
    assert len(EXAMPLES) == 3


def test_the_documented_limits_match_the_code() -> None:
    limits = CallerLimits()
    for sentence in (
        f"at least {MIN_TOKEN} bytes",
        f"| `sessions` | {limits.sessions} |",
        f"| `calls` | {limits.calls} |",
        f"have {handshake.MAX_SESSIONS:,} sessions, {sse.MAX_STREAMS:,} SSE streams and {quotas.MAX_CALLS}",
        f"headers are at most {heads.MAX_HEAD // 1024} KiB",
        f"within {server_connection.HEAD_DEADLINE:.0f} s",
        f"within {verifier.VERIFY_DEADLINE:.0f} s, or {verifier.MAX_ASKING} tokens",
        f"`cache` (`{TokenVerification.model_fields['cache'].default:.0f}s`",
    ):
        assert sentence in " ".join(PAGE.split())
