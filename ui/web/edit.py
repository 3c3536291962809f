"""The Edit tab: a text, an instruction, and what the model makes of it as changes to accept.

What the text is and what becomes of it stands in sheet.py, how changes look in hunks.py.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from engine.editing.edits import EditRefused, plain, too_long
from engine.editing.text_file import FileError
from engine.prompts.builder import LANGUAGES
from engine.records import RequestError
from ui import demo
from ui.api.jobs import Full
from ui.web import edit_state, html
from ui.web.diff import side_by_side
from ui.web.edit_state import Sheet
from ui.web.streaming import Live, follow

if TYPE_CHECKING:
    from ui.web.state import Page

SCRIPTS = {"javascript", "typescript", "python", "shell", "sql"}
HIGHLIGHTED = SCRIPTS | {"c", "cpp", "markdown", "json", "html", "css", "yaml"}  # by gr.Code
MORE = {".sh": "shell", ".yml": "yaml", ".jsx": "javascript", ".tsx": "typescript"}
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
  catch {  // a page that is not on this machine may not: the text is selected instead
    getSelection().selectAllChildren(text);
    button.textContent = 'Selected';
  }
});
"""
TO_RESULT = "() => document.querySelector('#edit-diff')?.scrollIntoView({block: 'nearest'})"


# -- what is said and shown ------------------------------------------------------------------------


def language(name: str) -> str | None:
    """What gr.Code colours a file of this name as."""
    suffix = Path(name).suffix.lower()
    found = MORE.get(suffix) or LANGUAGES.get(suffix)
    return found if found in HIGHLIGHTED else None


def written(live: Live, open_: bool) -> str:
    """The answer as it came, by source; folded away when it is no longer needed."""
    if not live.pieces:
        return ""
    legend = html.legend(one.source for one in live.pieces)
    answer = html.coloured(live.pieces, writing=live.done is None)
    return (
        f'<details class="written"{" open" * open_}><summary>The answer, by where it came from'
        f'</summary><div class="mono{" growing" * (live.done is None)}">{answer}</div>{legend}'
        "</details>"
    )


def resulting(text: str, name: str) -> str:
    """The text, to look at, to copy, and as a link that saves it exactly as it is."""
    name = edit_state.file_name(name) or edit_state.NAMELESS
    data = b64encode(text.encode()).decode()
    inside = escape(text).replace("\r", "&#13;")  # else the browser reads another line end
    return (
        f'<div class="result"><div class="diff-head"><span>Result</span><span class="diff-all">'
        f'<button type="button" data-copy id="edit-copy">Copy</button>'
        f'<a id="edit-download" download="{escape(name)}" '
        f'href="data:application/octet-stream;base64,{data}">Download {escape(name)}</a></span>'
        f'</div><pre tabindex="0" aria-label="the resulting text"><code>{inside}</code></pre></div>'
    )


def accepted(now: Sheet) -> str:
    """How much of the proposal is accepted."""
    one = now.proposal
    if one is None:
        return ""
    return html.note(f"{len(one.taken)} of {len(one.hunks)} changes accepted")


def opened(path: str, now: Sheet, box: str, lines: str) -> tuple[Sheet, str, str]:
    """A file in place of what the box holds: the sheet, its name, and what to say. No name where
    it cannot be edited: nothing changes then."""
    name = edit_state.file_name(Path(path).name)
    try:
        text = edit_state.opened(Path(path), name)
    except FileError as error:
        return now, "", html.note(str(error), "error")
    finally:
        Path(path).unlink(missing_ok=True)
    return edit_state.replaced(now, box, lines, text), name, html.note(edit_state.described(text))


# -- an edit ---------------------------------------------------------------------------------------


