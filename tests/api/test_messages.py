"""/v1/messages, Anthropic's protocol: what is its own."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api.conftest import MAX_BODY_BYTES
from tests.support.conversations import (
    SCHEMA,
    TEXTS,
    Conversation,
    conversations,
    messages_body,
)
from tests.support.protocols import AS_MESSAGES, MESSAGES, anthropic_error
from tests.support.server import ANSWER, HELLO, TIMEOUT_S, LocalServer
from ui.api.anthropic_messages.requests import chat_of
from ui.api.anthropic_messages.schemas import MessagesRequest

COUNT = f"{MESSAGES}/count_tokens"
TOOL: Any = {"name": "read", "description": "reads a file", "input_schema": SCHEMA}


def client(served: LocalServer) -> anthropic.Anthropic:
    """Anthropic's client, without retries."""
    return anthropic.Anthropic(
        base_url=served.url,
        api_key="none",
        max_retries=0,
        timeout=TIMEOUT_S,
        http_client=anthropic.DefaultHttpxClient(trust_env=False, verify=False),
    )


# -- blocks ------------------------------------------------------------------------------------


def cut(draw: st.DrawFn, text: str) -> Any:
    """A text as it is, or cut into blocks."""
    if draw(st.booleans()):
        return text
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    parts = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    cached = {"cache_control": {"type": "ephemeral"}} if draw(st.booleans()) else {}
    return [{"type": "text", "text": part} | cached for part in parts]


@given(st.data(), conversations())
def test_any_split_into_blocks_gives_the_same_prompt(
    data: st.DataObject, talk: Conversation
) -> None:
    """Also with reasoning of earlier turns between them."""

    @st.composite
    def split(draw: st.DrawFn) -> dict[str, Any]:
        body = json.loads(json.dumps(messages_body(talk)))
        body["system"] = cut(draw, body["system"])
        for message in body["messages"]:
            if isinstance(message["content"], str):
                message["content"] = cut(draw, message["content"])
            elif message["role"] == "assistant":
                text, *uses = message["content"]
                blocks = cut(draw, text["text"])
                blocks = [text] if isinstance(blocks, str) else blocks
                thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
                message["content"] = [thought, *blocks, *uses]
            else:
                for result in message["content"]:
                    result["content"] = cut(draw, result["content"])
        return body

    body = data.draw(split())
    whole = MessagesRequest.model_validate(messages_body(talk))
    assert chat_of(MessagesRequest.model_validate(body)) == chat_of(whole)


@given(TEXTS.filter(bool), TEXTS, st.booleans())
def test_results_come_before_the_text_beside_them(text: str, result: str, failed: bool) -> None:
    """The model reads that a tool has failed."""
    blocks = [
        {"type": "text", "text": text},
        {"type": "tool_result", "tool_use_id": "a", "content": result, "is_error": failed},
    ]
    expected = [("tool", f"Error: {result}" if failed else result), ("user", text)]
    for content in (blocks, blocks[::-1]):
        body = {"messages": [{"role": "user", "content": content}]}
        messages = chat_of(MessagesRequest.model_validate(body)).messages
        assert [(one.role, one.content) for one in messages] == expected


# -- Anthropic's client ------------------------------------------------------------------------


