"""What a client asks for -> a Request of the engine. Pure; what is too much is refused elsewhere.

Without a `prediction` the prompt's newest code block is expected to be repeated, and its other text
behind it. What is expected never changes the answer.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from engine.records import COLDEST, Request
from ui.api.schemas import Asked, ChatRequest, CompletionRequest, PredictRequest, TextPart

COMPLETION_TOKENS = 16  # OpenAI's default of /v1/completions
NARROWEST = 1e-9  # what `top_p` 0 means: the likeliest token alone
FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)


def chat_request(body: ChatRequest) -> Request:
    """The Request of /v1/chat/completions."""
    messages = tuple(
        {
            "role": "system" if one.role == "developer" else one.role,
            "content": text_of(one.content, "\n"),
        }
        for one in body.messages
    )
    old, new = body.max_tokens, body.max_completion_tokens
    texts = [one["content"] for one in reversed(messages)]
    return Request(
        "chat",
        messages=messages,
        predictions=predictions(body, texts),
        max_tokens=old if new is None else new,
        temperature=warmth(body.temperature),
        top_k=body.top_k or 0,
        top_p=share(body.top_p),
        seed=seed_of(body.seed, body.temperature),
        stop=stops(body.stop),
    )


def completion_request(body: CompletionRequest) -> Request:
    """The Request of /v1/completions. An empty `suffix` is none."""
    prompt = prompt_of(body)
    return Request(
        "complete",
        prompt,
        suffix=body.suffix or None,
        predictions=predictions(body, [prompt]),
        max_tokens=COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens,
        temperature=warmth(body.temperature),
        top_k=body.top_k or 0,
        top_p=share(body.top_p),
        seed=seed_of(body.seed, body.temperature),
        stop=stops(body.stop),
    )


def predict_request(body: PredictRequest) -> Request:
    """The Request of /predict."""
    return Request(
        "complete",
        body.prompt,
        max_tokens=body.num_tokens,
        temperature=warmth(body.temperature),
        top_k=body.top_k,
        top_p=share(body.top_p),
        seed=seed_of(body.seed, body.temperature),
    )


def prompt_of(body: CompletionRequest) -> str:
    return body.prompt if isinstance(body.prompt, str) else body.prompt[0]


def predictions(body: Asked, texts: Sequence[str]) -> tuple[str, ...]:
    """Texts that the answer is expected to repeat. `texts`: of the prompt, the newest first."""
    return blocks_first(texts) if body.prediction is None else (predicted(body),)


def predicted(body: Asked) -> str:
    """The text of the `prediction` that was sent."""
    return "" if body.prediction is None else text_of(body.prediction.content, "")


def text_of(content: str | list[TextPart] | None, between: str) -> str:
    """A text, or the texts of its parts."""
    if isinstance(content, list):
        return between.join(part.text for part in content)
    return content or ""


def warmth(temperature: float | None) -> float:
    """0, greedy, where none was sent, and where it is so low that numbers would overflow."""
    return temperature if temperature and temperature >= COLDEST else 0.0


def share(top_p: float | None) -> float:
    return 1.0 if top_p is None else max(top_p, NARROWEST)


def stops(stop: str | list[str] | None) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop or ())


def seed_of(seed: int | None, temperature: float | None) -> int:
    """The seed that was sent; else each answer that is sampled is another one."""
    if seed is None:
        return secrets.randbits(31) if temperature else 0
    return seed


def blocks_first(texts: Sequence[str]) -> tuple[str, ...]:
    """All texts, from the first code block on of the first one that has any: where an answer that
    rewrites code begins, with the block's fence. Nothing where there is no code.

    The blocks alone took more passes than no prediction at all: answers repeat the fences, too, and
    quote what stands around them."""
    for number, text in enumerate(texts):
        if fence := FENCE.search(text):
            at = fence.start()
            rest = (text[:at], *texts[:number], *texts[number + 1 :])
            return (text[at:], *(one for one in rest if one))
    return ()
