"""The parameters that /v1/chat/completions and /v1/completions have in common.

docs/api.md has the text below each of them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ui.api.fields import (
    MAX_CHOICES,
    MAX_GUIDED_CHOICES,
    MAX_MESSAGES,
    MAX_STOP_TOKENS,
    Biases,
    Count,
    Integer,
    JsonObject,
    Limit,
    NonEmptyText,
    NotTooMany,
    Only,
    Penalty,
    Schema,
    Seed,
    StopList,
    StopText,
    Text,
    TokenId,
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
    schema_: Annotated[Schema | None, Field(alias="schema")] = None  # an extension: what it fits


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


GuidedChoice = Annotated[list[NonEmptyText], Field(min_length=1, max_length=MAX_GUIDED_CHOICES)]


def json_format(schema: dict[str, Any]) -> JsonSchemaFormat:
    """Return the format of JSON that fits a schema."""
    return JsonSchemaFormat(
        type="json_schema", json_schema=JsonSchema.model_construct(name="", schema_=schema)
    )


class StructuredOutputs(RequestModel):
    """What an answer fits, as vLLM has it: one of these."""

    model_config = ConfigDict(extra="forbid")

    json_: Annotated[Schema | None, Field(alias="json")] = None
    json_object: bool | None = None
    choice: GuidedChoice | None = None
    regex: NonEmptyText | None = None


class Unsupported(RequestModel):
    """Parameters that are refused, unless their value is one without an effect."""

    add_special_tokens: Annotated[Any, Only(True)] = None
    allowed_token_ids: Annotated[Any, Only([])] = None
    audio: Annotated[Any, Only()] = None
    bad_words: Annotated[Any, Only([])] = None
    chat_template: Annotated[Any, Only()] = None
    documents: Annotated[Any, Only([])] = None
    dry_multiplier: Annotated[Any, Only(0)] = None
    dynatemp_range: Annotated[Any, Only(0)] = None
    function_call: Annotated[Any, Only("none", "auto")] = None
    functions: Annotated[Any, Only([])] = None
    grammar: Annotated[Any, Only("")] = None
    guided_grammar: Annotated[Any, Only("")] = None
    guided_whitespace_pattern: Annotated[Any, Only()] = None
    include_stop_str_in_output: Annotated[Any, Only(False)] = None
    length_penalty: Annotated[Any, Only(1)] = None
    logits_processors: Annotated[Any, Only([])] = None
    lora: Annotated[Any, Only([])] = None
    mirostat: Annotated[Any, Only(0)] = None
    n_probs: Annotated[Any, Only(0)] = None
    prompt_logprobs: Annotated[Any, Only()] = None
    repeat_penalty: Annotated[Any, Only(1)] = None
    skip_special_tokens: Annotated[Any, Only(True)] = None
    structural_tag: Annotated[Any, Only()] = None
    tfs_z: Annotated[Any, Only(1)] = None
    top_n_sigma: Annotated[Any, Only(0, -1)] = None
    truncate_prompt_tokens: Annotated[Any, Only()] = None
    typical_p: Annotated[Any, Only(1)] = None
    use_beam_search: Annotated[Any, Only(False)] = None
    web_search_options: Annotated[Any, Only()] = None
    xtc_probability: Annotated[Any, Only(0)] = None


class GenerationRequest(Unsupported):
    """The fields that chats and completions have in common."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    model: Text | None = None
    """a name of the served model; without it that one"""
    prediction: Prediction | None = None
    """text that the answer is expected to repeat; never changes it"""
    stream: bool | None = False
    """server-sent events"""
    stream_options: StreamOptions | None = None
    """`include_usage`: a last event with the counts"""
    max_tokens: Limit | None = None
    """-1 or none: the rest of the context"""
    max_completion_tokens: Limit | None = None
    """as `max_tokens`, before which it goes"""
    n_predict: Limit | None = None
    """as `max_tokens`, llama.cpp's; 0 is 1, for clients that want the prompt read"""
    min_tokens: Count | None = None
    """tokens before the model may end the answer; a stop string may end it sooner"""
    stop: StopText | StopList | None = None
    """a string, or up to 64; the text ends before it"""
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOP_TOKENS)] | None = None
    """further end tokens, up to 64"""
    ignore_eos: bool | None = None
    """the model's end tokens never come"""
    seed: Seed | None = None
    """any integer; the same one gives the same text, with any draft or none"""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """0 to 2; without it 0: greedy"""
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """as at OpenAI"""
    top_k: Limit | None = None
    """0 and -1: all tokens"""
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """drops tokens below this share of the likeliest one's probability, at the temperature"""
    presence_penalty: Penalty | None = None
    """-2 to 2; off the logits of tokens that the answer has"""
    frequency_penalty: Penalty | None = None
    """-2 to 2; off the logits of tokens, for each time that the answer has them"""
    repetition_penalty: Annotated[float, Field(ge=0.01, le=10)] | None = None
    """divides the logits of tokens that the prompt or the answer have; 1: none"""
    logit_bias: Biases | None = None
    """-100 to 100 by token id, added to its logits"""
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES), Integer] | None = None
    """1 to 128 answers, written one after another, in streams too; the seed of each is one more"""
    response_format: ResponseFormat | None = None
    """`json_object`, also with a `schema`, and `json_schema`"""
    json_schema: Schema | None = None
    """a JSON schema that the answer fits, llama.cpp's"""
    guided_json: Schema | None = None
    """as `json_schema`, vLLM's"""
    guided_choice: GuidedChoice | None = None
    """texts, one of which is the answer"""
    guided_regex: NonEmptyText | None = None
    """a regular expression that the whole answer matches"""
    structured_outputs: StructuredOutputs | None = None
    """vLLM's: `json`, `json_object`, `choice` or `regex`"""
    speculation: bool | None = None
    """`false`: decoded plainly, the same text, slower; for
    [comparisons](exactness.md#any-server-from-outside)"""
    user: Text | None = None
    """the client whose turn it is; never changes the answer"""
    safety_identifier: Text | None = None
    """as `user`, before which it goes"""
