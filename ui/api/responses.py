"""Translates the engine's events to OpenAI's responses, whole or as server-sent events.

Server-sent events are pure ASCII, with other characters escaped: no client can split a character or
mistake one for a line end. The chunks of a stream add up to the text of the whole response.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.editing.edits import EditRefused
from engine.records import Done, Event, Step, Usage
from engine.sampling.grammar import TOO_COMPLEX
from ui.api import schemas as types
from ui.api.errors import ApiError, refused
from ui.api.jobs import JobStream
from ui.api.tool_calls import CallReader, calls_in_answer

DONE_EVENT = b"data: [DONE]\n\n"
Encode = Callable[[str], list[int]]


@dataclass
class ResponseBuilder:
    """Builds the response to one request; all its chunks share an id.

    It counts accepted prediction tokens as they arrive.
    """

    chat: bool
    model: str
    fingerprint: str
    encode: Encode
    prediction: str = ""  # the client's
    echo: str = ""  # precedes the text
    calls: CallReader = field(default_factory=CallReader)
    accepted_prediction_tokens: int = 0
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

    def chunk(
        self,
        text: str | None,
        reason: str | None = None,
        first: bool = False,
        part: Literal["content", "reasoning_content"] = "content",
    ) -> dict[str, Any]:
        """Return the body of one event.

        `text` is None in the last one; `part` of a chat's message.
        """
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason}
        if self.chat:
            role = {"role": "assistant"} if first else {}
            choice["delta"] = role if text is None else role | {part: text}
        else:
            choice["text"] = text or ""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return self.head(kind) | {"choices": [choice]}

    def call_chunk(self, number: int, call: types.AnswerCall) -> dict[str, Any]:
        """Return the body of an event with a whole call."""
        choice = {"index": 0, "logprobs": None, "finish_reason": None}
        delta = {"tool_calls": [{"index": number} | call.model_dump()]}
        return self.head("chat.completion.chunk") | {"choices": [choice | {"delta": delta}]}

    def count(self, step: Step) -> None:
        """Count the tokens of a step that were copied from the client's prediction."""
        if self.prediction:
            self.accepted_prediction_tokens += tokens_from_prediction(step, self.encode)

    def usage(self, usage: Usage) -> types.TokenUsage:
        """OpenAI's counts. It tokenizes the prediction."""
        predicted = len(self.encode(self.prediction)) if self.prediction else 0
        accepted = min(self.accepted_prediction_tokens, predicted)
        return types.TokenUsage(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.prompt_tokens + usage.completion_tokens,
            prompt_tokens_details=types.PromptDetails(cached_tokens=usage.cached_tokens),
            completion_tokens_details=types.CompletionDetails(
                accepted_prediction_tokens=accepted,
                rejected_prediction_tokens=predicted - accepted,
            ),
        )


def tokens_from_prediction(step: Step, encode: Encode) -> int:
    """Count a step's accepted tokens that the client's prediction drafted."""
    drafted = [piece for piece in step.pieces if piece.source != "model"]
    predicted = [piece.text for piece in drafted if piece.source == "prediction"]
    if len(predicted) == len(drafted):
        return step.accepted
    return min(step.accepted, len(encode("".join(predicted))))


def timings(usage: Usage, total_s: float) -> types.Timings:
    """Return where the `total_s` seconds of an answer went."""
    return types.Timings(
        waited=max(0.0, total_s - usage.prefill_seconds - usage.decode_seconds),
        reading=usage.prefill_seconds,
        writing=usage.decode_seconds,
        tokens_per_second=usage.completion_tokens / max(usage.decode_seconds, 1e-9),
        forwards=usage.forwards,
        drafted=usage.drafted,
        accepted=usage.accepted,
    )


async def whole(stream: JobStream, builder: ResponseBuilder) -> types.ChatAnswer | types.TextAnswer:
    """Return the response in one piece. Raises ApiError."""
    done = Done("cancelled")
    async for event in stream:
        if isinstance(event, Done):
            done = event
        else:
            builder.count(event)
    reason: Any = finish_reason(done)
    usage = await asyncio.to_thread(builder.usage, done.usage)
    counts: dict[str, Any] = {"usage": usage, "timings": timings(done.usage, stream.total_s)}
    if builder.chat:
        content = builder.calls.push(done.text)
        rest, calls = builder.calls.finish(done)
        content += rest
        message = types.ChatMessage(
            content=content or (None if calls else ""),
            tool_calls=calls_in_answer(calls) or None,
            reasoning_content=done.reasoning or None,
        )
        reason = "tool_calls" if calls and reason == "stop" else reason
        chat_choice = types.ChatChoice(message=message, finish_reason=reason)
        return types.ChatAnswer(**builder.head("chat.completion"), choices=[chat_choice], **counts)
    choice = types.TextChoice(text=builder.echo + done.text, finish_reason=reason)
    return types.TextAnswer(**builder.head("text_completion"), choices=[choice], **counts)


async def chunks(
    stream: JobStream, builder: ResponseBuilder, include_usage: bool
) -> AsyncIterator[bytes]:
    """Yield the response as server-sent events."""
    no_usage = {"usage": None} if include_usage else {}
    if builder.chat or builder.echo:
        yield event_of(builder.chunk(builder.echo, first=True) | no_usage)
    async for event in until_refused(stream):
        if isinstance(event, ApiError):
            yield event_of(event.body())
            return
        if isinstance(event, Done):
            try:
                reason = finish_reason(event)
            except ApiError as error:
                yield event_of(error.body())
                return
            rest, calls = builder.calls.finish(event)
            if rest:
                yield event_of(builder.chunk(rest) | no_usage)
            for number, call in enumerate(calls_in_answer(calls)):
                yield event_of(builder.call_chunk(number, call) | no_usage)
            reason = "tool_calls" if calls and reason == "stop" else reason
            last = builder.chunk(None, reason) | no_usage
            yield event_of(last | {"timings": timings(event.usage, stream.total_s).model_dump()})
            if include_usage:
                usage = await asyncio.to_thread(builder.usage, event.usage)
                yield event_of(builder.chunk(None) | {"choices": [], "usage": usage.model_dump()})
            yield DONE_EVENT
            return
        builder.count(event)
        if event.reasoning and builder.chat:
            reasoning = builder.chunk(event.reasoning, part="reasoning_content")
            yield event_of(reasoning | no_usage)
        if text := builder.calls.push(event.text):
            yield event_of(builder.chunk(text) | no_usage)


async def until_refused(stream: JobStream) -> AsyncIterator[Event | ApiError]:
    """Yield the events; a refused answer to an update ends them with the error."""
    try:
        async for event in stream:
            yield event
    except EditRefused as error:
        yield refused(error)


def finish_reason(done: Done) -> Any:
    """OpenAI's finish reason. Raises ApiError if the answer is incomplete."""
    if done.reason == "failed":
        if (done.error or "").startswith(TOO_COMPLEX):  # known only as the answer is written
            raise ApiError(400, str(done.error))
        raise ApiError(500, f"the model failed: {done.error}")
    if done.reason == "cancelled":
        raise ApiError(503, "the answer was cancelled: the server ends, or the client disconnected")
    return done.reason


def event_of(body: dict[str, Any]) -> bytes:
    """Return a server-sent event."""
    return b"data: " + json.dumps(body, separators=(",", ":")).encode("ascii") + b"\n\n"
