"""The Ask tab before the first question: what to do, a sample document, questions."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from index.documents.documents import content_id

if TYPE_CHECKING:
    from index.documents.documents import Document

SAMPLE = Path(__file__).with_name("sample_lease.md")
SAMPLE_NAME = "Sample lease.md"
SAMPLE_QUESTIONS = (
    "When does the lease end?",
    "How much is the rent for heating and hot water?",
    "May the tenant keep a dog?",
)
MAX_QUESTIONS = 4
MAX_TITLE_CHARS = 60  # characters; a longer heading makes no question
# Buttons for the sample, and for questions, which are sent at once. Gradio provides `element` and
# `trigger`.
SAMPLES_SCRIPT = """
element.addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  if (button?.name === "sample") trigger("sample", {});
  if (button?.name !== "question") return;
  const box = document.querySelector("#ask-question textarea");
  box.value = button.textContent;
  box.dispatchEvent(new Event("input", { bubbles: true }));
  setTimeout(() => document.querySelector("#ask-ask").click(), 50);
});
"""


TITLE = "<h2>Ask your documents</h2>"
BEFORE_LOAD = f'<div class="hint">{TITLE}</div>'  # until it is known which documents there are


def empty_conversation(documents: Sequence[Document]) -> str:
    """Show what to do with the user's documents, with questions that they answer."""
    if not documents:
        return (
            f'<div class="hint">{TITLE}'
            "<p>Add documents, then ask. Each answer shows the passages that it rests on.</p>"
            '<button type="button" name="sample">Try it with a sample document</button></div>'
        )
    questions = "".join(
        f'<li><button type="button" name="question">{escape(question)}</button></li>'
        for question in suggested_questions(documents)
    )
    return (
        f'<div class="hint">{TITLE}'
        "<p>Each answer shows the passages that it rests on.</p>"
        f"{f'<ul>{questions}</ul>' if questions else ''}</div>"
    )


def suggested_questions(documents: Sequence[Document]) -> list[str]:
    """Return questions about the newest documents: their headings, which need no translation."""
    sample = content_id(SAMPLE_NAME, SAMPLE.read_bytes())
    found = [*SAMPLE_QUESTIONS] if any(one.id == sample for one in documents) else []
    for document in reversed(documents):
        titles = (" ".join(heading.title.split()) for heading in document.headings[1:])
        named = (title for title in titles if any(map(str.isalnum, title)))
        if document.id != sample:
            found += [f"{title.rstrip('?')}?" for title in named if len(title) <= MAX_TITLE_CHARS]
    return [*dict.fromkeys(found)][:MAX_QUESTIONS]
