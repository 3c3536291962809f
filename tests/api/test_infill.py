"""/infill with the requests of llama.vim and llama.vscode, and templates in /v1/completions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import Request
from engine.prompts.builder import prompt_of
from tests.support.server import (
    ANSWER,
    LocalServer,
    answers_pause,
    endless,
    parse_events,
    reciter,
    renamed,
    serve_model,
    with_infill,
)
from ui.api.infill import Infill
from ui.api.schemas import InfillRequest

FILE_MARKS = {"ö": "<|repo_name|>", "÷": "<|file_sep|>"}
PREFIX, LINE, SUFFIX = "def add(left, right):\n", "    return ", "\n\nprint(add(1, 2))\n"
CHUNKS = [
    {"text": "def sub(a, b):\n    return a - b\n", "time": 1, "filename": "sub.py"},
    {"text": "class Point:\n    pass\n"},
]
# The fields that llama.vim asks for, and the two requests that it sends: one for text, and one
# that only reads the prompt.
VIM_FIELDS = [
    "content",
    "timings/prompt_n", "timings/prompt_ms",
    "timings/prompt_per_token_ms", "timings/prompt_per_second",
    "timings/predicted_n", "timings/predicted_ms",
    "timings/predicted_per_token_ms", "timings/predicted_per_second",
    "truncated", "tokens_cached",
]  # fmt: skip
VIM: dict[str, Any] = {
    "id_slot": 0,
    "input_prefix": PREFIX,
    "input_suffix": SUFFIX,
    "input_extra": CHUNKS,
    "prompt": LINE,
    "n_predict": 24,
    "stop": [],
    "n_indent": 4,
    "top_k": 40,
    "top_p": 0.90,
    "stream": False,
    "samplers": ["top_k", "top_p", "infill"],
    "cache_prompt": True,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 0,
    "response_fields": VIM_FIELDS,
}
VIM_READS_ONLY: dict[str, Any] = VIM | {
    "n_predict": 0,
    "samplers": [],
    "t_max_prompt_ms": 1,
    "t_max_predict_ms": 1,
    "response_fields": [""],
}
VSCODE: dict[str, Any] = {
    "input_prefix": PREFIX,
    "input_suffix": SUFFIX,
    "input_extra": CHUNKS,
    "prompt": LINE,
    "n_predict": 24,
    "top_k": 40,
    "top_p": 0.99,
    "stream": False,
    "samplers": ["top_k", "top_p", "infill"],
    "cache_prompt": True,
    "n_indent": 4,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 0,
}
# What the engine is asked for each of them.
ASKED = Request(
    "complete",
    PREFIX + LINE,
    suffix=SUFFIX,
    snippets=(("sub.py", CHUNKS[0]["text"]), ("tmp", CHUNKS[1]["text"])),  # type: ignore[arg-type]
    max_tokens=24,
    top_k=40,
)


@pytest.fixture(scope="module")
def sampling(tiny: Any, models: Path) -> Iterator[LocalServer]:
    """A server whose answers depend on the whole prompt, with Qwen2.5-Coder's marks."""
    model = with_infill(tiny("llama"), models / "marked")
    with serve_model(renamed(model, models / "writer", FILE_MARKS)) as served:
        yield served


@pytest.fixture(scope="module")
def continuing(models: Path) -> Iterator[LocalServer]:
    """A server that repeats ANSWER and a line end. Its marks are Codestral's: prompts end with the
    prefix, which its answers continue."""
    marks = {"À": "[PREFIX]", "Á": "[SUFFIX]"}
    with serve_model(renamed(endless(models / "endless"), models / "codestral", marks)) as served:
        yield served


def post(served: LocalServer, body: dict[str, Any], route: str = "/infill") -> dict[str, Any]:
    with served.http() as http:
        found: dict[str, Any] = http.post(route, json=body).raise_for_status().json()
        return found


# -- templates in /v1/completions --------------------------------------------------------------


def test_marks_count_in_a_prompt_and_nowhere_else(sampling: LocalServer) -> None:
    engine = sampling.engine
    text = "<|fim_prefix|>def add(<|fim_suffix|>return a + b<|fim_middle|>"
    body = {"prompt": text, "max_tokens": 20}
    answer = post(sampling, body, "/v1/completions")
    split = Request("complete", "def add(", suffix="return a + b", max_tokens=20)
    assert answer["choices"][0]["text"] == engine.submit(split, speculation=False).result().text
    assert answer["usage"]["prompt_tokens"] == 3 + sum(
        len(engine.encode(part)) for part in ("def add(", "return a + b")
    )
    plain = post(sampling, body | {"parse_special": False}, "/v1/completions")
    assert plain["usage"]["prompt_tokens"] == len(engine.encode(text))
    suffixed = post(sampling, body | {"suffix": "\n"}, "/v1/completions")
    assert suffixed["usage"]["prompt_tokens"] == len(engine.encode(text) + engine.encode("\n")) + 3
    messages = [{"role": "user", "content": text}]
    chat = post(sampling, {"messages": messages, "max_tokens": 1}, "/v1/chat/completions")
    request = Request("chat", messages=tuple(messages))
    assert chat["usage"]["prompt_tokens"] == len(prompt_of(request, engine.encoder).ids)
    assert chat["usage"]["prompt_tokens"] > len(engine.encode(text))


