"""The tab *Edit*: a text, an instruction, and the model's edit as changes to accept.

edit_state.py has the state of the text, diff.py computes and renders the changes.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import gradio as gr

from engine.editing.dialogue import Ask, advance, dialogue
from engine.editing.edits import EditRefused, is_weak, plain
from engine.editing.outcome import Outcome, why_unchanged
from engine.editing.text_file import FileError
from engine.prompts.builder import fence_language
from engine.records import Request, RequestError
from ui import demo
from ui.api.jobs import QueueFull
from ui.web import edit_state, html
from ui.web.diff import side_by_side
from ui.web.documents import QUIET, Updates
from ui.web.edit_state import EditState
from ui.web.progress import AnswerProgress
from ui.web.streaming import stream_answer

if TYPE_CHECKING:
    from ui.web.state import PageState

QUEUE_FULL = "Too many requests are waiting: try again in a moment."
HIGHLIGHTED = {"python", "javascript", "typescript", "shell", "sql", "c", "cpp"}  # by gr.Code
HIGHLIGHTED |= {"markdown", "json", "html", "css", "yaml"}
EXTRA_SUFFIXES = {".sh": "shell", ".yml": "yaml", ".jsx": "javascript", ".tsx": "typescript"}
ON_TICK = """
const tell = () => trigger('input', {taken:
  [...element.querySelectorAll('input[data-hunk]:checked')].map((one) => +one.dataset.hunk)});
