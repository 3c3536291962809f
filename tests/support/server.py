"""An API server in a thread, on a real socket, and small models whose answers are known."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import uvicorn
from uvicorn.server import ServerState

from engine import Config, Engine
from engine.records import Done, Event, Request, Step
from engine.remote.address import Address
from engine.worker import Job
from tests.support.command import EOS, chain_model
from ui.api import app as api
from ui.cli import serve
from ui.cli.local_socket import shared

ANSWER = "abcdefghijklmnopqrstuvwxyz"  # the answer of `reciter` to every chat
THINK = {"a": "<think>", "f": "</think>"}
REASONING, THOUGHT_OUT = "bcde", ANSWER[6:]
TIMEOUT_S = 180  # a backstop for everything
HELLO: Any = [{"role": "user", "content": "hi"}]
FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
PAUSE_AFTER_STEPS = 20
# Bytes that no prompt has, for the tokens that `speaker` says.
UNUSED = "".join(map(chr, [*range(1, 9), *range(14, 32)]))


@dataclass
class LocalServer:
    """A running server."""

    engine: Engine
    app: Any
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, key: str = "none", **options: Any) -> openai.OpenAI:
        """OpenAI's client, without retries, so that tests see every error."""
        options = {"max_retries": 0, "timeout": TIMEOUT_S} | options
        http_client = http(self.url)
        return openai.OpenAI(
            base_url=f"{self.url}/v1", api_key=key, http_client=http_client, **options
        )

    def http(self, **options: Any) -> httpx.Client:
        return http(self.url, **options)

    def open(self) -> int:
        """Requests that are running or waiting."""
        return int(self.app.state.jobs.open)

    def metric(self, name: str) -> float:
        """The sum of the server's metrics whose names begin with `name`."""
        with self.http() as client:
            lines = client.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def http(url: str, **options: Any) -> httpx.Client:
    """A client without proxies and certificates, which are slow to load."""
    defaults = {"timeout": TIMEOUT_S, "trust_env": False, "verify": False}
    return httpx.Client(base_url=url, **defaults | options)


# -- models ------------------------------------------------------------------------------------


def reciter(folder: Path) -> Path:
    """A model that answers every chat with ANSWER. Without a template, prompts end with a space."""
    return chain_model(folder, f" {ANSWER}", EOS)


def endless(folder: Path) -> Path:
    """A model that repeats ANSWER, a newline and a space until its context is full."""
    return chain_model(folder, f" {ANSWER}", "\n", context=32768)


def with_infill(model: Path, folder: Path) -> Path:
    """A copy of a model that can fill in the middle: three of its tokens become FIM markers."""
    return renamed(model, folder, dict(zip("ÀÁõ", FIM, strict=True)))  # bytes not in UTF-8


def thinker(folder: Path) -> Path:
    """A model that reasons REASONING before it answers THOUGHT_OUT."""
    return renamed(reciter(folder.with_name("unthinking")), folder, THINK)


def renamed(model: Path, folder: Path, names: dict[str, str]) -> Path:
    """A copy of a model in which some letters' tokens become control tokens."""
    shutil.copytree(model, folder)
    file = folder / "tokenizer.json"
    spec = json.loads(file.read_text("utf-8"))
    vocabulary = spec["model"]["vocab"]
    for letter, name in names.items():
        token_id = vocabulary[name] = vocabulary.pop(letter)
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        spec["added_tokens"].append({"id": token_id, "content": name, "special": True} | flags)
    file.write_text(json.dumps(spec), "utf-8")
    return folder


def speaker(
    folder: Path, *pieces: str, control: tuple[str, ...] = (), lead: str = " ", end: str = EOS
) -> Path:
    """A model whose answer are these tokens, some of which are control tokens, and then `end`.
    Prompts of chats without a template end with a space, those of edits with nothing (`lead`)."""
    from tokenizers.pre_tokenizers import ByteLevel

    level = ByteLevel(add_prefix_space=False, use_regex=False)
    letters = UNUSED[: len(pieces)]
    model = chain_model(folder, lead + letters, end)
    file = folder / "tokenizer.json"
    spec = json.loads(file.read_text("utf-8"))
    vocabulary = spec["model"]["vocab"]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for letter, piece in zip(letters, pieces, strict=True):
        token = vocabulary.pop(level.pre_tokenize_str(letter)[0][0])
        if piece in control:
            spec["added_tokens"].append({"id": token, "content": piece, "special": True} | flags)
            vocabulary[piece] = token
        else:
            vocabulary[level.pre_tokenize_str(piece)[0][0]] = token
    assert len(vocabulary) == len(set(vocabulary.values()))
    file.write_text(json.dumps(spec), "utf-8")
    return model


# -- control over the engine's worker ----------------------------------------------------------


