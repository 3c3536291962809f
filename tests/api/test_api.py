"""The API used through OpenAI's client: answers, streams, usage, models, and that speculation never
changes the answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import Request
from tests.support.server import (
    ANSWER,
    HELLO,
    THOUGHT_OUT,
    LocalServer,
    parse_events,
    serve_model,
    text_of,
    thinker,
    with_infill,
)

TEXT = "def add(left, right):\n    return left + right  # sums été \U0001f60b\n"
ASK: Any = [{"role": "user", "content": f"```\n{TEXT}```\nrename add"}]
FEW = settings(
    max_examples=8,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def sampling(tiny: Any, models: Path) -> Iterator[LocalServer]:
    """A server whose answers depend on the whole prompt. Its model can fill in the middle."""
    with serve_model(with_infill(tiny("llama"), models / "writer")) as served:
        yield served


# -- answers -----------------------------------------------------------------------------------


def test_a_chat_completion(reciting: LocalServer) -> None:
    answer = reciting.client().chat.completions.create(model="other-name", messages=HELLO)
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", ANSWER)
    assert (choice.finish_reason, choice.index) == ("stop", 0)
    assert (answer.object, answer.model) == ("chat.completion", "other-name")
    assert answer.id.startswith("chatcmpl-") and answer.system_fingerprint
    usage = answer.usage
    assert usage and usage.completion_tokens == len(ANSWER)
    assert usage.prompt_tokens == len("user: hi\n\nassistant: ")  # one token per character
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("chat", [True, False])
def test_a_stream_adds_up_to_the_whole_answer(
    sampling: LocalServer, chat: bool, temperature: float
) -> None:
    route = "/v1/chat/completions" if chat else "/v1/completions"
    body = {"messages": ASK} if chat else {"prompt": TEXT, "echo": True}
    body |= {"max_tokens": 60, "temperature": temperature, "seed": 3}
    streaming = {"stream": True, "stream_options": {"include_usage": True}}
    with sampling.http() as http:
        whole = http.post(route, json=body).raise_for_status().json()
        stream = http.post(route, json=body | streaming).raise_for_status()
    assert stream.headers["content-type"].startswith("text/event-stream")
    *chunks, last = parse_events(stream.content)
    (choice,) = whole["choices"]
    assert text_of(chunks) == (choice["message"]["content"] if chat else choice["text"])
    assert len(chunks) > 3
    if chat:
        assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert all("role" not in chunk["choices"][0]["delta"] for chunk in chunks[1:])
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + [choice["finish_reason"]]
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == [] and last["usage"]["total_tokens"] == whole["usage"]["total_tokens"]
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in [*chunks, last]}) == 1
    object_type = "chat.completion.chunk" if chat else "text_completion"
    assert {chunk["object"] for chunk in [*chunks, last]} == {object_type}


def test_a_text_completion_leaves_reasoning_out(models: Path) -> None:
    with serve_model(thinker(models / "thinker")) as served, served.http() as http:
        body = {"prompt": " ", "max_tokens": 40}
        text = http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    assert text == THOUGHT_OUT


def test_openai_s_client_reads_streams(reciting: LocalServer) -> None:
    """Usage is included only on request."""
    create = reciting.client().chat.completions.create
    chunks = list(create(model="other-name", messages=HELLO, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
    with_usage = {"include_usage": True}
    *_, last = create(model="other-name", messages=HELLO, stream=True, stream_options=with_usage)
    assert last.usage and last.usage.completion_tokens == len(ANSWER)


def test_openai_s_async_client(reciting: LocalServer) -> None:
    import asyncio

    async def ask() -> str | None:
        async with openai.AsyncOpenAI(base_url=f"{reciting.url}/v1", api_key="none") as client:
            answer = await client.chat.completions.create(model="other-name", messages=HELLO)
            return answer.choices[0].message.content

    assert asyncio.run(ask()) == ANSWER


# -- exactness --------------------------------------------------------------------------------

PIECES = st.lists(st.sampled_from([TEXT, "add", " ", "\n", "é", "\U0001f60b"]), max_size=6)


@FEW
@given(
    pieces=PIECES,
    parts=st.booleans(),
    chat=st.booleans(),
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    seed=st.integers(),
)
def test_predictions_never_change_the_answer(
    sampling: LocalServer, pieces: list[str], parts: bool, chat: bool, temperature: float, seed: int
) -> None:
    """The reference is decoded without speculation."""
    route = "/v1/chat/completions" if chat else "/v1/completions"
    body: dict[str, Any] = {"messages": ASK} if chat else {"prompt": TEXT}
    body |= {"max_tokens": 24, "temperature": temperature, "seed": seed, "top_p": 0.95}
    content: Any = (
        [{"type": "text", "text": piece} for piece in pieces] if parts else "".join(pieces)
    )
    with_prediction = body | {"prediction": {"type": "content", "content": content}}
    request = Request(
        "chat" if chat else "complete",
        TEXT,
        messages=tuple(ASK),
        max_tokens=24,
        temperature=temperature,
        top_p=0.95,
        seed=seed,
    )
    expected = sampling.engine.submit(request, speculation=False).result()
    with sampling.http() as http:
        for request_body in (body, with_prediction):
            (choice,) = http.post(route, json=request_body).raise_for_status().json()["choices"]
            assert (choice["message"]["content"] if chat else choice["text"]) == expected.text
            assert choice["finish_reason"] == expected.reason


def test_answers_depend_on_the_seed(sampling: LocalServer) -> None:
    client = sampling.client()

    def text(**options: Any) -> str:
        answer = client.completions.create(
            model="writer", prompt=TEXT, max_tokens=30, temperature=1.5, **options
        )
        return answer.choices[0].text

    assert text(seed=5) == text(seed=5) != text(seed=6)
    assert len({text() for _ in range(5)}) > 1
    zero = {"temperature": 0.0}
    greedy = {client.completions.create(model="writer", prompt=TEXT, **zero).choices[0].text}
    greedy |= {client.completions.create(model="writer", prompt=TEXT).choices[0].text}
    assert len(greedy) == 1, "decoding is greedy by default"


def test_extreme_sampling_options_are_greedy(sampling: LocalServer) -> None:
    with sampling.http() as http:

        def text(**options: Any) -> str:
            body = {"prompt": TEXT, "max_tokens": 20, "seed": 1} | options
            answer = http.post("/v1/completions", json=body).raise_for_status().json()
            return str(answer["choices"][0]["text"])

        greedy = text()
        assert text(temperature=5e-324) == greedy
        assert text(temperature=2, top_p=0) == greedy
        assert text(temperature=2, top_k=1) == greedy
        assert text(temperature=2) != greedy


# -- usage -------------------------------------------------------------------------------------


def token_counts(served: LocalServer, user: str, **options: Any) -> tuple[int, int, int]:
    """Accepted and rejected prediction tokens, and all accepted draft tokens. A new `user` has
    no history to draft from."""
    body = {"messages": HELLO, "user": user} | options
    with served.http() as http:
        answer = http.post("/v1/chat/completions", json=body).raise_for_status().json()
    assert answer["choices"][0]["message"]["content"] == ANSWER
    details = answer["usage"]["completion_tokens_details"]
    accepted = details["accepted_prediction_tokens"]
    return accepted, details["rejected_prediction_tokens"], answer["timings"]["accepted"]


def test_usage_counts_prediction_tokens(reciting: LocalServer) -> None:
    right = {"type": "content", "content": ANSWER}
    accepted, rejected, accepted_drafts = token_counts(reciting, "right", prediction=right)
    assert accepted > 13 and accepted + rejected == len(ANSWER)
    assert accepted <= accepted_drafts
    wrong = {"type": "content", "content": "0123456789"}
    assert token_counts(reciting, "wrong", prediction=wrong)[:2] == (0, 10)
    assert token_counts(reciting, "none")[:2] == (0, 0)


def test_code_blocks_in_the_prompt_are_drafted_from(reciting: LocalServer) -> None:
    """They are not counted as the client's prediction."""
    block = [{"role": "user", "content": f"look:\n```python\n{ANSWER}\n```\n{'x' * 200}"}]
    plain = [{"role": "user", "content": f"look:\n{'x' * 200}"}]
    reciting.engine.forget()
    *counted, with_block = token_counts(reciting, "block", messages=block)
    assert counted == [0, 0]
    reciting.engine.forget()
    assert with_block > token_counts(reciting, "plain", messages=plain)[2]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_request_can_turn_speculation_off(reciting: LocalServer, path: str) -> None:
    """The text is the same."""
    text = f"Repeat:\n```\n{ANSWER}\n```\n "
    body: dict[str, Any] = {"prompt": text, "messages": [{"role": "user", "content": text}]}
    found = []
    with reciting.http() as client:
        for option in ({}, {"speculation": True}, {"speculation": None}, {"speculation": False}):
            answer = client.post(path, json=body | {"max_tokens": 26} | option).json()
            choice = answer["choices"][0]
            written = choice["text"] if "text" in choice else choice["message"]["content"]
            found.append((written, answer["timings"]["drafted"] > 0))
        wrong = client.post(path, json=body | {"speculation": "no"})
    assert found == [(ANSWER, True)] * 3 + [(ANSWER, False)]
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "speculation"


