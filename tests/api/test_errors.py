"""API errors: in OpenAI's format, with one line that names the field and the remedy."""

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
    LocalServer,
    answers_pause,
    endless,
    occupied,
    reciter,
    send_raw,
    serve_engine,
    serve_model,
    wait_until,
)
from ui.api.security import AccessRules

CHAT, TEXT, PREDICT = "/v1/chat/completions", "/v1/completions", "/predict"
MAX_BODY_BYTES = 20_000
PART = {"type": "text", "text": "x"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A server that accepts only small bodies."""
    patch = pytest.MonkeyPatch()
    patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
    model = reciter(tmp_path_factory.mktemp("models") / "reciter")
    with serve_model(model, rules=AccessRules(max_body=MAX_BODY_BYTES)) as served:
        yield served
    patch.undo()


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The error in a response; checks its status and that it has OpenAI's format."""
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


# (route, invalid fields, the field that the error must name)
INVALID: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"n": 2}, "n"),
    (CHAT, {"n": "1"}, "n"),
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": "hi"}, "messages"),
    (CHAT, {"messages": [{"role": "critic", "content": "x"}]}, "messages.0.role"),
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
    (CHAT, {"tools": [{"type": "function"}]}, "tools.0.function"),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name"),
    (CHAT, {"logprobs": True}, "logprobs"),
    (CHAT, {"presence_penalty": 0.5}, "presence_penalty"),
    (CHAT, {"logit_bias": {"5": 1}}, "logit_bias"),
    (CHAT, {"response_format": {"type": "xml"}}, "response_format"),
    (CHAT, {"response_format": {"type": "json_schema"}}, "response_format.json_schema.json_schema"),
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


def required_fields(route: str) -> dict[str, Any]:
    return {"messages": HELLO} if route == CHAT else {"prompt": "x\n"}


@pytest.mark.parametrize(("route", "fields", "param"), INVALID)
def test_an_invalid_field_is_named(
    served: LocalServer, route: str, fields: dict[str, Any], param: str
) -> None:
    with served.http() as http:
        body = json.dumps(required_fields(route) | fields)  # may contain NaN
        headers = {"content-type": "application/json"}
        error = error_of(http.post(route, content=body, headers=headers), 400)
    assert error["param"] is not None and error["param"].startswith(param)
    assert error["message"].startswith(param.split(".")[0]) and error["type"] == (
        "invalid_request_error"
    )


@pytest.mark.parametrize("route", [CHAT, TEXT, PREDICT])
def test_a_missing_field_is_named(served: LocalServer, route: str) -> None:
    with served.http() as http:
        error = error_of(http.post(route, json={}), 400)
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
        b"[" * 9000,  # deeper than the recursion limit
        b'{"seed": ' + b"9" * 6000 + b"}",  # more digits than int() accepts
    ],
)
def test_a_body_that_is_not_an_object_is_refused(
    served: LocalServer, route: str, body: bytes
) -> None:
    headers = {"content-type": "application/json"}
    with served.http() as http:
        error_of(http.post(route, content=body, headers=headers), 400)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_only_json_is_read(served: LocalServer, kind: str) -> None:
    """Browsers send these content types across origins without a preflight request."""
    with served.http() as http:
        body = json.dumps(required_fields(PREDICT)).encode()
        error_of(http.post(PREDICT, content=body, headers={"content-type": kind}), 400)


@settings(max_examples=40)
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
def test_any_body_gets_an_answer_or_an_error(served: LocalServer, fields: dict[str, Any]) -> None:
    body = json.dumps({"messages": HELLO, "max_tokens": 1} | fields)
    with served.http() as http:
        answer = http.post(CHAT, content=body, headers={"content-type": "application/json"})
    if answer.status_code != 200:
        error_of(answer, 404 if answer.status_code == 404 else 400)


def test_unknown_fields_are_ignored(served: LocalServer) -> None:
    unknown = {"reasoning_effort": "low", "store": True, "metadata": {"a": "b"}, "xyz": [1]}
    neutral = {"tools": [], "presence_penalty": 0, "logit_bias": {}, "n": 1, "logprobs": False}
    null = dict.fromkeys(("stop", "seed", "temperature", "top_p", "max_tokens", "stream", "user"))
    with served.http() as http:
        answer = http.post(CHAT, json={"messages": HELLO} | unknown | neutral | null)
    assert answer.json()["choices"][0]["message"]["content"] == ANSWER


def test_a_prompt_beyond_the_context_is_refused(served: LocalServer) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        served.client().completions.create(model="reciter", prompt="x" * 5000)
    assert caught.value.code == "context_length_exceeded" and "2048" in caught.value.message


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("POST", "/v1/images/generations", 404),
        ("GET", "/docs", 404),
        ("GET", "/v1/models/", 404),
        ("GET", "/v1/models/../../etc/passwd", 404),
        ("GET", "/v1/models/%2e%2e%2fetc%2fpasswd", 404),
        ("GET", CHAT, 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/health", 405),
    ],
)
def test_unknown_paths_and_methods(
    served: LocalServer, method: str, path: str, status: int
) -> None:
    with served.http() as http:
        answer = http.request(method, path)
        error_of(answer, status)
        assert ("allow" in answer.headers) == (status == 405)


