"""What the server answers while the model loads: a page with the progress, and 503 to programs.

Served on the same socket as the application that follows it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ui.api.errors import ApiError
from ui.api.security import AccessGuard, AccessRules, Receive, Scope, Send
from ui.web.shell import shell

if TYPE_CHECKING:
    import socket

PAGE = "/ui"
RETRY_S = 1
# Asks for the progress until the page itself answers. A refusal or two are the change from one
# application to the next; more of them mean that the server has ended.
SCRIPT = """
let failures = 0;
const bar = document.querySelector("progress"), status = document.querySelector("#shell-status");
async function look() {
  try {
    const answer = await fetch("/health", { cache: "no-store" });
    if (answer.ok) return location.reload();
    const { stage, done, total } = await answer.json();
    failures = 0;
    status.textContent = stage;
    if (total) bar.value = done / total;
    else bar.removeAttribute("value");
  } catch {
    if (++failures > 5) {
      status.textContent = "The server has ended: its terminal says why. Start it, then reload.";
      bar.hidden = true;
    }
  }
  setTimeout(look, 500);
}
look();
"""


class Starting:
    """The application: an ASGI callable. `progress` may be called in any thread."""

    def __init__(self, model: str, page: bool) -> None:
        """`page`: whether there will be one."""
        self.page = page
        self.state: dict[str, Any] = {"stage": f"Loading {model}", "done": 0, "total": 0}

    def progress(self, stage: str, done: int, total: int) -> None:
        self.state = {"stage": f"{stage[:1].upper()}{stage[1:]}", "done": done, "total": total}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _no_lifespan(receive, send)
        elif scope["type"] == "http":
            status, headers, body = self.answer(scope["path"])
            start = {"type": "http.response.start", "status": status, "headers": headers}
            await send(start)
            await send({"type": "http.response.body", "body": body})

    def answer(self, path: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Status, headers and body."""
        fresh = (b"cache-control", b"no-store")
        if self.page and path == "/":
            return 307, [(b"location", f"{PAGE}/".encode()), fresh], b""
        if self.page and path.rstrip("/") == PAGE:
            return 200, [(b"content-type", b"text/html; charset=utf-8"), fresh], self.html()
        retry = (b"retry-after", str(RETRY_S).encode())
        headers = [(b"content-type", b"application/json"), fresh, retry]
        body = self.state | {"status": "loading"}
        if path != "/health":
            message = f"{self.state['stage']}: retry in a moment"
            body = ApiError(503, message, code="model_loading").body(path)
        return 503, headers, json.dumps(body).encode()

    def html(self) -> bytes:
        """The page."""
        outline = shell(self.state["stage"], '<progress max="1" aria-label="progress"></progress>')
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Draftline</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1"></head>'
            f"<body>{outline}<script>{SCRIPT}</script></body></html>"
        ).encode()


@contextmanager
def answering(
    starting: Starting, rules: AccessRules, listening: socket.socket, options: dict[str, Any]
) -> Iterator[None]:
    """Serve in a thread during the block. `options`: uvicorn's. The socket stays open: who connects
    after the block waits for the application that follows."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(AccessGuard(starting, rules), **options))
    thread = threading.Thread(target=server.run, args=([listening.dup()],))
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


async def _no_lifespan(receive: Receive, send: Send) -> None:
    """Nothing is started and ended with the application."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
