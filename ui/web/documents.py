"""The document panel of a tab: upload, list, select and remove a user's documents.

Uploaded files are read at once and then deleted. The functions at the end render the list.
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

from engine.memory import give_back_memory
from index.documents.documents import Document, DocumentError
from index.documents.formats import FORMATS, IN_WORDS, MAX_FILE_BYTES
from index.documents.formats.parser import DocumentParser
from ui.web.empty import SAMPLE, SAMPLE_NAME
from ui.web.uploads import (
    UploadBatch,
    UploadedFile,
    add_to_library,
    delete_copy,
    files_of,
    size_of,
    string_of,
    uploads_html,
)

if TYPE_CHECKING:
    from ui.web.state import PageState

HERE = Path(__file__).parent
MAX_PARALLEL_READS = 2
REFRESH_S = 0.2  # seconds between two updates of the uploads' state
QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}

Updates = dict[Any, Any]  # component -> its new value


class DocumentPanel:
    """The panel of documents, created in the current block.

    `selected`, a gr.State, has the ids of the selected documents in order.

    `prefix` starts the element ids. With `single`, exactly one document is selected, at first the
    newest, and the choice between passages and whole document is hidden.
    """

    def __init__(self, page: PageState, prefix: str, single: bool = False) -> None:
        self.page, self.prefix, self.single = page, prefix, single
        self.folder = Path(get_upload_folder()).resolve()
        self.selected = gr.State([])
        self._deselected = gr.State([])  # ids; new documents are selected
        self._batch = gr.State(UploadBatch())  # shared by the events of a session
        self._zone = gr.HTML(
            drop_zone(prefix), elem_id=f"{prefix}-drop", js_on_load=_script("documents_drop.js")
        )
        self._uploads = gr.HTML(
            elem_id=f"{prefix}-arriving", js_on_load=_script("documents_list.js")
        )
        self._list = gr.HTML(elem_id=f"{prefix}-documents", js_on_load=_script("documents_list.js"))
        self.refreshed = self._deselected, [self._list, self._deselected, self.selected]
        self._wire()

    def _wire(self) -> None:
        _, outputs = self.refreshed
        self._zone.arrived(
            self._add,
            [self._deselected, self._batch],
            [self._uploads, *outputs],
            trigger_mode="multiple",
            **QUIET,
        )
        self._uploads.dismiss(self._dismiss, self._batch, self._uploads, **QUIET)
        for event, handler in (
            (self._list.pick, self._select),
            (self._list.pick_all, self._select_all),
            (self._list.read, self._set_whole),
            (self._list.drop, self._remove),
        ):
            event(handler, self._deselected, outputs, trigger_mode="multiple", **QUIET)
        for event in reload_events():
            event(self._refresh, self._deselected, outputs, **QUIET)

    # -- event handlers ----------------------------------------------------------------------------

    async def _add(
        self,
        deselected: list[str],
        batch: UploadBatch,
        event: gr.EventData,
        request: gr.Request,
    ) -> AsyncIterator[Updates]:
        """Read the uploaded files."""
        files = files_of(event._data)
        if not batch.busy:
            batch.files.clear()
        batch.files += files
        library = self.page.library(request.username)
        added: list[str] = []
        parser = DocumentParser()
        semaphore = asyncio.Semaphore(MAX_PARALLEL_READS)

        async def read(file: UploadedFile) -> None:
            async with semaphore:
                if file.state == "waiting":
                    file.state = "reading"
                    id = await asyncio.to_thread(add_to_library, file, self.folder, library, parser)
                    if id is not None:
                        added.append(id)

        tasks = [asyncio.create_task(read(file)) for file in files]
        try:
            pending = set(tasks)
            while pending:
                _, pending = await asyncio.wait(pending, timeout=REFRESH_S)
                current = uploads_html(batch)
                if batch.busy:  # otherwise the end is shown together with the list
                    yield {self._uploads: current}
            for task in tasks:
                task.result()
            remaining = [id for id in deselected if id not in added]
            updates = await asyncio.to_thread(self._updates, remaining, request)
            yield {self._uploads: uploads_html(batch)} | updates
        finally:
            for task in tasks:
                task.cancel()
            for file in files:
                delete_copy(file, self.folder)
            await asyncio.to_thread(parser.close)  # ends the files that are being read
            await asyncio.to_thread(give_back_memory)

    def _dismiss(self, batch: UploadBatch) -> str:
        if not batch.busy:
            batch.files.clear()
        return uploads_html(batch)

    def _select(self, deselected: list[str], event: gr.EventData, request: gr.Request) -> Updates:
        id, on = string_of(event._data, "id"), bool(event._data.get("on"))
        if self.single:
            deselected = [document.id for document in self._documents(request) if document.id != id]
        else:
            deselected = [other for other in deselected if other != id] + ([] if on else [id])
        return self._updates(deselected, request)

    def _select_all(
        self, deselected: list[str], event: gr.EventData, request: gr.Request
    ) -> Updates:
        on = bool(event._data.get("on"))
        return self._updates(
            [] if on else [document.id for document in self._documents(request)], request
        )

    def _set_whole(
        self, deselected: list[str], event: gr.EventData, request: gr.Request
    ) -> Updates:
        whole = bool(event._data.get("whole"))
        self.page.library(request.username).set_whole(string_of(event._data, "id"), whole)
        return self._updates(deselected, request)

    def _remove(self, deselected: list[str], event: gr.EventData, request: gr.Request) -> Updates:
        self.page.library(request.username).remove(string_of(event._data, "id"))
        return self._updates(deselected, request)

    def _refresh(self, deselected: list[str], request: gr.Request) -> Updates:
        return self._updates(deselected, request)

    async def add_sample(self, deselected: list[str], request: gr.Request) -> Updates:
        """Add the sample document. An event with the inputs and outputs `refreshed`."""
        library, data = self.page.library(request.username), SAMPLE.read_bytes()
        await asyncio.to_thread(library.add_data, SAMPLE_NAME, data)
        return self._updates(deselected, request)

    def _documents(self, request: gr.Request) -> list[Document]:
        return self.page.library(request.username).list()

    def _updates(self, deselected: Sequence[str], request: gr.Request) -> Updates:
        try:
            documents = self._documents(request)
        except DocumentError as error:  # the database cannot be read
            return {self._list: f'<p class="error" role="alert">{escape(str(error))}</p>'}
        selected = selection([document.id for document in documents], deselected, self.single)
        return {
            self._list: document_list(documents, selected, self.prefix, self.single),
            self._deselected: list(deselected),
            self.selected: selected,
        }


def reload_events() -> list[Any]:
    """Return the events after which the tab may be out of date.

    They are that the page loads, or the tab is opened.
    """
    events = [Context.root_block.load] if isinstance(Context.root_block, gr.Blocks) else []
    block = Context.block
    while block is not None and not isinstance(block, gr.Tab):
        block = block.parent
    return [*events, block.select] if isinstance(block, gr.Tab) else events


# -- rendering -----------------------------------------------------------------------------------


def drop_zone(prefix: str) -> str:
    return (
        f'<label class="drop" data-largest="{MAX_FILE_BYTES}"><input type="file" multiple '
        f'id="{prefix}-files" class="away" aria-label="add documents">'
        f'<b>Add documents</b><small title="{FORMATS}">Drop them here or choose files: {IN_WORDS}'
        '</small><span class="told" role="status"></span></label>'
    )


def selection(ids: Sequence[str], deselected: Collection[str], single: bool) -> list[str]:
    """Return the selected documents: all but the deselected ones, or only the newest of these."""
    selected = [id for id in ids if id not in deselected]
    return (selected or list(ids))[-1:] if single else selected


def document_list(
    documents: Sequence[Document], selected: Collection[str], name: str, single: bool
) -> str:
    """Return the list, with the controls of each document."""
    if not documents:
        return ""
    rows = "".join(_row(document, document.id in selected, name, single) for document in documents)
    head = "" if single else _head(len(documents), len(selected))
    return f'{head}<ul class="documents">{rows}</ul>'


def _head(count: int, selected: int) -> str:
    state = " checked" if selected == count else " data-some" if selected else ""
    return (
        f'<label class="all"><input type="checkbox" name="all"{state}>'
        f"{selected} of {count} selected</label>"
    )


def _row(document: Document, selected: bool, name: str, single: bool) -> str:
    shown = escape(" ".join(document.name.split()), quote=True)
    kind = "radio" if single else "checkbox"
    options = "".join(
        f'<option value="{value}"{" selected" if document.whole == (value == "whole") else ""}>'
        f"{text}</option>"
        for value, text in (("search", "fitting passages"), ("whole", "whole document"))
    )
    select = f'<select aria-label="how {shown} is read">{options}</select>'
    return (
        f'<li data-id="{escape(document.id, quote=True)}"><label title="{shown}">'
        f'<input type="{kind}" name="{name}-document"{" checked" if selected else ""}>'
        f'<span class="name">{shown}</span></label>'
        f'<span class="kind">{document.kind}, {size_of(document)}</span>{"" if single else select}'
        f'<button type="button" name="remove" aria-label="remove {shown}">\u00d7</button></li>'
    )


def _script(name: str) -> str:
    return (HERE / name).read_text("utf-8")
