"""The web page (Gradio): Ask, Summarize, Edit and Speed, mounted next to the API.

The page loads nothing from other servers, serves no file outside the upload folder, and sends
nothing to anybody.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

# Gradio reads this on import. Its default folder is shared by all users of the machine.
os.environ["GRADIO_TEMP_DIR"] = tempfile.mkdtemp(prefix="draftline-uploads-")

import gradio as gr

from index.documents.formats import MAX_FILE_BYTES
from ui.web import gradio_guard, pictures
from ui.web.ask import AskTab
from ui.web.edit import EditTab
from ui.web.login import password_check
from ui.web.speed import SpeedTab
from ui.web.state import PageState
from ui.web.summarize import SummarizeTab
from ui.web.theme import theme

if TYPE_CHECKING:
    from fastapi import FastAPI

    from engine.remote.any_engine import ServedEngine
    from index.documents.embeddings import Embed
    from ui.api.jobs import Jobs

PATH = "/ui"
UPLOADS = Path(os.environ["GRADIO_TEMP_DIR"])  # deleted with the process
atexit.register(shutil.rmtree, UPLOADS, ignore_errors=True)
HERE = Path(__file__).parent
HOUR_S, DAY_S = 3600, 86400
EVENTS_PER_SLOT = 8  # events of the UI that may wait, for each slot of the engine's queue


def mount(
    app: FastAPI,
    engine: ServedEngine,
    jobs: Jobs,
    folder: Path | None,
    users: Sequence[tuple[str, str]] = (),
    embed: Embed | None = None,
) -> FastAPI:
    """Mount the page at PATH of an application that checks hosts and origins (ui/api/security.py).

    `folder`: where documents are kept; None: in memory. `users`: names and passwords; without any,
    no login is needed. `embed`: adds semantic search."""
    page = PageState(engine, jobs, folder, embed)
    app.state.page = page
    blocks = build(page)
    mounted: FastAPI = gr.mount_gradio_app(
        app,
        blocks,
        path=PATH,
        auth=password_check(users) if users else None,
        auth_message="Draftline",
        allowed_paths=[],
        show_error=False,
        max_file_size=MAX_FILE_BYTES,
        ssr_mode=False,
        footer_links=[],
        theme=theme(),
        css_paths=[HERE / "style.css"],
        js=(HERE / "page.js").read_text("utf-8"),
        head=icon(),
        enable_monitoring=False,
        run_history=False,  # browsers would store all questions
    )
    blocks.has_launched = blocks.is_running = True  # or else Gradio does not check file paths
    gradio_guard.install(
        mounted, PATH, len(users), lambda user, query: pictures.draw(page.library(user), query)
    )
    return mounted


def build(page: PageState) -> gr.Blocks:
    """Create the page's components."""
    blocks: gr.Blocks
    with gr.Blocks(title="Draftline", delete_cache=(HOUR_S, DAY_S), fill_width=True) as blocks:
        where = "" if page.engine.drafts else page.engine.info.device
        gr.HTML(head(page.model_name, where), elem_classes="head")
        with gr.Tabs(elem_id="tabs"):
            tabs = {"Ask": AskTab, "Summarize": SummarizeTab, "Edit": EditTab}
            if page.engine.drafts:
                tabs["Speed"] = SpeedTab
            for title, tab in tabs.items():
                with gr.Tab(title, id=title.lower(), elem_id=f"tab-{title.lower()}"):
                    tab(page)
    max_events = EVENTS_PER_SLOT * page.jobs.queue_size
    blocks.queue(default_concurrency_limit=None, max_size=max_events)
    return blocks


def head(model: str, where: str = "") -> str:
    """Return the mark, the name, and the model, which runs on this machine unless it says where."""
    mark = (HERE / "icon.svg").read_text("utf-8").replace("<svg ", '<svg aria-hidden="true" ')
    return (
        '<a class="skip" href="#ask-question">Skip to the question</a>'
        f"<h1>{mark}Draftline</h1>"
        f'<p class="model"><b>{escape(model)}</b> '
        f"<span>runs on {escape(where or 'this machine')}</span></p>"
    )


def icon() -> str:
    """Return the favicon, as a data URL."""
    data = b64encode((HERE / "icon.svg").read_bytes()).decode()
    return f'<link rel="icon" type="image/svg+xml" href="data:image/svg+xml;base64,{data}">'
