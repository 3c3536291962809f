"""Request and response bodies: the part of OpenAI's schemas that Draftline supports.

Unknown fields are ignored. A known field that would change the answer and is not supported is
rejected, unless its value has no effect (`tools: []`, `presence_penalty: 0`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from index.documents.embeddings import MAX_TEXT_CHARS
from ui.api.fields import (
    MAX_EMBEDDED_TEXTS,
    MAX_INT,
    MAX_MESSAGES,
    MAX_TOOLS,
    AlwaysFalse,
    AlwaysOne,
    AlwaysZero,
    Count,
    EmptyList,
    FunctionNameText,
    Integer,
    JsonObject,
    NonEmptyText,
    NotTooMany,
    Seed,
    StopList,
    StopText,
    Text,
)


class RequestModel(BaseModel):
    """Part of a request body: types are strict, as with OpenAI, and numbers are finite."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class TextPart(RequestModel):
    type: Literal["text"]
    text: Text


# Validation stops at the first invalid part, or a list of zeros would get millions of errors.
Content = (
    Text | Annotated[list[TextPart], Field(max_length=MAX_MESSAGES, fail_fast=True), NotTooMany]
)


class CalledFunction(RequestModel):
    name: Text
    arguments: Text  # a JSON object


class ToolCall(RequestModel):
    """A call that the model made in an earlier turn."""

    id: Text = ""
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(RequestModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_call_id: Text | None = None
    name: Text | None = None
    reasoning_content: Text | None = None  # an extension: of an earlier answer, for the template


class FunctionName(RequestModel):
    name: Text


class Function(RequestModel):
    """A function that the model may call.

    `strict` changes nothing: calls fit where they are enforced.
    """

    name: FunctionNameText
    description: Text | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class ToolDefinition(RequestModel):
    type: Literal["function"]
    function: Function


class NamedTool(RequestModel):
    type: Literal["function"]
    function: FunctionName


def named_tool(name: str) -> NamedTool:
    """Return the choice of one function."""
    return NamedTool(type="function", function=FunctionName(name=name))


class Prediction(RequestModel):
    """Text that much of the answer is expected to repeat."""

    type: Literal["content"]
    content: Content


class StreamOptions(RequestModel):
    include_usage: bool | None = None


class TextFormat(RequestModel):
    type: Literal["text"]


class JsonObjectFormat(RequestModel):
    """The answer is a JSON object."""

    type: Literal["json_object"]


class JsonSchema(RequestModel):
    """A schema that the answer fits, always: `strict` changes nothing."""

    name: Text
    description: Text | None = None
    schema_: Annotated[JsonObject, Field(alias="schema")] = {}
    strict: bool | None = None


class JsonSchemaFormat(RequestModel):
    """The answer is JSON that fits a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")
]


def json_format(schema: dict[str, Any]) -> JsonSchemaFormat:
    """Return the format of JSON that fits a schema."""
    return JsonSchemaFormat(
        type="json_schema", json_schema=JsonSchema.model_construct(name="", schema_=schema)
    )


class GenerationRequest(RequestModel):
    """The fields that chats and completions have in common."""

    model: Text | None = None  # None: the served one
    prediction: Prediction | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stop: StopText | StopList | None = None
    seed: Seed | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None  # 0: greedy
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Count | None = None  # an extension
    speculation: bool | None = None  # an extension; false: decoded plainly, the same text, slower
    user: Text | None = None
    safety_identifier: Text | None = None
    n: AlwaysOne | None = 1
    frequency_penalty: AlwaysZero | None = 0
    presence_penalty: AlwaysZero | None = 0
    logit_bias: Annotated[dict[Text, Any], Field(max_length=0)] | None = None


class TemplateOptions(RequestModel):
    """Variables of the model's chat template: its switches for reasoning."""

    enable_thinking: bool | None = None
    thinking: bool | None = None


class ChatRequest(GenerationRequest):
    """The body of /v1/chat/completions."""

    messages: Annotated[
        list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True), NotTooMany
    ]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    # An extension, llama.cpp's: -1 is the default, and 0 asks that the prompt is read.
    n_predict: Annotated[int, Field(ge=-1, le=MAX_INT), Integer] | None = None
    # "none" and "minimal" ask for an answer without reasoning; all else leaves it to the model
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    chat_template_kwargs: TemplateOptions | None = None  # an extension
    logprobs: AlwaysFalse | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=0), Integer] | None = None
    tools: Annotated[list[ToolDefinition], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = (
        None
    )
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    functions: EmptyList | None = None
    function_call: Literal["none", "auto"] | None = None
    response_format: ResponseFormat | None = None
    modalities: Annotated[list[Literal["text"]], Field(fail_fast=True)] | None = None
    audio: None = None


class CompletionRequest(GenerationRequest):
    """The body of /v1/completions."""

    prompt: Text | Annotated[list[Text], Field(min_length=1, max_length=1)]
    suffix: Text | None = None
    echo: bool | None = False
    max_tokens: Count | None = None
    best_of: AlwaysOne | None = None
    logprobs: None = None
    # An extension: marks for fill in the middle, files and regions in a prompt without a suffix
    # count as such; false makes them text.
    parse_special: bool | None = True


class InfillChunk(RequestModel):
    """A part of another file."""

    text: Text
    filename: Text | None = None


class InfillRequest(RequestModel):
    """The body of /infill: the part of llama.cpp's schema that Draftline supports."""

    input_prefix: Text
    input_suffix: Text
    input_extra: Annotated[
        list[InfillChunk], Field(max_length=MAX_MESSAGES, fail_fast=True), NotTooMany
    ] = []
    prompt: Text = ""  # the current line up to the cursor, after `input_prefix`
    model: Text | None = None
    n_predict: Annotated[int, Field(ge=-1, le=MAX_INT), Integer] | None = None  # -1: the default
    stop: StopText | StopList | None = None
    stream: bool | None = False
    seed: Seed | None = None  # negative: random
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None  # 0: greedy
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(le=MAX_INT), Integer] | None = None
    t_max_predict_ms: Annotated[float, Field(le=MAX_INT)] | None = None  # 0 and less: no limit
    response_fields: (
        Annotated[list[Text], Field(max_length=MAX_MESSAGES, fail_fast=True), NotTooMany] | None
    ) = None


