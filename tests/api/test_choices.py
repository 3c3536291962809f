"""Several answers, probabilities, begun answers and other things that peers have, over HTTP."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import numpy as np
import pytest

from engine.records import Request, RequestError
from tests.support.protocols import CHAT, MESSAGES, openai_error
from tests.support.server import (
    ANSWER,
    HELLO,
    LocalServer,
    occupied,
    parse_events,
    serve_engine,
    wait_until,
)
from ui.api import replies
from ui.api.embeddings import EmbeddingModel
from ui.api.requests import chat_request, completion_request
from ui.api.schemas import ChatRequest, CompletionRequest

TEXT = "/v1/completions"
CITY = {
    "type": "object",
    "properties": {"zed": {"type": "integer"}},
    "required": ["zed"],
    "additionalProperties": False,
}


def post(served: LocalServer, path: str, **body: Any) -> dict[str, Any]:
    """A whole answer."""
    with served.http() as http:
        found: dict[str, Any] = http.post(path, json=body).raise_for_status().json()
    return found


def stream(served: LocalServer, path: str, **body: Any) -> list[dict[str, Any]]:
    """The chunks of a streamed answer."""
    with served.http() as http:
        return parse_events(http.post(path, json=body | {"stream": True}).content)


def parts(chunks: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What the chunks of each choice add up to."""
    found: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            one = found.setdefault(choice["index"], {"text": "", "tokens": [], "reason": None})
            assert one["reason"] is None, "a choice goes on behind its end"
            delta = choice.get("delta", {})
            one["text"] += delta.get("content") or choice.get("text") or ""
            told = choice["logprobs"] or {}
            one["tokens"] += told.get("content", told.get("token_logprobs", []))
            one["reason"] = choice["finish_reason"]
    return found


# -- several answers ---------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("chat", [True, False])
def test_choices_are_the_answers_to_the_next_seeds(
    writing: LocalServer, chat: bool, temperature: float
) -> None:
    """Each is the one that a request of its own gets, and the prompt is read once."""
    path, body = (CHAT, {"messages": HELLO}) if chat else (TEXT, {"prompt": "def f(x):"})
    body |= {"max_tokens": 12, "temperature": temperature, "logprobs": True if chat else 0}
    alone = [post(writing, path, **body, seed=5 + number) for number in range(3)]
    whole = post(writing, path, **body, seed=5, n=3)
    assert [one["index"] for one in whole["choices"]] == [0, 1, 2]
    expected = [answer["choices"][0] | {"index": 0} for answer in alone]
    assert [one | {"index": 0} for one in whole["choices"]] == expected
    texts = {json.dumps(choice) for choice in expected}
    assert (len(texts) > 1) == (temperature > 0)
    usage = whole["usage"]
    assert usage["prompt_tokens"] == alone[0]["usage"]["prompt_tokens"]
    made = sum(answer["usage"]["completion_tokens"] for answer in alone)
    assert usage["completion_tokens"] == made
    assert usage["total_tokens"] == usage["prompt_tokens"] + made
    chunks = stream(writing, path, **body, seed=5, n=3, stream_options={"include_usage": True})
    assert chunks[-1]["usage"]["total_tokens"] == usage["total_tokens"]
    assert sum("timings" in chunk for chunk in chunks) == 1
    for number, one in parts(chunks).items():
        choice = whole["choices"][number]
        assert one["text"] == (choice["message"]["content"] if chat else choice["text"])
        assert one["reason"] == choice["finish_reason"]
        told = choice["logprobs"]
        assert one["tokens"] == (told["content"] if chat else told["token_logprobs"])


def test_prompts_are_answered_one_after_another(writing: LocalServer) -> None:
    prompts = ["def f(x):", "import os", "a = 1\n"]
    body = {"max_tokens": 9, "echo": True, "n": 2, "temperature": 1.0, "seed": 3}
    alone = [post(writing, TEXT, **body, prompt=prompt) for prompt in prompts]
    whole = post(writing, TEXT, **body, prompt=prompts)
    texts = [choice["text"] for answer in alone for choice in answer["choices"]]
    assert [choice["text"] for choice in whole["choices"]] == texts
    assert [choice["index"] for choice in whole["choices"]] == [*range(6)]
    for name in ("prompt_tokens", "completion_tokens"):
        assert whole["usage"][name] == sum(answer["usage"][name] for answer in alone)
    chunks = stream(writing, TEXT, **body, prompt=prompts)
    assert [one["text"] for one in parts(chunks).values()] == texts


