"""Translates the bodies of HTTP requests to engine requests. Pure functions.

Without a `prediction`, the newest code block of the prompt is predicted to be repeated, then the
rest of the prompt; what a template repeats, the engine knows. Predictions never change the answer.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from engine.prompts.control_marks import is_template
from engine.records import MAX_PREDICTION_CHARS, MIN_TEMPERATURE, Request, RequestError
from engine.sampling.grammar import json_grammar
from ui.api.schemas import (
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
    JsonObjectFormat,
    JsonSchemaFormat,
    PredictRequest,
    ResponseFormat,
    TextPart,
)
from ui.api.tool_calls import must_call, tools_of, with_calls

NO_LIMIT = 1 << 53  # tokens of an answer, which the context limits
MIN_TOP_P = 1e-9  # probability; stands for `top_p` 0, which selects the likeliest token alone
FENCE = re.compile("```|~~~")


def chat_request(body: ChatRequest) -> Request:
    """Return the request of /v1/chat/completions."""
    messages = tuple(
        with_calls(
            message,
            {
                "role": "system" if message.role == "developer" else message.role,
                "content": text_of(message.content, separator="\n"),
            },
        )
        for message in body.messages
    )
    tools, grammar = tools_of(body), grammar_of(body.response_format)
    if tools and grammar:
        raise RequestError("response_format: not together with tools: leave one of them out")
    texts = [message["content"] for message in reversed(messages)]
    return Request(
        "chat",
        messages=messages,
        predictions=predictions(body, texts),
        max_tokens=max_chat_tokens(body),
        temperature=temperature_of(body.temperature),
        top_k=body.top_k or 0,
        top_p=top_p_of(body.top_p),
        seed=seed_of(body.seed, body.temperature),
        stop=stop_strings(body.stop),
        tools=tools,
        must_call=must_call(body),
        grammar=grammar,
        thinking=may_think(body),
    )


def max_chat_tokens(body: ChatRequest) -> int | None:
    """Return the length of the answer; None: the rest of the context.

    `n_predict` 0 is one token: with none, the prompt is not read.
    """
    own = None if body.n_predict is None or body.n_predict < 0 else max(body.n_predict, 1)
    limits = (body.max_completion_tokens, body.max_tokens, own)
    return next((limit for limit in limits if limit is not None), None)


def grammar_of(form: ResponseFormat | None) -> str:
    """Return the grammar of an answer's format; "" for text.

    RequestError for a schema that cannot be enforced.
    """
    if isinstance(form, JsonObjectFormat):
        return json_grammar({"type": "object"})
    if isinstance(form, JsonSchemaFormat):
        try:
            return json_grammar(form.json_schema.schema_)
        except RequestError as error:
            raise RequestError(f"response_format: {error}") from None
    return ""


def completion_request(body: CompletionRequest) -> Request:
    """Return the request of /v1/completions.

    An empty `suffix` counts as none. With one, the prompt is the user's text, and marks in it are
    text too.
    """
    prompt = prompt_of(body)
    parse_special = body.parse_special is not False and not body.suffix
    texts = () if parse_special and is_template(prompt) else (prompt,)
    return Request(
        "complete",
        prompt,
        suffix=body.suffix or None,
        parse_special=parse_special,
        predictions=predictions(body, texts),
        max_tokens=NO_LIMIT if body.max_tokens is None else body.max_tokens,
        temperature=temperature_of(body.temperature),
        top_k=body.top_k or 0,
        top_p=top_p_of(body.top_p),
        seed=seed_of(body.seed, body.temperature),
        stop=stop_strings(body.stop),
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
    if body.response_format is not None and body.response_format.type != "text":
        return False  # the format is that of the whole answer
    options = body.chat_template_kwargs
    off = options is not None and False in (options.enable_thinking, options.thinking)
    return not off and body.reasoning_effort not in ("none", "minimal")


def prompt_of(body: CompletionRequest) -> str:
    return body.prompt if isinstance(body.prompt, str) else body.prompt[0]


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
