"""Request and response bodies: the part of OpenAI's schemas that Draftline supports.

Unknown fields are ignored. A known field that would change the answer and is not supported is
rejected, unless its value has no effect (`tools: []`, `presence_penalty: 0`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from index.documents.embeddings import MAX_TEXT_CHARS
from ui.api.fields import (
    MAX_CHOICES,
    MAX_EMBEDDED_TEXTS,
    MAX_INT,
    MAX_LOGPROBS,
    MAX_MESSAGES,
    MAX_TOOLS,
    Count,
    FunctionNameText,
    Integer,
    JsonObject,
    NonEmptyText,
    NotTooMany,
    Only,
    Seed,
    StopList,
    StopText,
    Text,
)
from ui.api.parameters import Content, GenerationRequest, RequestModel


class CalledFunction(RequestModel):
    name: Text
    arguments: Text  # a JSON object; what is none is shown to the model as it is


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
    prefix: bool | None = None  # an extension: the answer goes on with this last message


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


class TemplateOptions(RequestModel):
    """Variables of the model's chat template: its switches for reasoning."""

    enable_thinking: bool | None = None
    thinking: bool | None = None


class ChatRequest(GenerationRequest):
    """The body of /v1/chat/completions."""

    messages: Annotated[
        list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True), NotTooMany
    ]
    """texts of `system`, `developer`, `user`, `assistant` and `tool`; no images"""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """"none" and "minimal": an answer without reasoning; all else leaves it to the model"""
    chat_template_kwargs: TemplateOptions | None = None
    """`enable_thinking` or `thinking` false: an answer without reasoning"""
    continue_final_message: bool | None = None
    """the answer goes on with the last message, the assistant's; so does `"prefix": true` there"""
    add_generation_prompt: bool | None = None
    """`false` only together with `continue_final_message`"""
    echo: Annotated[Any, Only(False)] = None
    logprobs: bool | None = None
    """the logarithm of the probability that the model itself gives each token of the answer"""
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS), Integer] | None = None
    """0 to 20 likeliest tokens next to each of the answer; with `logprobs` only"""
    tools: Annotated[list[ToolDefinition], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = (
        None
    )
    """functions that the model may call, also together with a format of its other answers"""
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    """as at OpenAI"""
    parallel_tool_calls: bool | None = None
    """`false`: one call at most"""
    modalities: Annotated[list[Literal["text"]], Field(fail_fast=True)] | None = None
    """text only"""


class CompletionRequest(GenerationRequest):
    """The body of /v1/completions."""

    prompt: Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_CHOICES)]
    """a text, or up to 128, answered one after another; no token ids"""
    suffix: Text | None = None
    """text behind the gap to fill in"""
    echo: bool | None = False
    """the prompt before the answer; with `logprobs` those of its tokens, too"""
    best_of: Annotated[int, Field(ge=1, le=MAX_CHOICES), Integer] | None = None
    """the same as `n` only"""
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS), Integer] | None = None
    """0 to 20 likeliest tokens next to each of the answer, and its own probability"""
    parse_special: bool | None = True
    """`false`: marks in the prompt are text"""


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
    ] = Field(default_factory=list)
    prompt: Text = ""  # the current line up to the cursor, after `input_prefix`
    model: Text | None = None
    n_predict: Annotated[int, Field(ge=-1, le=MAX_INT), Integer] | None = None  # -1: the default
    stop: StopText | StopList | None = None
    stream: bool | None = False
    seed: Seed | None = None  # negative: random
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None  # 0: greedy
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(le=MAX_INT), Integer] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
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


class TokenLogprob(BaseModel):
    """A token of an answer, or one in its place, and the logarithm of its probability."""

    token: str
    logprob: float
    bytes: list[int]


class AnswerLogprob(TokenLogprob):
    top_logprobs: list[TokenLogprob] = []


class ChatLogprobs(BaseModel):
    content: list[AnswerLogprob]
    refusal: None = None


class TextLogprobs(BaseModel):
    """The same in the form of /v1/completions; offsets are those in the answer, code points."""

    tokens: list[str]
    token_logprobs: list[float | None]  # None: of a prompt's first
    top_logprobs: list[dict[str, float | None] | None] | None = None
    text_offset: list[int]


class ChatChoice(BaseModel):
    index: int = 0
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: Literal["stop", "length", "tool_calls"]


class TextChoice(BaseModel):
    index: int = 0
    text: str
    logprobs: TextLogprobs | None = None
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
    warnings: list[str] = []  # an extension: what is to be said about the model's answers


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
    max_model_len: int | None = None  # None: of an embedding model
    context_length: int | None = None
    # Anthropic's
    type: Literal["model"] = "model"
    display_name: str
    created_at: str  # RFC 3339
    lifecycle: Literal["active"] = "active"


class Models(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]
    # Anthropic's: there is one page
    has_more: Literal[False] = False
    first_id: str
    last_id: str


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
