"""The answer to a chat as a stream of parts, which each protocol writes in its own form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from engine.editing.edits import EditRefused
from engine.records import Done, Event
from ui.api.errors import refused
from ui.api.jobs import JobStream
from ui.api.responses import event_of, finish_reason
from ui.api.schemas import AnswerCall
from ui.api.tool_calls import CallReader, calls_in_answer


@dataclass(frozen=True, slots=True)
class Delta:
    """The next characters of the answer, or of the reasoning before it."""

    kind: Literal["reasoning", "text"]
    text: str


Part = Delta | AnswerCall | Done  # a Done is the last one


async def parts_of(stream: JobStream, calls: CallReader) -> AsyncIterator[Part]:
    """Yield the parts of an answer, as they come. Raises ApiError if the answer is incomplete."""
    try:
        async for event in stream:
            for part in parts_in(event, calls):
                yield part
    except EditRefused as error:
        raise refused(error) from error


def parts_in(event: Event, calls: CallReader) -> Iterator[Part]:
    """Yield the parts that an event completes.

    Raises ApiError for the end of an incomplete answer.
    """
    if isinstance(event, Done):
        finish_reason(event)
        rest, found = calls.finish(event)
        if rest:
            yield Delta("text", rest)
        yield from calls_in_answer(found)
        yield event
        return
    if event.reasoning:
        yield Delta("reasoning", event.reasoning)
    if text := calls.push(event.text):
        yield Delta("text", text)


def named_event(body: dict[str, Any]) -> bytes:
    """Return a server-sent event that is named after its type."""
    return f"event: {body['type']}\n".encode("ascii") + event_of(body)
