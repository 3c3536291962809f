"""Translates the engine's events to OpenAI's responses, whole or as server-sent events.

Server-sent events are pure ASCII, with other characters escaped: no client can split a character or
mistake one for a line end. The chunks of a stream add up to the text of the whole response.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.editing.edits import EditRefused
from engine.records import Done, Event, RequestError, Step, Usage
from engine.sampling.grammar import TOO_COMPLEX
from ui.api import schemas as types
from ui.api.errors import ApiError, refused
from ui.api.jobs import JobStream
from ui.api.logprobs import Chances, Offsets, chat_logprobs, text_logprobs
from ui.api.tool_calls import CallReader, calls_in_answer

DONE_EVENT = b"data: [DONE]\n\n"
Encode = Callable[[str], list[int]]


@dataclass
class ResponseBuilder:
    """Builds the response to one request; all its chunks share an id.

    It writes choice after choice, and counts accepted prediction tokens as they arrive.
    """

    chat: bool
    model: str
    fingerprint: str
    encode: Encode
    prediction: str = ""  # the client's
    echoes: Sequence[str] = ()  # texts that precede the answers to each prompt
    per_prompt: int = 1  # choices
    top_logprobs: int | None = None  # likeliest tokens next to each one; None: no probabilities
    make_calls: Callable[[], CallReader] = CallReader
    accepted_prediction_tokens: int = 0
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))
    warnings: Sequence[str] = ()
    index: int = -1  # the choice that is written
    total: Usage = field(default_factory=Usage)
    _writes: bool = False

    def begin(self) -> bool:
        """Begin the next choice, unless one is being written; whether it has."""
        if self._writes:
            return False
        self._writes = True
        self.index += 1
        self.calls = self.make_calls()
        self.chances: list[Chances] = []
        self._offsets = Offsets()
        return True

    @property
    def echo(self) -> str:
        """The text that precedes this choice."""
        return self.echoes[self.index // self.per_prompt] if self.echoes else ""

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
        chances: Sequence[Chances] = (),
    ) -> dict[str, Any]:
        """Return the body of one event.

        `text` is None in the last one; `part` of a chat's message. `chances`: of its tokens.
        """
        told = self.logprobs(chances) if chances else None
        choice: dict[str, Any] = {
            "index": max(self.index, 0),
            "logprobs": told and told.model_dump(),
            "finish_reason": reason,
        }
        if self.chat:
            role = {"role": "assistant"} if first else {}
            choice["delta"] = role if text is None else role | {part: text}
        else:
            choice["text"] = text or ""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return self.head(kind) | {"choices": [choice]}

    def call_chunk(self, number: int, call: types.AnswerCall) -> dict[str, Any]:
        """Return the body of an event with a whole call."""
        chunk = self.chunk(None)
        chunk["choices"][0]["delta"] = {"tool_calls": [{"index": number} | call.model_dump()]}
        return chunk

    def choice(self, done: Done) -> types.ChatChoice | types.TextChoice:
        """Return a choice in one piece, at its end. Raises ApiError if it is incomplete."""
        reason: Any = finish_reason(done)
        logprobs: Any = None if self.top_logprobs is None else self.logprobs(self.chances)
        if not self.chat:
            text = self.echo + done.text
            return types.TextChoice(
                index=self.index, text=text, logprobs=logprobs, finish_reason=reason
            )
        content = self.calls.push(done.text)
        rest, calls = self.calls.finish(done)
        content += rest
        message = types.ChatMessage(
            content=content or (None if calls else ""),
            tool_calls=calls_in_answer(calls) or None,
            reasoning_content=done.reasoning or None,
        )
        reason = "tool_calls" if calls and reason == "stop" else reason
        return types.ChatChoice(
            index=self.index, message=message, logprobs=logprobs, finish_reason=reason
        )

    def logprobs(self, chances: Sequence[Chances]) -> types.ChatLogprobs | types.TextLogprobs:
        """Return the probabilities of tokens, in the form of the protocol."""
        if self.chat:
            return chat_logprobs(chances)
        return text_logprobs(chances, self._offsets, bool(self.top_logprobs))

    def count(self, step: Step) -> None:
        """Count the tokens of a step that were copied from the client's prediction."""
        self.chances += step.logprobs
        if self.prediction:
            self.accepted_prediction_tokens += tokens_from_prediction(step, self.encode)

    def end(self, usage: Usage) -> None:
        """End a choice. A prompt counts once, and what the cache had of it at first."""
        self._writes = False
        parts = dataclasses.asdict(usage)
        if self.index % self.per_prompt:
            parts |= {"prompt_tokens": 0, "cached_tokens": 0}
        total = dataclasses.asdict(self.total)
        self.total = Usage(**{name: total[name] + count for name, count in parts.items()})

    def usage(self, usage: Usage) -> types.TokenUsage:
        """OpenAI's counts. It tokenizes the prediction, which each choice may repeat."""
        predicted = len(self.encode(self.prediction)) if self.prediction else 0
        predicted *= max(self.index, 0) + 1
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
    choices: list[Any] = []
    async for event in stream:
        builder.begin()
        if isinstance(event, Done):
            choices.append(builder.choice(event))
            builder.end(event.usage)
        else:
            builder.count(event)
    usage = await asyncio.to_thread(builder.usage, builder.total)
    counts: dict[str, Any] = {"usage": usage, "timings": timings(builder.total, stream.total_s)}
    if builder.chat:
        counts["warnings"] = [*builder.warnings]
        return types.ChatAnswer(**builder.head("chat.completion"), choices=choices, **counts)
    return types.TextAnswer(**builder.head("text_completion"), choices=choices, **counts)


async def chunks(
    stream: JobStream, builder: ResponseBuilder, include_usage: bool, count: int = 1
) -> AsyncIterator[bytes]:
    """Yield the response, `count` choices, as server-sent events."""
    no_usage = {"usage": None} if include_usage else {}
    builder.begin()
    if builder.chat or builder.echo:
        yield event_of(builder.chunk(builder.echo, first=True) | no_usage)
    async for event in until_refused(stream):
        if isinstance(event, ApiError):
            yield event_of(event.body())
            return
        if builder.begin() and (builder.chat or builder.echo):
            yield event_of(builder.chunk(builder.echo, first=True) | no_usage)
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
            builder.end(event.usage)
            if builder.index + 1 == count:
                told = timings(builder.total, stream.total_s).model_dump()
                last |= {"timings": told}
                if builder.warnings:
                    last |= {"warnings": [*builder.warnings]}
            yield event_of(last)
            continue
        builder.count(event)
        if event.reasoning and builder.chat:
            reasoning = builder.chunk(event.reasoning, part="reasoning_content")
            yield event_of(reasoning | no_usage)
        text = builder.calls.push(event.text)
        if text or event.logprobs:
            yield event_of(builder.chunk(text, chances=event.logprobs) | no_usage)
    if include_usage:
        usage = await asyncio.to_thread(builder.usage, builder.total)
        yield event_of(builder.chunk(None) | {"choices": [], "usage": usage.model_dump()})
    yield DONE_EVENT


async def until_refused(stream: JobStream) -> AsyncIterator[Event | ApiError]:
    """Yield the events; an error ends them.

    That is a refused answer to an update, or a request behind the first that cannot be answered.
    """
    try:
        async for event in stream:
            yield event
    except EditRefused as error:
        yield refused(error)
    except RequestError as error:
        yield ApiError(400, str(error))


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
