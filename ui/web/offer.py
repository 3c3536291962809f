"""The line below the documents that offers the embedding model, until it is dismissed."""

from __future__ import annotations

from html import escape

from ui import embedding_offer
from ui.embedding_offer import COMMAND, PAGE, SIZE

# Gradio provides `element` and `trigger`.
OFFER_SCRIPT = """
element.addEventListener("click", ({ target }) => {
  if (target.closest("button")) trigger("dismiss", {});
});
"""


def offer_html() -> str:
    """Return the offer's line; nothing once it was dismissed."""
    if not embedding_offer.is_open(PAGE):
        return ""
    return (
        f'<p class="note offer">Search by meaning too, from the next start on ({SIZE}): '
        f"<code>{escape(COMMAND)}</code>"
        '<button type="button" aria-label="do not offer this again">\u00d7</button></p>'
    )
