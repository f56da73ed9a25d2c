"""The rows of the charter, which belong to no single document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.requirements.manifest.paths import FALLBACK

ROW_TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "CHARTER-1": (
        "hub/test_over_a_network.py::test_with_session_client_every_caller_has_a_process_of_its_own",
        "hub/test_over_a_network.py::test_modern_clients_with_one_token_share_a_process_and_sessions_do_not",
        "config/test_entries.py::test_a_browser_entry_defaults_to_one_session_per_client",
    ),
    "CHARTER-2": (f"{FALLBACK}::test_a_scraper_that_was_never_up_is_listed_and_answered_by_the_hub",),
}

OUT: Final[Mapping[str, str]] = {}

PARTLY: Final[Mapping[str, str]] = {
    "CHARTER-1": "clients of the modern era send nothing that tells two of them apart: one token is one browser",
}
