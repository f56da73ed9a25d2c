"""Configuration: `ConfigReader` reads a file of any dialect into frozen models."""

from mcp_hub.config.load import ConfigReader, LoadedConfig, default_path
from mcp_hub.config.models import Config, Deadlines, EraPin, Listen, OnConflict, Server, SessionMode, Transport

__all__ = [
    "Config",
    "ConfigReader",
    "Deadlines",
    "EraPin",
    "Listen",
    "LoadedConfig",
    "OnConflict",
    "Server",
    "SessionMode",
    "Transport",
    "default_path",
]
