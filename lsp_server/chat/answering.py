"""The run of a question: progress, the streamed answer, and the errors that a client gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engine.records import Done, Piece, Request, RequestError, Step
from lsp_server.protocol.messages import Progress, cancelled, failed
from lsp_server.shared_engine import NotReady, Superseded

if TYPE_CHECKING:
    from engine.remote.any_engine import EditorEngine
    from lsp_server.session import Session, Slot


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """A whole answer of the model."""

    done: Done
    pieces: tuple[Piece, ...]  # what it was drafted from
    seconds: float  # since the question was asked

    def stats(self) -> dict[str, Any]:
        """Return the figures for the client."""
        usage = self.done.usage
        tokens, decode_s = usage.completion_tokens, usage.decode_seconds
        return {
            "tokens": tokens,
            "seconds": round(self.seconds, 3),
            "tokensPerSecond": round(tokens / decode_s, 1) if decode_s else None,
            "acceptedShare": round(usage.accepted / tokens, 3) if tokens else None,
            "promptTokens": usage.prompt_tokens,
            "cachedTokens": usage.cached_tokens,
        }


async def answer(
    session: Session,
    slot: Slot,
    progress: Progress,
    title: str,
    prepare: Callable[[EditorEngine], Request],
) -> StreamedAnswer:
    """Ask the model what `prepare` makes, and stream the answer.

    The question takes the place of an older one in the same slot. `prepare` runs in a thread.
    Raises a protocol error if there is no answer.
    """
    pieces: list[Piece] = []
    began = perf_counter()

    def on_step(step: Step) -> None:
        pieces.extend(step.pieces)
        progress.text(step.text)
        if step.prefill:
            progress.report("reading", step.prefill[0] / step.prefill[1])

    try:
        progress.begin(title, lambda: session.cancel(slot))
        if session.shared_engine.loaded is None:
            progress.report("loading the model", 0.0)
        engine = await session.engine(slot)
        request = await asyncio.to_thread(prepare, engine)
        done = await session.ask(request, slot, on_step)
    except Superseded as reason:
        raise cancelled(str(reason)) from None
    except (NotReady, RequestError) as reason:
        raise failed(reason) from None
    finally:
        progress.end()
    if done.reason == "failed":
        raise failed(done.error)
    if done.reason == "cancelled":
        raise cancelled("the question was cancelled, or a newer one took its place")
    return StreamedAnswer(done, tuple(pieces), perf_counter() - began)