element.addEventListener('change', tell);
element.addEventListener('click', (event) => {
  const all = event.target.closest('button[data-all]');
  if (!all) return;
  const boxes = element.querySelectorAll('input[data-hunk]');
  for (const one of boxes) one.checked = all.dataset.all === '1';
  tell();
});
"""
ON_COPY = """
element.addEventListener('click', async (event) => {
  const button = event.target.closest('button[data-copy]');
  if (!button) return;
  const text = element.querySelector('pre');
  try { await navigator.clipboard.writeText(text.textContent); button.textContent = 'Copied'; }
  catch {  // without https only localhost may use the clipboard: select the text instead
    getSelection().selectAllChildren(text);
    button.textContent = 'Selected';
  }
});
"""
SCROLL_TO_DIFF = "() => document.querySelector('#edit-diff')?.scrollIntoView({block: 'nearest'})"


class EditTab:
    """The tab's components and event handlers, created in the current block."""

    def __init__(self, page: PageState) -> None:
        self.page = page
        self.state = gr.State(EditState())
        self._build_text()
        self._build_instruction()
        self._build_result()
        self._wire()

    def _build_text(self) -> None:
        with gr.Row(elem_classes="edit-bar"):
            self.upload = gr.UploadButton(
                "Open a file\u2026", size="sm", elem_id="edit-open", scale=0
            )
            self.example = gr.Button("Example", size="sm", elem_id="edit-example", scale=0)
            self.undo = gr.Button(
                "Undo", size="sm", elem_id="edit-undo", scale=0, interactive=False
            )
        with gr.Row():
            self.name = gr.Textbox(
                label="File name",
                placeholder="sets the language, as in tools.py",
                elem_id="edit-name",
            )
            self.lines = gr.Textbox(
                label="Lines", placeholder="all, or as in 10:40", elem_id="edit-lines", max_lines=1
            )
        with gr.Column(elem_classes="tight"):
            self.box = gr.Code(
                label="Text",
                lines=10,
                max_lines=22,
                interactive=True,
                wrap_lines=True,
                elem_id="edit-text",
                buttons=[],
            )
            self.about = gr.HTML(elem_id="edit-about")

    def _build_instruction(self) -> None:
        with gr.Row(elem_classes="edit-ask"):
            self.instruction = gr.Textbox(
                label="Instruction",
                placeholder="What should be changed?",
                lines=1,
                max_lines=5,
                scale=1,
                elem_id="edit-instruction",
            )
            self.go = gr.Button("Edit", variant="primary", elem_id="edit-go", scale=0)
            self.stop = gr.Button(
                "Stop", variant="stop", elem_id="edit-stop", scale=0, interactive=False
            )
        self.whole = gr.Checkbox(
            label="All lines, even where this model is unreliable",
            visible=is_weak(self.page.engine.config.model),
            elem_id="edit-whole",
            container=False,
        )

    def _build_result(self) -> None:
        with gr.Column(elem_classes="tight"):
            self.message = gr.HTML(elem_id="edit-message")
            self.figures = gr.HTML(elem_id="edit-figures")
            self.answer = gr.HTML(elem_id="edit-answer")
            self.diff = gr.HTML(elem_id="edit-diff", js_on_load=ON_TICK)
        with gr.Column(
            visible=False, elem_classes="tight", elem_id="edit-proposal"
        ) as self.proposal:
            with gr.Row(elem_classes="edit-bar"):
                self.accept = gr.Button(
                    "Go on from this", variant="primary", elem_id="edit-on", scale=0
                )
                self.count = gr.HTML(elem_id="edit-count")
            self.result = gr.HTML(elem_id="edit-result", js_on_load=ON_COPY)

    def _wire(self) -> None:
        result = [self.proposal, self.count, self.result]
        answer = [self.message, self.figures, self.answer, self.diff]
        text = [self.state, self.box, self.name, self.lines, self.about, self.undo]
        text += [*answer, *result]
        box = [self.state, self.box, self.lines]
        buttons = [self.go, self.stop]
        self.upload.upload(self._open, [self.upload, *box], text, **QUIET)
        self.example.click(self._show_example, box, [*text, self.instruction], **QUIET)
        gr.on(
            [self.go.click, self.instruction.submit],
            self._edit,
            [self.state, self.box, self.name, self.lines, self.instruction, self.whole],
            [self.state, *answer, *buttons, *result],
            trigger_mode="once",
            **QUIET,
        ).then(self._ready, None, buttons, **QUIET).then(None, js=SCROLL_TO_DIFF)
        self.stop.click(self._stop, queue=False, **QUIET)
        self.diff.input(
            self._accept_hunks,
            [self.state, self.name],
            [self.state, *result],
            trigger_mode="always_last",
            **QUIET,
        )
        self.accept.click(self._continue, box, [*text, self.instruction], **QUIET)
        self.undo.click(self._undo, [self.state], text, **QUIET)
        self.name.change(
            lambda name: gr.update(language=language(name)), [self.name], [self.box], **QUIET
        )

    # -- event handlers ----------------------------------------------------------------------------

    def _open(self, path: str | None, state: EditState, text: str, lines: str) -> Updates:
        if path is None:
            return {self.about: ""}
        state, name, message = open_upload(path, state, text or "", lines)
        return self._new_text(state, name, "", message) if name else {self.about: message}

    def _show_example(self, state: EditState, text: str, lines: str) -> Updates:
        sample = demo.SAMPLE.read_text("utf-8")
        state = edit_state.replace_text(state, text or "", lines, sample)
        lines, about = "{}:{}".format(*demo.LINES), html.note(edit_state.describe(state.text))
        updates = self._new_text(state, demo.SAMPLE.name, lines, about)
        return updates | {self.instruction: demo.INSTRUCTION}

    async def _edit(
        self,
        state: EditState,
        text: str,
        name: str,
        lines: str,
        instruction: str,
        whole: bool,
        request: gr.Request,
    ) -> AsyncIterator[Updates]:
        state = await asyncio.to_thread(edit_state.set_typed_text, state, text or "")
        yield {
            **self._cleared_answer(),
            **self._result(EditState(), name),
            self.go: gr.update(interactive=False),
            self.stop: gr.update(interactive=True),
        }
        session = str(request.session_hash)
        steps = stream_edit(self.page, state, name, lines, instruction, whole, session)
        async with aclosing(steps):
            async for progress, current, message in steps:
                updates: Updates = {self.message: message, self.state: current}
                new = current.proposal if current.proposal is not state.proposal else None
                if progress is not None:
                    updates[self.figures] = html.status(progress)
                    updates[self.answer] = answer_html(progress, not new)
                if new is not None and new.hunks:
                    updates[self.diff] = await asyncio.to_thread(
                        side_by_side, new.old, new.new, new.hunks
                    )
                if new is not None:
                    updates |= self._result(current, name)
                yield updates

    def _ready(self) -> Updates:
        return {self.go: gr.update(interactive=True), self.stop: gr.update(interactive=False)}

    def _stop(self, request: gr.Request) -> None:
        self.page.stop(f"{request.session_hash}-edit")

    def _accept_hunks(self, state: EditState, name: str, event: gr.EventData) -> Updates:
        indices = getattr(event, "taken", ())
        state = edit_state.accept_hunks(state, indices if isinstance(indices, list) else ())
        updates: Updates = {self.state: state}
        return updates | self._result(state, name)

    def _continue(self, state: EditState, text: str, lines: str) -> Updates:
        """Make the result the text."""
        state, lines = edit_state.continue_from_result(state, text or "", lines)
        about = html.note(edit_state.describe(state.text))
        return self._new_text(state, None, lines, about) | {self.instruction: ""}

    def _undo(self, state: EditState) -> Updates:
        state, lines = edit_state.undo(state)
        return self._new_text(state, None, lines, html.note(edit_state.describe(state.text)))

    # -- updates of the components -----------------------------------------------------------------

    def _new_text(self, state: EditState, name: str | None, lines: str, about: str) -> Updates:
        """Put another text into the box, without a proposal. `name`: None keeps the file name."""
        updates: Updates = {
            self.state: state,
            self.box: gr.update(value=plain(state.text)),
            self.lines: lines,
            self.about: about,
            self.undo: gr.update(interactive=bool(state.history)),
            self.proposal: gr.update(visible=False),
        }
        if name is not None:
            updates[self.name] = name
            updates[self.box] = gr.update(value=plain(state.text), language=language(name))
        return updates | self._cleared_answer()

    def _cleared_answer(self) -> Updates:
        return dict.fromkeys((self.message, self.figures, self.answer, self.diff), "")

    def _result(self, state: EditState, name: str) -> Updates:
        """Show the result of the accepted hunks."""
        proposal = state.proposal
        if proposal is None or not proposal.hunks:
            return {self.proposal: gr.update(visible=False)}
        accepted = f"{len(proposal.accepted)} of {len(proposal.hunks)} changes accepted"
        return {
            self.proposal: gr.update(visible=True),
            self.count: html.note(accepted),
            self.result: result_html(proposal.text, name),
        }


