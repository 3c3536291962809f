"""The API through OpenAI's own client: texts, streams, usage, models, and that speculation never
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
    LocalServer,
    parse_events,
    reciter,
    serve_model,
    text_of,
    with_infill,
)

TEXT = "def add(left, right):\n    return left + right  # sums été \U0001f60b\n"
ASK: Any = [{"role": "user", "content": f"```\n{TEXT}```\nrename add"}]
FEW = settings(
    max_examples=8,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def models(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for models; the cache is these tests' own."""
    patch = pytest.MonkeyPatch()
    patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
    yield tmp_path_factory.mktemp("served")
    patch.undo()


@pytest.fixture(scope="module")
def recites(models: Path) -> Iterator[LocalServer]:
    """It always answers ANSWER."""
    with serve_model(reciter(models / "reciter"), aliases=["gpt-4o-local"]) as served:
        yield served


@pytest.fixture(scope="module")
def writes(tiny: Any, models: Path) -> Iterator[LocalServer]:
    """Its answers depend on the whole prompt. It can fill in the middle."""
    with serve_model(with_infill(tiny("llama"), models / "writer")) as served:
        yield served


# -- answers -----------------------------------------------------------------------------------


def test_a_chat_is_answered(recites: LocalServer) -> None:
    answer = recites.client().chat.completions.create(model="gpt-4o-local", messages=HELLO)
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", ANSWER)
    assert (choice.finish_reason, choice.index) == ("stop", 0)
    assert (answer.object, answer.model) == ("chat.completion", "gpt-4o-local")
    assert answer.id.startswith("chatcmpl-") and answer.system_fingerprint
    usage = answer.usage
    assert usage and usage.completion_tokens == len(ANSWER)
    assert usage.prompt_tokens == len("user: hi\n\nassistant: ")  # a token each
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("chat", [True, False])
def test_a_stream_adds_up_to_the_whole_answer(
    writes: LocalServer, chat: bool, temperature: float
) -> None:
    route = "/v1/chat/completions" if chat else "/v1/completions"
    asked = {"messages": ASK} if chat else {"prompt": TEXT, "echo": True}
    asked |= {"max_tokens": 60, "temperature": temperature, "seed": 3}
    more = {"stream": True, "stream_options": {"include_usage": True}}
    with writes.http() as http:
        whole = http.post(route, json=asked).raise_for_status().json()
        stream = http.post(route, json=asked | more).raise_for_status()
    assert stream.headers["content-type"].startswith("text/event-stream")
    *chunks, last = parse_events(stream.content)
    (choice,) = whole["choices"]
    assert text_of(chunks) == (choice["message"]["content"] if chat else choice["text"])
    assert len(chunks) > 3
    if chat:
        assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert all("role" not in one["choices"][0]["delta"] for one in chunks[1:])
    reasons = [one["choices"][0]["finish_reason"] for one in chunks]
    assert reasons == [None] * (len(chunks) - 1) + [choice["finish_reason"]]
    assert all(one["usage"] is None for one in chunks)
    assert last["choices"] == [] and last["usage"]["total_tokens"] == whole["usage"]["total_tokens"]
    assert len({(one["id"], one["created"], one["model"]) for one in [*chunks, last]}) == 1
    object_ = "chat.completion.chunk" if chat else "text_completion"
    assert {one["object"] for one in [*chunks, last]} == {object_}


