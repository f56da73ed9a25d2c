"""An OTLP endpoint on loopback: it decodes what it is sent, and can be one that refuses or never answers."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.fakes.client import PATIENCE


@dataclass
class Got:
    """One span, as plain values."""

    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    error: bool
    events: list[tuple[str, dict[str, Any]]]
    nanoseconds: int
    resource: dict[str, Any]


@dataclass
class Collector:
    """`paths` and `headers` are those of the requests; `status` answers them, they wait while `free` is clear."""

    port: int
    status: int = 200
    spans: list[Got] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    free: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def named(self, name: str) -> list[Got]:
        return [span for span in self.spans if span.name == name]

    def wait(self, count: int) -> list[Got]:
        """The spans, once there are so many."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.spans) >= count, PATIENCE), self.spans
            return list(self.spans)


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            request = ExportTraceServiceRequest.FromString(body)
            collector.free.wait(PATIENCE)
            with collector.changed:
                collector.paths.append(self.path)
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                if collector.status == 200:
                    collector.spans += _spans(request)
                collector.changed.notify_all()
            with contextlib.suppress(OSError):
                self.send_response(collector.status)
                self.send_header("content-type", "application/x-protobuf")
                self.end_headers()
                self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(server.server_address[1])
    collector.free.set()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.free.set()
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE)


def _spans(request: Any) -> list[Got]:
    return [
        Got(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            _plain(span.attributes),
            span.status.code == 2,
            [(event.name, _plain(event.attributes)) for event in span.events],
            span.end_time_unix_nano - span.start_time_unix_nano,
            _plain(group.resource.attributes),
        )
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _plain(attributes: Any) -> dict[str, Any]:
    return {attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value")) for attribute in attributes}