def test_a_prompt_that_cannot_be_answered_ends_the_others(reciting: LocalServer) -> None:
    """Behind the first one the error comes in the stream. The slot is free again."""
    long = "x" * (2 * reciting.engine.context)
    with reciting.http() as http:
        openai_error(http.post(TEXT, json={"prompt": ["x", long[:9000]], "n": 2}), 400)
        answer = http.post(TEXT, json={"prompt": ["x\n", long[:9000]], "stream": True})
    assert answer.status_code == 200 and b"[DONE]" not in answer.content
    assert "context" in json.loads(answer.content.split(b"data: ")[-1])["error"]["message"]
    assert reciting.open() == 0


def test_choices_take_one_slot_and_end_with_their_client(reciting: LocalServer) -> None:
    with serve_engine(reciting.engine, queue_size=1) as busy, occupied(busy.engine):
        with (
            busy.http() as http,
            http.stream("POST", CHAT, json={"messages": HELLO, "n": 5, "stream": True}) as response,
        ):
            assert response.status_code == 200 and busy.open() == 1
        wait_until(lambda: busy.open() == 0)


# -- probabilities -----------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("chat", [True, False])
def test_probabilities_are_those_without_speculation(
    writing: LocalServer, chat: bool, temperature: float
) -> None:
    body: dict[str, Any] = {"max_tokens": 24, "temperature": temperature, "seed": 4}
    body |= {"messages": HELLO} if chat else {"prompt": "def f(x):"}
    body |= {"logprobs": True, "top_logprobs": 3} if chat else {"logprobs": 3}
    request = (
        chat_request(ChatRequest.model_validate(body))
        if chat
        else completion_request(CompletionRequest.model_validate(body))
    )
    job = writing.engine.submit(request, speculation=False)
    steps = [*job]
    plain = [entry for step in steps[:-1] for entry in step.logprobs]  # type: ignore[union-attr]
    right = {"type": "content", "content": steps[-1].text}
    for prediction in (None, right, {"type": "content", "content": "wrong\n" * 9}):
        choice = post(writing, CHAT if chat else TEXT, **body, prediction=prediction)["choices"][0]
        told = choice["logprobs"]
        if chat:
            found = [(one["bytes"], one["logprob"]) for one in told["content"]]
            others = [
                [(one["bytes"], one["logprob"]) for one in entry["top_logprobs"]]
                for entry in told["content"]
            ]
            assert others == [[([*one.data], one.logprob) for one in entry[1:]] for entry in plain]
            assert found == [([*entry[0].data], entry[0].logprob) for entry in plain]
        else:
            assert told["token_logprobs"] == [entry[0].logprob for entry in plain]
            assert all(0 < len(one) <= 4 for one in told["top_logprobs"])
            assert told["text_offset"][0] == 0 and len(told["text_offset"]) == len(plain)
    assert plain


def test_openai_s_client_reads_probabilities(reciting: LocalServer) -> None:
    """This model is sure of each letter."""
    create = reciting.client().chat.completions.create
    options: Any = {"model": "reciter", "messages": HELLO, "logprobs": True, "top_logprobs": 2}
    (choice,) = create(**options).choices
    assert choice.logprobs and choice.logprobs.content
    assert [one.token for one in choice.logprobs.content] == [*ANSWER]
    for one in choice.logprobs.content:
        assert one.top_logprobs[0].token == one.token and one.logprob <= 0
    entries = [
        one.token
        for chunk in create(**options, stream=True)
        for part in chunk.choices
        if part.logprobs
        for one in part.logprobs.content or ()
    ]
    assert entries == [*ANSWER]
    text = reciting.client().completions.create(model="reciter", prompt="x\n", logprobs=1)
    told = text.choices[0].logprobs
    assert told and told.tokens and "".join(told.tokens) == f" {ANSWER}"
    assert told.text_offset == [*range(27)]


def test_an_echo_has_the_probabilities_of_its_tokens(writing: LocalServer) -> None:
    """Each time alike, though the prompt was read before; those of the answer stay."""
    prompt = "def f(x):\n    return x\n" * 9
    body = {"prompt": prompt, "logprobs": 2, "max_tokens": 5}
    alone = post(writing, TEXT, **body)["choices"][0]
    whole = post(writing, TEXT, **body, echo=True)
    (choice,) = whole["choices"]
    told, count = choice["logprobs"], whole["usage"]["prompt_tokens"]
    assert choice["text"] == prompt + alone["text"]
    assert "".join(told["tokens"][:count]) == prompt and told["text_offset"][count] == len(prompt)
    assert told["token_logprobs"][0] is told["top_logprobs"][0] is None
    assert told["token_logprobs"][count:] == alone["logprobs"]["token_logprobs"]
    assert all(value <= 0 for value in told["token_logprobs"][1:])
    assert whole["usage"]["completion_tokens"] == len(told["tokens"]) - count == 5
    assert post(writing, TEXT, **body, echo=True)["choices"] == [choice]
    one = parts(stream(writing, TEXT, **body, echo=True))[0]
    assert (one["text"], one["tokens"]) == (choice["text"], told["token_logprobs"])
    for name, value in (("suffix", "x"), ("max_tokens", 0)):
        asked = CompletionRequest.model_validate(body | {"echo": True, name: value})
        with pytest.raises(RequestError, match=f"^{name}.*: not together with echo"):
            completion_request(asked)


