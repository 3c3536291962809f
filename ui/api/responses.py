"""Events of the engine -> OpenAI's answers, whole or as server-sent events.

Events are ASCII: other characters are escaped, so no reader can cut one in two, or take one for the
end of a line. The text of a stream is the text of the whole answer.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from engine.records import Done, Usage
from ui.api import schemas as types
from ui.api.errors import ApiError
from ui.api.jobs import Answer, drafted_from_prediction

END = b"data: [DONE]\n\n"
Encode = Callable[[str], list[int]]


@dataclass
class Form:
    """What all parts of one answer say about it, and what is counted for its usage."""

    chat: bool
    model: str
    fingerprint: str
    encode: Encode
    prediction: str = ""  # that was sent
    echo: str = ""  # stands before the text
    copied: int = 0  # tokens, from the prediction
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }

    def piece(
        self, text: str | None, reason: str | None = None, opening: bool = False
    ) -> dict[str, Any]:
        """One event's body. `text` None: the end."""
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason}
        if self.chat:
            start = {"role": "assistant"} if opening else {}
            choice["delta"] = start if text is None else start | {"content": text}
        else:
            choice["text"] = text or ""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return self.head(kind) | {"choices": [choice]}

    def usage(self, usage: Usage) -> types.Usage:
        """OpenAI's counts."""
        expected = len(self.encode(self.prediction)) if self.prediction else 0
        copied = min(self.copied, expected)
        return types.Usage(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.prompt_tokens + usage.completion_tokens,
            prompt_tokens_details=types.PromptDetails(cached_tokens=usage.cached_tokens),
            completion_tokens_details=types.CompletionDetails(
                accepted_prediction_tokens=copied, rejected_prediction_tokens=expected - copied
            ),
        )


def timings(usage: Usage, seconds: float) -> types.Timings:
    """How an answer that took `seconds` was made."""
    return types.Timings(
        waited=max(0.0, seconds - usage.prefill_seconds - usage.decode_seconds),
        reading=usage.prefill_seconds,
        writing=usage.decode_seconds,
        tokens_per_second=usage.completion_tokens / max(usage.decode_seconds, 1e-9),
        forwards=usage.forwards,
        drafted=usage.drafted,
        accepted=usage.accepted,
    )


async def whole(answer: Answer, form: Form) -> types.ChatAnswer | types.TextAnswer:
    """The answer in one piece. Raises ApiError."""
    done = Done("cancelled")
    async for event in answer:
        if isinstance(event, Done):
            done = event
        elif form.prediction:
            form.copied += drafted_from_prediction(event, form.encode)
    reason = finish(done)
    usage = await asyncio.to_thread(form.usage, done.usage)  # it tokenises
    more: dict[str, Any] = {"usage": usage, "timings": timings(done.usage, answer.seconds)}
    if form.chat:
        message = types.ChatMessage(content=done.text)
        choice = types.ChatChoice(message=message, finish_reason=reason)
        return types.ChatAnswer(**form.head("chat.completion"), choices=[choice], **more)
    text = types.TextChoice(text=form.echo + done.text, finish_reason=reason)
    return types.TextAnswer(**form.head("text_completion"), choices=[text], **more)


async def pieces(answer: Answer, form: Form, with_usage: bool) -> AsyncIterator[bytes]:
    """The answer as server-sent events."""
    null = {"usage": None} if with_usage else {}
    if form.chat or form.echo:
        yield event_of(form.piece(form.echo, opening=True) | null)
    async for event in answer:
        if isinstance(event, Done):
            try:
                last = form.piece(None, finish(event)) | null
            except ApiError as error:
                yield event_of(error.body())
                return
            took = timings(event.usage, answer.seconds).model_dump()
            yield event_of(last | {"timings": took})
            if with_usage:
                usage = await asyncio.to_thread(form.usage, event.usage)
                yield event_of(form.piece(None) | {"choices": [], "usage": usage.model_dump()})
            yield END
            return
        if form.prediction:
            form.copied += drafted_from_prediction(event, form.encode)
        if event.text:
            yield event_of(form.piece(event.text) | null)


def finish(done: Done) -> Any:
    """OpenAI's reason of an end. ApiError where there is no whole answer."""
    if done.reason == "failed":
        raise ApiError(500, f"the model failed: {done.error}")
    if done.reason == "cancelled":
        raise ApiError(503, "the answer was broken off: the server ends, or the client hung up")
    return done.reason


def event_of(body: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(body, separators=(",", ":")).encode("ascii") + b"\n\n"
