"""The web page (Gradio): Ask, Summarize, Edit and Speed, mounted beside the API.

Here is only what holds the tabs together, and what the page may do at all: nothing is loaded from
elsewhere, no file outside the upload folder is served, nothing is sent to anybody. Each tab has a
file in ui/page/.
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

# Read when gradio is imported; it would make a folder that all users of this machine share.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["GRADIO_TEMP_DIR"] = tempfile.mkdtemp(prefix="draftline-uploads-")

import gradio as gr

from index.documents.formats import MAX_FILE_BYTES
from ui.web import ask, edit, gradio_guard, speed, summarize
from ui.web.state import Page

if TYPE_CHECKING:
    from fastapi import FastAPI

    from engine.engine import Engine
    from index.documents.embeddings import Embed
    from ui.api.jobs import Jobs

AT = "/ui"
UPLOADS = Path(os.environ["GRADIO_TEMP_DIR"])  # gone with the process
atexit.register(shutil.rmtree, UPLOADS, ignore_errors=True)
HERE = Path(__file__).parent
FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
MONO = ["ui-monospace", "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", "monospace"]
DAY, HOUR = 86400, 3600  # seconds


def mount(
    app: FastAPI,
    engine: Engine,
    jobs: Jobs,
    folder: Path | None,
    users: Sequence[tuple[str, str]] = (),
    embed: Embed | None = None,
) -> FastAPI:
    """Put the page at `AT` of the application, which guards hosts and origins (ui/api/security.py).
    `folder`: where documents are kept. `users`: names and passwords; none: whoever reaches it.
    `embed`: documents are searched by meaning, too."""
    page = Page(engine, jobs, folder, embed)
    app.state.page = page
    made = blocks(page)
    mounted: FastAPI = gr.mount_gradio_app(
        app,
        made,
        path=AT,
        auth=gradio_guard.right(users) if users else None,
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
        run_history=False,  # else browsers keep all that was asked
    )
    made.has_launched = made.is_running = True  # else a mounted page checks no file's place
    gradio_guard.put(mounted, AT)
    return mounted


def blocks(page: Page) -> gr.Blocks:
    """The page itself."""
    made: gr.Blocks
    with gr.Blocks(title="Draftline", delete_cache=(HOUR, DAY), fill_width=True) as made:
        gr.HTML(
            '<h1>Draftline</h1><p class="tagline">The text that exists drafts, '
            f"<b>{escape(page.model)}</b> verifies: its own words, sooner. "
            "Nothing leaves this machine.</p>",
            elem_classes="head",
        )
        with gr.Tabs(elem_id="tabs"):
            for title, tab in (
                ("Ask", ask),
                ("Summarize", summarize),
                ("Edit", edit),
                ("Speed", speed),
            ):
                with gr.Tab(title, id=title.lower(), elem_id=f"tab-{title.lower()}"):
                    tab.add(page)
    made.queue(default_concurrency_limit=None, max_size=jobs_and_clicks(page))
    return made


def jobs_and_clicks(page: Page) -> int:
    """Events that may wait: for every place in the engine's queue some clicks beside it."""
    return 8 * page.jobs.places


def icon() -> str:
    """The page's icon, in the page."""
    data = b64encode((HERE / "icon.svg").read_bytes()).decode()
    return f'<link rel="icon" type="image/svg+xml" href="data:image/svg+xml;base64,{data}">'


def theme() -> gr.themes.Base:
    """Quiet, without fonts from elsewhere."""
    return gr.themes.Base(
        primary_hue="indigo", neutral_hue="slate", font=FONTS, font_mono=MONO, radius_size="md"
    )