async def edited(
    page: Page,
    now: Sheet,
    name: str,
    lines: str,
    instruction: str,
    whole: bool,
    session: str,
) -> AsyncGenerator[tuple[Live | None, Sheet, str]]:
    """The answer as it grows; last the sheet with what is proposed, or what is wrong."""
    live: Live | None = None
    try:
        asked = edit_state.asked(
            now.text, name, lines, instruction, page.engine.config.model, whole
        )
        running = follow(page, lambda: asked, f"page {session}", running=f"{session}-edit")
        async with aclosing(running):
            async for live in running:
                if live.done is None:
                    yield live, now, ""
        assert live is not None and live.done is not None
        if live.done.reason == "cancelled":
            yield live, now, html.note("Stopped. The text is as it was.")
            return
        chosen = edit_state.line_range(lines, now.text)
        now = await asyncio.to_thread(edit_state.proposed, now, asked, live.done, chosen)
        yield live, now, ""
    except EditRefused as error:
        yield live, now, html.note(f"The answer was not used: {error}", "error")
    except (RequestError, RuntimeError) as error:
        yield live, now, html.note(str(error), "error")
    except Full:
        yield live, now, html.note("too many requests wait here: try again soon", "error")


# -- the tab ---------------------------------------------------------------------------------------


def add(page: Page) -> None:
    """Put the tab's parts where the caller is."""
    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    model = page.engine.config.model
    state = gr.State(Sheet())
    with gr.Row(elem_classes="edit-bar"):
        upload = gr.UploadButton("Open a file\u2026", size="sm", elem_id="edit-open", scale=0)
        example = gr.Button("Example", size="sm", elem_id="edit-example", scale=0)
        undo = gr.Button("Undo", size="sm", elem_id="edit-undo", scale=0, interactive=False)
    with gr.Row():
        name = gr.Textbox(
            label="File name", placeholder="says the language, as in tools.py", elem_id="edit-name"
        )
        lines = gr.Textbox(
            label="Lines", placeholder="all, or as in 10:40", elem_id="edit-lines", max_lines=1
        )
    with gr.Column(elem_classes="tight"):
        box = gr.Code(
            label="Text",
            lines=10,
            max_lines=22,
            interactive=True,
            wrap_lines=True,
            elem_id="edit-text",
            buttons=[],
        )
        about = gr.HTML(elem_id="edit-about")
    with gr.Row(elem_classes="edit-ask"):
        instruction = gr.Textbox(
            label="Instruction",
            placeholder="What shall be changed?",
            lines=1,
            max_lines=5,
            scale=1,
            elem_id="edit-instruction",
        )
        go = gr.Button("Edit", variant="primary", elem_id="edit-go", scale=0)
        stop = gr.Button("Stop", variant="stop", elem_id="edit-stop", scale=0, interactive=False)
    whole = gr.Checkbox(
        label="All lines, even where this model is unreliable",
        visible=too_long(model, 10**6) is not None,
        elem_id="edit-whole",
        container=False,
    )
    with gr.Column(elem_classes="tight"):
        message = gr.HTML(elem_id="edit-message")
        figures = gr.HTML(elem_id="edit-figures")
        answer = gr.HTML(elem_id="edit-answer")
        diff = gr.HTML(elem_id="edit-diff", js_on_load=ON_TICK)
    with gr.Column(visible=False, elem_classes="tight", elem_id="edit-proposal") as proposal:
        with gr.Row(elem_classes="edit-bar"):
            on = gr.Button("Go on from this", variant="primary", elem_id="edit-on", scale=0)
            count = gr.HTML(elem_id="edit-count")
        result = gr.HTML(elem_id="edit-result", js_on_load=ON_COPY)

    def told(now: Sheet, named: str) -> dict[Any, Any]:
        """The result of what is accepted."""
        one = now.proposal
        if one is None or not one.hunks:
            return {proposal: gr.update(visible=False)}
        return {
            proposal: gr.update(visible=True),
            count: accepted(now),
            result: resulting(one.text, named),
        }

    def fresh(now: Sheet, named: str | None, range_: str, said: str) -> dict[Any, Any]:
        """Another text in the box, and nothing proposed."""
        out: dict[Any, Any] = {
            state: now,
            box: gr.update(value=plain(now.text)),
            lines: range_,
            about: said,
            undo: gr.update(interactive=bool(now.before)),
            proposal: gr.update(visible=False),
        }
        if named is not None:
            out |= {name: named, box: gr.update(value=plain(now.text), language=language(named))}
        out |= {message: "", figures: "", answer: "", diff: ""}
        return out

    def on_open(path: str | None, now: Sheet, text: str, range_: str) -> dict[Any, Any]:
        if path is None:
            return {about: ""}
        now, named, said = opened(path, now, text or "", range_)
        return fresh(now, named, "", said) if named else {about: said}

    def on_example(now: Sheet, text: str, range_: str) -> dict[Any, Any]:
        now = edit_state.replaced(now, text or "", range_, demo.SAMPLE.read_text("utf-8"))
        range_, said = "{}:{}".format(*demo.LINES), html.note(edit_state.described(now.text))
        return fresh(now, demo.SAMPLE.name, range_, said) | {instruction: demo.INSTRUCTION}

    async def on_edit(
        now: Sheet,
        text: str,
        named: str,
        range_: str,
        wanted: str,
        all_: bool,
        request: gr.Request,
    ) -> AsyncIterator[dict[Any, Any]]:
        now = await asyncio.to_thread(edit_state.typed, now, text or "")
        out: dict[Any, Any] = {message: "", figures: "", answer: "", diff: ""}
        out |= {go: gr.update(interactive=False), stop: gr.update(interactive=True)}
        yield out | told(Sheet(), named)
        session = str(request.session_hash)
        answers = edited(page, now, named, range_, wanted, all_, session)
        async with aclosing(answers):
            async for live, later, said in answers:
                out = {message: said, state: later}
                if live is not None:
                    settled = later.proposal if later.proposal is not now.proposal else None
                    out |= {figures: html.figures(live), answer: written(live, not settled)}
                    if settled and settled.hunks:
                        three = settled.old, settled.new, settled.hunks
                        out[diff] = await asyncio.to_thread(side_by_side, *three)
                    elif settled:
                        out[message] = html.note("Nothing changed: the model repeated the text.")
                    if settled:
                        out |= told(later, named)
                yield out

    def on_tick(now: Sheet, named: str, event: gr.EventData) -> dict[Any, Any]:
        numbers = getattr(event, "taken", ())
        now = edit_state.taken(now, numbers if isinstance(numbers, list) else ())
        out: dict[Any, Any] = {state: now}
        return out | told(now, named)

    def on_go_on(now: Sheet, text: str, range_: str) -> dict[Any, Any]:
        now, range_ = edit_state.gone_on(now, text or "", range_)
        said = html.note(edit_state.described(now.text))
        return fresh(now, None, range_, said) | {instruction: ""}

    def on_undo(now: Sheet) -> dict[Any, Any]:
        now, range_ = edit_state.undone(now)
        return fresh(now, None, range_, html.note(edit_state.described(now.text)))

    def ready() -> dict[Any, Any]:
        return {go: gr.update(interactive=True), stop: gr.update(interactive=False)}

    def on_stop(request: gr.Request) -> None:
        page.stop(f"{request.session_hash}-edit")

    parts = [proposal, count, result]
    texts = [state, box, name, lines, about, undo, message, figures, answer, diff, *parts]
    upload.upload(on_open, [upload, state, box, lines], texts, **private)
    example.click(on_example, [state, box, lines], [*texts, instruction], **private)
    gr.on(
        [go.click, instruction.submit],
        on_edit,
        [state, box, name, lines, instruction, whole],
        [state, message, figures, answer, diff, go, stop, *parts],
        trigger_mode="once",
        **private,
    ).then(ready, None, [go, stop], **private).then(None, js=TO_RESULT)
    stop.click(on_stop, queue=False, **private)
    diff.input(on_tick, [state, name], [state, *parts], trigger_mode="always_last", **private)
    on.click(on_go_on, [state, box, lines], [*texts, instruction], **private)
    undo.click(on_undo, [state], texts, **private)
    name.change(lambda named: gr.update(language=language(named)), [name], [box], **private)
