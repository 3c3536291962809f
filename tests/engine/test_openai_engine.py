"""A server of OpenAI's protocol as the engine: our own, and one that answers wrongly."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.editing.dialogue import judge
from engine.prompts.fim import FORMATS
from engine.prompts.word_tokenizer import WordTokenizer
from engine.records import Done, Request, RequestError, Step
from engine.remote.address import AddressError
from engine.remote.engine_url import EngineUrl
from engine.remote.http_engine import HttpEngine
from engine.remote.link import LinkError
from engine.remote.openai_bodies import plan_of
from engine.remote.openai_engine import OpenAiEngine
from engine.remote.stops import Fence, Stops
from index.workspace.workspace import Workspace
from tests.support.held_model import unfinished
from tests.support.server import (
    ANSWER,
    HELLO,
    LocalServer,
    endless,
    reciter,
    serve_engine,
    serve_model,
    speaker,
    wait_until,
    with_infill,
)
from ui.api.security import AccessRules
from ui.web.app import build
from ui.web.state import PageState

CHAT = Request("chat", messages=tuple(HELLO))
KEY = "0123456789abcdef"


def url_of(server: LocalServer) -> EngineUrl:
    return EngineUrl(f"{server.url}/v1", is_openai=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reciter(tmp_path_factory.mktemp("openai") / "reciter")


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[LocalServer]:
    with serve_model(model) as server:
        yield server


@pytest.fixture
def remote(server: LocalServer) -> Iterator[OpenAiEngine]:
    with OpenAiEngine(url_of(server)) as remote:
        yield remote


def test_a_chat_has_the_text_of_the_server(server: LocalServer, remote: OpenAiEngine) -> None:
    *steps, done = remote.submit(CHAT)
    own = server.engine.submit(CHAT).result()
    assert isinstance(done, Done) and (done.text, done.reason) == (ANSWER, own.reason)
    assert "".join(step.text for step in steps if isinstance(step, Step)) == ANSWER
    assert {piece.source for step in steps if isinstance(step, Step) for piece in step.pieces} == {
        "model"
    }
    assert done.usage.completion_tokens == own.usage.completion_tokens
    assert done.usage.drafted == 0


def test_no_request_is_sent_on_a_used_connection(remote: OpenAiEngine) -> None:
    """llama.cpp's server closes connections behind a stream, and does not say that it will."""
    for _ in range(3):
        job = remote.submit(CHAT)
        assert job.result().text == ANSWER
        job.cancel()  # too late
        assert not remote.link._http._transport._pool.connections  # type: ignore[attr-defined]


def test_limits_and_stops(remote: OpenAiEngine) -> None:
    short = remote.submit(Request("chat", messages=tuple(HELLO), max_tokens=3)).result()
    assert (short.text, short.reason) == (ANSWER[:3], "length")
    stopped = remote.submit(Request("chat", messages=tuple(HELLO), stop=("fg", "x"))).result()
    assert (stopped.text, stopped.reason) == (ANSWER[:5], "stop")
    many = Request("chat", messages=tuple(HELLO), stop=("1", "2", "3", "4", "kl"))
    assert remote.submit(many).result().text == ANSWER[:10], "the protocol takes four"


def test_what_is_told_of_it(server: LocalServer, remote: OpenAiEngine) -> None:
    assert remote.info.model == server.app.state.names[0] and not remote.drafts
    assert "without drafts" in remote.info.device
    assert remote.context == server.engine.context
    assert len(remote.encode("def f(x):\n    return x\n")) > 5
    assert remote.chat(({"role": "user", "content": "some words"},))


def test_an_edit_takes_the_code_of_the_answer(tmp_path: Path) -> None:
    said = ("Sure:\n\n", "```python\n", "x = 9\n", "y = 2", "\n```", "\nDone.")
    with (
        serve_model(speaker(tmp_path / "model", *said)) as server,
        OpenAiEngine(url_of(server)) as remote,
    ):
        request = Request("edit", "x = 1\ny = 2\n", "a.py", instruction="Set x to 9")
        *steps, done = remote.submit(request)
        assert isinstance(done, Done) and (done.text, done.reason) == ("x = 9\ny = 2", "stop")
        assert "".join(step.text for step in steps if isinstance(step, Step)) == done.text
        assert judge(request, done).text == "x = 9\ny = 2\n"


def test_a_completion_fills_in_the_middle(tmp_path: Path) -> None:
    model = with_infill(reciter(tmp_path / "plain"), tmp_path / "model")
    request = Request("complete", "a", suffix="z\n", max_tokens=9)
    with serve_model(model) as server, OpenAiEngine(url_of(server)) as remote:
        assert remote.suffixes and remote.info.fills_middle
        assert remote.submit(request).result().text == server.engine.submit(request).result().text
    with serve_model(reciter(tmp_path / "other")) as server, OpenAiEngine(url_of(server)) as remote:
        assert not remote.info.fills_middle
        plain = Request("complete", " ", max_tokens=5)
        assert remote.submit(plain).result().text == ANSWER[:5]


