"""Completions: what is asked of the model at a place, and what of its answer is offered.

The prompt is as long as this machine can read in half the time that there is. Nothing here knows
the protocol's types; why nothing was offered is left in `session.reason`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING

from engine.prompts.fim import window
from engine.records import Done, Request, RequestError, Step
from lsp_server.completion.completion_cache import Completion, context_around
from lsp_server.completion.context_snippets import Snippet, find_snippets
from lsp_server.completion.in_flight import CompletionInFlight
from lsp_server.completion.postprocess import find_end, fit_to_context, truncate, wants_multiline
from lsp_server.shared_engine import NotReady

if TYPE_CHECKING:
    from engine.engine import Engine
    from lsp_server.protocol.text_sync import Document
    from lsp_server.session import Session

LEAST, LARGEST = 48, 2048  # tokens of a prompt: too few to be of use, enough for every use
AFTER = 1 / 6  # of the prompt: what follows the cursor, read again at each keystroke
OTHERS = 1 / 4  # of the prompt at most: text of other files
CANDIDATES = 3  # where they are asked for by hand; all but the first are drawn
WARMTH, CHOICE = 0.6, 0.95  # temperature and top_p of these
SEEN = 8000  # characters on either side of the cursor that decide where an answer ends
FEWEST, SPARE = 0.5, 0.85  # of the tokens that can be read: kept down to, and chosen
HASTE = 0.6  # s after which one that was not asked for by hand is offered as far as it is
NEARBY = 16  # lines: when the cursor goes farther, text of other files is chosen anew


@dataclass(slots=True)
class Heads:
    """What the head of the prompt hangs on: how long prompts are, and the text of other files that
    is shown above a document's window, chosen anew when the window starts elsewhere. In between
    both stay as they are, so that the head does, and is not read again."""

    room: int = 0  # tokens of a prompt
    places: dict[str, tuple[object, ...]] = field(default_factory=dict)
    chosen: dict[str, tuple[Snippet, ...]] = field(default_factory=dict)

    def steady(self, most: int) -> int:
        """Tokens of a prompt where `most` can be read now: as before where that is not too far."""
        if not most * FEWEST <= self.room <= most:
            self.room = int(most * SPARE)
        return self.room

    def of(
        self,
        session: Session,
        engine: Engine,
        document: Document,
        span: tuple[int, int, int],
        room: int,
    ) -> tuple[Snippet, ...]:
        """For a window: its start, the cursor and its stop."""
        workspace, uri = session.workspace, document.uri
        if workspace is None or not document.path or room < LEAST:  # too little for any
            return ()
        start, offset, stop = span
        near = document.text.line_of(offset) // NEARBY
        place = (start, near, id(workspace), session.is_starting())
        if self.places.get(uri) != place:
            text = document.text.text
            path = workspace.key(document.path)
            sides = text[start:offset], text[offset:stop]
            self.chosen[uri] = find_snippets(*sides, path, room, workspace, engine.encoder)
            self.places[uri] = place
        return self.chosen[uri]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked at a place, and what decides where its answer ends."""

    request: Request
    document: Document
    offset: int
    sides: tuple[str, str]
    lines: bool
    began: float

    def left(self, session: Session) -> float:
        """Seconds that it may still take."""
        return session.settings.maxTimeMs / 1000 - (perf_counter() - self.began)

    def add(self, session: Session, answers: list[str]) -> list[Completion]:
        """Remember what is offered."""
        text, uri = self.document.text.text, self.document.uri
        return session.completions.add(uri, text, self.offset, answers, self.lines)


async def suggest(
    session: Session, document: Document, offset: int, by_hand: bool, heads: Heads
) -> list[Completion]:
    """What may be written at a place, best first: one, or several when asked for `by_hand`."""
    await session.configured()
    began = perf_counter()
    text, settings, uri = document.text.text, session.settings, document.uri
    why = settings.disabled_reason(document.language, document.path)
    if not session.enabled or why:
        return _nothing(session, why or "draftline is turned off: draftline.toggle turns it on")
    if by_hand:
        session.in_flight.pop(uri, None)
    elif (known := await _known(session, document, offset)) is not None:
        return known
    is_loading = session.shared_engine.loaded is None
    try:
        engine = await session.engine(("complete", uri))
    except NotReady as reason:
        return _nothing(session, str(reason))
    if is_loading:
        if uri not in session.documents or session.documents.get(uri) is not document:
            return _nothing(session, "the text changed while the model was loading")
        began = perf_counter()
    request, why = request_for(session, engine, document, offset, heads)
    if request is None:
        return _nothing(session, why)
    before, after = text[max(0, offset - SEEN) : offset], text[offset : offset + SEEN]
    lines = wants_multiline(before, after, settings.multiline)
    asked = Asked(request, document, offset, (before, after), lines, began)
    if by_hand:
        return await _several(session, asked)
    place = Completion(uri, offset, *context_around(text, offset), "", lines)

    def end() -> None:
        if session.in_flight.get(uri) is writing:  # not a newer one that took its place
            session.cancel(("complete", uri))

    session.in_flight[uri] = writing = CompletionInFlight(place, len(text) - offset, end)
    writing.start(_written(session, asked, writing))
    return await writing.wait() or []


