"""A server of OpenAI's protocol that records what it is sent, and has one answer to everything."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.remote.engine_url import EngineUrl


class RecordingServer:
    """`url`, and the `bodies` of all requests so far."""

    def __init__(self, url: EngineUrl) -> None:
        self.url = url
        self.bodies: list[str] = []

    def take(self) -> str:
        """The bodies since the last call."""
        bodies, self.bodies = self.bodies, []
        return "\n".join(bodies)


@contextmanager
def recording_server(answer: str) -> Iterator[RecordingServer]:
    """A server whose model answers `answer`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(json.dumps({"data": [{"id": "m"}]}).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            asked = json.loads(body)
            server.bodies.append(json.dumps(asked, ensure_ascii=False))
            choice = {"delta": {"content": answer}, "text": answer, "finish_reason": "stop"}
            event = json.dumps({"choices": [choice]}).encode()
            streamed = b"data: " + event + b"\n\ndata: [DONE]\n\n"
            self.reply(streamed if asked.get("stream") else event)

        def reply(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        url = EngineUrl(f"http://127.0.0.1:{made.server_port}/v1", is_openai=True)
        server = RecordingServer(url)
        threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        made.shutdown()
