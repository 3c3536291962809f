"""Inline completion: the prompt for a cursor position, and what is offered of the model's answer.

A prompt is as long as this machine can prefill in half of maxTimeMs, but never without the lines
before the cursor: what is read of it is not read again at the next key. Independent of the
protocol's types; the reason for the last offer, or for its absence, is left in `session.reason`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from engine.editing.scopes.exports import Read, exports
from engine.prompts.fim import whole_blocks, window
from engine.records import Done, Request, RequestError, Step
from engine.weights.errors import WeightsError
from lsp_server.completion.checks import checked, unfit_place
from lsp_server.completion.completion_cache import Completion, context_around
from lsp_server.completion.context_snippets import Snippet, find_snippets
from lsp_server.completion.import_names import (
    ImportPlace,
    certain,
    import_place,
    importable,
    missing,
    reader,
    undefined,
)
from lsp_server.completion.in_flight import CompletionInFlight
from lsp_server.completion.indentation import line_before
from lsp_server.completion.postprocess import (
    find_end,
    fit_to_context,
    repeated_part,
    truncate,
    wants_multiline,
)
from lsp_server.shared_engine import NotReady

if TYPE_CHECKING:
    from engine.remote.any_engine import EditorEngine
    from lsp_server.protocol.text_sync import OpenDocument
    from lsp_server.session import Session
    from lsp_server.shared_engine import SharedEngine

MAX_PROMPT_TOKENS = 2048
# tokens before the cursor that are shown however long it takes: 250, and what steps of lines leave
MIN_PREFIX_TOKENS = 350
MIN_SNIPPET_TOKENS = 48  # tokens of other files that are worth showing
SUFFIX_SHARE = 1 / 6  # share of the prompt: text after the cursor
SNIPPETS_SHARE = 1 / 4  # largest share of the prompt: text of other files
SPECIAL_TOKENS = 48  # tokens reserved for FIM tokens, separators and lines shown twice
CANDIDATES = 3  # completions if invoked explicitly; all but the first are sampled
TEMPERATURE, TOP_P = 0.6, 0.95  # sampling of all candidates but the first
CONTEXT_CHARS = 8000  # characters on either side of the cursor, for post-processing
# Shares of the prefill budget: the least before a prompt's length is chosen again, and the new one
MIN_BUDGET_USE, BUDGET_USE = 0.5, 0.85
EAGER_AFTER_S = 0.6  # seconds; then a completion as you type ends at its last complete line
MIN_TIMEOUT_S = 0.05
SNIPPET_RADIUS_LINES = 16  # lines; if the cursor moves farther, snippets are chosen again


@dataclass(slots=True)
class PromptLayout:
    """The layout of prompts: their length, and for each document the snippets above its window.

    It keeps the start of prompts the same between keystrokes, so that its KV cache is reused.
    """

    prompt_tokens: int = 0
    keys: dict[str, tuple[object, ...]] = field(default_factory=dict)  # by URI
    snippets: dict[str, tuple[Snippet, ...]] = field(default_factory=dict)  # by URI

    def fit_budget(self, budget: int) -> int:
        """Choose the length of a prompt when `budget` tokens can be prefilled.

        It stays unchanged if that is neither too long nor much too short.
        """
        if not budget * MIN_BUDGET_USE <= self.prompt_tokens <= budget:
            self.prompt_tokens = int(budget * BUDGET_USE)
        return self.prompt_tokens

    def snippets_for(
        self,
        session: Session,
        engine: EditorEngine,
        document: OpenDocument,
        span: tuple[int, int, int],
        budget: int,
    ) -> tuple[Snippet, ...]:
        """Choose snippets of at most `budget` tokens for a window, given as (start, cursor, stop).

        They are chosen again only when the window's start or the cursor has moved on.
        """
        workspace, uri = session.workspace, document.uri
        if workspace is None or not document.path or budget < MIN_SNIPPET_TOKENS:
            return ()
        start, offset, stop = span
        area = document.text.line_of(offset) // SNIPPET_RADIUS_LINES
        key = (start, area, id(workspace), session.is_starting())
        if self.keys.get(uri) != key:
            text = document.text.text
            self.snippets[uri] = find_snippets(
                text[start:offset],
                text[offset:stop],
                workspace.key(document.path),
                budget,
                workspace,
                engine.encoder,
            )
            self.keys[uri] = key
        return self.snippets[uri]


@dataclass(frozen=True, slots=True)
class _Query:
    """The request for a cursor position, and what post-processing of its answer depends on."""

    engine: EditorEngine
    request: Request
    document: OpenDocument
    offset: int
    context: tuple[str, str]  # the text before and after the cursor
    multiline: bool
    began: float

    def time_left(self, session: Session) -> float:
        """Return the seconds until maxTimeMs is over."""
        return session.settings.maxTimeMs / 1000 - (perf_counter() - self.began)

    def offer(self, session: Session, answers: list[str]) -> list[Completion]:
        """Make completions of the answers, and cache them."""
        text, uri = self.document.text.text, self.document.uri
        return session.completions.add(uri, text, self.offset, answers, self.multiline)


async def complete(
    session: Session, document: OpenDocument, offset: int, invoked: bool, layout: PromptLayout
) -> list[Completion]:
    """Find completions at a cursor position, best first: one, or several if `invoked`."""
    with session.due.one():
        return await _complete(session, document, offset, invoked, layout)


async def _complete(
    session: Session, document: OpenDocument, offset: int, invoked: bool, layout: PromptLayout
) -> list[Completion]:
    await session.configured()
    began = perf_counter()
    text, settings, uri = document.text.text, session.settings, document.uri
    if why := session.disabled_reason(document):
        if invoked and why == session.why_withheld(document):
            session.warn_once(why)
        return _none(session, why)
    place, names = await names_to_import(session, document, offset)
    if place and (
        only := await asyncio.to_thread(certain, place, names, document.source_path, text)
    ):
        session.reason = f"offered: {place.module} has what is certainly meant here"
        return [Completion(uri, offset, *context_around(text, offset), only, False)]
    if invoked:
        session.in_flight.pop(uri, None)
    elif (cached := await _reuse(session, document, offset)) is not None:
        return cached
    before, after = (
        text[max(0, offset - CONTEXT_CHARS) : offset],
        text[offset : offset + CONTEXT_CHARS],
    )
    if settings.checks and (why := unfit_place(before, after)):
        return _none(session, f"nothing offered: {why}")
    is_loading = session.shared_engine.loaded is None
    try:
        engine = await session.engine(("complete", uri))
    except NotReady as reason:
        return _none(session, str(reason))
    if is_loading:
        if not session.is_current(document):
            return _none(session, "the text changed while the model was loading")
        began = perf_counter()
    engine = completing(session).loaded or engine
    request = request_for(session, engine, document, offset, layout)
    if not invoked:
        request = replace(request, max_tokens=int(settings.maxTokens * settings.eager.length))
    lines = settings.multiline if invoked else settings.typing_multiline
    multiline = wants_multiline(before, after, lines)
    query = _Query(engine, request, document, offset, (before, after), multiline, began)
    if invoked:
        return await _candidates(session, query)
    expected = session.completions.expected(uri, text, offset)
    query = replace(query, request=replace(request, predictions=expected))
    completion = Completion(uri, offset, *context_around(text, offset), "", multiline)
    session.completions.written.append(completion)

    def stop_model() -> None:
        if session.in_flight.get(uri) is in_flight:  # not a newer one that replaced it
            session.cancel(("complete", uri))

    in_flight = CompletionInFlight(completion, len(text) - offset, stop_model)
    session.in_flight[uri] = in_flight
    in_flight.start(_generate(session, query, in_flight))
    return await in_flight.wait() or []


def completing(session: Session) -> SharedEngine:
    """Return the engine that answers completions: that of completionModel, or the main one.

    The main one answers until the other is loaded, and where that cannot be used.
    """
    main, settings = session.shared_engine, session.settings
    second, name = main.for_completions, settings.completionModel
    try:
        found = session.completion_model.shared(main, second, name, settings)
    except WeightsError as reason:
        session.warn_once(str(reason))
        return main
    return found if found and found.loaded else main


async def names_to_import(
    session: Session, document: OpenDocument, offset: int
) -> tuple[ImportPlace | None, list[str]]:
    """Find the names of another file that may stand at the cursor, in an import's list."""
    path, text = document.source_path, document.text.text
    place = import_place(path, text, offset)
    is_off = session.disabled_reason(document) or not session.settings.checks
    if place is None or not document.path or is_off:
        return None, []
    read = _reader(session, document.path)
    found = await asyncio.to_thread(exports, path, place.module, read)
    return place, importable(place, found)


