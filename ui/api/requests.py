"""Translates the bodies of HTTP requests to engine requests. Pure functions.

Without a `prediction`, the newest code block of the prompt is predicted to be repeated, then the
rest of the prompt; what a template repeats, the engine knows. Predictions never change the answer.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from engine.prompts.control_marks import is_template
from engine.records import MAX_PREDICTION_CHARS, MIN_TEMPERATURE, Request, RequestError
from engine.sampling.grammar import choice_grammar, json_grammar, regex_grammar
from ui.api.parameters import (
    GenerationRequest,
    JsonObjectFormat,
    JsonSchemaFormat,
    StructuredOutputs,
    TextPart,
)
from ui.api.schemas import ChatRequest, CompletionRequest, PredictRequest
from ui.api.tool_calls import must_call, names_of, tools_of, with_calls

NO_LIMIT = 1 << 53  # tokens of an answer, which the context limits
MIN_TOP_P = 1e-9  # probability; stands for `top_p` 0, which selects the likeliest token alone
FENCE = re.compile("```|~~~")


def chat_request(body: ChatRequest, choice: int = 0) -> Request:
    """Return the request of /v1/chat/completions for one of its choices. RequestError."""
    names = names_of(body)
    messages = tuple(
        with_calls(
            message,
            {
                "role": "system" if message.role == "developer" else message.role,
                "content": text_of(message.content, separator="\n"),
            },
            names,
        )
        for message in body.messages
    )
    texts = [message["content"] for message in reversed(messages)]
    if body.top_logprobs and not body.logprobs:
        raise RequestError("top_logprobs: only together with logprobs: send it too")
    return Request(
        "chat",
        messages=messages,
        predictions=predictions(body, texts),
        max_tokens=max_tokens_of(body),
        tools=tools_of(body),
        must_call=must_call(body),
        thinking=may_think(body),
        continues=continues(body),
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        **common_options(body, choice),
    )


def continues(body: ChatRequest) -> bool:
    """Return whether the answer goes on with the last message. RequestError."""
    if not (body.continue_final_message or body.messages[-1].prefix):
        if body.add_generation_prompt is False:
            raise RequestError("add_generation_prompt: false without continue_final_message")
        return False
    if must_call(body) or grammar_of(body):
        raise RequestError("continue_final_message: not together with a format or a required call")
    return True


def common_options(body: GenerationRequest, choice: int) -> dict[str, Any]:
    """Return the options that chats and completions have in common. RequestError."""
    seed = None if body.seed is None else body.seed + choice
    return {
        "temperature": temperature_of(body.temperature),
        "top_k": max(body.top_k or 0, 0),
        "top_p": top_p_of(body.top_p),
        "min_p": body.min_p or 0.0,
        "seed": seed_of(seed, body.temperature),
        "stop": stop_strings(body.stop),
        "stop_tokens": tuple(body.stop_token_ids or ()),
        "min_tokens": body.min_tokens or 0,
        "ignore_end": bool(body.ignore_eos),
        "logit_bias": tuple((int(token), bias) for token, bias in (body.logit_bias or {}).items()),
        "presence_penalty": body.presence_penalty or 0.0,
        "frequency_penalty": body.frequency_penalty or 0.0,
        "repetition_penalty": body.repetition_penalty or 1.0,
        "grammar": grammar_of(body),
    }


def max_tokens_of(body: GenerationRequest) -> int | None:
    """Return the length of the answer; None: the rest of the context.

    `n_predict` 0 is one token: with none, the prompt is not read.
    """
    own = max(body.n_predict, 1) if body.n_predict == 0 else body.n_predict
    limits = (body.max_completion_tokens, body.max_tokens, own)
    limit = next((limit for limit in limits if limit is not None), -1)
    return None if limit < 0 else limit


def grammar_of(body: GenerationRequest) -> str:
    """Return the grammar of an answer's format; "" for text.

    RequestError for one that cannot be enforced, and for several.
    """
    formats = [*formats_of(body)]
    if len(formats) > 1:
        raise RequestError(f"{formats[1][0]}: not together with {formats[0][0]}: leave one out")
    for name, make in formats:
        try:
            return make()
        except RequestError as error:
            raise RequestError(f"{name}: {error}") from None
    return ""


def formats_of(body: GenerationRequest) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the formats that a request has: the parameter, and a function that makes a grammar."""
    form, parts = body.response_format, body.structured_outputs or StructuredOutputs()
    schemas = {
        "json_schema": body.json_schema,
        "guided_json": body.guided_json,
        "structured_outputs.json": parts.json_,
        "structured_outputs.json_object": {"type": "object"} if parts.json_object else None,
    }
    if isinstance(form, JsonObjectFormat):
        schemas["response_format"] = {"type": "object"} if form.schema_ is None else form.schema_
    elif isinstance(form, JsonSchemaFormat):
        schemas["response_format"] = form.json_schema.schema_
    for name, schema in schemas.items():
        if schema is not None:
            yield name, partial(json_grammar, schema)
    texts = {"guided_choice": body.guided_choice, "structured_outputs.choice": parts.choice}
    for name, choices in texts.items():
        if choices is not None:
            yield name, partial(choice_grammar, choices)
    patterns = {"guided_regex": body.guided_regex, "structured_outputs.regex": parts.regex}
    for name, pattern in patterns.items():
        if pattern is not None:
            yield name, partial(regex_grammar, pattern)


