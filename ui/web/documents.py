"""The documents of a user, as a panel of a tab: dropped, listed, chosen, removed.

`panel` builds it; `Panel.chosen` holds the ids of the documents that are asked about. What is
uploaded is read at once and deleted. How the list looks is in `listing` and `arriving`, which are
pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
from gradio.context import Context
from gradio.utils import get_upload_folder

from index.documents.documents import Document, DocumentError
from index.documents.formats import MAX_FILE_BYTES
from ui.web.uploads import Arrived, Arriving, arrived, arriving_html, forget, read, size, text_of

if TYPE_CHECKING:
    from ui.web.state import Page

HERE = Path(__file__).parent
AT_ONCE = 2  # files that are read side by side
LOOK = 0.2  # seconds between two pictures of what arrives
QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
READABLE = "pdf, docx, html, md, rst, txt, code"

Parts = dict[Any, Any]  # component -> its new value


class Panel:
    """The parts of a panel. `chosen`: a gr.State with the ids of the chosen documents, in order."""

    def __init__(self, page: Page, prefix: str, one: bool = False) -> None:
        self.page, self.prefix, self.one = page, prefix, one
        self.folder = Path(get_upload_folder()).resolve()
        self.chosen = gr.State([])
        self._left_out = gr.State([])  # ids; what is new is chosen
        self._arriving = gr.State(Arriving())  # shared by the events of a session
        self._zone = gr.HTML(
            zone(prefix), elem_id=f"{prefix}-drop", js_on_load=_script("documents_drop.js")
        )
        self._arrived = gr.HTML(
            elem_id=f"{prefix}-arriving", js_on_load=_script("documents_list.js")
        )
        self._list = gr.HTML(elem_id=f"{prefix}-documents", js_on_load=_script("documents_list.js"))
        self._wire()

    def _wire(self) -> None:
        out = [self._list, self._left_out, self.chosen]
        self._zone.arrived(
            self._take,
            [self._left_out, self._arriving],
            [self._arrived, *out],
            api_visibility="private",
            show_progress="hidden",
            trigger_mode="multiple",
        )
        self._arrived.dismiss(self._dismiss, self._arriving, self._arrived, **QUIET)
        for event, handler in (
            (self._list.pick, self._pick),
            (self._list.pick_all, self._pick_all),
            (self._list.read, self._choose),
            (self._list.drop, self._remove),
        ):
            event(handler, self._left_out, out, trigger_mode="multiple", **QUIET)
        for event in reloads():
            event(self._reload, self._left_out, out, **QUIET)

    # -- events ----------------------------------------------------------------------------------

    async def _take(
        self,
        left_out: list[str],
        arriving: Arriving,
        event: gr.EventData,
        request: gr.Request,
    ) -> AsyncIterator[Parts]:
        """Read what was uploaded; a file that cannot be read is told, the others go on."""
        files = arrived(event._data)
        if not arriving.busy:
            arriving.files.clear()
        arriving.files += files
        library = self.page.library(request.username)
        added: list[str] = []
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(file: Arrived) -> None:
            async with gate:
                file.state = "reading" if file.state == "waiting" else file.state
                if file.state == "reading":
                    added.extend(await asyncio.to_thread(read, file, self.folder, library))

        tasks = [asyncio.create_task(one(file)) for file in files]
        try:
            waiting = set(tasks)
            while waiting:
                _, waiting = await asyncio.wait(waiting, timeout=LOOK)
                now = arriving_html(arriving)
                if arriving.busy:  # still: their end is told with the list
                    yield {self._arrived: now}
            for task in tasks:
                task.result()
            left = [one for one in left_out if one not in added]
            shown = await asyncio.to_thread(self._shown, left, request)
            yield {self._arrived: arriving_html(arriving)} | shown
        finally:
            for task in tasks:
                task.cancel()
            for file in files:
                forget(file, self.folder)

    def _dismiss(self, arriving: Arriving) -> str:
        if not arriving.busy:
            arriving.files.clear()
        return arriving_html(arriving)

    def _pick(self, left_out: list[str], event: gr.EventData, request: gr.Request) -> Parts:
        id, on = text_of(event._data, "id"), bool(event._data.get("on"))
        if self.one:
            left_out = [one.id for one in self._listed(request) if one.id != id]
        else:
            left_out = [one for one in left_out if one != id] + ([] if on else [id])
        return self._shown(left_out, request)

    def _pick_all(self, left_out: list[str], event: gr.EventData, request: gr.Request) -> Parts:
        on = bool(event._data.get("on"))
        return self._shown([] if on else [one.id for one in self._listed(request)], request)

    def _choose(self, left_out: list[str], event: gr.EventData, request: gr.Request) -> Parts:
        whole = bool(event._data.get("whole"))
        self.page.library(request.username).set_whole(text_of(event._data, "id"), whole)
        return self._shown(left_out, request)

    def _remove(self, left_out: list[str], event: gr.EventData, request: gr.Request) -> Parts:
        self.page.library(request.username).remove(text_of(event._data, "id"))
        return self._shown(left_out, request)

    def _reload(self, left_out: list[str], request: gr.Request) -> Parts:
        return self._shown(left_out, request)

    def _listed(self, request: gr.Request) -> list[Document]:
        return self.page.library(request.username).list()

    def _shown(self, left_out: Sequence[str], request: gr.Request) -> Parts:
        try:
            documents = self._listed(request)
        except DocumentError as error:  # the file of all documents
            return {self._list: f'<p class="error" role="alert">{escape(str(error))}</p>'}
        chosen = chosen_of([one.id for one in documents], left_out, self.one)
        return {
            self._list: listing(documents, chosen, self.prefix, self.one),
            self._left_out: list(left_out),
            self.chosen: chosen,
        }


def panel(page: Page, prefix: str, one: bool = False) -> Panel:
    """Build it where the caller is. `prefix`: of the ids of its elements. `one`: exactly one
    document is chosen (the newest at first), and how it is read is not asked."""
    return Panel(page, prefix, one)


def reloads() -> list[Any]:
    """The events on which what is shown may be old: the page is loaded, the tab is opened."""
    found = [Context.root_block.load] if isinstance(Context.root_block, gr.Blocks) else []
    around = Context.block
    while around is not None and not isinstance(around, gr.Tab):
        around = around.parent
    return [*found, around.select] if isinstance(around, gr.Tab) else found


# -- how it looks ------------------------------------------------------------------------------


def zone(prefix: str) -> str:
    """Where files are dropped."""
    return (
        f'<label class="drop" data-largest="{MAX_FILE_BYTES}"><input type="file" multiple '
        f'id="{prefix}-files" class="away" aria-label="add documents">'
        f"<b>Drop documents here</b> or pick them<small>{READABLE}; they stay on this machine"
        '</small><span class="told" role="status"></span></label>'
    )


def chosen_of(ids: Sequence[str], left_out: Collection[str], one: bool) -> list[str]:
    """Which documents are asked: all but those left out; of them the newest if it must be one."""
    kept = [id for id in ids if id not in left_out]
    return (kept or list(ids))[-1:] if one else kept


def listing(documents: Sequence[Document], chosen: Collection[str], name: str, one: bool) -> str:
    """The list, each document with what can be done to it."""
    if not documents:
        return ""
    rows = "".join(_row(each, each.id in chosen, name, one) for each in documents)
    return f'{"" if one else _head(len(documents), len(chosen))}<ul class="documents">{rows}</ul>'


def _head(count: int, chosen: int) -> str:
    state = " checked" if chosen == count else " data-some" if chosen else ""
    return (
        f'<label class="all"><input type="checkbox" name="all"{state}>'
        f"{chosen} of {count} asked</label>"
    )


def _row(document: Document, chosen: bool, name: str, one: bool) -> str:
    shown = escape(" ".join(document.name.split()), quote=True)
    kind = "radio" if one else "checkbox"
    ways = "".join(
        f'<option value="{value}"{" selected" if document.whole == (value == "whole") else ""}>'
        f"{text}</option>"
        for value, text in (("search", "search"), ("whole", "whole document"))
    )
    select = f'<select aria-label="how {shown} is read">{ways}</select>'
    return (
        f'<li data-id="{escape(document.id, quote=True)}"><label title="{shown}">'
        f'<input type="{kind}" name="{name}-document"{" checked" if chosen else ""}>'
        f'<span class="name">{shown}</span></label>'
        f'<span class="kind">{document.kind}, {size(document)}</span>{"" if one else select}'
        f'<button type="button" name="remove" aria-label="remove {shown}">\u00d7</button></li>'
    )


def _script(name: str) -> str:
    return (HERE / name).read_text("utf-8")
