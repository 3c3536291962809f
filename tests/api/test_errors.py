"""What the API refuses, and how: always OpenAI's shape, one line, the field's name, the remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Config, Engine
from tests.support.server import (
    ANSWER,
    HELLO,
    Served,
    endless,
    raw,
    reciter,
    served_model,
    serving,
    until,
)
from ui.api.security import AccessRules

CHAT, TEXT, PREDICT = "/v1/chat/completions", "/v1/completions", "/predict"
SMALL = 20_000  # bytes of a body at most, here
PART = {"type": "text", "text": "x"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that takes small bodies."""
    patch = pytest.MonkeyPatch()
    patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
    model = reciter(tmp_path_factory.mktemp("models") / "reciter")
    with served_model(model, rules=AccessRules(max_body=SMALL)) as served:
        yield served
    patch.undo()


def refused(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The error of an answer, which must be OpenAI's shape and say something."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    message = error["message"]
    assert ": " in message and "\n" not in message and len(message) < 300, message
    assert error["type"]
    return error


# Body beside what is needed, and the field that the error names.
WRONG: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"n": 2}, "n"),
    (CHAT, {"n": "1"}, "n"),
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": "hi"}, "messages"),
    (CHAT, {"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
    (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
    (CHAT, {"messages": [*HELLO, {"content": "x"}]}, "messages.1.role"),
    (CHAT, {"messages": [{"role": "user", "content": "\ud800"}]}, "messages.0.content"),
    (
        CHAT,
        {"messages": [{"role": "user", "content": [PART, {"type": "image_url"}]}]},
        "messages.0.content.1.type",
    ),
    (CHAT, {"stop": list("abcde")}, "stop"),
    (CHAT, {"stop": 5}, "stop"),
    (CHAT, {"temperature": "hot"}, "temperature"),
    (CHAT, {"temperature": -1}, "temperature"),
    (CHAT, {"temperature": 2.1}, "temperature"),
    (CHAT, {"temperature": float("nan")}, "temperature"),
    (CHAT, {"top_p": 1.1}, "top_p"),
    (CHAT, {"top_k": -1}, "top_k"),
    (CHAT, {"max_tokens": -1}, "max_tokens"),
    (CHAT, {"max_completion_tokens": 1.5}, "max_completion_tokens"),
    (CHAT, {"seed": 1.5}, "seed"),
    (CHAT, {"stream": "yes"}, "stream"),
    (CHAT, {"model": 5}, "model"),
    (CHAT, {"prediction": "text"}, "prediction"),
    (CHAT, {"prediction": {"type": "diff", "content": ""}}, "prediction.type"),
    (CHAT, {"prediction": {"type": "content"}}, "prediction.content"),
    (CHAT, {"tools": [{"type": "function"}]}, "tools"),
    (CHAT, {"logprobs": True}, "logprobs"),
    (CHAT, {"presence_penalty": 0.5}, "presence_penalty"),
    (CHAT, {"logit_bias": {"5": 1}}, "logit_bias"),
    (CHAT, {"response_format": {"type": "json_object"}}, "response_format.type"),
    (TEXT, {"prompt": ["a", "b"]}, "prompt"),
    (TEXT, {"prompt": [1, 2]}, "prompt"),
    (TEXT, {"prompt": ""}, "prompt"),
    (TEXT, {"best_of": 3}, "best_of"),
    (TEXT, {"logprobs": 1}, "logprobs"),
    (TEXT, {"echo": 1}, "echo"),
    (PREDICT, {"prompt": ""}, "prompt"),
    (PREDICT, {"prompt": ["a"]}, "prompt"),
    (PREDICT, {"num_tokens": 0}, "num_tokens"),
    (PREDICT, {"timeout": 0}, "timeout"),
]


def needed(route: str) -> dict[str, Any]:
    return {"messages": HELLO} if route == CHAT else {"prompt": "x\n"}


@pytest.mark.parametrize(("route", "more", "param"), WRONG)
def test_a_wrong_field_is_named(
    served: Served, route: str, more: dict[str, Any], param: str
) -> None:
    with served.http() as http:
        body = json.dumps(needed(route) | more)  # which writes NaN as no client should
        headers = {"content-type": "application/json"}
        error = refused(http.post(route, content=body, headers=headers), 400)
    assert error["param"] is not None and error["param"].startswith(param)
    assert error["message"].startswith(param.split(".")[0]) and error["type"] == (
        "invalid_request_error"
    )


@pytest.mark.parametrize("route", [CHAT, TEXT, PREDICT])
def test_what_is_missing_is_named(served: Served, route: str) -> None:
    with served.http() as http:
        error = refused(http.post(route, json={}), 400)
        assert error["param"] in ("messages", "prompt") and "missing" in error["message"]


@pytest.mark.parametrize("route", [CHAT, TEXT, PREDICT])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b'{"prompt": "\xff"}',
        b"[" * 9000,  # deeper than Python goes
        b'{"seed": ' + b"9" * 6000 + b"}",  # longer than Python reads
    ],
)
def test_what_is_no_object_is_refused(served: Served, route: str, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    with served.http() as http:
        refused(http.post(route, content=body, headers=headers), 400)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_only_json_is_read(served: Served, kind: str) -> None:
    """A page elsewhere can make a browser send these without asking first."""
    with served.http() as http:
        body = json.dumps(needed(PREDICT)).encode()
        refused(http.post(PREDICT, content=body, headers={"content-type": kind}), 400)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["seed", "stop", "user", "n", "stream", "tools", "new_field", "model"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2)
            ),
            max_leaves=4,
        ),
        max_size=3,
    )
)
def test_whatever_is_sent_gets_an_answer_or_an_error(served: Served, more: dict[str, Any]) -> None:
    body = json.dumps({"messages": HELLO, "max_tokens": 1} | more)
    with served.http() as http:
        answer = http.post(CHAT, content=body, headers={"content-type": "application/json"})
    if answer.status_code != 200:
        refused(answer, 404 if answer.status_code == 404 else 400)


