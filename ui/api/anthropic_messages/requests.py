"""Translates the bodies of /v1/messages to those of /v1/chat/completions. Pure functions.

Text blocks of a message are one text, as if they were one block.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from ui.api import schemas as types
from ui.api.anthropic_messages.schemas import (
    AssistantMessage,
    Message,
    MessagesRequest,
    NamedToolChoice,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from ui.api.errors import ApiError
from ui.api.parameters import json_format


def chat_of(body: MessagesRequest) -> types.ChatRequest:
    """Return the conversation as a request of /v1/chat/completions. Raises ApiError.

    The answer goes on with a last message of the assistant.
    """
    system = text_of(body.system)
    begun = [types.Message(role="system", content=system)] if system else []
    choice = body.tool_choice
    form = body.output_config.format if body.output_config else None
    thinks = body.thinking is None or body.thinking.type != "disabled"
    # Validated already: by the other schema, whose limits may be others.
    return types.ChatRequest.model_construct(
        messages=[*begun, *(turn for message in body.messages for turn in turns_of(message))],
        model=body.model,
        max_tokens=body.max_tokens,
        stop=body.stop_sequences,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        continue_final_message=body.messages[-1].role == "assistant",
        seed=body.seed,
        tools=tools_of(body),
        tool_choice=choice_of(body),
        parallel_tool_calls=not (choice and choice.disable_parallel_tool_use),
        reasoning_effort=None if thinks else "none",
        response_format=form and json_format(form.schema_),
        user=body.metadata.user_id if body.metadata else None,
    )


def turns_of(message: Message) -> Iterator[types.Message]:
    """Yield a message as the turns of a chat: results of tools are turns of their own."""
    if isinstance(message.content, str):
        yield types.Message(role=message.role, content=message.content)
        return
    text = text_of(message.content)
    if isinstance(message, UserMessage):
        results = [block for block in message.content if isinstance(block, ToolResultBlock)]
        for result in results:
            content = ("Error: " if result.is_error else "") + text_of(result.content)
            yield types.Message(role="tool", content=content, tool_call_id=result.tool_use_id)
        if text or not results:
            yield types.Message(role="user", content=text)
    elif isinstance(message, AssistantMessage):
        calls = [call_of(block) for block in message.content if isinstance(block, ToolUseBlock)]
        yield types.Message.model_construct(
            role="assistant", content=text, tool_calls=calls or None
        )
    else:
        yield types.Message(role="system", content=text)


def text_of(content: str | Iterable[object] | None) -> str:
    """Return the text of a message, whose text blocks are joined."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(block.text for block in content if isinstance(block, TextBlock))


def call_of(block: ToolUseBlock) -> types.ToolCall:
    try:
        arguments = json.dumps(block.input, ensure_ascii=False)
    except RecursionError:
        message = "messages: the input of a tool is nested too deeply: send a flatter one"
        raise ApiError(400, message, "messages") from None
    function = types.CalledFunction.model_construct(name=block.name, arguments=arguments)
    return types.ToolCall(id=block.id, function=function)


def tools_of(body: MessagesRequest) -> Sequence[types.ToolDefinition]:
    return [
        types.ToolDefinition(
            type="function",
            function=types.Function(
                name=tool.name, description=tool.description, parameters=tool.input_schema
            ),
        )
        for tool in body.tools or ()
    ]


def choice_of(
    body: MessagesRequest,
) -> Literal["none", "auto", "required"] | types.NamedTool:
    choice = body.tool_choice
    if isinstance(choice, NamedToolChoice):
        return types.named_tool(choice.name)
    if choice is None or choice.type == "auto":
        return "auto"
    return "required" if choice.type == "any" else "none"
