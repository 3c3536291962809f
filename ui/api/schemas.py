"""What clients send and what they get: OpenAI's shapes, as far as Draftline fills them.

Fields that nobody here knows are ignored. A known field that would change the answer, and that
nothing here can obey, is refused unless it asks for nothing (`tools: []`, `presence_penalty: 0`).
What a request means is decided in asked.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

MOST_STOPS = 4
BIG = 2**53 - 1  # of numbers that need no larger ones: what every JSON reader reads exactly


def characters(text: str) -> str:
    """`text`, if it is: JSON can say half a character, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("half", "Half a character is no text") from None
    return text


def whole(number: Any) -> Any:
    """`1.0` is a whole number in JSON."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def no(value: bool) -> bool:
    """Not a number that equals false."""
    if value:
        raise PydanticCustomError("literal_error", "Input should be false")
    return value


Text = Annotated[str, AfterValidator(characters)]
WHOLE = BeforeValidator(whole)
No = Annotated[bool, Field(json_schema_extra={"const": False}), AfterValidator(no)]
Nothing = Annotated[list[Any], Field(max_length=0)]
Zero = Annotated[float, Field(ge=0, le=0)]
One = Annotated[int, Field(ge=1, le=1), WHOLE]
Count = Annotated[int, Field(ge=0, le=BIG), WHOLE]
Seed = Annotated[int, WHOLE]  # of any size
Stop = Annotated[list[Text], Field(max_length=MOST_STOPS)]

# Field -> what to do where it asks for what is not there.
REMEDIES = {
    "n": "one answer a request is written: ask again for another",
    "best_of": "one answer a request is written: leave it out",
    "stop": f"a text, or a list of up to {MOST_STOPS}",
    "prompt": "one text: neither several nor token ids are read",
    "content": "a text, or a list of parts of type text: nothing else is read here",
    "messages": "a list of at least one message",
    **dict.fromkeys(
        (
            "audio",
            "frequency_penalty",
            "function_call",
            "functions",
            "logit_bias",
            "logprobs",
            "modalities",
            "presence_penalty",
            "response_format",
            "tool_choice",
            "tools",
            "top_logprobs",
        ),
        "not supported here: leave it out",
    ),
}


class Sent(BaseModel):
    """What comes from a client: types are exact, as with OpenAI, and numbers are finite."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class TextPart(Sent):
    type: Literal["text"]
    text: Text


class Message(Sent):
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart] | None = None


class Prediction(Sent):
    """Text that the answer is expected to repeat, mostly."""

    type: Literal["content"]
    content: Text | list[TextPart]


class StreamOptions(Sent):
    include_usage: bool | None = None


class TextFormat(Sent):
    type: Literal["text"]


class Asked(Sent):
    """What chats and completions have in common."""

    model: Text | None = None  # the served one
    prediction: Prediction | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stop: Text | Stop | None = None
    seed: Seed | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None  # 0: greedy
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Count | None = None  # not OpenAI's
    user: Text | None = None
    safety_identifier: Text | None = None
    n: One | None = 1
    frequency_penalty: Zero | None = 0
    presence_penalty: Zero | None = 0
    logit_bias: Annotated[dict[Text, Any], Field(max_length=0)] | None = None


class ChatRequest(Asked):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: No | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=0), WHOLE] | None = None
    tools: Nothing | None = None
    tool_choice: Literal["none", "auto"] | None = None
    functions: Nothing | None = None
    function_call: Literal["none", "auto"] | None = None
    response_format: TextFormat | None = None
    modalities: list[Literal["text"]] | None = None
    audio: None = None


class CompletionRequest(Asked):
    """The body of /v1/completions."""

    prompt: Text | Annotated[list[Text], Field(min_length=1, max_length=1)]
    suffix: Text | None = None
    echo: bool | None = False
    max_tokens: Count | None = None
    best_of: One | None = None
    logprobs: None = None


class PredictRequest(Sent):
    """The body of /predict; defaults as in LLMSpeculativeSampling's server."""

    prompt: Annotated[Text, Field(min_length=1)]
    num_tokens: Annotated[int, Field(ge=1, le=BIG), WHOLE] = 40
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_k: Count = 10
    top_p: Annotated[float, Field(ge=0, le=1)] = 0.9
    seed: Seed | None = None
    timeout: Annotated[float, Field(ge=1, le=3600)] = 60.0  # seconds


# -- answers -----------------------------------------------------------------------------------


class PromptDetails(BaseModel):
    cached_tokens: int


class CompletionDetails(BaseModel):
    """Of the `prediction` that was sent: tokens that were copied into the answer, and the rest."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(BaseModel):
    """Tokens of texts only: what was drafted in vain is not in `completion_tokens`."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Timings(BaseModel):
    """How the answer was made. Not OpenAI's; seconds."""

    waited: float  # before the prompt was read
    reading: float
    writing: float
    tokens_per_second: float
    forwards: int  # passes that wrote the answer
    drafted: int
    accepted: int


class ChatMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class Delta(BaseModel):
    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChoice(BaseModel):
    index: int = 0
    message: ChatMessage
    logprobs: None = None
    finish_reason: Literal["stop", "length"]


class ChunkChoice(BaseModel):
    index: int = 0
    delta: Delta
    logprobs: None = None
    finish_reason: Literal["stop", "length"] | None = None


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
    usage: Usage
    timings: Timings


class TextAnswer(BaseModel):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: Usage
    timings: Timings


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "draftline"


class Models(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class ErrorBody(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    error: ErrorBody
