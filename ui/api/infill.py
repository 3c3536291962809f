"""`POST /infill` of llama.cpp's server, as llama.vim and llama.vscode send it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from engine.editing.edits import plain
from engine.prompts.builder import COMPLETE_TOKENS
from engine.prompts.fim import MAX_TOKEN_CHARS, window
from engine.records import Done, Event, Reason, Request, Step, Usage
from ui.api.errors import ApiError
from ui.api.jobs import JobStream
from ui.api.requests import seed_of, stop_strings, temperature_of, top_p_of
from ui.api.responses import event_of, finish_reason
from ui.api.schemas import InfillAnswer, InfillRequest, InfillTimings

if TYPE_CHECKING:
    from engine.remote.any_engine import ServedEngine

PREFIX_SHARE = 0.75  # share of the capacity for the text around the cursor, as in llama.cpp
SPARE_TOKENS = 32  # tokens of the context: marks, and the names of the repository and the file
UNNAMED = "tmp"  # the name of a chunk without one, as in llama.cpp


@dataclass
class Infill:
    """One request and its response."""

    body: InfillRequest
    engine: ServedEngine
    model: str
    truncated: bool = False  # set by `request`

    def request(self) -> Request:
        """Return the engine's request. Called in a thread: it may tokenize all texts."""
        body = self.body
        prefix, suffix, chunks = self.fitting()
        self.truncated = (prefix, suffix, len(chunks)) != (
            body.input_prefix + body.prompt,
            body.input_suffix,
            len(body.input_extra),
        )
        seed = None if body.seed is not None and body.seed < 0 else body.seed
        return Request(
            "complete",
            prefix,
            suffix=suffix,
            snippets=chunks,
            max_tokens=self.max_tokens,
            temperature=temperature_of(body.temperature),
            top_k=max(body.top_k or 0, 0),
            top_p=top_p_of(body.top_p),
            min_p=body.min_p or 0.0,
            seed=seed_of(seed, body.temperature),
            stop=stop_strings(body.stop),
        )

    @property
    def max_tokens(self) -> int:
        """The number of tokens to generate, at least one.

        Clients request none to have the prompt read, and only then it is.
        """
        given = self.body.n_predict
        return COMPLETE_TOKENS if given is None or given < 0 else max(given, 1)

    def fitting(self) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """Return prefix, suffix and the chunks of other files, as much as fits the context."""
        body, encode = self.body, self.engine.encode
        prefix, suffix = body.input_prefix + body.prompt, body.input_suffix
        context = self.engine.context
        capacity = max(context - min(self.max_tokens, context // 2) - SPARE_TOKENS, 0)
        before = int(capacity * PREFIX_SHARE)
        start, stop = window(prefix + suffix, len(prefix), before, capacity - before, encode)
        prefix, suffix = prefix[start:], suffix[: stop - len(prefix)]
        chunks: list[tuple[str, str]] = []
        if body.input_extra:
            capacity -= len(encode(prefix)) + len(encode(suffix))
        for chunk in reversed(body.input_extra):
            name = chunk.filename or UNNAMED
            shown = f"{name}\n{plain(chunk.text).rstrip()}\n"
            if (
                len(shown) > MAX_TOKEN_CHARS * capacity
                or (capacity := capacity - len(encode(shown)) - 1) < 0
            ):
                break
            chunks.insert(0, (name, chunk.text))
        return prefix, suffix, tuple(chunks)

    async def events(self, stream: JobStream) -> AsyncIterator[Event]:
        """Yield the events of a job.

        Once `t_max_predict_ms` have passed since the first text, and a line is complete, the answer
        ends as if it had reached its length.
        """
        limit_s = max(self.body.t_max_predict_ms or 0.0, 0.0) / 1000
        began: float | None = None
        lines = expired = False
        async for event in stream:
            if isinstance(event, Done):
                ended = expired and event.reason == "cancelled"
                event = replace(event, reason="length") if ended else event
                yield event if self.body.n_predict != 0 else without_text(event)
            elif event.text and self.body.n_predict != 0:
                yield event
                began = perf_counter() if began is None else began
                lines = lines or "\n" in event.text
                if limit_s and lines and not expired and perf_counter() - began >= limit_s:
                    expired = True
                    stream.cancel()

    async def whole(self, stream: JobStream) -> dict[str, Any]:
        """Return the response in one piece. Raises ApiError."""
        done = Done("cancelled")
        async for event in self.events(stream):
            if isinstance(event, Done):
                done = event
        return picked(self.answer(done) | {"content": done.text}, self.body.response_fields)

    async def chunks(self, stream: JobStream) -> AsyncIterator[bytes]:
        """Yield the response as server-sent events, the last of which has no text."""
        async for event in self.events(stream):
            if isinstance(event, Step):
                yield event_of({"index": 0, "content": event.text, "stop": False})
                continue
            try:
                answer = picked(self.answer(event), self.body.response_fields)
            except ApiError as error:
                answer = error.body()
            yield event_of(answer)

    def answer(self, done: Done) -> dict[str, Any]:
        """Return the last part of the response, with an empty text.

        Raises ApiError if the answer is incomplete.
        """
        finish_reason(done)
        usage = done.usage
        ended: Literal["eos", "word", "limit"]
        ended = "limit" if done.reason == "length" else "word" if done.matched else "eos"
        return InfillAnswer(
            model=self.model,
            tokens_predicted=usage.completion_tokens,
            tokens_evaluated=usage.prompt_tokens,
            tokens_cached=usage.cached_tokens,
            truncated=self.truncated,
            stop_type=ended,
            stopping_word=done.matched or "",
            has_new_line="\n" in done.text,
            generation_settings={"n_ctx": self.engine.context, "n_predict": self.max_tokens},
            timings=timings(usage),
        ).model_dump()


def without_text(done: Done) -> Done:
    """Return the end of an answer of which only the prompt counts."""
    reason: Reason = "length" if done.reason == "stop" else done.reason
    return replace(
        done, reason=reason, text="", matched=None, usage=replace(done.usage, completion_tokens=0)
    )


def timings(usage: Usage) -> InfillTimings:
    """Return where the time went, as llama.cpp counts it."""
    read = usage.prompt_tokens - usage.cached_tokens
    reading_ms, writing_ms = 1000 * usage.prefill_seconds, 1000 * usage.decode_seconds
    return InfillTimings(
        cache_n=usage.cached_tokens,
        prompt_n=read,
        prompt_ms=reading_ms,
        prompt_per_token_ms=reading_ms / max(read, 1),
        prompt_per_second=1000 * read / max(reading_ms, 1e-6),
        predicted_n=usage.completion_tokens,
        predicted_ms=writing_ms,
        predicted_per_token_ms=writing_ms / max(usage.completion_tokens, 1),
        predicted_per_second=1000 * usage.completion_tokens / max(writing_ms, 1e-6),
        draft_n=usage.drafted,
        draft_n_accepted=usage.accepted,
    )


def picked(answer: Mapping[str, Any], fields: Sequence[str] | None) -> dict[str, Any]:
    """Pick the fields that the client requests, by their paths (`timings/prompt_n`).

    Unknown ones are left out. Without a request, all of them are there.
    """
    if not fields:
        return dict(answer)
    found = {}
    for path in fields:
        value: Any = answer
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            found[path] = value
    return found
