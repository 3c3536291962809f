"""Writes the parts of an answer as the events of OpenAI's responses.

The whole response is the one of the last event.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.records import Done
from ui.api import schemas as types
from ui.api.chat_parts import Delta, Part, named_event
from ui.api.errors import ApiError
from ui.api.openai_responses.requests import functions_of
from ui.api.openai_responses.schemas import (
    AnswerItem,
    AnswerMessage,
    AnswerReasoning,
    AnswerTool,
    IncompleteDetails,
    InputDetails,
    OutputDetails,
    OutputText,
    ReasoningText,
    ResponseAnswer,
    ResponsesAnswerCall,
    ResponsesNamedTool,
    ResponsesRequest,
    ResponsesUsage,
    Status,
)


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


def response_to(body: ResponsesRequest, model: str) -> ResponseAnswer:
    """Return the response before it has any output."""
    choice = body.tool_choice or "auto"
    return ResponseAnswer(
        id=new_id("resp"),
        created_at=int(time.time()),
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        model=model,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        temperature=body.temperature,
        tool_choice=choice.model_dump() if isinstance(choice, ResponsesNamedTool) else choice,
        tools=[AnswerTool(**tool.model_dump()) for tool in functions_of(body)],
        top_p=body.top_p,
    )


@dataclass
class ResponseWriter:
    """Writes one response, which grows with the events."""

    response: ResponseAnswer
    encode: Callable[[str], list[int]]
    _sent: int = 0  # events
    _open: AnswerMessage | AnswerReasoning | None = field(default=None)

    async def whole(self, parts: AsyncIterator[Part]) -> ResponseAnswer:
        """Return the response in one piece. Raises ApiError."""
        async for _ in self.events(parts):
            pass
        return self.response

    async def chunks(self, parts: AsyncIterator[Part]) -> AsyncIterator[bytes]:
        """Yield the response as server-sent events; where it fails, the last one says so."""
        try:
            async for event in self.events(parts):
                yield named_event(event)
        except ApiError as error:
            self.response.status = "failed"
            self.response.error = types.ErrorBody(**error.body()["error"])
            yield named_event(self._event("failed", response=self.response.model_dump()))

    def in_progress(self) -> bytes:
        """Return the event that keeps a stream alive: some clients wait for one."""
        return named_event(self._event("in_progress", response=self.response.model_dump()))

    async def events(self, parts: AsyncIterator[Part]) -> AsyncIterator[dict[str, Any]]:
        """OpenAI's events. The counts of tokens come with the last one."""
        yield self._event("created", response=self.response.model_dump())
        yield self._event("in_progress", response=self.response.model_dump())
        async for part in parts:
            for event in self._written(part):
                yield event

    def _written(self, part: Part) -> Iterator[dict[str, Any]]:
        if isinstance(part, Delta):
            yield from self._delta(part)
        elif isinstance(part, types.AnswerCall):
            yield from self._call(part)
        else:
            yield from self._stopped("incomplete" if part.reason == "length" else "completed")
            self._end(part)
            yield self._event(self.response.status, response=self.response.model_dump())

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        number, self._sent = self._sent, self._sent + 1
        return {"type": f"response.{kind}", "sequence_number": number} | fields

    def _item_event(self, kind: str, item: AnswerItem, **fields: Any) -> dict[str, Any]:
        """Return an event of the item at the end of the output."""
        place = {"item_id": item.id, "output_index": len(self.response.output) - 1}
        return self._event(kind, **place, **fields)

    def _part_event(
        self, kind: str, item: AnswerItem, part: OutputText | ReasoningText, **fields: Any
    ) -> dict[str, Any]:
        """Return an event of an item's text."""
        if isinstance(part, OutputText):
            fields["logprobs"] = []
        return self._item_event(f"{part.type}.{kind}", item, content_index=0, **fields)

    def _added(self, item: AnswerItem) -> dict[str, Any]:
        self.response.output.append(item)
        index = len(self.response.output) - 1
        return self._event("output_item.added", output_index=index, item=item.model_dump())

    def _done(self, item: AnswerItem, status: Status = "completed") -> dict[str, Any]:
        item.status = status
        index = len(self.response.output) - 1
        return self._event("output_item.done", output_index=index, item=item.model_dump())

    def _delta(self, delta: Delta) -> Iterator[dict[str, Any]]:
        kind = AnswerMessage if delta.kind == "text" else AnswerReasoning
        if not isinstance(self._open, kind):
            yield from self._stopped()
            yield from self._started(kind)
        assert self._open is not None
        (part,) = self._open.content
        part.text += delta.text
        yield self._part_event("delta", self._open, part, delta=delta.text)

    def _started(self, kind: type[AnswerMessage | AnswerReasoning]) -> Iterator[dict[str, Any]]:
        """Begin an item that has one part."""
        item: AnswerMessage | AnswerReasoning
        if kind is AnswerMessage:
            item = AnswerMessage(id=new_id("msg"))
        else:
            item = AnswerReasoning(id=new_id("rs"))
        self._open = item
        yield self._added(item)
        part = OutputText(text="") if isinstance(item, AnswerMessage) else ReasoningText(text="")
        item.content = [part]  # type: ignore[assignment]
        yield self._item_event("content_part.added", item, content_index=0, part=part.model_dump())

    def _stopped(self, status: Status = "completed") -> Iterator[dict[str, Any]]:
        """End the open item."""
        if (item := self._open) is None:
            return
        self._open = None
        (part,) = item.content
        yield self._part_event("done", item, part, text=part.text)
        yield self._item_event("content_part.done", item, content_index=0, part=part.model_dump())
        yield self._done(item, status)

    def _call(self, call: types.AnswerCall) -> Iterator[dict[str, Any]]:
        """Yield a call, whose arguments come in one piece."""
        yield from self._stopped()
        name, arguments = call.function.name, call.function.arguments
        item = ResponsesAnswerCall(id=new_id("fc"), call_id=call.id, name=name, arguments="")
        yield self._added(item)
        item.arguments = arguments
        yield self._item_event("function_call_arguments.delta", item, delta=arguments)
        whole = {"name": name, "arguments": arguments}
        yield self._item_event("function_call_arguments.done", item, **whole)
        yield self._done(item)

    def _end(self, done: Done) -> None:
        """Set what is known of the whole response."""
        self.response.status = "completed"
        if done.reason == "length":
            self.response.status = "incomplete"
            self.response.incomplete_details = IncompleteDetails(reason="max_output_tokens")
        usage = done.usage
        reasoning = len(self.encode(done.reasoning)) if done.reasoning else 0
        self.response.usage = ResponsesUsage(
            input_tokens=usage.prompt_tokens,
            input_tokens_details=InputDetails(cached_tokens=usage.cached_tokens),
            output_tokens=usage.completion_tokens,
            output_tokens_details=OutputDetails(reasoning_tokens=reasoning),
            total_tokens=usage.prompt_tokens + usage.completion_tokens,
        )