def test_a_cancelled_answer_keeps_its_text_and_frees_the_server(tmp_path: Path) -> None:
    with (
        serve_model(endless(tmp_path / "endless")) as server,
        OpenAiEngine(url_of(server)) as remote,
        unfinished(server.engine),
    ):
        events = iter(job := remote.submit(CHAT))
        written = next(step.text for step in events if isinstance(step, Step) and step.text)
        job.cancel()
        *_, done = events
        assert isinstance(done, Done) and done.reason == "cancelled"
        assert done.text.startswith(written)
        wait_until(lambda: server.open() == 0)


def test_what_the_protocol_cannot_do_is_refused(remote: OpenAiEngine) -> None:
    for wrong in (
        Request("chat"),
        Request("chat", messages=tuple(HELLO), tools=('{"name": "f"}',)),
        Request("chat", messages=tuple(HELLO), grammar="x"),
        Request("edit", "x = 1\n"),
        Request("complete", "x" * 9999, suffix=""),
    ):
        with pytest.raises(RequestError) as caught:
            remote.submit(wrong)
        assert str(caught.value).isprintable()


def test_keys_and_models(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_model(model, rules=AccessRules(key=KEY), aliases=["other"]) as server:
        with pytest.raises(LinkError, match="DRAFTLINE_ENGINE_KEY"):
            OpenAiEngine(url_of(server))
        monkeypatch.setenv("DRAFTLINE_ENGINE_KEY", KEY)
        with OpenAiEngine(url_of(server), "other") as remote:
            assert remote.info.model == "other" and remote.submit(CHAT).result().text == ANSWER
        with pytest.raises(AddressError, match="has no model x: name one of"):
            OpenAiEngine(url_of(server), "x")
        with pytest.raises(AddressError, match="/v1"):
            OpenAiEngine(EngineUrl(server.url, is_openai=True))


def test_the_page_works_and_says_so(server: LocalServer, remote: OpenAiEngine) -> None:
    page = PageState(remote, server.app.state.jobs)
    config = json.dumps(build(page).get_config_file(), default=str)
    assert "without drafts" in config and "tab-edit" in config and "tab-speed" not in config


def test_it_can_be_served_again(remote: OpenAiEngine) -> None:
    """As `draftline serve --engine openai:...` does it for the page and the API."""
    with serve_engine(cast("Any", remote)) as again:
        made = again.client().chat.completions.create(model=remote.model, messages=HELLO)
        assert made.choices[0].message.content == ANSWER
        assert again.http().get("/health").status_code == 200
        assert again.http().get("/v1/draftline/info").status_code == 404
        with pytest.raises(AddressError, match="openai:"):
            HttpEngine(EngineUrl(again.url))


# -- a server that answers wrongly -------------------------------------------------------------

MODELS = b'{"data": [{"id": "m", "max_model_len": 100}]}'


@contextmanager
def wrong_server(answer: bytes, status: int = 200, models: bytes = MODELS) -> Iterator[EngineUrl]:
    """A server that lists `models` and gives every chat this body."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(200, models)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            if self.path.endswith("/chat/completions"):
                self.reply(status, answer)
            else:
                self.reply(404, b"")

        def reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield EngineUrl(f"http://127.0.0.1:{made.server_port}/v1", is_openai=True)
        made.shutdown()


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def text(content: Any, **more: Any) -> bytes:
    return event(choices=[{"delta": {"content": content}, **more}])


@pytest.mark.parametrize(
    ("answer", "written"),
    [
        (b"", ""),
        (b"<html>", ""),
        (text("ab"), "ab"),
        (text("ab") + b"data: [DONE]\n\n", "ab"),
        (text("ab") + b"data: {\n\n", "ab"),
        (text("ab") + b"data: []\n\n", "ab"),
        (text("ab") + b"data: " + b"[" * 99999 + b"\n\n", "ab"),
        (text("ab") + event(error={"message": "out of\nmemory \x07"}), "ab"),
        (text("ab") + event(error="x"), "ab"),
        (event(choices=7) + event(choices=[7]) + event(choices=[{"delta": 7}]), ""),
        (text(7) + text(None), ""),
    ],
)
def test_wrong_answers_fail_with_one_line(answer: bytes, written: str) -> None:
    with wrong_server(answer) as url, OpenAiEngine(url) as remote:
        done = remote.submit(CHAT).result()
        assert done.reason == "failed" and done.text == written
        assert str(done.error).isprintable() and str(done.error).startswith(str(url))


def test_odd_answers_are_read() -> None:
    odd = (
        b": a comment\n\nevent: x\n"
        + text("a", usage={"prompt_tokens": -1, "completion_tokens": "x"})
        + event(choices=[{"delta": {"reasoning_content": "so"}}])
        + event(choices=[{"text": "b", "finish_reason": "tool_calls"}], usage=7)
        + event(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 2})
        + b"data: [DONE]\n\n"
    )
    with wrong_server(odd) as url, OpenAiEngine(url) as remote:
        done = remote.submit(CHAT).result()
        assert (done.text, done.reason, done.reasoning) == ("ab", "stop", "so")
        assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (5, 2)
        assert remote.context == 100


@pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 503])
def test_refusals(status: int) -> None:
    body = b'{"error": {"message": "no\\u0007\\nway"}}'
    with wrong_server(body, status) as url, OpenAiEngine(url) as remote:
        if status in (400, 404, 422):
            with pytest.raises(RequestError, match="way"):
                remote.submit(CHAT)
        else:
            done = remote.submit(CHAT).result()
            assert done.reason == "failed" and str(done.error).isprintable()


@pytest.mark.parametrize("models", [b"", b"{}", b'{"data": []}', b'{"data": [1, {"id": 2}]}', b"["])
def test_a_server_without_models(models: bytes) -> None:
    with wrong_server(b"", models=models) as url, pytest.raises((AddressError, LinkError)) as why:
        OpenAiEngine(url)
    assert str(why.value).isprintable() and str(why.value).startswith(str(url))


def test_prompts_with_marks_where_no_suffix_is_taken() -> None:
    request = Request("complete", "a\r\n", suffix="c", snippets=(("b.py", "b\n"),), stop=("s",))
    body = plan_of(request, "m", False, FORMATS[0]).body
    assert body["prompt"] == ("<|file_sep|>b.py\nb\n<|fim_prefix|>a\n<|fim_suffix|>c<|fim_middle|>")
    assert len(body["stop"]) == 4 and body["stop"][0] == "s"
    assert plan_of(request, "m", True, None).body["suffix"] == "c"
    assert "suffix" not in plan_of(request, "m", False, None).body


# -- texts in parts ----------------------------------------------------------------------------

LETTERS = st.text("ab`\n", max_size=24)


def in_parts(text: str, cuts: list[int]) -> Iterator[str]:
    ends = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    return (text[start:stop] for start, stop in pairwise(ends))


@given(LETTERS, st.lists(st.integers(0, 24)), st.lists(st.text("ab", min_size=1), max_size=3))
def test_stops_do_not_depend_on_parts(text: str, cuts: list[int], stop: list[str]) -> None:
    stops, shown = Stops(tuple(stop)), ""
    for part in in_parts(text, cuts):
        shown += stops.push(part)
        assert shown == stops.text
    shown += stops.finish()
    ends = [(text.index(one) + len(one), -len(one)) for one in stop if one in text]
    end, length = min(ends, default=(len(text), 0))
    assert shown == stops.text == text[: end + length]


@given(LETTERS, LETTERS, st.lists(st.integers(0, 60)))
def test_fences_do_not_depend_on_parts(before: str, code: str, cuts: list[int]) -> None:
    before, code = before.replace("`", ""), code.replace("`", "")
    text = f"{before}\n```py\n{code}\n```\nafter"
    fence, shown = Fence(), ""
    for part in in_parts(text, cuts):
        shown += fence.push(part)
    assert shown + fence.finish() == code and fence.matched


@given(LETTERS)
def test_an_answer_without_a_fence_is_code(text: str) -> None:
    text = text.replace("`", "")
    fence = Fence()
    assert fence.push(text) + fence.finish() == text.strip("\n")


@given(st.text(max_size=60))
def test_words_add_up_to_the_text(text: str) -> None:
    words = WordTokenizer()
    ids = words.encode(text)
    assert words.decode(ids) == text and words.encode(text) == ids
    starts, stops = words.places(np.array(ids, np.int32))
    assert "".join(text[a:b] for a, b in zip(starts, stops, strict=True)) == text


def test_a_workspace_of_words(tmp_path: Path) -> None:
    code = "def area(width, height):\n    return width * height  # été 😋\n"
    (tmp_path / "a.py").write_text(code, "utf-8")
    words = WordTokenizer()
    with Workspace(tmp_path, words) as workspace:
        workspace.build()
        (match,) = workspace.match(words.encode("\n    return width"), 1)
        assert " * height  # été".startswith(words.decode(match.continuation(3).tolist()))
    assert words.fingerprint != WordTokenizer().fingerprint
