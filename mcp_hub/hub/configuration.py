"""How a hub reads its configuration: with the keys of all policies. Every file and every dict is read by this."""

from __future__ import annotations

from typing import Final

from mcp_hub.config.load import ConfigReader
from mcp_hub.policy.chain import KEYS

_READER: Final = ConfigReader(KEYS)

config_of: Final = _READER.config_of
load_config: Final = _READER.load_config
read_config: Final = _READER.read_config
