"""Translates the bodies of /v1/responses to those of /v1/chat/completions. Pure functions.

The parts of a message are one text, as if they were one part.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ui.api import schemas as types
from ui.api.errors import ApiError
from ui.api.openai_responses.schemas import (
    FunctionCallItem,
    FunctionOutputItem,
    FunctionTool,
    MessageItem,
    ReasoningItem,
    ResponsesJsonSchemaFormat,
    ResponsesNamedTool,
    ResponsesRequest,
    TextContent,
)
from ui.api.parameters import ResponseFormat, json_format

log = logging.getLogger(__name__)


def chat_of(body: ResponsesRequest) -> types.ChatRequest:
    """Return the conversation as a request of /v1/chat/completions. Raises ApiError."""
    messages = messages_of(body)
    if not messages:
        raise ApiError(400, "input: there is no message in it: send one at least", "input")
    choice: Any = body.tool_choice
    if isinstance(choice, ResponsesNamedTool):
        choice = types.named_tool(choice.name)
    effort = body.reasoning.effort if body.reasoning else None
    # Validated already: by the other schema, whose limits may be others.
    return types.ChatRequest.model_construct(
        messages=messages,
        model=body.model,
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        seed=body.seed,
        tools=tools_of(body),
        tool_choice=choice,
        parallel_tool_calls=body.parallel_tool_calls,
        reasoning_effort="none" if effort in ("none", "minimal") else None,
        response_format=format_of(body),
        user=body.user,
        safety_identifier=body.safety_identifier,
    )


def messages_of(body: ResponsesRequest) -> list[types.Message]:
    """Return the turns of the conversation. Calls belong to the assistant's message before them."""
    found: list[types.Message] = []
    if body.instructions:
        found.append(types.Message(role="system", content=body.instructions))
    if isinstance(body.input, str):
        return [*found, types.Message(role="user", content=body.input)]
    calls: list[types.ToolCall] | None = None  # the last turn's calls, an assistant's
    for item in body.input:
        if isinstance(item, FunctionCallItem):
            if calls is None:
                calls = []
                found.append(types.Message.model_construct(role="assistant", tool_calls=calls))
            calls.append(call_of(item))
        elif isinstance(item, FunctionOutputItem):
            calls, content = None, text_of(item.output)
            found.append(types.Message(role="tool", content=content, tool_call_id=item.call_id))
        elif isinstance(item, MessageItem):
            calls = [] if item.role == "assistant" else None
            found.append(
                types.Message.model_construct(
                    role=item.role, content=text_of(item.content), tool_calls=calls
                )
            )
        else:
            assert isinstance(item, ReasoningItem)
    return found


def text_of(content: str | Sequence[TextContent]) -> str:
    """Return the text of a message, whose parts are joined."""
    return content if isinstance(content, str) else "".join(part.text for part in content)


def call_of(item: FunctionCallItem) -> types.ToolCall:
    function = types.CalledFunction(name=item.name, arguments=item.arguments)
    return types.ToolCall(id=item.call_id, function=function)


def functions_of(body: ResponsesRequest) -> list[FunctionTool]:
    """Return the tools that are functions of the client."""
    return [tool for tool in body.tools or () if isinstance(tool, FunctionTool)]


def tools_of(body: ResponsesRequest) -> list[types.ToolDefinition]:
    """Return the client's functions.

    Tools that only a server of OpenAI can run are left out, because agents always send some.
    """
    functions = functions_of(body)
    if left := len(body.tools or ()) - len(functions):
        log.info("/v1/responses: %d tools that are no functions are left out", left)
    return [
        types.ToolDefinition(
            type="function",
            function=types.Function(
                name=tool.name, description=tool.description, parameters=tool.parameters
            ),
        )
        for tool in functions
    ]


def format_of(body: ResponsesRequest) -> ResponseFormat | None:
    form = body.text.format if body.text else None
    return json_format(form.schema_) if isinstance(form, ResponsesJsonSchemaFormat) else form