def test_usage_counts_cached_tokens(reciting: LocalServer) -> None:
    create = reciting.client().chat.completions.create
    messages: Any = [{"role": "user", "content": "a new prompt"}]
    first, second = (create(model="other-name", messages=messages).usage for _ in range(2))
    assert first and first.prompt_tokens_details and second and second.prompt_tokens_details
    before = first.prompt_tokens_details.cached_tokens or 0
    assert before < second.prompt_tokens_details.cached_tokens == second.prompt_tokens - 1  # type: ignore[operator]


# -- request options --------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["m", ["zz", "m"], ["xyz", "no", "mn", "mnop"]])
def test_an_answer_ends_before_a_stop_string(reciting: LocalServer, stop: Any) -> None:
    create = reciting.client().chat.completions.create
    (choice,) = create(model="other-name", messages=HELLO, stop=stop).choices
    assert (choice.message.content, choice.finish_reason) == ("abcdefghijkl", "stop")
    chunks = create(model="other-name", messages=HELLO, stop=stop, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "abcdefghijkl"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_max_tokens(reciting: LocalServer, name: str) -> None:
    limit: Any = {name: 5}
    create = reciting.client().chat.completions.create
    answer = create(model="other-name", messages=HELLO, **limit)
    assert answer.choices[0].message.content == ANSWER[:5]
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage and answer.usage.completion_tokens == 5


def test_content_parts_and_developer_messages(sampling: LocalServer) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages: Any = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": parts},
    ]
    expected_messages = (
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "one\ntwo"},
    )
    answer = sampling.client().chat.completions.create(
        model="writer", messages=messages, max_tokens=9
    )
    request = Request("chat", messages=expected_messages, max_tokens=9)
    expected = sampling.engine.submit(request).result()
    assert answer.choices[0].message.content == expected.text