def _reader(session: Session, path: str) -> Read:
    """Return what reads the files that a file may import: those of the workspace or its folder."""
    opened = {each.path: each.text.text for each in session.documents if each.path}
    roots = [root for root in session.index.roots if Path(path).is_relative_to(root)]
    return reader(opened, roots or [Path(path).parent])


async def _reuse(session: Session, document: OpenDocument, offset: int) -> list[Completion] | None:
    """Return the rest of a completion that was offered or is being generated.

    None if the model must be asked. Debounces in between.
    """
    uri, text = document.uri, document.text.text
    for delay in (session.settings.delay_s, None):
        if cached := session.completions.find(uri, text, offset):
            return _cached(session, cached)
        in_flight = session.in_flight.get(uri)
        if in_flight is not None and in_flight.matches(text, offset):
            made = await in_flight.wait()
            if cached := session.completions.find(uri, text, offset):
                return _cached(session, cached)
            if not in_flight.stopped and (made is None or not in_flight.typed):
                return []  # the reason is set already
            break
        if in_flight is not None:
            in_flight.stop()
        if delay is not None:
            await asyncio.sleep(delay)
    return None


def _cached(session: Session, completion: Completion) -> list[Completion]:
    session.reason = "offered: what is left of the completion that you type"
    return [completion]


