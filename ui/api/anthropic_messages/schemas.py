"""Request and response bodies of Anthropic's protocol: the part that Draftline supports.

Unknown fields are ignored, `cache_control` among them: prompts are always cached. `seed` is an
extension.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from ui.api.fields import (
    MAX_MESSAGES,
    MAX_TOOLS,
    Count,
    FunctionNameText,
    JsonObject,
    Limit,
    NotTooMany,
    Seed,
    StopList,
    Text,
    only_types,
)
from ui.api.parameters import RequestModel

BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result")
SupportedBlock = BeforeValidator(
    only_types(
        BLOCKS, "images, documents and blocks of hosted tools are not supported: leave them out"
    )
)
CustomTool = BeforeValidator(
    only_types(("custom",), "only tools with an input_schema are supported: leave others out")
)


class TextBlock(RequestModel):
    type: Literal["text"]
    text: Text


class ThinkingBlock(RequestModel):
    """Reasoning of an earlier turn, which the model does not read again."""

    type: Literal["thinking", "redacted_thinking"]


class ToolUseBlock(RequestModel):
    """A call of an earlier turn."""

    type: Literal["tool_use"]
    id: Text
    name: Text
    input: JsonObject


TextBlocks = Annotated[
    list[Annotated[TextBlock, SupportedBlock]],
    Field(max_length=MAX_MESSAGES, fail_fast=True),
    NotTooMany,
]


class ToolResultBlock(RequestModel):
    type: Literal["tool_result"]
    tool_use_id: Text
    content: Text | TextBlocks | None = None
    is_error: bool | None = None  # the model reads "Error: " before the content


UserBlock = Annotated[TextBlock | ToolResultBlock, Field(discriminator="type"), SupportedBlock]
AssistantBlock = Annotated[
    TextBlock | ThinkingBlock | ToolUseBlock, Field(discriminator="type"), SupportedBlock
]


class SystemMessage(RequestModel):
    role: Literal["system"]
    content: Text | TextBlocks


class UserMessage(RequestModel):
    role: Literal["user"]
    content: (
        Text
        | Annotated[list[UserBlock], Field(max_length=MAX_MESSAGES, fail_fast=True), NotTooMany]
    )


class AssistantMessage(RequestModel):
    role: Literal["assistant"]
    content: (
        Text
        | Annotated[
            list[AssistantBlock], Field(max_length=MAX_MESSAGES, fail_fast=True), NotTooMany
        ]
    )


Message = Annotated[UserMessage | AssistantMessage | SystemMessage, Field(discriminator="role")]


class MessagesTool(RequestModel):
    type: Literal["custom"] | None = None
    name: FunctionNameText
    description: Text | None = None
    input_schema: JsonObject


class ToolChoice(RequestModel):
    type: Literal["auto", "any", "none"]
    disable_parallel_tool_use: bool | None = None


class NamedToolChoice(RequestModel):
    type: Literal["tool"]
    name: Text
    disable_parallel_tool_use: bool | None = None


class Thinking(RequestModel):
    """`disabled` asks for an answer without reasoning; all else leaves it to the model."""

    type: Text


class JsonOutputFormat(RequestModel):
    """The answer is JSON that fits a schema."""

    type: Literal["json_schema"]
    schema_: Annotated[JsonObject, Field(alias="schema")]


class OutputConfig(RequestModel):
    format: JsonOutputFormat | None = None


class Metadata(RequestModel):
    user_id: Text | None = None


class MessagesRequest(RequestModel):
    """The body of /v1/messages, and of /v1/messages/count_tokens."""

    messages: Annotated[
        list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True), NotTooMany
    ]
    model: Text | None = None  # None: the served one
    max_tokens: Count | None = None
    system: Text | TextBlocks | None = None
    tools: (
        Annotated[
            list[Annotated[MessagesTool, CustomTool]], Field(max_length=MAX_TOOLS, fail_fast=True)
        ]
        | None
    ) = None
    tool_choice: Annotated[ToolChoice | NamedToolChoice, Field(discriminator="type")] | None = None
    stop_sequences: StopList | None = None
    stream: bool | None = False
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None  # None, 0: greedy
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Limit | None = None
    seed: Seed | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    metadata: Metadata | None = None


# -- responses ---------------------------------------------------------------------------------


class AnswerThinking(BaseModel):
    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str = ""


class AnswerText(BaseModel):
    type: Literal["text"] = "text"
    text: str


class AnswerToolUse(BaseModel):
    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]


AnswerBlock = AnswerThinking | AnswerText | AnswerToolUse


class MessagesUsage(BaseModel):
    """Token counts. The prompt has `input_tokens` and `cache_read_input_tokens` together."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class MessageAnswer(BaseModel):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[AnswerBlock] = []
    stop_reason: StopReason | None = None  # None at the start of a stream
    stop_sequence: str | None = None
    usage: MessagesUsage = MessagesUsage()


class TokenCount(BaseModel):
    input_tokens: int


class MessagesErrorBody(BaseModel):
    type: str
    message: str


class MessagesError(BaseModel):
    type: Literal["error"] = "error"
    error: MessagesErrorBody
