"""Fields of request bodies: their types and limits, and what to do about an invalid value."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_plain_validator_function

from engine.records import MAX_STOP_CHARS
from index.documents.embeddings import MAX_TEXT_CHARS

MAX_STOP_STRINGS = 64
MAX_STOP_TOKENS = 64
MAX_CHOICES = 128  # answers of a request
MAX_LOGPROBS = 20  # likeliest tokens next to each token
MAX_BIASES = 1024
MAX_GUIDED_CHOICES = 256
MAX_MESSAGES = 1 << 13  # messages of a chat, and parts of a message
MAX_TOOLS = 1024
MAX_EMBEDDED_TEXTS = 2048  # texts of a request, as at OpenAI
TOO_MANY = "context_length_exceeded"  # the error of more messages, and its code
UNSUPPORTED = "unsupported"  # the error whose message has a remedy of its own
NOT_SUPPORTED = "not supported: leave it out"
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


class Only:
    """Marks a field that must be left out, or have a value without an effect."""

    def __init__(self, *neutral: Any) -> None:
        """Take the values without an effect; None is one, too."""
        self.neutral = (None, *neutral)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"enum": [*self.neutral]}

    def _checked(self, value: Any) -> Any:
        if not any(value == one and type(value) in _like(one) for one in self.neutral):
            raise PydanticCustomError(UNSUPPORTED, NOT_SUPPORTED)
        return value


def _like(value: Any) -> tuple[type, ...]:
    """Return the types of values that JSON writes as it writes this one."""
    return (int, float) if type(value) in (int, float) else (type(value),)


def object_of(value: Any) -> Any:
    """Read a JSON schema that a client sends as a text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise PydanticCustomError("json", "The text is no JSON") from None


NotTooMany = BeforeValidator(check_count)
Text = Annotated[str, AfterValidator(check_characters)]
JsonObject = Annotated[dict[str, Any], AfterValidator(check_values)]
NonEmptyText = Annotated[Text, Field(min_length=1)]
Integer = BeforeValidator(to_integer)
Count = Annotated[int, Field(ge=0, le=MAX_INT), Integer]
Limit = Annotated[int, Field(ge=-1, le=MAX_INT), Integer]  # -1: none
Seed = Annotated[int, Integer]  # an integer of any size
Schema = Annotated[JsonObject, BeforeValidator(object_of)]
FunctionNameText = Annotated[Text, Field(min_length=1, max_length=512)]
TokenId = Annotated[int, Field(ge=0, lt=1 << 31), Integer]
Bias = Annotated[float, Field(ge=-100, le=100)]
Biases = Annotated[
    dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], Bias],
    Field(max_length=MAX_BIASES, json_schema_extra={"additionalProperties": False}),
]
Penalty = Annotated[float, Field(ge=-2, le=2)]
StopText = Annotated[Text, Field(max_length=MAX_STOP_CHARS)]
StopList = Annotated[list[StopText], Field(max_length=MAX_STOP_STRINGS)]

# What to do about an invalid value, by field.
REMEDIES = {
    "n": f"must be 1 to {MAX_CHOICES}",
    "stop": f"must be a string, or a list of up to {MAX_STOP_STRINGS}, of up to {MAX_STOP_CHARS} "
    "characters each",
    "input": f"must be a text or a list (/openapi.json); to embed, of 1 to {MAX_EMBEDDED_TEXTS} "
    f"texts, none of them empty or over {MAX_TEXT_CHARS} characters; token ids are not supported: "
    "send the text (LangChain: check_embedding_ctx_length=False)",
    "prompt": f"must be a string, or a list of 1 to {MAX_CHOICES}: token ids are not supported",
    "logit_bias": f"must be numbers of -100 to 100 by token id, at most {MAX_BIASES}",
    "content": f"must be a string, or a list of up to {MAX_MESSAGES} parts of type text",
    "messages": f"must be a list of 1 to {MAX_MESSAGES} messages",
}