def test_openais_client_reads_streams(recites: LocalServer) -> None:
    """With usage only on request."""
    create = recites.client().chat.completions.create
    chunks = list(create(model="gpt-4o-local", messages=HELLO, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
    with_usage = {"include_usage": True}
    *_, last = create(model="gpt-4o-local", messages=HELLO, stream=True, stream_options=with_usage)
    assert last.usage and last.usage.completion_tokens == len(ANSWER)


def test_the_async_client(recites: LocalServer) -> None:
    import asyncio

    async def ask() -> str | None:
        async with openai.AsyncOpenAI(base_url=f"{recites.url}/v1", api_key="none") as client:
            answer = await client.chat.completions.create(model="gpt-4o-local", messages=HELLO)
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
    writes: LocalServer, pieces: list[str], parts: bool, chat: bool, temperature: float, seed: int
) -> None:
    """Nor does speculation: the oracle decodes without it."""
    route = "/v1/chat/completions" if chat else "/v1/completions"
    asked: dict[str, Any] = {"messages": ASK} if chat else {"prompt": TEXT}
    asked |= {"max_tokens": 24, "temperature": temperature, "seed": seed, "top_p": 0.95}
    content: Any = [{"type": "text", "text": one} for one in pieces] if parts else "".join(pieces)
    predicted = asked | {"prediction": {"type": "content", "content": content}}
    request = Request(
        "chat" if chat else "complete",
        TEXT,
        messages=tuple(ASK),
        max_tokens=24,
        temperature=temperature,
        top_p=0.95,
        seed=seed,
    )
    plain = writes.engine.submit(request, speculation=False).result()
    with writes.http() as http:
        for body in (asked, predicted):
            (choice,) = http.post(route, json=body).raise_for_status().json()["choices"]
            assert (choice["message"]["content"] if chat else choice["text"]) == plain.text
            assert choice["finish_reason"] == plain.reason


def test_answers_depend_on_the_seed(writes: LocalServer) -> None:
    client = writes.client()

    def text(**more: Any) -> str:
        answer = client.completions.create(
            model="writer", prompt=TEXT, max_tokens=30, temperature=1.5, **more
        )
        return answer.choices[0].text

    assert text(seed=5) == text(seed=5) != text(seed=6)
    assert len({text() for _ in range(5)}) > 1
    zero = {"temperature": 0.0}
    greedy = {client.completions.create(model="writer", prompt=TEXT, **zero).choices[0].text}
    greedy |= {client.completions.create(model="writer", prompt=TEXT).choices[0].text}
    assert len(greedy) == 1, "decoding is greedy by default"


def test_extreme_sampling_options_are_greedy(writes: LocalServer) -> None:
    with writes.http() as http:

        def text(**more: Any) -> str:
            body = {"prompt": TEXT, "max_tokens": 20, "seed": 1} | more
            answer = http.post("/v1/completions", json=body).raise_for_status().json()
            return str(answer["choices"][0]["text"])

        greedy = text()
        assert text(temperature=5e-324) == greedy
        assert text(temperature=2, top_p=0) == greedy
        assert text(temperature=2, top_k=1) == greedy
        assert text(temperature=2) != greedy


# -- usage -------------------------------------------------------------------------------------


def details(served: LocalServer, user: str, **more: Any) -> tuple[int, int, int]:
    """Accepted and rejected prediction tokens, and all accepted ones, for a client without
    history."""
    body = {"messages": HELLO, "user": user} | more
    with served.http() as http:
        answer = http.post("/v1/chat/completions", json=body).raise_for_status().json()
    assert answer["choices"][0]["message"]["content"] == ANSWER
    found = answer["usage"]["completion_tokens_details"]
    accepted = found["accepted_prediction_tokens"]
    return accepted, found["rejected_prediction_tokens"], answer["timings"]["accepted"]


def test_usage_counts_prediction_tokens(recites: LocalServer) -> None:
    right = {"type": "content", "content": ANSWER}
    accepted, rejected, drafted = details(recites, "right", prediction=right)
    assert accepted > 13 and accepted + rejected == len(ANSWER)
    assert accepted <= drafted
    wrong = {"type": "content", "content": "0123456789"}
    assert details(recites, "wrong", prediction=wrong)[:2] == (0, 10)
    assert details(recites, "none")[:2] == (0, 0)


def test_code_blocks_of_the_prompt_are_predictions(recites: LocalServer) -> None:
    """They are drafted from, and not counted as the client's prediction."""
    block = [{"role": "user", "content": f"look:\n```python\n{ANSWER}\n```\n{'x' * 200}"}]
    plain = [{"role": "user", "content": f"look:\n{'x' * 200}"}]
    recites.engine.forget()
    *counted, with_block = details(recites, "block", messages=block)
    assert counted == [0, 0]
    recites.engine.forget()
    assert with_block > details(recites, "plain", messages=plain)[2]


def test_usage_counts_cached_tokens(recites: LocalServer) -> None:
    create = recites.client().chat.completions.create
    messages: Any = [{"role": "user", "content": "a new prompt"}]
    first, second = (create(model="gpt-4o-local", messages=messages).usage for _ in range(2))
    assert first and first.prompt_tokens_details and second and second.prompt_tokens_details
    before = first.prompt_tokens_details.cached_tokens or 0
    assert before < second.prompt_tokens_details.cached_tokens == second.prompt_tokens - 1  # type: ignore[operator]


# -- request options --------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["m", ["zz", "m"], ["xyz", "no", "mn", "mnop"]])
def test_an_answer_ends_before_a_stop_string(recites: LocalServer, stop: Any) -> None:
    create = recites.client().chat.completions.create
    (choice,) = create(model="gpt-4o-local", messages=HELLO, stop=stop).choices
    assert (choice.message.content, choice.finish_reason) == ("abcdefghijkl", "stop")
    chunks = create(model="gpt-4o-local", messages=HELLO, stop=stop, stream=True)
    assert "".join(one.choices[0].delta.content or "" for one in chunks) == "abcdefghijkl"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_max_tokens(recites: LocalServer, name: str) -> None:
    limit: Any = {name: 5}
    create = recites.client().chat.completions.create
    answer = create(model="gpt-4o-local", messages=HELLO, **limit)
    assert answer.choices[0].message.content == ANSWER[:5]
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage and answer.usage.completion_tokens == 5


def test_messages_in_parts_and_from_a_developer(writes: LocalServer) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    given: Any = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}]
    meant = (
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "one\ntwo"},
    )
    answer = writes.client().chat.completions.create(model="writer", messages=given, max_tokens=9)
    plain = writes.engine.submit(Request("chat", messages=meant, max_tokens=9)).result()
    assert answer.choices[0].message.content == plain.text


