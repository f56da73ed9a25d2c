"""Makes spans of calls and sends them to a collector, with OpenTelemetry (extra `otel`), imported in a thread."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from mcp_hub.config.extras import missing
from mcp_hub.config.root_rules import TracingSettings as Settings
from mcp_hub.version import VERSION

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

log = logging.getLogger("mcp_hub")

TRACE_CONTEXT: Final = ("traceparent", "tracestate")
"""Members of `params._meta` with the trace context of a request."""
MAX_WAITING: Final = 2048
"""Spans that wait to be sent; beyond that, the oldest are dropped."""
BATCH: Final = 256
EVERY: Final = 2.0
"""Seconds between two batches, unless one is full before."""
SEND_WITHIN: Final = 10.0
"""Seconds that sending one batch may take, retries included."""
FLUSH_WITHIN: Final = 2.0
"""Seconds that `close` waits for a collector: clients kill a hub that takes much longer to exit."""
MAX_CARRIER: Final = 512
"""Characters of a member of a trace context; the specification allows no more to be passed on."""

_API: Final = "opentelemetry.trace"

Attributes = dict[str, str | int]


_NOISY_LOGGERS: Final = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
"""Loggers that write a line for each failed attempt and each dropped span."""


def is_imported() -> bool:
    """Returns whether the program that the hub runs in has imported OpenTelemetry."""
    return _API in sys.modules


def ambient_provider() -> trace.TracerProvider | None:
    """Returns a provider of spans for the one that the program has set or sets later; None without OpenTelemetry."""
    api = sys.modules.get(_API)
    return None if api is None else api.ProxyTracerProvider()


def enter_trace(meta: Mapping[str, Any]) -> None:
    """Makes the span in the `_meta` of a call the current one of this context, where OpenTelemetry is imported."""
    if not is_imported() or TRACE_CONTEXT[0] not in meta:
        return
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context.attach(TraceContextTextMapPropagator().extract(_carrier(meta), context.get_current()))


def _carrier(meta: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: value for key in TRACE_CONTEXT if isinstance(value := meta.get(key), str) and len(value) <= MAX_CARRIER
    }


class SpanTracing:
    """Provides the tracer. It is opened by `start` or the first call, in a thread, as its imports take long.

    `provider` is that of the program that runs the hub as a library; it is used as it is and never shut down.
    """

    def __init__(self, settings: Settings, provider: trace.TracerProvider | None = None) -> None:
        self.settings = settings
        self._provider = provider
        self._open_task: asyncio.Task[_Tracer | None] | None = None
        self._close: Callable[[], None] | None = None
        self._closed = False

    def start(self) -> None:
        """Starts opening the tracer. Idempotent; does nothing after `close`."""
        if self._open_task is None and not self._closed:
            self._open_task = asyncio.get_running_loop().create_task(asyncio.to_thread(self._open), name="tracing")

    async def tracer(self) -> _Tracer | None:
        """Returns the tracer; None if the packages are missing, or after `close`."""
        self.start()
        return await asyncio.shield(self._open_task) if self._open_task is not None else None

    def _open(self) -> _Tracer | None:
        try:
            return _Tracer(self._provider if self._provider is not None else self._own_provider())
        except ImportError as error:
            log.warning("tracing has no effect: %s", missing("otel") or error)
        except Exception:
            log.exception("tracing has no effect: it could not be set up")
        return None

    def _own_provider(self) -> TracerProvider:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

        settings = self.settings
        for logger_name in _NOISY_LOGGERS:
            if (logger := logging.getLogger(logger_name)).level == logging.NOTSET:
                logger.setLevel(logging.CRITICAL)

        class Exporter(OTLPSpanExporter):
            """Logs an unreachable collector once, then stays silent until it is reachable again."""

            fails = False

            def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
                result = super().export(spans)
                if (result is not SpanExportResult.SUCCESS) is not self.fails:
                    self.fails = not self.fails
                    if self.fails:
                        log.warning("spans cannot be sent to %s; they are dropped meanwhile", _printable_url(settings))
                    else:
                        log.warning("spans can be sent to %s again", _printable_url(settings))
                return result

        exporter = Exporter(
            endpoint=settings.traces_url,
            headers={name: secret.get_secret_value() for name, secret in settings.headers.items()} or None,
            timeout=SEND_WITHIN,
        )
        attributes = {"service.version": VERSION}
        name = settings.service_name or (None if os.environ.get("OTEL_SERVICE_NAME") else "mcp-hub")
        if name is not None:
            attributes["service.name"] = name
        provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
        processor = BatchSpanProcessor(
            exporter, max_queue_size=MAX_WAITING, schedule_delay_millis=EVERY * 1000, max_export_batch_size=BATCH
        )
        provider.add_span_processor(processor)

        def close() -> None:
            shutdown_thread = threading.Thread(target=provider.shutdown, name="mcp-hub-spans", daemon=True)
            shutdown_thread.start()
            shutdown_thread.join(FLUSH_WITHIN)
            if shutdown_thread.is_alive():
                log.warning("not all spans could be sent to %s before the end", _printable_url(settings))
                exporter.shutdown()  # type: ignore[no-untyped-call]  # ends the wait before another attempt; the threads are daemons

        self._close = close
        return provider

    async def close(self) -> None:
        """Sends the spans that are left, in at most `FLUSH_WITHIN`. Idempotent; never raises."""
        self._closed = True
        open_task, self._open_task = self._open_task, None
        if open_task is None:
            return
        await asyncio.gather(open_task, return_exceptions=True)
        close, self._close = self._close, None
        if close is not None:
            await asyncio.gather(asyncio.to_thread(close), return_exceptions=True)


def _printable_url(settings: Settings) -> str:
    parts = urlsplit(settings.traces_url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


class _Tracer:
    def __init__(self, provider: trace.TracerProvider) -> None:
        from opentelemetry.context import get_current
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer("mcp-hub", VERSION)
        self._current = get_current
        self._context = TraceContextTextMapPropagator()

    def begin(self, name: str, meta: Mapping[str, Any]) -> _Span:
        # The current span is one of the program that runs the hub as a library; under `serve` there is none.
        parent = self._context.extract(_carrier(meta), self._current())
        return _Span(self._tracer.start_span(name, parent), self._context.inject)


class _Span:
    def __init__(self, span: trace.Span, inject: Callable[..., None]) -> None:
        from opentelemetry.trace import set_span_in_context

        self._span = span
        self.carrier: dict[str, str] = {}
        inject(self.carrier, set_span_in_context(span))
        self.recording = span.is_recording()

    def tell(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def end(self, error: tuple[str, str, str] | None) -> None:
        from opentelemetry.trace import Status, StatusCode

        if error is None:
            self._span.set_status(Status(StatusCode.OK))
        else:
            code, kind, text = error
            self._span.set_attribute("error.type", code)
            # Not record_exception: its stack trace could quote secrets.
            self._span.add_event("exception", {"exception.type": kind or code, "exception.message": text})
            self._span.set_status(Status(StatusCode.ERROR, text))
        self._span.end()