def test_fields_that_nobody_knows_are_ignored(served: Served) -> None:
    more = {"reasoning_effort": "low", "store": True, "metadata": {"a": "b"}, "xyz": [1]}
    neutral = {"tools": [], "presence_penalty": 0, "logit_bias": {}, "n": 1, "logprobs": False}
    null = dict.fromkeys(("stop", "seed", "temperature", "top_p", "max_tokens", "stream", "user"))
    with served.http() as http:
        answer = http.post(CHAT, json={"messages": HELLO} | more | neutral | null)
    assert answer.json()["choices"][0]["message"]["content"] == ANSWER


def test_what_does_not_fit_says_so(served: Served) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        served.client().completions.create(model="reciter", prompt="x" * 5000)
    assert caught.value.code == "context_length_exceeded" and "2048" in caught.value.message


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/docs", 404),
        ("GET", "/v1/models/", 404),
        ("GET", "/v1/models/../../etc/passwd", 404),
        ("GET", "/v1/models/%2e%2e%2fetc%2fpasswd", 404),
        ("GET", CHAT, 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/health", 405),
    ],
)
def test_wrong_addresses_and_methods(served: Served, method: str, path: str, status: int) -> None:
    with served.http() as http:
        answer = http.request(method, path)
        refused(answer, status)
        assert ("allow" in answer.headers) == (status == 405)


# -- size --------------------------------------------------------------------------------------