def test_the_client_reads_answers_and_streams(reciting: LocalServer) -> None:
    create = client(reciting).messages
    asked: Any = {"model": "other-name", "messages": HELLO, "max_tokens": 99}
    message = create.create(**asked)
    assert (message.type, message.role, message.model) == ("message", "assistant", "other-name")
    (block,) = message.content
    assert block.type == "text" and block.text == ANSWER
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.output_tokens == len(ANSWER)
    with create.stream(**asked) as stream:
        assert "".join(stream.text_stream) == ANSWER
        final = stream.get_final_message()
    assert final.content[0].to_dict()["text"] == ANSWER and final.stop_reason == "end_turn"
    assert final.usage.output_tokens == len(ANSWER)
    assert final.usage.cache_read_input_tokens == len("user: hi\n\nassistant: ") - 1
    count = create.count_tokens(model="other-name", messages=HELLO)
    assert count.input_tokens == len("user: hi\n\nassistant: ")  # one token per character


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "read"}])
@pytest.mark.parametrize("streamed", [True, False])
def test_the_client_calls_tools(reciting: LocalServer, choice: Any, streamed: bool) -> None:
    create = client(reciting).messages
    asked: Any = {"model": "reciter", "messages": HELLO, "max_tokens": 200}
    asked |= {"tools": [TOOL], "tool_choice": choice}
    if streamed:
        with create.stream(**asked) as stream:
            message = stream.get_final_message()
    else:
        message = create.create(**asked)
    (block,) = message.content
    assert block.type == "tool_use" and (block.name, block.input) == ("read", {"path": "a.py"})
    assert message.stop_reason == "tool_use" and block.id.startswith("toolu_")
    result = {"type": "tool_result", "tool_use_id": block.id, "content": "x = 1"}
    more = [message.to_param(), {"role": "user", "content": [result]}]
    answer = create.create(**asked | {"messages": [*HELLO, *more], "tool_choice": {"type": "none"}})
    assert all(one.type == "text" for one in answer.content)


# -- options -----------------------------------------------------------------------------------


def test_reasons_to_stop(reciting: LocalServer) -> None:
    def stopped(**options: Any) -> tuple[str, Any, Any]:
        with reciting.http() as http:
            message = http.post(MESSAGES, json={"messages": HELLO} | options).json()
        assert AS_MESSAGES.stream(reciting, **options) == AS_MESSAGES.read(message)
        return AS_MESSAGES.read(message).text, message["stop_reason"], message["stop_sequence"]

    assert stopped() == (ANSWER, "end_turn", None)
    assert stopped(max_tokens=5) == (ANSWER[:5], "max_tokens", None)
    assert stopped(stop_sequences=["zz", "m"]) == (ANSWER[:12], "stop_sequence", "m")
    assert stopped(max_tokens=0) == ("", "max_tokens", None)


# -- errors ------------------------------------------------------------------------------------


def test_deep_inputs_are_answered_or_refused(reciting: LocalServer) -> None:
    with reciting.http() as http:
        for depth in (100, 500, 900, 950, 990, 1500):
            value = '{"a":' * depth + "1" + "}" * depth
            use = f'{{"type":"tool_use","id":"a","name":"read","input":{value}}}'
            result = '{"type":"tool_result","tool_use_id":"a"}'
            turns = (
                f'{{"role":"assistant","content":[{use}]}},{{"role":"user","content":[{result}]}}'
            )
            headers = {"content-type": "application/json"}
            answer = http.post(MESSAGES, content=f'{{"messages":[{turns}]}}', headers=headers)
            if answer.status_code != 200:
                anthropic_error(answer, 400)


def test_a_prompt_that_is_too_long_is_called_so(reciting: LocalServer) -> None:
    create = client(reciting).messages.create
    long: Any = [{"role": "user", "content": "x" * 5000}]
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: .* context is 2048"):
        create(model="reciter", messages=long, max_tokens=1)
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client(reciting).messages.count_tokens(model="reciter", messages=long)


def test_every_error_below_the_path_has_this_form(reciting: LocalServer) -> None:
    with reciting.http() as http:
        anthropic_error(http.get(MESSAGES), 405)
        anthropic_error(http.post(f"{MESSAGES}/batches", json={}), 404)
        anthropic_error(http.post(MESSAGES, json={"messages": "x" * MAX_BODY_BYTES}), 413)
        anthropic_error(http.post(MESSAGES, json={}, headers={"host": "evil.com"}), 400)
        anthropic_error(http.post(COUNT, json={}, headers={"origin": "http://evil.com"}), 403)
        assert "param" in http.get(f"{MESSAGES}x").json()["error"]