async def _candidates(session: Session, query: _Query) -> list[Completion]:
    """Generate up to CANDIDATES completions, as many as the time allows."""
    answers: list[str] = []
    for number in range(CANDIDATES):
        if answers and query.time_left(session) <= 0:
            break
        sampled = replace(query.request, temperature=TEMPERATURE, top_p=TOP_P, seed=number)
        done, answer = await _answer(session, query, sampled if number else query.request)
        if answer and answer not in answers:
            answers.append(answer)
        if done.reason in ("cancelled", "failed"):
            break
    return query.offer(session, answers)


async def _generate(
    session: Session, query: _Query, in_flight: CompletionInFlight
) -> list[Completion] | None:
    """Generate one completion for all requests that wait; None if it was cancelled or failed."""
    try:
        done, answer = await _answer(session, query, query.request, in_flight)
    finally:
        if session.in_flight.get(query.document.uri) is in_flight:
            del session.in_flight[query.document.uri]
    if done.reason in ("cancelled", "failed"):
        return None
    return query.offer(session, [answer] if answer else [])


async def _answer(
    session: Session, query: _Query, request: Request, in_flight: CompletionInFlight | None = None
) -> tuple[Done, str]:
    """Run the request; return how it ended, and the text to insert. Sets the session's reason."""
    try:
        done, raw, complete = await _stream(session, query, request, in_flight)
    except (RequestError, NotReady) as reason:
        session.reason = str(reason)
        return Done("failed", error=str(reason)), ""
    fitted = fit_to_context(raw, *query.context, query.multiline)
    answer, wrong = fitted, ""
    if fitted and session.settings.checks:
        answer, wrong = checked(
            fitted, *query.context, query.document.source_path, query.multiline, complete
        )
    is_checked = answer and session.settings.checks and query.document.path
    if is_checked and (unknown := await _unknown_names(session, query, answer)):
        answer, wrong = "", unknown
    session.reason = _outcome(done, raw, answer, session.settings.maxTimeMs)
    if answer and in_flight and session.settings.eager.sure and not complete:
        answer, wrong = "", "it is cut off, and draftline.eagerness is low"
    if wrong and not answer:
        session.reason = f"nothing offered: {wrong}"
    return done, answer