def test_a_large_body_is_not_read(served: Served) -> None:
    large = json.dumps({"prompt": "x" * SMALL})
    with served.http() as http:
        headers = {"content-type": "application/json"}
        refused(http.post(PREDICT, content=large, headers=headers), 413)
        parts = (large[at : at + 1000].encode() for at in range(0, len(large), 1000))
        refused(http.post(PREDICT, content=parts, headers=headers), 413)  # no length is told
        small = json.dumps({"prompt": "x\n"}) + " " * (SMALL - 1000)
        assert http.post(PREDICT, content=small, headers=headers).status_code == 200
    claimed = (
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: 999999999999999\r\n\r\n{"
    )
    assert b" 413 " in raw(served.port, claimed).split(b"\r\n", 1)[0]


# -- too many, too long, and the model's own failures ------------------------------------------


@pytest.fixture
def busy(home: Any, tmp_path: Path) -> Iterator[Served]:
    """A server whose answers take seconds, and of which two may be open."""
    with served_model(endless(tmp_path / "endless"), queue_size=2) as served:
        yield served


def test_beyond_the_queue_there_is_a_clear_429(busy: Served) -> None:
    client = busy.client()
    create = client.chat.completions.create
    long: dict[str, Any] = {"model": "endless", "messages": HELLO, "max_tokens": 30_000}
    streams = [create(stream=True, **long) for _ in range(2)]
    until(lambda: busy.open() == 2)
    with busy.http() as http:
        answer = http.post(CHAT, json={"messages": HELLO})
        error = refused(answer, 429)
        assert (error["code"], answer.headers["retry-after"]) == ("rate_limit_exceeded", "1")
        assert http.get("/health").status_code == 200 == http.get("/v1/models").status_code
    with pytest.raises(openai.RateLimitError):
        create(stream=True, **long)
    streams[0].close()
    until(lambda: busy.open() < 2)
    streams[1].close()
    assert create(model="endless", messages=HELLO, max_tokens=3).choices


def test_predict_ends_in_time(busy: Served) -> None:
    with busy.http() as http:
        body = {"prompt": "\n", "num_tokens": 30_000, "temperature": 0, "timeout": 1}
        error = refused(http.post(PREDICT, json=body), 504)
    assert error["param"] == "timeout"
    until(lambda: busy.open() == 0)


def test_an_engine_that_is_closed_says_so(home: Any, tmp_path: Path) -> None:
    """Streams that it broke off end with an error, never with [DONE]; then there is a 503."""
    engine = Engine(Config(model=str(endless(tmp_path / "endless")), library=False))
    with serving(engine) as served, served.http() as http:
        body = {"messages": HELLO, "stream": True, "max_tokens": 30_000}
        with http.stream("POST", CHAT, json=body) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            engine.close()
            *_, last = (line for line in lines if line)
        assert "[DONE]" not in last
        assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error"
        refused(http.post(CHAT, json={"messages": HELLO}), 503)
        with pytest.raises(openai.InternalServerError):
            served.client().chat.completions.create(model="endless", messages=HELLO)


def cracked(folder: Path) -> Path:
    """A model that fails where a prompt has an "N": its embedding is no number."""
    import torch
    from transformers import LlamaForCausalLM

    reciter(folder)
    number = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]["N"]
    model = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.model.embed_tokens.weight[number] = float("nan")
    model.save_pretrained(folder)
    return folder


def test_a_failing_answer_is_an_error(home: Any, tmp_path: Path) -> None:
    """The model's own failure is a 500, or the last event; the next answer is whole."""
    bad = {"messages": [{"role": "user", "content": "N"}]}
    with served_model(cracked(tmp_path / "cracked")) as served, served.http() as http:
        assert "not numbers" in refused(http.post(CHAT, json=bad), 500)["message"]
        stream = http.post(CHAT, json=bad | {"stream": True})
        assert stream.status_code == 200 and b"not numbers" in stream.content
        assert b"[DONE]" not in stream.content
        answer = http.post(CHAT, json={"messages": HELLO}).json()
        assert answer["choices"][0]["message"]["content"] == ANSWER
        assert served.open() == 0


def test_a_fault_is_an_error_too(served: Served) -> None:
    def fault() -> None:
        raise KeyError("secret text")

    served.app.add_api_route("/fault", fault)
    with served.http() as http:
        error = refused(http.get("/fault"), 500)
    assert "secret" not in error["message"] and "log" in error["message"]