def test_chat_marks_in_a_prompt_are_text(sampling: LocalServer) -> None:
    text = "<|start|>user\nhi<|end|>\n<|file_sep|>"
    usage = post(sampling, {"prompt": text, "max_tokens": 1}, "/v1/completions")["usage"]
    count = len(sampling.engine.encode("<|start|>user\nhi<|end|>\n"))
    assert usage["prompt_tokens"] == count + 1


def test_marks_of_another_model_are_refused(sampling: LocalServer) -> None:
    body = {"prompt": "<fim_prefix>a<fim_suffix>b<fim_middle>"}
    with sampling.http() as http:
        answer = http.post("/v1/completions", json=body)
        plain = http.post("/v1/completions", json=body | {"parse_special": False})
    message = answer.json()["error"]["message"]
    assert answer.status_code == 400 and plain.status_code == 200
    assert "<fim_prefix>" in message and "<|fim_prefix|>" in message and "parse_special" in message


def test_a_template_is_echoed_as_it_was_sent(sampling: LocalServer) -> None:
    text = "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>"
    body = {"prompt": text, "echo": True, "max_tokens": 0}
    assert post(sampling, body, "/v1/completions")["choices"][0]["text"] == text


# -- /infill -----------------------------------------------------------------------------------


@pytest.mark.parametrize("top_p", [0.90, 0.99])
@pytest.mark.parametrize("client", [VIM, VSCODE], ids=["llama.vim", "llama.vscode"])
def test_a_client_gets_the_model_s_own_text(
    sampling: LocalServer, client: dict[str, Any], top_p: float
) -> None:
    expected = sampling.engine.submit(ASKED, speculation=False).result()
    answer = post(sampling, client | {"top_p": top_p})
    assert answer["content"] == expected.text != ""
    assert answer["truncated"] is False
    assert answer["tokens_cached"] <= expected.usage.prompt_tokens


def test_llama_vim_gets_the_fields_that_it_asks_for(sampling: LocalServer) -> None:
    assert {*post(sampling, VIM)} == {*VIM_FIELDS}
    assert post(sampling, VIM | {"response_fields": ["no", "timings/no", "content/x"]}) == {}


def test_the_whole_answer(sampling: LocalServer) -> None:
    answer = post(sampling, VSCODE)
    expected = sampling.engine.submit(ASKED, speculation=False).result()
    usage = expected.usage
    assert (answer["stop"], answer["index"], answer["model"]) == (True, 0, "writer")
    assert answer["tokens_predicted"] == usage.completion_tokens
    assert answer["tokens_evaluated"] == usage.prompt_tokens
    assert answer["stop_type"] == {"length": "limit", "stop": "eos"}[expected.reason]
    assert answer["has_new_line"] == ("\n" in expected.text)
    timings = answer["timings"]
    assert timings["prompt_n"] + timings["cache_n"] == usage.prompt_tokens
    assert timings["cache_n"] == answer["tokens_cached"]
    assert timings["predicted_n"] == usage.completion_tokens
    assert answer["generation_settings"] == {"n_ctx": sampling.engine.context, "n_predict": 24}


def test_a_request_for_no_text_reads_the_prompt(sampling: LocalServer) -> None:
    """llama.vim sends one when the other files change, so that the next one is fast."""
    new = {"input_extra": [{"filename": "new.py", "text": "unseen = 1\n" * 5}]}
    answer = post(sampling, VIM_READS_ONLY | new | {"response_fields": None})
    assert (answer["content"], answer["tokens_predicted"], answer["stop_type"]) == ("", 0, "limit")
    first = answer["tokens_evaluated"]
    again = post(sampling, VIM | new | {"response_fields": None})
    assert again["tokens_cached"] == first - 1 and again["content"]


def test_a_stream_adds_up_to_the_whole_answer(sampling: LocalServer) -> None:
    with sampling.http() as http:
        stream = http.post("/infill", json=VSCODE | {"stream": True}).raise_for_status()
    assert stream.headers["content-type"].startswith("text/event-stream")
    *chunks, last = parse_events(stream.content + b"data: [DONE]\n\n")
    assert "".join(one["content"] for one in chunks) == post(sampling, VSCODE)["content"]
    assert all(one["stop"] is False for one in chunks) and chunks
    assert (last["content"], last["stop"]) == ("", True) and last["timings"]


