"""API errors: in OpenAI's format, with one line that names the field and the remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.api.conftest import MAX_BODY_BYTES
from tests.support.protocols import CHAT
from tests.support.protocols import openai_error as error_of
from tests.support.server import (
    ANSWER,
    HELLO,
    LocalServer,
    occupied,
    reciter,
    send_raw,
    serve_engine,
    serve_model,
    wait_until,
)

TEXT, PREDICT = "/v1/completions", "/predict"


# (route, invalid fields, the field that the error must name)
INVALID: list[tuple[str, dict[str, Any], str]] = [
    (TEXT, {"prompt": ["a", 7]}, "prompt.1"),
    (TEXT, {"prompt": ["a"] * 129}, "prompt"),
    (TEXT, {"prompt": ["a"] * 65, "n": 2}, "n"),
    (TEXT, {"prompt": [1, 2]}, "prompt.0"),
    (TEXT, {"prompt": ""}, "prompt"),
    (TEXT, {"best_of": 0}, "best_of"),
    (TEXT, {"logprobs": 21}, "logprobs"),
    (TEXT, {"echo": 1}, "echo"),
    (PREDICT, {"prompt": ""}, "prompt"),
    (PREDICT, {"prompt": ["a"]}, "prompt"),
    (PREDICT, {"num_tokens": 0}, "num_tokens"),
    (PREDICT, {"timeout": 0}, "timeout"),
]


@pytest.mark.parametrize(("route", "fields", "param"), INVALID)
def test_an_invalid_field_is_named(
    reciting: LocalServer, route: str, fields: dict[str, Any], param: str
) -> None:
    with reciting.http() as http:
        error = error_of(http.post(route, json={"prompt": "x\n"} | fields), 400)
    assert error["param"] == param and error["message"].startswith(param)
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("route", [CHAT, TEXT, PREDICT])
def test_a_missing_field_is_named(reciting: LocalServer, route: str) -> None:
    with reciting.http() as http:
        error = error_of(http.post(route, json={}), 400)
        assert error["param"] in ("messages", "prompt") and "missing" in error["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_only_json_is_read(reciting: LocalServer, kind: str) -> None:
    """Browsers send these content types across origins without a preflight request."""
    with reciting.http() as http:
        body = b'{"prompt": "x"}'
        error_of(http.post(PREDICT, content=body, headers={"content-type": kind}), 400)


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
    reciting: LocalServer, method: str, path: str, status: int
) -> None:
    with reciting.http() as http:
        answer = http.request(method, path)
        error_of(answer, status)
        assert ("allow" in answer.headers) == (status == 405)


# -- body size ---------------------------------------------------------------------------------


def test_a_large_body_is_not_read(reciting: LocalServer) -> None:
    large = json.dumps({"prompt": "x" * MAX_BODY_BYTES})
    with reciting.http() as http:
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
    assert b" 413 " in send_raw(reciting.port, oversized).split(b"\r\n", 1)[0]


# -- a full queue, timeouts, and failures in the model -----------------------------------------


@pytest.fixture
def busy(reciting: LocalServer) -> Iterator[LocalServer]:
    """Another server on the same engine, with two queue slots."""
    with serve_engine(reciting.engine, queue_size=2) as busy:
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


def test_an_internal_error_gives_500(reciting: LocalServer) -> None:
    def broken() -> None:
        raise KeyError("secret text")

    reciting.app.add_api_route("/broken", broken)
    with reciting.http() as http:
        error = error_of(http.get("/broken"), 500)
    assert "secret" not in error["message"] and "log" in error["message"]
