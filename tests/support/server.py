"""A server of the API in a thread, on a real socket, and small models whose answers are known."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import uvicorn

from engine import Config, Engine
from tests.support.command import EOS, chain_model
from ui.api import app as api
from ui.cli import serve

ANSWER = "abcdefghijklmnopqrstuvwxyz"  # of `reciter`, to every chat
PATIENCE = 180  # seconds that anything may take on a busy machine
HELLO: Any = [{"role": "user", "content": "hi"}]
FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


@dataclass
class Served:
    """A running server."""

    engine: Engine
    app: Any
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, key: str = "none", **more: Any) -> openai.OpenAI:
        """OpenAI's own client. It does not try again: errors are what is tested."""
        given: dict[str, Any] = {"max_retries": 0, "timeout": PATIENCE} | more
        wire = http(self.url)
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, http_client=wire, **given)

    def http(self, **more: Any) -> httpx.Client:
        return http(self.url, **more)

    def open(self) -> int:
        """Requests that run or wait."""
        return int(self.app.state.jobs.open)

    def figure(self, name: str) -> float:
        """One of the server's metrics."""
        with self.http() as http:
            lines = http.get("/metrics").text.splitlines()
        return sum(float(one.rsplit(" ", 1)[1]) for one in lines if one.startswith(name))


def http(url: str, **more: Any) -> httpx.Client:
    """A client that asks nobody else, and has nothing to do with certificates: that takes time."""
    given = {"timeout": PATIENCE, "trust_env": False, "verify": False}
    return httpx.Client(base_url=url, **given | more)


# -- models ------------------------------------------------------------------------------------


def reciter(folder: Path) -> Path:
    """Answers every chat with ANSWER: without a template the prompt ends with a blank."""
    return chain_model(folder, f" {ANSWER}", EOS)


def endless(folder: Path) -> Path:
    """Answers every chat with ANSWER, a line end and a blank, over and over, for seconds."""
    return chain_model(folder, f" {ANSWER}", "\n", context=32768)


def with_infill(model: Path, folder: Path) -> Path:
    """A copy of a model that knows filling in: three of its letters become marks."""
    shutil.copytree(model, folder)
    file = folder / "tokenizer.json"
    spec = json.loads(file.read_text("utf-8"))
    vocabulary = spec["model"]["vocab"]
    for name, letter in zip(FIM, "ÀÁõ", strict=True):  # bytes that no UTF-8 text has
        number = vocabulary[name] = vocabulary.pop(letter)
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        spec["added_tokens"].append({"id": number, "content": name, "special": True} | flags)
    file.write_text(json.dumps(spec), "utf-8")
    return folder


# -- servers -----------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(engine: Engine, **given: Any) -> Iterator[Served]:
    """A server of an engine, until the end of the block."""
    app = api.app(engine, **given)
    with running(app) as port:
        yield Served(engine, app, port)


@contextlib.contextmanager
def running(app: Any) -> Iterator[int]:
    """The port of an application that runs, with what `draftline serve` gives it."""
    server = uvicorn.Server(uvicorn.Config(app, **serve.options()))
    listening = serve._listening(socket.AF_INET, "127.0.0.1", 0)
    port = listening.getsockname()[1]
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        until(lambda: server.started)
        yield port
    finally:
        app.state.jobs.cancel()
        server.should_exit = True
        thread.join(PATIENCE)
    assert not thread.is_alive()


@contextlib.contextmanager
def served_model(model: Path, **given: Any) -> Iterator[Served]:
    """A server of a model of a folder."""
    config = Config(model=str(model), threads=2, library=False)
    with Engine(config) as engine, serving(engine, **given) as served:
        yield served


def until(true: Callable[[], Any]) -> None:
    """Wait for something; fails after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


# -- what comes over the wire ------------------------------------------------------------------


def events(body: bytes) -> list[dict[str, Any]]:
    """The events of a whole stream, which must end with [DONE]; read by hand."""
    *parts, last, rest = body.split(b"\n\n")
    assert (last, rest) == (b"data: [DONE]", b"")
    for part in parts:
        assert part.startswith(b"data: ") and part.isascii() and b"\n" not in part, part
    return [json.loads(part[len(b"data: ") :]) for part in parts]


def text_of(chunks: list[dict[str, Any]]) -> str:
    """The text of a stream's events."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return "".join(
        (one.get("delta", {}).get("content") or one.get("text") or "") for one in choices
    )


def raw(port: int, request: bytes) -> bytes:
    """What a server says to exactly these bytes, until it closes: they must ask for that."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as wire:
        wire.sendall(request)
        said = b""
        while part := wire.recv(65536):
            said += part
    return said