@contextlib.contextmanager
def occupied(engine: Engine, yields: bool = True) -> Iterator[Callable[[], None]]:
    """Keep the engine's worker busy, as a long chat would, until the block ends or the yielded
    function is called. With `yields` it makes steps, between which more urgent jobs can run and
    cancelled jobs end. No time passes for the worker meanwhile, so that no other owner's turn
    comes."""
    started, released = threading.Event(), threading.Event()

    def run(cancelled: Callable[[], bool]) -> Iterator[Event]:
        started.set()
        while yields and not released.wait(0.005):
            yield Step()
        released.wait()
        yield Done("stop")

    with pytest.MonkeyPatch.context() as patch:
        now = engine.worker._clock()
        for clocked in (engine.worker, engine.worker._schedule):
            patch.setattr(clocked, "_clock", lambda: now)
        engine.worker.submit(Job(Request("chat"), run))
        try:
            assert started.wait(TIMEOUT_S)
            yield released.set
        finally:
            released.set()


@contextlib.contextmanager
def answers_pause(engine: Engine) -> Iterator[None]:
    """In the block, every answer of this engine pauses after some steps of writing until it is
    cancelled or the engine is closed, so that none ends before the test has acted on it.

    Steps that read the prompt do not count: a busy machine needs more of them, and a test that
    waits for the first text would wait forever. Neither do other engines, which nobody stops."""
    steps: Counter[Job] = Counter()
    put = Job.put

    def put_and_pause(job: Job, event: Event) -> None:
        put(job, event)
        if threading.current_thread() is not engine.worker._thread:
            return
        steps[job] += isinstance(event, Step) and event.prefill is None
        while steps[job] > PAUSE_AFTER_STEPS and not (job.cancelled() or engine.worker._closed):
            time.sleep(0.002)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "put", put_and_pause)
        yield


# -- servers -----------------------------------------------------------------------------------


@contextlib.contextmanager
def serve_engine(engine: Engine, **options: Any) -> Iterator[LocalServer]:
    """A server for an engine, until the end of the block."""
    app = api.app(engine, **options)
    with serve_app(app) as port:
        yield LocalServer(engine, app, port)


@contextlib.contextmanager
def serve_app(app: Any, port: int = 0) -> Iterator[int]:
    """Run an application with the settings of `draftline serve`; yields its port, by default any
    free one."""
    server = uvicorn.Server(uvicorn.Config(app, **serve.options()))
    listening = serve._listening(socket.AF_INET, "127.0.0.1", port)
    port = listening.getsockname()[1]
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield port
    finally:
        app.state.jobs.cancel()
        server.should_exit = True
        thread.join(TIMEOUT_S)
    assert not thread.is_alive()


@contextlib.contextmanager
def serve_locally(engine: Engine, address: Address, **options: Any) -> Iterator[Any]:
    """The application of an engine at the address of a socket, until the end of the block."""
    app, begun = api.app(engine, **options), threading.Event()
    loop, ended, failed = asyncio.new_event_loop(), asyncio.Event(), list[Exception]()

    async def run() -> None:
        state = ServerState()
        try:
            async with (
                app.router.lifespan_context(app),
                shared(app, address, state, serve.options()),
            ):
                begun.set()
                await ended.wait()
                for connection in [*state.connections]:
                    connection.shutdown()
        except Exception as error:
            failed.append(error)
            begun.set()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    try:
        assert begun.wait(TIMEOUT_S)
        if failed:
            raise failed[0]
        yield app
    finally:
        app.state.jobs.cancel()
        loop.call_soon_threadsafe(ended.set)
        thread.join(TIMEOUT_S)
        loop.close()


@contextlib.contextmanager
def serve_model(model: Path, **options: Any) -> Iterator[LocalServer]:
    """A server for a model."""
    config = Config(model=str(model), threads=2, library=False)
    with Engine(config) as engine, serve_engine(engine, **options) as server:
        yield server


def wait_until(condition: Callable[[], Any]) -> None:
    """Wait for a condition; fails after TIMEOUT_S."""
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.005)


# -- responses ---------------------------------------------------------------------------------


def parse_events(body: bytes) -> list[dict[str, Any]]:
    """The server-sent events of a whole stream, which must end with [DONE]."""
    *parts, last, rest = body.split(b"\n\n")
    assert (last, rest) == (b"data: [DONE]", b"")
    for part in parts:
        assert part.startswith(b"data: ") and part.isascii() and b"\n" not in part, part
    return [json.loads(part[len(b"data: ") :]) for part in parts]


def text_of(chunks: list[dict[str, Any]]) -> str:
    """The text of a stream's chunks."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return "".join(
        (choice.get("delta", {}).get("content") or choice.get("text") or "") for choice in choices
    )


def send_raw(port: int, request: bytes) -> bytes:
    """The server's response to a raw request, which must ask to close the connection."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as wire:
        wire.sendall(request)
        response = b""
        while part := wire.recv(65536):
            response += part
    return response