def test_completions_echo_the_prompt_and_accept_a_list_of_one(reciting: LocalServer) -> None:
    create = reciting.client().completions.create
    whole = create(model="other-name", prompt=["x\n"], echo=True, max_tokens=99)
    assert whole.choices[0].text == f"x\n {ANSWER}" and whole.object == "text_completion"
    chunks = create(model="other-name", prompt="x\n", echo=True, max_tokens=99, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == f"x\n {ANSWER}"
    assert create(model="other-name", prompt="x\n").choices[0].text == f" {ANSWER}"
    prompt_only = create(model="other-name", prompt="x\n", echo=True, max_tokens=0).choices[0]
    assert (prompt_only.text, prompt_only.finish_reason) == ("x\n", "length")


def test_a_suffix_fills_in_the_middle(sampling: LocalServer, reciting: LocalServer) -> None:
    create = sampling.client().completions.create
    answer = create(model="writer", prompt="def add(", suffix="return a + b", max_tokens=20)
    request = Request("complete", "def add(", suffix="return a + b", max_tokens=20)
    assert answer.choices[0].text == sampling.engine.submit(request).result().text
    count = len(sampling.engine.parts.tokenizer.encode("def add("))
    count += len(sampling.engine.parts.tokenizer.encode("return a + b"))
    assert answer.usage and answer.usage.prompt_tokens == count + 3  # FIM markers
    assert create(model="writer", prompt="", suffix="x", max_tokens=3).choices[0].finish_reason
    with pytest.raises(
        openai.BadRequestError, match="suffix: this model cannot fill in the middle"
    ):
        reciting.client().completions.create(model="reciter", prompt="a", suffix="b")


def test_models_are_listed_and_named(reciting: LocalServer) -> None:
    client = reciting.client()
    assert [model.id for model in client.models.list()] == ["reciter", "other-name"]
    told = client.models.retrieve("other-name").model_dump()
    assert told["max_model_len"] == told["context_length"] == reciting.engine.context
    assert client.models.retrieve("other-name").owned_by == "draftline"
    with reciting.http() as http:
        answer = http.post("/v1/chat/completions", json={"messages": HELLO}).json()
    assert answer["model"] == "reciter", "the default is the served model"
    for ask in (
        lambda: client.models.retrieve("gpt-5"),
        lambda: client.chat.completions.create(model="gpt-5", messages=HELLO),
        lambda: client.completions.create(model="gpt-5", prompt="x"),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            ask()
        assert caught.value.code == "model_not_found" and caught.value.param == "model"
        assert "reciter" in caught.value.message


# -- extensions -------------------------------------------------------------------------------


def test_predict_returns_prompt_and_continuation(
    reciting: LocalServer, sampling: LocalServer
) -> None:
    with reciting.http() as http:
        answer = http.post("/predict", json={"prompt": "x\n", "num_tokens": 3, "top_k": 1})
    assert answer.json() == "x\n ab"
    with sampling.http() as http:
        body = {"prompt": TEXT, "seed": 0}
        answer = http.post("/predict", json=body)
        explicit = http.post("/predict", json=body | {"num_tokens": 40, "top_k": 10, "top_p": 0.9})
    assert answer.json() == explicit.json() != TEXT
    request = Request("complete", TEXT, max_tokens=40, temperature=1, top_k=10, top_p=0.9, seed=0)
    text = sampling.engine.submit(request, speculation=False).result().text
    assert answer.json() == TEXT + text


def test_health_and_metrics(reciting: LocalServer) -> None:
    with reciting.http() as http:
        assert http.get("/health").json() == {"status": "ok"}
    names = ("answers_total", "completion_tokens_total", "forwards_total")
    before = [reciting.metric(f"draftline_{name}") for name in names]
    reciting.client().chat.completions.create(model="reciter", messages=HELLO)
    after = [reciting.metric(f"draftline_{name}") for name in names]
    assert after[0] == before[0] + 1 and after[1] == before[1] + len(ANSWER)
    assert before[2] < after[2] <= before[2] + len(ANSWER) + 1
    route = 'draftline_requests_total{route="/v1/chat/completions",status="200"}'
    assert reciting.metric(route) >= 1
    assert httpx.get(f"{reciting.url}/metrics").headers["content-type"].startswith("text/plain")