# -- body size ---------------------------------------------------------------------------------


def test_a_large_body_is_not_read(served: LocalServer) -> None:
    large = json.dumps({"prompt": "x" * MAX_BODY_BYTES})
    with served.http() as http:
        headers = {"content-type": "application/json"}
        error_of(http.post(PREDICT, content=large, headers=headers), 413)
        chunks = (large[start : start + 1000].encode() for start in range(0, len(large), 1000))
        error_of(http.post(PREDICT, content=chunks, headers=headers), 413)  # without Content-Length
        small = json.dumps({"prompt": "x\n"}) + " " * (MAX_BODY_BYTES - 1000)
        assert http.post(PREDICT, content=small, headers=headers).status_code == 200
    oversized = (
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: 999999999999999\r\n\r\n{"
    )
    assert b" 413 " in send_raw(served.port, oversized).split(b"\r\n", 1)[0]


# -- a full queue, timeouts, and failures in the model -----------------------------------------


@pytest.fixture
def busy(served: LocalServer) -> Iterator[LocalServer]:
    """Another server on the same engine, with two queue slots."""
    with serve_engine(served.engine, queue_size=2) as busy:
        yield busy


def test_a_full_queue_gives_429(busy: LocalServer) -> None:
    create = busy.client().chat.completions.create
    request: dict[str, Any] = {"model": "reciter", "messages": HELLO}
    with occupied(busy.engine), busy.http() as http:
        streams = [create(stream=True, **request) for _ in range(2)]
        assert busy.open() == 2
        same = {"user-agent": create.__self__._client.user_agent}
        answer = http.post(CHAT, json={"messages": HELLO}, headers=same)
        error = error_of(answer, 429)
        assert (error["code"], answer.headers["retry-after"]) == ("rate_limit_exceeded", "1")
        assert http.get("/health").status_code == 200 == http.get("/v1/models").status_code
        with pytest.raises(openai.RateLimitError):
            create(stream=True, **request)
        streams[0].close()
        wait_until(lambda: busy.open() == 1)
        streams[1].close()
        wait_until(lambda: busy.open() == 0)
    assert create(**request).choices[0].message.content == ANSWER


def test_predict_times_out(busy: LocalServer) -> None:
    with occupied(busy.engine, yields=False), busy.http() as http:
        body = {"prompt": "\n", "num_tokens": 3, "temperature": 0, "timeout": 1}
        error = error_of(http.post(PREDICT, json=body), 504)
    assert error["param"] == "timeout"
    wait_until(lambda: busy.open() == 0)


def test_a_closed_engine_gives_503(home: Any, tmp_path: Path) -> None:
    """A stream that this interrupts ends with an error, not with [DONE]."""
    engine = Engine(Config(model=str(endless(tmp_path / "endless")), library=False))
    with serve_engine(engine) as served, answers_pause(engine), served.http() as http:
        body = {"messages": HELLO, "stream": True, "max_tokens": 30_000}
        with http.stream("POST", CHAT, json=body) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            engine.close()
            *_, last = (line for line in lines if line)
        assert "[DONE]" not in last
        assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error"
        error_of(http.post(CHAT, json={"messages": HELLO}), 503)
        with pytest.raises(openai.InternalServerError):
            served.client().chat.completions.create(model="endless", messages=HELLO)


def failing_model(folder: Path) -> Path:
    """A model that fails on prompts with the letter "N", whose embedding is NaN."""
    import torch
    from transformers import LlamaForCausalLM

    reciter(folder)
    token_id = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]["N"]
    model = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.model.embed_tokens.weight[token_id] = float("nan")
    model.save_pretrained(folder)
    return folder


def test_a_failure_in_the_model_gives_500(home: Any, tmp_path: Path) -> None:
    """In a stream the error is the last event. The next request is answered."""
    bad = {"messages": [{"role": "user", "content": "N"}]}
    with serve_model(failing_model(tmp_path / "failing")) as served, served.http() as http:
        assert "not numbers" in error_of(http.post(CHAT, json=bad), 500)["message"]
        stream = http.post(CHAT, json=bad | {"stream": True})
        assert stream.status_code == 200 and b"not numbers" in stream.content
        assert b"[DONE]" not in stream.content
        answer = http.post(CHAT, json={"messages": HELLO}).json()
        assert answer["choices"][0]["message"]["content"] == ANSWER
        assert served.open() == 0


def test_an_internal_error_gives_500(served: LocalServer) -> None:
    def broken() -> None:
        raise KeyError("secret text")

    served.app.add_api_route("/broken", broken)
    with served.http() as http:
        error = error_of(http.get("/broken"), 500)
    assert "secret" not in error["message"] and "log" in error["message"]