def completion_request(
    body: CompletionRequest, prompt: str | None = None, choice: int = 0
) -> Request:
    """Return the request of /v1/completions for one of its prompts and choices. RequestError.

    An empty `suffix` counts as none. With one, the prompt is the user's text, and marks in it are
    text too.
    """
    prompt = prompts_of(body)[0] if prompt is None else prompt
    parse_special = body.parse_special is not False and not body.suffix
    texts = () if parse_special and is_template(prompt) else (prompt,)
    if body.best_of not in (None, body.n or 1):
        raise RequestError("best_of: the same as n only: leave it out")
    limit = max_tokens_of(body)
    echoed = bool(body.echo) and body.logprobs is not None
    if echoed and (body.suffix or limit == 0):
        name = "suffix" if body.suffix else "max_tokens: 0"
        raise RequestError(f"{name}: not together with echo and logprobs: leave it out")
    return Request(
        "complete",
        prompt,
        suffix=body.suffix or None,
        parse_special=parse_special,
        predictions=predictions(body, texts),
        max_tokens=NO_LIMIT if limit is None else limit,
        logprobs=body.logprobs,
        prompt_logprobs=echoed,
        **common_options(body, choice),
    )


def predict_request(body: PredictRequest) -> Request:
    """Return the request of /predict."""
    return Request(
        "complete",
        body.prompt,
        max_tokens=body.num_tokens,
        temperature=temperature_of(body.temperature),
        top_k=body.top_k,
        top_p=top_p_of(body.top_p),
        seed=seed_of(body.seed, body.temperature),
    )


def may_think(body: ChatRequest) -> bool:
    """Return whether a model that reasons before it answers may do so."""
    options = body.chat_template_kwargs
    off = options is not None and False in (options.enable_thinking, options.thinking)
    return not off and body.reasoning_effort not in ("none", "minimal")


def prompts_of(body: CompletionRequest) -> list[str]:
    return [body.prompt] if isinstance(body.prompt, str) else body.prompt


def predictions(body: GenerationRequest, texts: Sequence[str]) -> tuple[str, ...]:
    """Texts that the answer is expected to repeat. `texts`: the prompt's, newest first."""
    return code_first(texts) if body.prediction is None else (predicted_text(body),)


def predicted_text(body: GenerationRequest) -> str:
    """Return the text of the client's `prediction`, as much of it as is used; "" without one."""
    text = "" if body.prediction is None else text_of(body.prediction.content)
    return text[:MAX_PREDICTION_CHARS]


def text_of(content: str | list[TextPart] | None, separator: str = "") -> str:
    """Return the text of a message, whose parts are joined."""
    if isinstance(content, list):
        return separator.join(part.text for part in content)
    return content or ""


def temperature_of(temperature: float | None) -> float:
    """Return the temperature, 0 (greedy) by default.

    Values so low that logits would overflow are 0.
    """
    return temperature if temperature and temperature >= MIN_TEMPERATURE else 0.0


def top_p_of(top_p: float | None) -> float:
    return 1.0 if top_p is None else max(top_p, MIN_TOP_P)


def stop_strings(stop: str | list[str] | None) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop or ())


def seed_of(seed: int | None, temperature: float | None) -> int:
    """Return the seed, random by default when sampling."""
    if seed is None:
        return secrets.randbits(31) if temperature else 0
    return seed


def code_first(texts: Sequence[str]) -> tuple[str, ...]:
    """Reorder the texts to begin at the fence of the first code block.

    An answer that rewrites code begins there. Empty if there is no code block.

    All text is kept: predicting the blocks alone took more passes than predicting nothing, because
    answers repeat the fences and quote the text around them.
    """
    for index, text in enumerate(texts):
        if (start := fence_line(text)) is not None:
            rest = (text[:start], *texts[:index], *texts[index + 1 :])
            return (text[start:], *(other for other in rest if other))
    return ()


def fence_line(text: str) -> int | None:
    """Return the start of the first line that begins with a code fence, which may be indented."""
    end = 0  # the end of the fence before
    for fence in FENCE.finditer(text):
        line = text.rfind("\n", end, fence.start()) + 1  # 0: the same line as the fence before
        if (line or not end) and not text[line : fence.start()].strip(" \t"):
            return line
        end = fence.end()
    return None