# -- what changes the model's choice ------------------------------------------------------------


def test_biases_and_penalties_over_http(reciting: LocalServer) -> None:
    (token,) = reciting.engine.encode("c")
    bias = {"logit_bias": {str(token): -100}, "max_tokens": 9}
    text = post(reciting, CHAT, messages=HELLO, **bias)["choices"][0]["message"]["content"]
    assert text.startswith("ab") and "c" not in text
    stop = post(reciting, CHAT, messages=HELLO, stop_token_ids=[token])["choices"][0]
    assert (stop["message"]["content"], stop["finish_reason"]) == ("ab", "stop")
    least = post(reciting, CHAT, messages=HELLO, min_tokens=30, max_tokens=40)
    assert least["usage"]["completion_tokens"] >= 30
    endless = post(reciting, CHAT, messages=HELLO, ignore_eos=True, max_tokens=40)["choices"][0]
    assert endless["finish_reason"] == "length"
    assert endless["message"]["content"].startswith(ANSWER)


# -- formats -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"response_format": {"type": "json_object", "schema": CITY}}),
        (CHAT, {"json_schema": CITY}),
        (CHAT, {"guided_json": json.dumps(CITY)}),
        (TEXT, {"structured_outputs": {"json": CITY}}),
        (TEXT, {"response_format": {"type": "json_object", "schema": CITY}}),
    ],
)
def test_a_schema_is_followed_whatever_it_is_called(
    writing: LocalServer, path: str, fields: dict[str, Any]
) -> None:
    body = {"prompt": "x"} if path == TEXT else {"messages": HELLO}
    choice = post(writing, path, **body, **fields, max_tokens=60)["choices"][0]
    text = choice["text"] if path == TEXT else choice["message"]["content"]
    assert re.match(r'\{\s?"zed"\s?:\s?-?\d', text)
    if choice["finish_reason"] == "stop":
        assert [*json.loads(text)] == ["zed"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_choices_and_expressions_are_followed(writing: LocalServer, temperature: float) -> None:
    options = {"messages": HELLO, "temperature": temperature, "seed": 1, "max_tokens": 60}
    choices = ["yes / no", 'say "a"\n', "\u4eba"]
    for name in ("guided_choice", "choice"):
        given = {name: choices} if name != "choice" else {"structured_outputs": {name: choices}}
        answer = post(writing, CHAT, **options, **given)["choices"][0]
        assert answer["message"]["content"] in choices and answer["finish_reason"] == "stop"
    pattern = "a/b\\/c[\\\\x]{2}\n(yes|no)"
    for given in ({"guided_regex": pattern}, {"structured_outputs": {"regex": pattern}}):
        answer = post(writing, CHAT, **options, **given)["choices"][0]
        assert re.fullmatch(pattern, answer["message"]["content"])


# -- begun answers -----------------------------------------------------------------------------


def test_a_begun_answer_goes_on(reciting: LocalServer, writing: LocalServer) -> None:
    """In the middle of the text that this model always writes."""
    begun = [*HELLO, {"role": "assistant", "content": ANSWER[:9]}]
    prefix = [*HELLO, {"role": "assistant", "content": ANSWER[:9], "prefix": True}]
    for body in (
        {"messages": begun, "continue_final_message": True},
        {"messages": begun, "continue_final_message": True, "add_generation_prompt": False},
        {"messages": prefix},
    ):
        answer = post(reciting, CHAT, **body)["choices"][0]
        assert answer["message"]["content"] == ANSWER[9:]
    answer = post(reciting, MESSAGES, messages=begun, max_tokens=99)
    assert answer["content"] == [{"type": "text", "text": ANSWER[9:]}]
    new = post(reciting, CHAT, messages=begun)["choices"][0]["message"]["content"]
    assert new == ANSWER, "without being asked it is a turn before"
    request = Request("chat", messages=(*begun,), continues=True, max_tokens=20)
    texts = [writing.engine.submit(request, flag).result().text for flag in (False, True)]
    answer = post(writing, CHAT, messages=prefix, max_tokens=20)
    assert [answer["choices"][0]["message"]["content"]] * 2 == texts


# -- signs of life, models, health --------------------------------------------------------------


@pytest.mark.parametrize(("path", "body"), [(CHAT, {"messages": HELLO}), (TEXT, {"prompt": "x\n"})])
def test_comments_come_while_a_stream_is_quiet(
    reciting: LocalServer, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    monkeypatch.setattr(replies, "QUIET_SECONDS", 0.001)
    with (
        occupied(reciting.engine, yields=False) as release,
        reciting.http() as http,
        http.stream("POST", path, json=body | {"stream": True}) as answer,
    ):
        lines = answer.iter_lines()
        for _ in range(3):
            assert next(line for line in lines if line.startswith(":"))
        release()
        assert "data: [DONE]" in [*lines]


def test_openai_s_client_ignores_comments(
    reciting: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "QUIET_SECONDS", 1e-9)
    create = reciting.client().chat.completions.create
    chunks = create(model="reciter", messages=HELLO, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER


def test_the_list_of_models_is_everybodys(reciting: LocalServer) -> None:
    embedding = EmbeddingModel("ones", lambda texts: np.ones((len(texts), 3), np.float32))
    with serve_engine(reciting.engine, aliases=["*", "b"], embedding=embedding) as served:
        found = served.http().get("/v1/models").json()
        one = served.http().get("/v1/models/ones").json()
    names = [model["id"] for model in found["data"]]
    assert names == ["reciter", "b", "ones"]
    assert (found["first_id"], found["last_id"], found["has_more"]) == ("reciter", "ones", False)
    for model in found["data"]:
        assert model["display_name"] == model["id"] and model["type"] == "model"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", model["created_at"])
    assert one["context_length"] is None and found["data"][0]["context_length"]


def test_anthropic_s_client_lists_models(reciting: LocalServer) -> None:
    from tests.api.test_messages import client

    found = [*client(reciting).models.list()]
    assert [model.id for model in found] == ["reciter", "other-name"]
    assert found[0].display_name == "reciter" and found[0].created_at.year > 2000


def test_health_by_its_head_alone(reciting: LocalServer) -> None:
    answer = httpx.head(f"{reciting.url}/health")
    assert (answer.status_code, answer.content) == (200, b"")


def test_answers_of_a_model_without_a_template_warn(reciting: LocalServer) -> None:
    assert reciting.engine.warnings
    assert post(reciting, CHAT, messages=HELLO)["warnings"] == reciting.engine.warnings
    assert stream(reciting, CHAT, messages=HELLO)[-1]["warnings"] == reciting.engine.warnings


# -- requests that other servers accept -----------------------------------------------------------

BOOLEAN = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}},
    "required": ["a"],
    "additionalProperties": False,
}


