"""Translating request bodies into engine requests, and engine events into responses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.records import Done, Piece, Step, Usage
from ui.api.errors import describe_validation_errors
from ui.api.requests import NO_LIMIT, chat_request, code_first, completion_request
from ui.api.responses import ResponseBuilder, event_of, timings, tokens_from_prediction
from ui.api.schemas import ChatRequest, CompletionRequest

TEXTS = st.lists(
    st.lists(
        st.sampled_from(["```", "~~~python", "  ```", "x = 1", "`", "a ``` b", "é", "", "\t"]),
        max_size=6,
    ).map("\n".join),
    max_size=4,
)


@given(TEXTS)
def test_predictions_are_the_whole_prompt_with_the_newest_code_first(texts: list[str]) -> None:
    """The prediction begins at the first fence, and no text is lost or duplicated. The reference
    implementation works line by line."""
    predictions = code_first(texts)
    fences = [
        (number, line)
        for number, text in enumerate(texts)
        for line, content in enumerate(text.split("\n"))
        if content.strip(" \t").startswith(("```", "~~~"))
    ]
    if not fences:
        assert predictions == (), "without code there is no prediction"
        return
    number, line = fences[0]
    lines = texts[number].split("\n")
    assert predictions[0] == "\n".join(lines[line:])
    before = "".join(f"{content}\n" for content in lines[:line])
    others = [text for index, text in enumerate(texts) if index != number]
    assert predictions[1:] == tuple(text for text in (before, *others) if text)


@pytest.mark.parametrize("text", ["`" * 1_000_000, " " * 1_000_000, "\n \t" * 300_000])
def test_finding_code_takes_linear_time(text: str) -> None:
    assert code_first([text, "a\n```py\nx"])[0] in (text, "```py\nx")


def chat(**fields: Any) -> ChatRequest:
    return ChatRequest.model_validate({"messages": [{"role": "user", "content": "x"}]} | fields)


def test_the_newest_block_comes_first() -> None:
    old, new = "first\n```\na\n```\nthen", "look:\n~~~\nb\n~~~"
    messages = [{"role": "user", "content": text} for text in (old, new, "go on")]
    expected = ("~~~\nb\n~~~", "look:\n", "go on", old)
    assert chat_request(chat(messages=messages)).predictions == expected
    assert chat_request(chat()).predictions == ()
    body = CompletionRequest(prompt=old)
    assert completion_request(body).predictions == ("```\na\n```\nthen", "first\n")
    parts = [{"type": "text", "text": text} for text in ("a", "\n", "b")]
    for content in ("a\nb", parts):
        body = chat(messages=messages, prediction={"type": "content", "content": content})
        assert chat_request(body).predictions == ("a\nb",), (
            "the client's prediction replaces the derived one"
        )


@given(st.integers(0, 99), st.integers(0, 99))
def test_max_completion_tokens_supersedes_max_tokens(old: int, new: int) -> None:
    assert chat_request(chat(max_tokens=old)).max_tokens == old
    assert chat_request(chat(max_tokens=old, max_completion_tokens=new)).max_tokens == new
    assert chat_request(chat()).max_tokens is None  # the rest of the context
    assert chat_request(chat(n_predict=new)).max_tokens == max(new, 1)  # llama.vim's
    assert chat_request(chat(n_predict=-1)).max_tokens is None
    assert chat_request(chat(max_tokens=old, n_predict=new)).max_tokens == old
    body = {"prompt": "x"}
    assert completion_request(CompletionRequest.model_validate(body)).max_tokens == NO_LIMIT


@given(st.floats(0, 2), st.floats(0, 1), st.none() | st.integers(0, 9))
def test_valid_sampling_options_are_valid_for_the_engine(
    temperature: float, top_p: float, top_k: int | None
) -> None:
    request = chat_request(chat(temperature=temperature, top_p=top_p, top_k=top_k))
    assert request.temperature == (temperature if temperature >= 1e-6 else 0)
    assert 0 < request.top_p <= 1 and abs(request.top_p - top_p) <= 1e-9


@given(st.text())
def test_events_are_ascii_without_line_breaks(text: str) -> None:
    builder = ResponseBuilder(True, "model", "print", encode=lambda text: [])
    event = event_of(builder.chunk(text))
    assert event.isascii() and event.startswith(b"data: ") and event.endswith(b"\n\n")
    assert len(event.decode().splitlines()) == 2
    assert json.loads(event[6:])["choices"][0]["delta"] == {"content": text}


def encode_words(text: str) -> list[int]:
    return [len(word) for word in text.split()]


@pytest.mark.parametrize(
    ("pieces", "accepted", "counted"),
    [
        ((Piece("a b c", "prediction"), Piece("d", "model")), 3, 3),
        ((Piece("a b", "prediction"), Piece("c", "context"), Piece("d", "model")), 3, 2),
        ((Piece("a b", "context"), Piece("d", "model")), 2, 0),
        ((Piece("d", "model"),), 0, 0),
        ((), 2, 2),  # all text may be held back as the start of a stop string
    ],
)
def test_tokens_from_the_prediction(pieces: Any, accepted: int, counted: int) -> None:
    step = Step(pieces, drafted=9, accepted=accepted)
    assert tokens_from_prediction(step, encode_words) == counted


@given(st.integers(0, 50), st.lists(st.text("ab ", max_size=5), max_size=9))
def test_prediction_tokens_are_accepted_or_rejected(copied: int, parts: list[str]) -> None:
    prediction = " ".join(parts)
    builder = ResponseBuilder(
        True, "model", "print", encode_words, prediction, accepted_prediction_tokens=copied
    )
    details = builder.usage(Usage(prompt_tokens=3, completion_tokens=60)).completion_tokens_details
    total = details.accepted_prediction_tokens + details.rejected_prediction_tokens
    assert (
        total == len(encode_words(prediction)) and 0 <= details.accepted_prediction_tokens <= copied
    )


def test_timings_add_up() -> None:
    usage = Usage(10, 0, 20, 5, 30, 15, prefill_seconds=1.0, decode_seconds=2.0)
    result = timings(Done("stop", usage=usage).usage, 3.5)
    assert (result.waited, result.reading, result.writing) == (0.5, 1.0, 2.0)
    assert result.tokens_per_second == 10.0
    assert timings(Usage(), 0.0).tokens_per_second == 0.0


def test_an_error_names_the_field_without_its_python_types() -> None:
    with pytest.raises(ValueError) as caught:
        chat(stop=["a"] * 65)
    errors = [error | {"loc": ("body", *error["loc"])} for error in caught.value.errors()]  # type: ignore[attr-defined]
    message, param = describe_validation_errors(errors)
    assert param == "stop" and message.startswith("stop: must be a string, or a list of up to 64")
