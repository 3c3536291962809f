"""Figures of the server, for Prometheus: how much, how fast, how it ended. No text, no address."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest

from engine.records import Done
from ui.api.security import App, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from ui.api.jobs import Answer

TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    """The figures of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"draftline_{name}", text, labels, registry=self.registry)

        def seconds(name: str, text: str, *labels: str) -> Histogram:
            full = f"draftline_{name}_seconds"
            return Histogram(full, text, labels, registry=self.registry, buckets=SECONDS)

        self.requests = counter("requests", "HTTP requests, by route and status", "route", "status")
        self.request_seconds = seconds("request", "their time, streams whole", "route")
        self.answers = counter("answers", "answers of the model, by their end", "end")
        self.first_text = seconds("first_text", "from the request to the first text")
        self.prompt_tokens = counter("prompt_tokens", "tokens of prompts")
        self.cached_tokens = counter("cached_prompt_tokens", "of these, not read again")
        self.tokens = counter("completion_tokens", "tokens of answers")
        self.forwards = counter("forwards", "passes that wrote them")
        self.drafted = counter("drafted_tokens", "tokens that were proposed")
        self.accepted = counter("accepted_tokens", "of these, those that the model agreed with")
        self.late_steps = counter("late_steps", "passes that ended after their client hung up")

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A figure that is looked up when it is asked for."""
        Gauge(f"draftline_{name}", text, registry=self.registry).set_function(value)

    def ended(self, answer: Answer, done: Done) -> None:
        """An answer ended."""
        usage = done.usage
        self.answers.labels(done.reason).inc()
        self.prompt_tokens.inc(usage.prompt_tokens)
        self.cached_tokens.inc(usage.cached_tokens)
        self.tokens.inc(usage.completion_tokens)
        self.forwards.inc(usage.forwards)
        self.drafted.inc(usage.drafted)
        self.accepted.inc(usage.accepted)
        self.late_steps.inc(answer.late)
        if answer.first is not None:
            self.first_text.observe(answer.first)

    def text(self) -> bytes:
        """All of them, in Prometheus' format."""
        return generate_latest(self.registry)


class Counted:
    """Middleware: counts requests by the route that took them. Paths themselves stay untold."""

    def __init__(self, app: App, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = perf_counter(), "none"

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception:
            status = "500"  # which is sent further out
            raise
        finally:
            route = str(getattr(scope.get("route"), "path", "other"))
            self.metrics.requests.labels(route, status).inc()
            self.metrics.request_seconds.labels(route).observe(perf_counter() - began)