def test_stop_strings(continuing: LocalServer) -> None:
    body = {"input_prefix": "xy", "input_suffix": "", "n_predict": 50, "stop": ["m", "p"]}
    answer = post(continuing, body)
    assert answer["content"] == "z\n abcdefghijkl"
    assert (answer["stop_type"], answer["stopping_word"]) == ("word", "m")
    assert post(continuing, body | {"n_predict": 3})["content"] == "z\n "
    assert post(continuing, body | {"n_predict": 3})["stop_type"] == "limit"


def test_a_time_limit_ends_the_answer_after_a_line(continuing: LocalServer) -> None:
    """The answer waits in its 20th step until it is cancelled, which only the limit does."""
    body = {"input_prefix": "xy", "input_suffix": "", "n_predict": 10_000}
    with answers_pause(continuing.engine):
        answer = post(continuing, body | {"t_max_predict_ms": 1e-6})
    whole = f"z\n {ANSWER}" + f"\n {ANSWER}" * 400
    assert whole.startswith(answer["content"]) and "\n" in answer["content"]
    assert (answer["stop_type"], answer["tokens_predicted"]) == ("limit", len(answer["content"]))
    assert answer["tokens_predicted"] < 10_000


@pytest.mark.parametrize("limit", [1e-6, 0, -1])
def test_a_time_limit_waits_for_a_whole_line(continuing: LocalServer, limit: float) -> None:
    body = {"input_prefix": "a", "input_suffix": "", "n_predict": 20, "t_max_predict_ms": limit}
    assert post(continuing, body)["content"] == ANSWER[1:21]


def test_sampling_options(sampling: LocalServer) -> None:
    def text(**options: Any) -> str:
        return str(post(sampling, VSCODE | options)["content"])

    assert text(temperature=1.5, seed=5) == text(temperature=1.5, seed=5)
    assert text(temperature=1.5, seed=5) != text(temperature=1.5, seed=6)
    assert len({text(temperature=1.5, seed=-1) for _ in range(5)}) > 1
    assert text(temperature=1.5, top_k=1, seed=3) == text(temperature=0) == text(top_k=-1)


def test_bad_requests(sampling: LocalServer, models: Path) -> None:
    def error(served: LocalServer, **changes: Any) -> tuple[int, str]:
        with served.http() as http:
            answer = http.post("/infill", json=VSCODE | changes)
        return answer.status_code, answer.json()["error"]["param"] or ""

    assert error(sampling, input_prefix=None) == (400, "input_prefix")
    assert error(sampling, input_extra=[{"filename": "a"}]) == (400, "input_extra.0.text")
    assert error(sampling, input_extra=[{"text": 1}]) == (400, "input_extra.0.text")
    assert error(sampling, n_predict=-2) == (400, "n_predict")
    assert error(sampling, model="other") == (404, "model")
    assert error(sampling, stop=["a"] * 65) == (400, "stop")
    with serve_model(reciter(models / "unmarked")) as unmarked:
        assert error(unmarked) == (400, "input_suffix")


TEXTS = st.tuples(
    st.sampled_from(["x = 1\n", "def f(x):\r\n", "no end ", "é😋\n"]), st.integers(0, 300)
).map(lambda pair: pair[0] * pair[1])


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    TEXTS,
    TEXTS,
    TEXTS,
    st.lists(TEXTS, max_size=4),
    st.sampled_from([-1, 0, 1, 100, 2**53 - 1]),
)
def test_every_prompt_fits(
    sampling: LocalServer, prefix: str, line: str, suffix: str, chunks: list[str], n_predict: int
) -> None:
    """The text next to the cursor and the newest chunks are kept; where all fit, all are."""
    engine = sampling.engine
    body = InfillRequest.model_validate({
        "input_prefix": prefix,
        "prompt": line,
        "input_suffix": suffix,
        "input_extra": [{"text": one, "filename": f"{n}.py"} for n, one in enumerate(chunks)],
        "n_predict": n_predict,
    })  # fmt: skip
    asked = Infill(body, engine, "writer")
    request = asked.request()
    ids = prompt_of(request, engine.encoder, engine.context).ids
    room = engine.context - min(asked.max_tokens, engine.context // 2)
    assert len(ids) <= room
    assert (prefix + line).endswith(request.text)
    assert suffix.startswith(request.suffix or "")
    named = [(f"{n}.py", one) for n, one in enumerate(chunks)]
    assert [*request.snippets] == named[len(named) - len(request.snippets) :]
    parts = [prefix + line, suffix, *(f"{name}\n{text}\n" for name, text in named)]
    sizes = [len(engine.encode(part)) + 1 for part in parts]
    if sum(sizes) <= room - 32 and sizes[0] <= room // 2 and sizes[1] <= room // 8:
        assert not asked.truncated
    whole = (request.text, request.suffix, len(request.snippets))
    assert asked.truncated == (whole != (prefix + line, suffix, len(chunks)))
