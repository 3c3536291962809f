"""Request and response bodies of OpenAI's protocol of responses: the part that Draftline supports.

Responses are not stored. Unknown fields are ignored; `seed` is an extension.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from ui.api.fields import (
    MAX_MESSAGES,
    MAX_TOOLS,
    Count,
    FunctionNameText,
    JsonObject,
    NotTooMany,
    Only,
    Seed,
    Text,
    only_types,
)
from ui.api.parameters import JsonObjectFormat, RequestModel, TextFormat
from ui.api.schemas import ErrorBody

NO_STATE = "responses are not stored: send the whole conversation as `input`"
ITEMS = ("message", "function_call", "function_call_output", "reasoning")
SupportedItem = BeforeValidator(
    only_types(
        ITEMS, "only messages, calls of functions and their outputs are supported: leave others out"
    )
)
SupportedContent = BeforeValidator(
    only_types(
        ("input_text", "output_text", "text"),
        "only text is supported: leave images and files out",
    )
)


def refuse_state(value: Any) -> Any:
    if value is not None:
        raise PydanticCustomError("unsupported", NO_STATE)
    return value


def message_by_default(item: Any) -> Any:
    """Make an item without a type a message."""
    return {"type": "message"} | item if isinstance(item, dict) else item


def kind_of_tool(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    return "function" if kind == "function" else "other"


NoState = Annotated[None, BeforeValidator(refuse_state)]


class TextContent(RequestModel):
    type: Literal["input_text", "output_text", "text"]
    text: Text


TextContents = Annotated[
    list[Annotated[TextContent, SupportedContent]],
    Field(max_length=MAX_MESSAGES, fail_fast=True),
    NotTooMany,
]


class MessageItem(RequestModel):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Text | TextContents


class FunctionCallItem(RequestModel):
    """A call of an earlier turn."""

    type: Literal["function_call"]
    call_id: Text
    name: Text
    arguments: Text  # a JSON object


class FunctionOutputItem(RequestModel):
    type: Literal["function_call_output"]
    call_id: Text
    output: Text | TextContents


class ReasoningItem(RequestModel):
    """Reasoning of an earlier turn, which the model does not read again."""

    type: Literal["reasoning"]


Item = Annotated[
    MessageItem | FunctionCallItem | FunctionOutputItem | ReasoningItem,
    Field(discriminator="type"),
    SupportedItem,
    BeforeValidator(message_by_default),
]


class FunctionTool(RequestModel):
    type: Literal["function"]
    name: FunctionNameText
    description: Text | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class OtherTool(RequestModel):
    """A tool that a server of OpenAI runs, and this one leaves out."""

    type: Text


Tool = Annotated[
    Annotated[FunctionTool, Tag("function")] | Annotated[OtherTool, Tag("other")],
    Discriminator(kind_of_tool),
]


class ResponsesNamedTool(RequestModel):
    type: Literal["function"]
    name: Text


class ResponsesJsonSchemaFormat(RequestModel):
    """The answer is JSON that fits a schema."""

    type: Literal["json_schema"]
    name: Text
    schema_: Annotated[JsonObject, Field(alias="schema")]


class TextConfig(RequestModel):
    format: (
        Annotated[
            TextFormat | JsonObjectFormat | ResponsesJsonSchemaFormat, Field(discriminator="type")
        ]
        | None
    ) = None


class Reasoning(RequestModel):
    """`none` and `minimal` ask for an answer without reasoning; all else leaves it to the model."""

    effort: Text | None = None


class ResponsesRequest(RequestModel):
    """The body of /v1/responses."""

    input: (
        Text
        | Annotated[
            list[Item], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True), NotTooMany
        ]
    )
    instructions: Text | None = None
    model: Text | None = None  # None: the served one
    max_output_tokens: Count | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ResponsesNamedTool | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    stream: bool | None = False
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None  # None, 0: greedy
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Seed | None = None
    user: Text | None = None
    safety_identifier: Text | None = None
    previous_response_id: NoState = None
    conversation: NoState = None
    prompt: NoState = None
    background: Annotated[Any, Only(False)] = None
    top_logprobs: Annotated[Any, Only(0)] = None


# -- responses ---------------------------------------------------------------------------------

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class OutputText(BaseModel):
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = []
    logprobs: list[Any] = []


class ReasoningText(BaseModel):
    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class AnswerMessage(BaseModel):
    type: Literal["message"] = "message"
    id: str
    role: Literal["assistant"] = "assistant"
    status: Status = "in_progress"
    content: list[OutputText] = []


class AnswerReasoning(BaseModel):
    type: Literal["reasoning"] = "reasoning"
    id: str
    status: Status = "in_progress"
    summary: list[Any] = []
    content: list[ReasoningText] = []


class ResponsesAnswerCall(BaseModel):
    type: Literal["function_call"] = "function_call"
    id: str
    status: Status = "in_progress"
    call_id: str
    name: str
    arguments: str


AnswerItem = AnswerMessage | AnswerReasoning | ResponsesAnswerCall


class InputDetails(BaseModel):
    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(BaseModel):
    reasoning_tokens: int


class ResponsesUsage(BaseModel):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class IncompleteDetails(BaseModel):
    reason: Literal["max_output_tokens"]


class AnswerTool(BaseModel):
    type: Literal["function"] = "function"
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseAnswer(BaseModel):
    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status = "in_progress"
    error: ErrorBody | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    model: str
    output: list[AnswerItem] = []
    parallel_tool_calls: bool = True
    previous_response_id: None = None
    store: Literal[False] = False
    temperature: float | None = None
    tool_choice: str | dict[str, str] = "auto"
    tools: list[AnswerTool] = []
    top_p: float | None = None
    usage: ResponsesUsage | None = None