async def _unknown_names(session: Session, query: _Query, answer: str) -> str:
    """Say what an answer imports or reads that nothing has; "" if there is nothing."""
    text, path, at = query.document.text.text, query.document.source_path, query.offset
    before, after, read = text[:at], text[at:], _reader(session, query.document.path or "")

    def find() -> str:
        return missing(path, before, answer, after, read) or undefined(path, before, answer, after)

    return await asyncio.to_thread(find)


async def _stream(
    session: Session, query: _Query, request: Request, in_flight: CompletionInFlight | None
) -> tuple[Done, str, bool]:
    """Stream the answer up to its end or the timeout.

    Returns how it ended, its text, and whether it was not cut off. As you type, complete lines are
    enough after EAGER_AFTER_S.
    """
    text, cut_off = "", False
    began = perf_counter()

    def on_step(step: Step) -> bool:
        nonlocal text, cut_off
        text += step.text
        if in_flight:
            in_flight.on_text(text)
        if find_end(text, *query.context, query.multiline) is not None:
            return True
        if repeated_part(text, line_before(query.context[0])) is not None:
            return True
        is_late = in_flight is not None and perf_counter() - began > EAGER_AFTER_S
        cut_off = is_late and "\n" in text.strip()
        return cut_off

    slot = ("complete", query.document.uri)
    timeout_s = max(query.time_left(session), MIN_TIMEOUT_S)
    done = await session.ask(request, slot, on_step, timeout_s, query.engine)
    if done.reason in ("cancelled", "failed"):
        return done, "", False
    ended = done.reason == "stop" and not cut_off
    complete = ended or find_end(text, *query.context, query.multiline) is not None
    return done, truncate(text, *query.context, query.multiline, ended), complete


def _outcome(done: Done, raw: str, answer: str, max_time_ms: int) -> str:
    """Say what became of an answer, for the user."""
    if done.reason == "failed":
        return f"the model failed: {done.error}"
    if done.reason == "cancelled":
        return "a newer request took its place, or it was cancelled"
    if answer:
        return "offered: a completion"
    if raw.strip():
        return "the model would repeat text that is there already"
    if done.reason == "length":
        return f"the model wrote nothing within draftline.maxTimeMs ({max_time_ms}): raise it"
    return "the model would write nothing here"


def request_for(
    session: Session,
    engine: EditorEngine,
    document: OpenDocument,
    offset: int,
    layout: PromptLayout,
) -> Request:
    """Make the request for a cursor position."""
    settings, fills = session.settings, engine.info.fills_middle
    affordable = settings.maxTimeMs / 2000 * engine.info.prefill_tokens_per_s
    most = min(MAX_PROMPT_TOKENS, engine.context - settings.maxTokens)
    budget = layout.fit_budget(int(min(affordable, most)))
    snippets = min(settings.context, int(budget * SNIPPETS_SHARE)) if fills else 0
    suffix = int(budget * SUFFIX_SHARE) if fills else 0
    least = min(MIN_PREFIX_TOKENS, most - snippets - suffix - SPECIAL_TOKENS)
    prefix = max(budget - snippets - suffix - SPECIAL_TOKENS, least)
    text = document.text.text
    start, stop = window(text, offset, prefix, suffix, engine.encode)
    stop = whole_blocks(text, offset, stop)
    return Request(
        "complete",
        text[start:offset],
        path=document.source_path,
        version=document.version,
        suffix=text[offset:stop],
        snippets=layout.snippets_for(session, engine, document, (start, offset, stop), snippets),
        max_tokens=settings.maxTokens,
    )


def _none(session: Session, reason: str) -> list[Completion]:
    session.reason = reason
    return []
