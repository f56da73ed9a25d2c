"""Configuration: `read_config` reads a file of any dialect into frozen models."""

from mcp_hub.config.load import LoadedConfig, config_of, default_path, load_config, read_config
from mcp_hub.config.models import Config, Deadlines, EraPin, Listen, OnConflict, Server, SessionMode, Transport

__all__ = [
    "Config",
    "Deadlines",
    "EraPin",
    "Listen",
    "LoadedConfig",
    "OnConflict",
    "Server",
    "SessionMode",
    "Transport",
    "config_of",
    "default_path",
    "load_config",
    "read_config",
]
