"""The next edit by a model that is made for it.

This module writes what the model is shown of a client's documents and recent edits, and reads its
answer as an edit of the document: as soon as the first change is known, not when the region ends.
Answers are cached by their prompts.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, cast

from engine.config import next_edit_model
from engine.editing.edits import (
    LINE_END,
    Change,
    changes,
    commonest_end,
    plain,
    preserve,
)
from engine.prompts.fim import UNNAMED_FILE
from engine.prompts.next_edit.answer import first_change, new_region
from engine.prompts.next_edit.context import EditContext, NextEditPrompt, NoEdit, RecentChange
from engine.prompts.next_edit.formats import NextEditFormat, check_marks, counter, format_of
from engine.records import Done, Request, RequestError, Step
from engine.weights.errors import WeightsError
from lsp_server.completion.context_snippets import find_snippets, shown_path
from lsp_server.next_edit.edit_history import RecentEdit, whole_lines
from lsp_server.next_edit.predict import MODEL_SLOT, NextEdit
from lsp_server.shared_engine import NotReady
from lsp_server.sharing.second_model import SecondModel

if TYPE_CHECKING:
    from engine.prompts.tokenizer import Tokenizer
    from engine.remote.any_engine import EditorEngine
    from lsp_server.protocol.text_sync import OpenDocument
    from lsp_server.session import Session
CHANGE_CONTEXT_LINES = 3  # lines shown on either side of a recent change
MAX_DOCUMENT_CHARS = 1 << 18  # characters; in larger documents nothing is predicted
SNIPPET_CHARS = 2000  # characters on either side of the cursor; names in them are looked up
MAX_PREFILL_S = 3.0  # seconds for what is shown next to the lines at the cursor
MIN_PROMPT_TOKENS = 1024  # tokens that are shown however long it takes
MAX_ANSWER_TOKENS = 1024
SPARE_TOKENS = 64  # tokens of an answer, beyond one and a half times the region
CACHED_ANSWERS = 16


def _tokenizer(engine: EditorEngine) -> Tokenizer:
    """Return the tokenizer of an engine of this process."""
    return cast("Tokenizer", engine.encoder)


class NextEditModel(NamedTuple):
    """A loaded model and its format."""

    engine: EditorEngine
    format: NextEditFormat


class ModelPredictor:
    """A predictor of the next edits of one client, where it has configured a model for them."""

    def __init__(self, client: str) -> None:
        # (model, prompt) -> the region's new text, or why there is none
        self._answers: OrderedDict[tuple[str, str], str | NoEdit] = OrderedDict()
        self._second = SecondModel(client, "nextEditModel", "predicts next edits")

    async def predict(
        self, session: Session, document: OpenDocument, offset: int
    ) -> NextEdit | None:
        """Predict the edit near the cursor, or say why there is none.

        None where there is no such model, or not yet.
        """
        try:
            model = self._model(session)
        except WeightsError as reason:
            session.warn_once(str(reason))
            return None
        if model is None:
            return None
        try:
            context = _context(session, document, offset)
            prompt = await asyncio.to_thread(_prompt, model, context)
            new = await self._answer(session, model, prompt, document)
        except (NoEdit, NotReady, RequestError) as reason:
            return NextEdit(f"no next edit: {reason}")
        if not session.is_current(document):
            return NextEdit("no next edit: the text has changed meanwhile")
        return _edit(
            document, prompt, new, f"next edit by {PurePath(model.engine.info.model).name}"
        )

    def _model(self, session: Session) -> NextEditModel | None:
        """Return the configured model, which is loaded when it is first asked for.

        None while it is not there. Raises WeightsError where it cannot be used.
        """
        main, settings = session.shared_engine, session.settings
        name = next_edit_model(main.next_edits.model or settings.nextEditModel)
        format_name = main.next_edits.format or settings.nextEditFormat
        known = format_of(name, format_name) if name and main.loaded else None
        shared = self._second.shared(main, main.for_next_edits, name, settings)
        if shared is None or shared.loaded is None or known is None:
            return None
        check_marks(known, name, _tokenizer(shared.loaded))
        return NextEditModel(shared.loaded, known)

    async def _answer(
        self, session: Session, model: NextEditModel, prompt: NextEditPrompt, document: OpenDocument
    ) -> str:
        """Ask for the new text of the prompt's region.

        Raises NoEdit, NotReady, RequestError.
        """
        key = model.engine.info.model, prompt.text
        if key not in self._answers:
            region_tokens = len(model.engine.encode(prompt.region))
            capacity = min(
                region_tokens * 3 // 2 + SPARE_TOKENS, answer_tokens(model.engine.context)
            )
            request = prompt.request(document.source_path, document.version, capacity)
            done = await _ask(session, model, prompt, request)
            if done.reason in ("cancelled", "failed"):
                raise NoEdit(done.error or "cancelled, or the text has changed")
            try:
                self._answers[key] = new_region(prompt, model.format, done)
            except NoEdit as reason:
                self._answers[key] = reason
            while len(self._answers) > CACHED_ANSWERS:
                self._answers.popitem(last=False)
        answer = self._answers[key]
        if isinstance(answer, NoEdit):
            raise answer
        return answer


async def _ask(
    session: Session, model: NextEditModel, prompt: NextEditPrompt, request: Request
) -> Done:
    """Ask the model until its first change is known; the rest of the region then stays as it is.

    A further change is found when the document has the first.
    """
    written, known = "", None

    def on_step(step: Step) -> bool:
        nonlocal written, known
        written += step.text
        known = first_change(prompt.region, written) if model.format.is_region else None
        return known is not None

    done = await session.ask(request, MODEL_SLOT, on_step, engine=model.engine)
    return done if known is None else Done("stop", known)


def answer_tokens(context: int) -> int:
    """Count the tokens that are left free for an answer in a model's context."""
    return min(MAX_ANSWER_TOKENS, context // 4)


def _prompt(model: NextEditModel, context: EditContext) -> NextEditPrompt:
    """Build the prompt for a cursor position, as long as this machine can prefill in time."""
    engine, known = model.engine, model.format
    longest = min(known.max_tokens, engine.context) - answer_tokens(engine.context)
    affordable = int(MAX_PREFILL_S * engine.info.prefill_tokens_per_s)
    limit = min(longest, max(affordable, MIN_PROMPT_TOKENS))
    return known.build(context, limit, counter(_tokenizer(engine)))


def _context(session: Session, document: OpenDocument, offset: int) -> EditContext:
    """Collect what is known of a cursor position.

    Raises NoEdit if there is nothing to predict from.
    """
    text, workspace = document.text.text, session.workspace
    if len(text) > MAX_DOCUMENT_CHARS:
        raise NoEdit("the document is too large")
    edits = _valid_edits(session)
    if not edits:
        raise NoEdit("nothing was changed lately")
    own = next((edit for edit in reversed(edits) if edit.uri == document.uri), None)
    related: tuple[tuple[str, str], ...] = ()
    main = session.shared_engine.loaded
    if workspace is not None and main is not None and document.path and session.settings.context:
        related = find_snippets(
            text[max(0, offset - SNIPPET_CHARS) : offset],
            text[offset : offset + SNIPPET_CHARS],
            workspace.key(document.path),
            session.settings.context,
            workspace,
            main.encoder,
        )
    undo = None
    if own is not None:
        start, stop = (len(plain(text[:at])) for at in (own.start, own.stop))
        undo = Change(start, stop, plain(own.before))
    return EditContext(
        _shown(session, document),
        plain(text),
        len(plain(text[:offset])),
        tuple(_change(session, session.documents.get(edit.uri), edit) for edit in edits),
        related,
        undo,
    )


def _valid_edits(session: Session) -> list[RecentEdit]:
    """List the recent edits whose lines are in the open documents, oldest first."""
    return [
        edit
        for edit in session.edit_history.edits()
        if edit.uri in session.documents
        and session.documents.get(edit.uri).text.text[edit.start : edit.stop] == edit.after
    ]


def _change(session: Session, document: OpenDocument, edit: RecentEdit) -> RecentChange:
    text = document.text.text
    low, high = edit.start, edit.stop
    for _ in range(CHANGE_CONTEXT_LINES):
        if low:
            low, _ = whole_lines(text, above := low - _line_end_length(text, low), above)
        if end := LINE_END.match(text, high):
            _, high = whole_lines(text, end.end(), end.end())
    head, tail = text[low : edit.start], text[edit.stop : high]
    return RecentChange(
        _shown(session, document),
        plain(f"{head}{edit.before}{tail}"),
        plain(f"{head}{edit.after}{tail}"),
        document.text.line_of(low) + 1,
    )


def _line_end_length(text: str, line: int) -> int:
    """Return the length of the line end before the line that starts at `line`."""
    return 2 if text[line - 2 : line] == "\r\n" else 1


def _shown(session: Session, document: OpenDocument) -> str:
    """Return a document's path, as prompts show it."""
    if not document.path:
        return PurePath(document.source_path).name or UNNAMED_FILE
    if session.workspace is None:
        return PurePath(document.path).name
    return shown_path(document.path, session.workspace)


def _edit(document: OpenDocument, prompt: NextEditPrompt, new: str, reason: str) -> NextEdit:
    """Make an edit of the document from the lines that change in the region's new text."""
    text = document.text.text
    start, stop = _original_span(text, prompt.start, prompt.end)
    old = text[start:stop]
    made = preserve(old, new, commonest_end(text, "\n"))
    found = changes(old, made)
    if not found:
        return NextEdit("no next edit: the model would change nothing")
    low, high = whole_lines(text, start + found[0].start, start + found[-1].stop)
    low, high = max(low, start), min(high, stop)
    return NextEdit(reason, document, low, high, made[low - start : len(made) - (stop - high)])


def _original_span(text: str, start: int, stop: int) -> tuple[int, int]:
    """Find the span in the text itself of the whole lines `start:stop` of `plain(text)`."""
    shown = plain(text)
    if shown == text:
        return start, stop
    at = [0, *(end.end() for end in LINE_END.finditer(text))]
    first = at[shown.count("\n", 0, start)]
    last = len(text) if stop == len(shown) else at[shown.count("\n", 0, stop)]
    return first, last
