"""The server while its model loads, and from then on.

Until the model is there, /health and every API route answer 503, with a `retry-after` that OpenAI's
and Anthropic's clients obey, and the page says that it is about to come.
"""

from __future__ import annotations

from threading import Event

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from ui.api.errors import ApiError
from ui.api.large_bodies import LargeBodies
from ui.api.schemas import Health
from ui.api.security import AccessGuard, AccessRules, Receive, Scope, Send

RETRY_S = 5  # seconds between two attempts of a client


class Stopped(Exception):
    """The server ends before its model is loaded."""


class Startup:
    """An ASGI application that passes everything on to `app` once that is set."""

    def __init__(self, rules: AccessRules, page_path: str = "", page_html: str = "") -> None:
        """Start without an application.

        `page_html` is shown where the page will be; it may call /health for the progress. Without a
        `page_path`
        there will be no page.
        """
        self.app: FastAPI | None = None
        self.page_path, self.page_html = page_path, page_html
        self.loaded: float | None = None  # the current file's loaded share, 0 to 1, if known
        self._stopped = Event()
        self._loading = LargeBodies(AccessGuard(self._answer, rules))

    def progress(self, stage: str, done: int, total: int) -> None:
        """Note how far loading is; from any thread. Raises Stopped after `stop`."""
        self.loaded = min(done / total, 1.0) if total else None
        if self._stopped.is_set():
            raise Stopped

    def stop(self) -> None:
        """End loading at its next `progress`."""
        self._stopped.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.app or self._loading)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1013})  # try again later
            return
        await self._response(scope["path"])(scope, receive, send)

    def _response(self, path: str) -> Response:
        headers = {"retry-after": str(RETRY_S), "cache-control": "no-store"}
        if path == "/health":
            health = Health(status="loading", loaded=self.loaded)
            return JSONResponse(health.model_dump(exclude_none=True), 503, headers)
        if self.page_path and path in ("/", self.page_path):
            return RedirectResponse(f"{self.page_path}/")
        if self.page_path and path == f"{self.page_path}/":
            return HTMLResponse(self.page_html, 503, headers)
        share = "" if self.loaded is None else f" ({self.loaded:.0%})"
        message = f"the model is loading{share}: retry in a moment"
        return ApiError(503, message, code="model_loading", headers=headers).response(path)
