"""Writes the parts of an answer as Anthropic's events.

The whole answer is what the events add up to.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.records import Done
from ui.api.anthropic_messages.schemas import (
    AnswerBlock,
    AnswerText,
    AnswerThinking,
    AnswerToolUse,
    MessageAnswer,
    MessagesUsage,
    StopReason,
)
from ui.api.chat_parts import Delta, Part, named_event
from ui.api.errors import ApiError
from ui.api.schemas import AnswerCall


def ping() -> bytes:
    """Return the event that keeps a stream alive."""
    return named_event({"type": "ping"})


@dataclass
class MessageWriter:
    """Writes one answer. `message` grows with the events."""

    message: MessageAnswer
    _open: AnswerBlock | None = field(default=None)

    @classmethod
    def of(cls, model: str) -> MessageWriter:
        return cls(MessageAnswer(id=f"msg_{secrets.token_hex(12)}", model=model))

    async def whole(self, parts: AsyncIterator[Part]) -> MessageAnswer:
        """Return the answer in one piece. Raises ApiError."""
        async for _ in self.events(parts):
            pass
        return self.message

    async def chunks(self, parts: AsyncIterator[Part]) -> AsyncIterator[bytes]:
        """Yield the answer as server-sent events; an error is the last one."""
        try:
            async for event in self.events(parts):
                yield named_event(event)
        except ApiError as error:
            yield named_event(error.body("/v1/messages"))

    async def events(self, parts: AsyncIterator[Part]) -> AsyncIterator[dict[str, Any]]:
        """Anthropic's events. The counts of tokens come with the last but one."""
        yield {"type": "message_start", "message": self.message.model_dump()}
        async for part in parts:
            for event in self._written(part):
                yield event

    def _written(self, part: Part) -> Iterator[dict[str, Any]]:
        if isinstance(part, Delta):
            yield from self._delta(part)
        elif isinstance(part, AnswerCall):
            yield from self._call(part)
        else:
            yield from self._stopped()
            yield self._ended(part)
            yield {"type": "message_stop"}

    def _delta(self, part: Delta) -> Iterator[dict[str, Any]]:
        if part.kind == "reasoning":
            if not isinstance(self._open, AnswerThinking):
                yield from self._started(AnswerThinking(thinking=""))
            assert isinstance(self._open, AnswerThinking)
            self._open.thinking += part.text
            yield self._changed({"type": "thinking_delta", "thinking": part.text})
        else:
            if not isinstance(self._open, AnswerText):
                yield from self._started(AnswerText(text=""))
            assert isinstance(self._open, AnswerText)
            self._open.text += part.text
            yield self._changed({"type": "text_delta", "text": part.text})

    def _call(self, call: AnswerCall) -> Iterator[dict[str, Any]]:
        """Yield a call, in one piece."""
        name, arguments = call.function.name, call.function.arguments
        block = AnswerToolUse(id=f"toolu_{secrets.token_hex(12)}", name=name, input={})
        yield from self._started(block)
        block.input = json.loads(arguments)
        yield self._changed({"type": "input_json_delta", "partial_json": arguments})

    def _started(self, block: AnswerBlock) -> Iterator[dict[str, Any]]:
        yield from self._stopped()
        self._open = block
        self.message.content.append(block)
        start = {"type": "content_block_start", "index": len(self.message.content) - 1}
        yield start | {"content_block": block.model_dump()}

    def _changed(self, delta: dict[str, Any]) -> dict[str, Any]:
        index = len(self.message.content) - 1
        return {"type": "content_block_delta", "index": index, "delta": delta}

    def _stopped(self) -> Iterator[dict[str, Any]]:
        if self._open is not None:
            yield {"type": "content_block_stop", "index": len(self.message.content) - 1}
        self._open = None

    def _ended(self, done: Done) -> dict[str, Any]:
        called = any(isinstance(block, AnswerToolUse) for block in self.message.content)
        reason: StopReason = "end_turn"
        if done.reason == "length":
            reason = "max_tokens"
        elif called:
            reason = "tool_use"
        elif done.matched is not None:
            reason = "stop_sequence"
            self.message.stop_sequence = done.matched
        self.message.stop_reason = reason
        self.message.usage = MessagesUsage(
            input_tokens=done.usage.prompt_tokens - done.usage.cached_tokens,
            cache_read_input_tokens=done.usage.cached_tokens,
            output_tokens=done.usage.completion_tokens,
        )
        delta = {"stop_reason": reason, "stop_sequence": self.message.stop_sequence}
        return {"type": "message_delta", "delta": delta, "usage": self.message.usage.model_dump()}
