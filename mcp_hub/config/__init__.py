"""What a configuration file says: `read_config` turns a file of any dialect into the frozen models."""

from mcp_hub.config.load import Loaded, config_of, default_path, load_config, read_config
from mcp_hub.config.models import Config, Deadlines, EraPin, Listen, OnConflict, Server, SessionMode, Transport

__all__ = [
    "Config",
    "Deadlines",
    "EraPin",
    "Listen",
    "Loaded",
    "OnConflict",
    "Server",
    "SessionMode",
    "Transport",
    "config_of",
    "default_path",
    "load_config",
    "read_config",
]