class PredictRequest(RequestModel):
    """The body of /predict; the defaults are those of LLMSpeculativeSampling's server."""

    prompt: Annotated[Text, Field(min_length=1)]
    num_tokens: Annotated[int, Field(ge=1, le=MAX_INT), Integer] = 40
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_k: Count = 10
    top_p: Annotated[float, Field(ge=0, le=1)] = 0.9
    seed: Seed | None = None
    timeout: Annotated[float, Field(ge=1, le=3600)] = 60.0  # seconds


EmbeddedText = Annotated[NonEmptyText, Field(max_length=MAX_TEXT_CHARS)]


class EmbeddingsRequest(RequestModel):
    """The body of /v1/embeddings."""

    input: (
        EmbeddedText
        | Annotated[
            list[EmbeddedText],
            Field(min_length=1, max_length=MAX_EMBEDDED_TEXTS, fail_fast=True),
            NotTooMany,
        ]
    )
    model: Text | None = None  # None: the served one
    encoding_format: Literal["float", "base64"] | None = None  # None: float
    dimensions: Count | None = None  # the model's own only
    user: Text | None = None


class ApplyRequest(RequestModel):
    """The body of /v1/apply."""

    code: Text  # the whole file
    update: Text  # changed lines, with `... existing code ...` for the others
    path: Text = ""
    instruction: Text = ""
    model: Text | None = None  # None: the served one
    max_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None  # 0: greedy
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Count | None = None
    seed: Seed | None = None
    user: Text | None = None


# -- responses ---------------------------------------------------------------------------------


class PromptDetails(BaseModel):
    cached_tokens: int


class CompletionDetails(BaseModel):
    """Tokens of the client's `prediction` that were copied into the answer, and the others."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class TokenUsage(BaseModel):
    """Token counts. `completion_tokens` does not include rejected draft tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Timings(BaseModel):
    """The time of an answer by its parts, in seconds. An extension."""

    waited: float  # seconds in the queue
    reading: float  # prefill
    writing: float  # decoding
    tokens_per_second: float  # tokens per second while decoding
    forwards: int  # decoding passes
    drafted: int
    accepted: int


class AnswerCall(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str | None  # None next to calls without a text
    tool_calls: list[AnswerCall] | None = None
    reasoning_content: str | None = None  # an extension: what a model reasoned before it answered
    refusal: None = None


class ChatChoice(BaseModel):
    index: int = 0
    message: ChatMessage
    logprobs: None = None
    finish_reason: Literal["stop", "length", "tool_calls"]


class TextChoice(BaseModel):
    index: int = 0
    text: str
    logprobs: None = None
    finish_reason: Literal["stop", "length"] | None = None


class ChatAnswer(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: TokenUsage
    timings: Timings


class TextAnswer(BaseModel):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: TokenUsage
    timings: Timings


class InfillTimings(BaseModel):
    """Tokens, and times in milliseconds. `prompt_n` does not include `cache_n`."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int
    draft_n_accepted: int


class InfillAnswer(BaseModel):
    """The answer to /infill. With `response_fields` it has these fields only."""

    index: int = 0
    content: str = ""
    stop: bool = True
    model: str = ""
    tokens_predicted: int = 0
    tokens_evaluated: int = 0  # tokens of the prompt
    tokens_cached: int = 0  # those found in the KV cache
    truncated: bool = False
    stop_type: Literal["eos", "word", "limit"] = "eos"
    stopping_word: str = ""
    has_new_line: bool = False
    generation_settings: dict[str, int] = {}
    timings: InfillTimings | None = None


class ApplyAnswer(BaseModel):
    object: Literal["apply"] = "apply"
    created: int
    model: str
    code: str  # the whole new file
    method: Literal["merge", "model"]  # merge: without the model
    usage: TokenUsage
    timings: Timings


class Model(BaseModel):
    """A model.

    The context, tokens of a prompt and its answer together, has no name at OpenAI: these are
    vLLM's, and OpenRouter's and LM Studio's.
    """

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "draftline"
    max_model_len: int
    context_length: int


class Models(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


class Embedding(BaseModel):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str  # base64 of f32


class EmbeddingsUsage(BaseModel):
    """Tokens of the language model, which the embedding model may cut differently."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingsUsage


class Health(BaseModel):
    """The state of the model. With any `status` but `ok` the response is a 503."""

    status: Literal["ok", "loading", "failed"] = "ok"
    loaded: float | None = None  # while loading: the loaded share of the current file, 0 to 1
    message: str | None = None  # the message of a failure


class ErrorBody(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    error: ErrorBody