def test_completions_echo_and_accept_a_list_of_one(recites: LocalServer) -> None:
    create = recites.client().completions.create
    whole = create(model="gpt-4o-local", prompt=["x\n"], echo=True, max_tokens=99)
    assert whole.choices[0].text == f"x\n {ANSWER}" and whole.object == "text_completion"
    chunks = create(model="gpt-4o-local", prompt="x\n", echo=True, max_tokens=99, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == f"x\n {ANSWER}"
    assert create(model="gpt-4o-local", prompt="x\n").choices[0].text == f" {ANSWER}"[:16]
    only = create(model="gpt-4o-local", prompt="x\n", echo=True, max_tokens=0).choices[0]
    assert (only.text, only.finish_reason) == ("x\n", "length")


def test_a_suffix_fills_in_the_middle(writes: LocalServer, recites: LocalServer) -> None:
    create = writes.client().completions.create
    answer = create(model="writer", prompt="def add(", suffix="return a + b", max_tokens=20)
    request = Request("complete", "def add(", suffix="return a + b", max_tokens=20)
    assert answer.choices[0].text == writes.engine.submit(request).result().text
    count = len(writes.engine.parts.tokenizer.encode("def add("))
    count += len(writes.engine.parts.tokenizer.encode("return a + b"))
    assert answer.usage and answer.usage.prompt_tokens == count + 3  # FIM markers
    assert create(model="writer", prompt="", suffix="x", max_tokens=3).choices[0].finish_reason
    with pytest.raises(
        openai.BadRequestError, match="suffix: this model cannot fill in the middle"
    ):
        recites.client().completions.create(model="reciter", prompt="a", suffix="b")


def test_models_have_names(recites: LocalServer) -> None:
    client = recites.client()
    assert [one.id for one in client.models.list()] == ["reciter", "gpt-4o-local"]
    assert client.models.retrieve("gpt-4o-local").owned_by == "draftline"
    with recites.http() as http:
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


def test_predict_returns_prompt_and_continuation(recites: LocalServer, writes: LocalServer) -> None:
    with recites.http() as http:
        answer = http.post("/predict", json={"prompt": "x\n", "num_tokens": 3, "top_k": 1})
    assert answer.json() == "x\n ab"
    with writes.http() as http:
        asked = {"prompt": TEXT, "seed": 0}
        answer = http.post("/predict", json=asked)
        again = http.post("/predict", json=asked | {"num_tokens": 40, "top_k": 10, "top_p": 0.9})
    assert answer.json() == again.json() != TEXT
    plain = Request("complete", TEXT, max_tokens=40, temperature=1, top_k=10, top_p=0.9, seed=0)
    text = writes.engine.submit(plain, speculation=False).result().text
    assert answer.json() == TEXT + text


def test_health_and_metrics(recites: LocalServer) -> None:
    with recites.http() as http:
        assert http.get("/health").json() == {"status": "ok"}
    names = ("answers_total", "completion_tokens_total", "forwards_total")
    before = [recites.metric(f"draftline_{name}") for name in names]
    recites.client().chat.completions.create(model="reciter", messages=HELLO)
    after = [recites.metric(f"draftline_{name}") for name in names]
    assert after[0] == before[0] + 1 and after[1] == before[1] + len(ANSWER)
    assert before[2] < after[2] <= before[2] + len(ANSWER) + 1
    route = 'draftline_requests_total{route="/v1/chat/completions",status="200"}'
    assert recites.metric(route) >= 1
    assert httpx.get(f"{recites.url}/metrics").headers["content-type"].startswith("text/plain")
