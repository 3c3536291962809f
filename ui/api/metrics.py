"""Metrics for Prometheus: throughput, latency and outcomes. No texts, paths or addresses."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest

from engine.records import Done
from ui.api.security import App, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from ui.api.jobs import JobStream

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    """The metrics of one server. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"draftline_{name}", text, labels, registry=self.registry)

        def seconds(name: str, text: str, *labels: str) -> Histogram:
            full = f"draftline_{name}_seconds"
            return Histogram(full, text, labels, registry=self.registry, buckets=BUCKETS_S)

        self.requests = counter("requests", "HTTP requests by route and status", "route", "status")
        self.request_seconds = seconds("request", "duration, including streaming", "route")
        self.answers = counter("answers", "answers by finish reason", "end")
        self.first_text = seconds("first_text", "from the request to the first text")
        self.prompt_tokens = counter("prompt_tokens", "prompt tokens")
        self.cached_tokens = counter("cached_prompt_tokens", "prompt tokens found in the KV cache")
        self.tokens = counter("completion_tokens", "tokens of answers")
        self.forwards = counter("forwards", "decoding passes")
        self.drafted = counter("drafted_tokens", "tokens that were drafted")
        self.accepted = counter("accepted_tokens", "drafted tokens that the model accepted")
        self.late_steps = counter("late_steps", "passes that ended after their client disconnected")

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a metric whose value is read when it is scraped."""
        Gauge(f"draftline_{name}", text, registry=self.registry).set_function(value)

    def answer_ended(self, stream: JobStream, done: Done) -> None:
        """Count an answer."""
        usage = done.usage
        self.answers.labels(done.reason).inc()
        self.prompt_tokens.inc(usage.prompt_tokens)
        self.cached_tokens.inc(usage.cached_tokens)
        self.tokens.inc(usage.completion_tokens)
        self.forwards.inc(usage.forwards)
        self.drafted.inc(usage.drafted)
        self.accepted.inc(usage.accepted)
        self.late_steps.inc(stream.late_steps)
        if stream.first_text_s is not None:
            self.first_text.observe(stream.first_text_s)

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)


class MetricsMiddleware:
    """Counts requests by route template, never by path."""

    def __init__(self, app: App, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = perf_counter(), "none"

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self.app(scope, receive, send_and_note_status)
        except Exception:
            status = "500"  # sent by an outer layer
            raise
        finally:
            route = str(getattr(scope.get("route"), "path", "other"))
            self.metrics.requests.labels(route, status).inc()
            self.metrics.request_seconds.labels(route).observe(perf_counter() - start)
