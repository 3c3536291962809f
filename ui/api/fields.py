"""Fields of request bodies: their types and limits, and what to do about an invalid value."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from engine.records import MAX_STOP_CHARS
from index.documents.embeddings import MAX_TEXT_CHARS

MAX_STOP_STRINGS = 4
MAX_MESSAGES = 1 << 13  # messages of a chat, and parts of a message
MAX_TOOLS = 1024
MAX_EMBEDDED_TEXTS = 2048  # texts of a request, as at OpenAI
TOO_MANY = "context_length_exceeded"  # the error of more messages, and its code
UNSUPPORTED = "unsupported"  # the error whose message has a remedy of its own
MAX_INT = 2**53 - 1  # the largest that every JSON parser reads exactly


def check_characters(text: str) -> str:
    """Reject lone surrogates, which JSON can express and no tokenizer accepts."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("surrogate", "Lone surrogates are not text") from None
    return text


def check_values(value: Any) -> Any:
    """Reject JSON that has lone surrogates anywhere, or lists and objects in too many others."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("surrogate", "Lone surrogates are not text") from None
    except RecursionError:
        raise PydanticCustomError("depth", "Values are nested too deeply") from None
    return value


def check_count(items: Any) -> Any:
    """Reject a list that is too long before its items are validated."""
    if isinstance(items, list) and len(items) > MAX_MESSAGES:
        raise PydanticCustomError(TOO_MANY, "List is too long")
    return items


def to_integer(number: Any) -> Any:
    """Accept `1.0` as an integer, as JSON does."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def only_types(types: Collection[str], message: str) -> Callable[[Any], Any]:
    """Make a validator that rejects objects whose `type` is another one.

    `message`: what is wrong with them, and the remedy.
    """

    def check(item: Any) -> Any:
        kind = item.get("type") if isinstance(item, dict) else None
        if isinstance(kind, str) and kind not in types:
            raise PydanticCustomError(UNSUPPORTED, message)
        return item

    return check


def check_false(value: bool) -> bool:
    """`Literal[False]` would also accept 0."""
    if value:
        raise PydanticCustomError("literal_error", "Input should be false")
    return value


NotTooMany = BeforeValidator(check_count)
Text = Annotated[str, AfterValidator(check_characters)]
JsonObject = Annotated[dict[str, Any], AfterValidator(check_values)]
NonEmptyText = Annotated[Text, Field(min_length=1)]
Integer = BeforeValidator(to_integer)
AlwaysFalse = Annotated[
    bool, Field(json_schema_extra={"const": False}), AfterValidator(check_false)
]
EmptyList = Annotated[list[Any], Field(max_length=0)]
AlwaysZero = Annotated[float, Field(ge=0, le=0)]
AlwaysOne = Annotated[int, Field(ge=1, le=1), Integer]
Count = Annotated[int, Field(ge=0, le=MAX_INT), Integer]
Seed = Annotated[int, Integer]  # an integer of any size
FunctionNameText = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
StopText = Annotated[Text, Field(max_length=MAX_STOP_CHARS)]
StopList = Annotated[list[StopText], Field(max_length=MAX_STOP_STRINGS)]

# What to do about an invalid value, by field.
REMEDIES = {
    "n": "only 1 is supported: send another request for another answer",
    "best_of": "only 1 is supported: leave it out",
    "stop": f"must be a string, or a list of up to {MAX_STOP_STRINGS}, of up to {MAX_STOP_CHARS} "
    "characters each",
    "input": f"must be a text, or a list of 1 to {MAX_EMBEDDED_TEXTS}, none of them empty or over "
    f"{MAX_TEXT_CHARS} characters",
    "prompt": "must be one string: lists and token ids are not supported",
    "content": f"must be a string, or a list of up to {MAX_MESSAGES} parts of type text",
    "messages": f"must be a list of 1 to {MAX_MESSAGES} messages",
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
            "top_logprobs",
        ),
        "not supported: leave it out",
    ),
}
