"""Runs the listener's tests twice: on the hub's own listener, and on uvicorn with the hub mounted in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.downstream import scripted
from tests.downstream.fronts import FRONTS

READS: Final = "the server of the application reads requests, each head anew"
CONNECTS: Final = "the server of the application decides which connections there are, and how long"
BUFFERS: Final = "the server of the application keeps what it has taken until its client has read it"

ENCRYPTS: Final = "certificates, and the sockets, are the affair of the application's server"

NOT_MOUNTED: Final = {
    "test_client_certificates.py": ENCRYPTS,
    "test_renewed_certificates.py": ENCRYPTS,
    "test_unix_socket.py": ENCRYPTS,
    "test_half_closed.py": "uvicorn takes the end of what a client sends for its end",
    "test_known_heads.py": READS,
    "test_strangers.py": CONNECTS,
    "test_an_sdk_client_whose_connections_are_cut_gets_all_progress_and_its_answer": "it starts a hub of its own",
    "test_stopping_lets_running_calls_finish_and_accepts_no_new_ones": CONNECTS,
    "test_a_connection_above_the_limit_is_refused_at_once_and_its_slot_freed": CONNECTS,
    "test_an_idle_connection_ends": CONNECTS,
    "test_a_connection_with_slow_headers_is_closed_at_the_header_timeout": "uvicorn has no deadline for heads",
    "test_endless_headers_are_refused_and_close_their_connection": READS,
    "test_a_head_that_is_never_complete_is_answered_408": "uvicorn has no deadline for heads",
    "test_a_connection_whose_complete_response_is_not_read_is_dropped": BUFFERS,
    "test_a_stream_of_http_1_0_has_no_chunks": "uvicorn writes chunks to clients of HTTP/1.0, too",
    "test_only_chunked_is_accepted_as_transfer_coding": "uvicorn refuses some codings itself, with 400 and uncounted",
    "test_other_versions_are_refused": "uvicorn also answers other versions of HTTP in the form of 1.1",
    "test_trailers_do_not_become_headers": "uvicorn adds trailers to the headers",
    "test_trailers_are_bounded": "uvicorn has no bound on trailers",
    "test_invalid_http_gets_an_error_after_the_replies_before_it": READS,
    "test_invalid_http_ends_an_open_stream": READS,
    "test_bytes_after_the_last_request_are_bounded": READS,
    "test_an_upgrade_is_ignored_and_the_body_is_read": "uvicorn takes the body of an upgrade for a request",
    "test_many_upgrades_are_ignored": "uvicorn takes the body of an upgrade for a request",
}
"""The tests, and files of tests, that say nothing about a mounted hub, with the reason."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    uses_serving = getattr(metafunc.module, "serving", None) is scripted.serving
    if uses_serving and metafunc.definition.get_closest_marker("anyio") is not None:
        excluded = {metafunc.definition.path.name, metafunc.function.__name__} & NOT_MOUNTED.keys()
        metafunc.parametrize("front", ["listener"] if excluded else ["listener", "asgi"], indirect=True)


@pytest.fixture(autouse=True)
def front(request: pytest.FixtureRequest) -> Iterator[str]:
    """The server of the app: `listener`, the hub's own, or `asgi`, uvicorn."""
    FRONTS["now"] = server = getattr(request, "param", "listener")
    yield server
    FRONTS["now"] = "listener"