async def stream_edit(
    page: PageState,
    state: EditState,
    name: str,
    lines: str,
    instruction: str,
    whole: bool,
    session: str,
) -> AsyncGenerator[tuple[AnswerProgress | None, EditState, str]]:
    """Yield the answer's progress, the state and a message: an error, or "".

    The last state has the proposal, unless the edit failed or was stopped.
    """
    progress: AnswerProgress | None = None
    try:
        request = edit_state.make_request(state.text, name, lines, instruction)
        edited_lines = edit_state.line_range(lines, state.text)
        steps = dialogue(request)
        step = await asyncio.to_thread(advance, steps)
        if isinstance(step, Ask) and not whole:
            edit_state.check_length(request, page.engine.config.model)
        with page.stoppable(f"{session}-edit") as cancellation:
            while isinstance(step, Ask):
                make = partial(replace, step.request)
                answer = stream_answer(page, make, f"page {session}", cancellation)
                async with aclosing(answer):
                    async for progress in answer:
                        if progress.done is None:
                            yield progress, state, _asking_again(step.first)
                assert progress is not None and progress.done is not None
                if progress.done.reason == "cancelled":
                    yield progress, state, html.note("Stopped: the text is unchanged.")
                    return
                step = await asyncio.to_thread(advance, steps, progress.done)
        proposed = await asyncio.to_thread(edit_state.propose, state, request, step, edited_lines)
        yield progress, proposed, _remark(request, step)
    except EditRefused as error:
        why = f"The answer was not used: {error}" if progress else str(error)
        yield progress, state, html.note(why, "error")
    except (RequestError, RuntimeError) as error:
        yield progress, state, html.note(str(error), "error")
    except QueueFull:
        yield progress, state, html.note(QUEUE_FULL, "error")


def _asking_again(first: Outcome | None) -> str:
    """Write the message for the time while the model is asked a second time."""
    return html.note(f"Asking again: {first.warning}") if first else ""


def _remark(request: Request, outcome: Outcome) -> str:
    """Write the message next to an edit: what a rule did, what to check, or why nothing changed."""
    if outcome.rule:
        message = "; ".join([f"made by rule, without the model: {outcome.rule}", *outcome.notes])
        return html.note(f"{message}.")
    if outcome.text == request.text:
        return html.note(f"Nothing changed: {why_unchanged(request)}.")
    return html.note(f"{outcome.seen}.", "warning" if outcome.failed else "note")


def open_upload(path: str, state: EditState, text: str, lines: str) -> tuple[EditState, str, str]:
    """Replace the text by an uploaded file's; return the state, the file's name and a message.

    The name is empty if the file cannot be edited, in which case nothing changes. The upload is
    deleted.
    """
    name = edit_state.file_name(Path(path).name)
    try:
        opened = edit_state.read_upload(Path(path), name)
    except FileError as error:
        return state, "", html.note(str(error), "error")
    finally:
        Path(path).unlink(missing_ok=True)
    about = html.note(edit_state.describe(opened))
    return edit_state.replace_text(state, text, lines, opened), name, about


def language(name: str) -> str | None:
    """Find the highlighting of gr.Code for a file of this name."""
    found = EXTRA_SUFFIXES.get(Path(name).suffix.lower()) or fence_language(name)
    return found if found in HIGHLIGHTED else None


# -- rendering -------------------------------------------------------------------------------------


def answer_html(progress: AnswerProgress, is_open: bool) -> str:
    """Render the model's answer by draft source, in a collapsible box."""
    if not progress.pieces:
        return ""
    streaming = progress.done is None
    legend = html.legend(piece.source for piece in progress.pieces)
    answer = html.colored(progress.pieces, streaming=streaming)
    return (
        f'<details class="written"{" open" * is_open}><summary>The answer, by draft source'
        f'</summary><div class="mono{" growing" * streaming}">{answer}</div>{legend}'
        "</details>"
    )


def result_html(text: str, name: str) -> str:
    """Render the text, a button to copy it, and a link to download it byte for byte."""
    name = edit_state.file_name(name) or edit_state.DEFAULT_NAME
    data = b64encode(text.encode()).decode()
    body = escape(text).replace("\r", "&#13;")  # HTML parsers normalize bare CR
    return (
        f'<div class="result"><div class="diff-head"><span>Result</span><span class="diff-all">'
        f'<button type="button" data-copy id="edit-copy">Copy</button>'
        f'<a id="edit-download" download="{escape(name)}" '
        f'href="data:application/octet-stream;base64,{data}">Download {escape(name)}</a></span>'
        f'</div><pre tabindex="0" aria-label="the resulting text"><code>{body}</code></pre></div>'
    )
