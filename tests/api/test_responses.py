"""/v1/responses, the stateless part of OpenAI's protocol: what is its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.conversations import SCHEMA, Conversation, conversations, responses_body
from tests.support.server import ANSWER, HELLO, LocalServer
from ui.api.openai_responses.requests import chat_of
from ui.api.openai_responses.schemas import ResponsesRequest
from ui.api.requests import chat_request

TOOL: Any = {"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}


# -- items -------------------------------------------------------------------------------------


@given(st.data(), conversations())
def test_any_split_into_parts_gives_the_same_prompt(
    data: st.DataObject, talk: Conversation
) -> None:
    """Also with reasoning of earlier turns between the items."""

    @st.composite
    def split(draw: st.DrawFn) -> dict[str, Any]:
        body = responses_body(talk)
        items = []
        for item in body["input"]:
            key = "output" if item.get("type") == "function_call_output" else "content"
            if key in item and draw(st.booleans()):
                at = draw(st.integers(0, len(item[key])))
                kind = "output_text" if item.get("role") == "assistant" else "input_text"
                parts = [{"type": kind, "text": one} for one in (item[key][:at], item[key][at:])]
                item = item | {key: parts}
            if draw(st.booleans()):
                items.append({"type": "reasoning", "id": "rs_1", "summary": []})
            if "role" in item and draw(st.booleans()):
                item = {"type": "message", "id": "msg_1", "status": "completed"} | item
            items.append(item)
        return body | {"input": items}

    body = data.draw(split())
    whole = ResponsesRequest.model_validate(responses_body(talk))
    assert chat_of(ResponsesRequest.model_validate(body)) == chat_of(whole)


def test_a_text_is_the_user_s_message() -> None:
    text = ResponsesRequest.model_validate({"input": "hi", "instructions": "be brief"})
    items = ResponsesRequest.model_validate(
        {"input": [{"role": "developer", "content": "be brief"}, *HELLO]}
    )
    assert chat_request(chat_of(text)) == chat_request(chat_of(items))


# -- OpenAI's client ---------------------------------------------------------------------------


def test_the_client_reads_responses_and_streams(reciting: LocalServer) -> None:
    create = reciting.client().responses
    response = create.create(model="other-name", input="hi")
    assert (response.output_text, response.status) == (ANSWER, "completed")
    assert (response.object, response.model) == ("response", "other-name")
    assert response.usage and response.usage.output_tokens == len(ANSWER)
    with create.stream(model="other-name", input="hi") as stream:
        texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(texts) == final.output_text == ANSWER
    assert final.usage and final.usage.input_tokens == len("user: hi\n\nassistant: ")
    assert final.usage.input_tokens_details.cached_tokens == final.usage.input_tokens - 1
    limited = create.create(model="other-name", input="hi", max_output_tokens=5)
    assert (limited.output_text, limited.status) == (ANSWER[:5], "incomplete")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "read"}])
@pytest.mark.parametrize("streamed", [True, False])
def test_the_client_calls_functions(reciting: LocalServer, choice: Any, streamed: bool) -> None:
    create = reciting.client().responses
    asked: Any = {"model": "reciter", "input": HELLO, "tools": [TOOL], "tool_choice": choice}
    if streamed:
        with create.stream(**asked) as stream:
            response = stream.get_final_response()
    else:
        response = create.create(**asked)
    (call,) = response.output
    assert call.type == "function_call" and call.name == "read"
    assert json.loads(call.arguments) == {"path": "a.py"} and call.call_id
    assert response.tools[0].to_dict()["name"] == "read"
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "x = 1"}
    more = asked | {"input": [*HELLO, call.to_dict(), output], "tool_choice": "none"}
    assert all(item.type == "message" for item in create.create(**more).output)