def named(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


REPORTED: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"max_tokens": 40, "response_format": {"type": "json_object", "schema": CITY}}, "zed"),
    (CHAT, {"max_tokens": 40, "json_schema": {"type": "object"}}, "json"),
    (TEXT, {"max_tokens": 20, "response_format": {"type": "json_object"}}, "json"),
    (TEXT, {"n_predict": 4}, "4 tokens"),
    (CHAT, {"max_tokens": -1}, "whole"),
    (CHAT, {"max_tokens": 5, "stop": ["a", "b", "c", "d", "e"]}, "fine"),
    (CHAT, {"max_tokens": 5, "response_format": named({"$ref": "#"})}, "a $ref leads to itself"),
    (CHAT, {"response_format": named(BOOLEAN)}, "a"),
    ("/v1/embeddings", {"input": [[57668, 53901]]}, "token ids are not supported"),
]


@pytest.mark.parametrize(("path", "fields", "expected"), REPORTED)
def test_a_reported_request_is_answered_as_documented(
    writing: LocalServer, path: str, fields: dict[str, Any], expected: str
) -> None:
    start = {CHAT: {"messages": [{"role": "user", "content": "hi"}]}, TEXT: {"prompt": "def f("}}
    with writing.http() as http:
        answer = http.post(path, json=start.get(path, {}) | fields)
    if " not " in expected or "$ref" in expected:
        assert expected in openai_error(answer, 400)["message"]
        return
    body = answer.raise_for_status().json()
    (choice,) = body["choices"]
    text = choice["text"] if path == TEXT else choice["message"]["content"]
    if expected in ("zed", "json", "a"):
        assert text.lstrip().startswith("{")
        if choice["finish_reason"] == "stop":
            assert expected == "json" or [*json.loads(text)] == [expected]
        assert expected != "a" or choice["finish_reason"] == "stop", "blanks without end"
    elif expected == "4 tokens":
        assert body["usage"]["completion_tokens"] == 4
    elif expected == "whole":
        assert choice["finish_reason"] in ("stop", "length")
        (whole,) = post(writing, CHAT, **start[CHAT])["choices"]
        assert text == whole["message"]["content"]
