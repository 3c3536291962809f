"""Small servers of OpenAI's protocol for `draftline verify`: each has one fault, or none."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

HTML = b"<html><body>Welcome to nginx!</body></html>"
PLACE = 2  # the token at which faulty servers write another one
OTHER = " other"


class Asked(NamedTuple):
    """What a fault may depend on."""

    text: str  # of the request
    time: int  # how often it was asked before, in any way
    drafts: bool  # whether the server speculates for it
    body: dict[str, Any]


@dataclass
class OpenAiServer:
    """A server, how it behaves, and what it was sent."""

    speculates: bool = True
    takes_option: bool = True
    says_drafts: bool = True
    models: bytes | None = b'{"data": [{"id": "tiny"}]}'  # None: a 404
    html: bool = False
    key: str = ""
    silent: bool = False  # to what is posted
    margin: float | None = None  # of the token at PLACE; None: refuses to give probabilities
    seeded: bool = True
    fails_after: int = 10**9  # answers
    counts: bool = False  # figures for Prometheus, as vLLM has them
    differs: Callable[[Asked], bool] = lambda asked: False  # whether the token at PLACE is OTHER
    bodies: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0
    drafted: int = 0
    closed: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    times: Counter[str] = field(default_factory=Counter)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def tokens(self, body: dict[str, Any]) -> tuple[list[str], bool, str]:
        """The tokens of an answer, whether it was drafted, and the other token at PLACE."""
        text = body["messages"][0]["content"]
        with self.lock:
            self.bodies.append(body)
            time = self.times[text]
            self.times[text] += 1
            drafts = self.speculates and not (
                self.takes_option and body.get("speculation") is False
            )
            self.drafted += drafts
            number = len(self.bodies)
        seed = "" if not body["temperature"] else body["seed"] if self.seeded else number
        digest = hashlib.sha256(f"{text}{seed}".encode()).hexdigest()
        tokens = [f" {digest[at : at + 4]}" for at in range(0, 40, 4)][: body["max_tokens"]]
        other = OTHER
        if self.differs(Asked(text, time, drafts, body)) and len(tokens) > PLACE:
            other, tokens[PLACE] = tokens[PLACE], other
        return tokens, drafts, other

    def stream(self, body: dict[str, Any]) -> bytes:
        """The answer as server-sent events."""
        tokens, drafts, other = self.tokens(body)
        events: list[dict[str, Any]] = []
        for at, token in enumerate(tokens):
            choice: dict[str, Any] = {"delta": {"content": token}, "finish_reason": None}
            if body.get("logprobs"):
                likeliest = [(token, -0.5), (other, -0.5 - (self.margin or 0))][: 1 + (at == PLACE)]
                top = [{"token": text, "logprob": logprob} for text, logprob in likeliest]
                choice["logprobs"] = {"content": [top[0] | {"top_logprobs": top}]}
            events.append({"choices": [choice]})
        usage = {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0}}
        timings = {"timings": {"draft_n": 4 * drafts, "draft_n_accepted": 3 * drafts}}
        events.append({"choices": [{"delta": {}, "finish_reason": "length"}]})
        events.append({"choices": [], "usage": usage} | (timings if self.says_drafts else {}))
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        return "".join([*lines, "data: [DONE]\n\n"]).encode()

    def reply(self, path: str, key: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        """The status and the body of a response."""
        if path == "/metrics":
            line = f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {float(self.drafted)}\n'
            return (200, line.encode()) if self.counts else (404, b"")
        if self.html:
            return 200, HTML
        if self.key and key != f"Bearer {self.key}":
            return 401, b'{"error": {"message": "no key"}}'
        if body is None:
            return (404, b"no such path") if self.models is None else (200, self.models)
        if self.silent:
            self.closed.wait()
        if body.get("logprobs") and self.margin is None:
            return 400, b'{"error": {"message": "logprobs: not here"}}'
        if len(self.bodies) >= self.fails_after:
            return 500, b'{"error": {"message": "out of memory"}}'
        return 200, self.stream(body)


@contextmanager
def serving(server: OpenAiServer) -> Iterator[OpenAiServer]:
    """Run a server on this machine until the end of the block."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one packet: a second one waits for the first's receipt

        def do_GET(self) -> None:
            self.send(None)

        def do_POST(self) -> None:
            self.send(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def send(self, body: dict[str, Any] | None) -> None:
            status, content = server.reply(self.path, self.headers.get("authorization", ""), body)
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

    class Threads(http.server.ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *args: Any) -> None:
            """A client that has hung up is no error."""

    with Threads(("127.0.0.1", 0), Handler) as made:
        server.port = made.server_port
        threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield server
        finally:
            server.closed.set()
            made.shutdown()