async def _known(session: Session, document: Document, offset: int) -> list[Completion] | None:
    """What is left of a completion that was made or is being written; None: ask the model."""
    uri, text = document.uri, document.text.text
    for waits in (session.settings.debounceMs / 1000, None):
        if kept := session.completions.find(uri, text, offset):
            return _kept(session, kept)
        writing = session.in_flight.get(uri)
        if writing is not None and writing.matches(text, offset):
            made = await writing.wait()
            if kept := session.completions.find(uri, text, offset):
                return _kept(session, kept)
            if not writing.stopped and (made is None or not writing.typed):
                return []  # why is said already
            break
        if writing is not None:
            writing.stop()
        if waits is not None:
            await asyncio.sleep(waits)
    return None


def _kept(session: Session, kept: Completion) -> list[Completion]:
    session.reason = "offered: what is left of the completion that you type"
    return [kept]


async def _several(session: Session, asked: Asked) -> list[Completion]:
    """Candidates, as many as the time allows."""
    answers: list[str] = []
    for number in range(CANDIDATES):
        if answers and asked.left(session) <= 0:
            break
        drawn = replace(asked.request, temperature=WARMTH, top_p=CHOICE, seed=number)
        done, answer = await _answer(session, asked, drawn if number else asked.request)
        if answer and answer not in answers:
            answers.append(answer)
        if done.reason in ("cancelled", "failed"):
            break
    return asked.add(session, answers)


async def _written(
    session: Session, asked: Asked, writing: CompletionInFlight
) -> list[Completion] | None:
    """One candidate, whoever waits for it; None where it was cancelled or failed."""
    try:
        done, answer = await _answer(session, asked, asked.request, writing)
    finally:
        if session.in_flight.get(asked.document.uri) is writing:
            del session.in_flight[asked.document.uri]
    if done.reason in ("cancelled", "failed"):
        return None
    return asked.add(session, [answer] if answer else [])


async def _answer(
    session: Session, asked: Asked, request: Request, writing: CompletionInFlight | None = None
) -> tuple[Done, str]:
    """How the model ended, and what of its text is offered; why there is nothing is said."""
    sides, lines = asked.sides, asked.lines
    try:
        done, raw = await _raw(session, asked, request, writing)
    except (RequestError, NotReady) as reason:
        session.reason = str(reason)
        return Done("failed", error=str(reason)), ""
    answer = fit_to_context(raw, *sides, lines)
    session.reason = _why(done, raw, answer, session.settings.maxTimeMs)
    return done, answer


async def _raw(
    session: Session, asked: Asked, request: Request, writing: CompletionInFlight | None
) -> tuple[Done, str]:
    """What the model writes, up to where it is complete or the time is over. One that is being
    typed is content with the whole lines that are there after a while: who types does not wait."""
    text, cut_off = "", False
    sides, lines = asked.sides, asked.lines
    began = perf_counter()

    def on_step(step: Step) -> bool:
        nonlocal text, cut_off
        text += step.text
        if writing:
            writing.on_text(text)
        if find_end(text, *sides, lines) is not None:
            return True
        cut_off = bool(writing) and perf_counter() - began > HASTE and "\n" in text.strip()
        return cut_off

    slot = ("complete", asked.document.uri)
    done = await session.ask(request, slot, on_step, max(asked.left(session), 0.05))
    if done.reason in ("cancelled", "failed"):
        return done, ""
    return done, truncate(text, *sides, lines, done.reason == "stop" and not cut_off)


def _why(done: Done, raw: str, answer: str, limit: int) -> str:
    """What became of an answer, for a person."""
    if done.reason == "failed":
        return f"the model failed: {done.error}"
    if done.reason == "cancelled":
        return "a newer request took its place, or it was cancelled"
    if answer:
        return "offered: a completion"
    if raw.strip():
        return "the model would write what stands there already"
    if done.reason == "length":
        return f"the model wrote nothing within draftline.maxTimeMs ({limit}): raise it"
    return "the model would write nothing here"


def request_for(
    session: Session, engine: Engine, document: Document, offset: int, heads: Heads
) -> tuple[Request | None, str]:
    """What is asked for at a place; None and the reason where this machine cannot read enough in
    half of maxTimeMs."""
    settings, encode = session.settings, engine.encode
    readable = settings.maxTimeMs / 2000 * engine.info.prefill_tokens_per_s
    room = int(min(readable, LARGEST, engine.context - settings.maxTokens))
    if room < LEAST:
        return None, (
            f"this machine reads {engine.info.prefill_tokens_per_s:.0f} tokens/s, too few "
            f"for a prompt in half of draftline.maxTimeMs ({settings.maxTimeMs}): raise it"
        )
    room = heads.steady(room)
    fills = engine.info.fills_middle
    others = min(settings.context, int(room * OTHERS)) if fills else 0
    after = int(room * AFTER) if fills else 0
    text = document.text.text
    span = window(text, offset, room - others - after - 16, after, encode)
    request = Request(
        "complete",
        text[span[0] : offset],
        path=document.path or "",
        version=document.version,
        suffix=text[offset : span[1]],
        snippets=heads.of(session, engine, document, (span[0], offset, span[1]), others),
        max_tokens=settings.maxTokens,
    )
    return request, ""


def _nothing(session: Session, why: str) -> list[Completion]:
    session.reason = why
    return []
