"""The Ask tab before the first question: what to do, a sample document, questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from index.documents.documents import content_id
from index.documents.languages import detect

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
MIN_SECTION_CHARS = 200  # characters below a heading that is asked about
LANGUAGE_CHARS = 20_000  # characters that decide a document's language
ABOUT = {  # language -> a question about a heading
    "de": "Was steht unter \u201e{}\u201c?",
    "en": "What does it say about \u201c{}\u201d?",
    "fr": "Que dit le texte sur \u00ab {} \u00bb ?",
    "zh": "\u5173\u4e8e\u201c{}\u201d\u8bf4\u4e86\u4ec0\u4e48\uff1f",
}
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
    """Show what to do with the user's documents, with questions about them."""
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
    """Return questions that the documents answer: about the headings of the newest first."""
    sample = content_id(SAMPLE_NAME, SAMPLE.read_bytes())
    found = [*SAMPLE_QUESTIONS] if any(one.id == sample for one in documents) else []
    for document in reversed(documents):
        if document.id != sample:
            found += islice(_questions(document), MAX_QUESTIONS)
    return [*dict.fromkeys(found)][:MAX_QUESTIONS]


def _questions(document: Document) -> Iterator[str]:
    language = detect(document.text[:LANGUAGE_CHARS])
    starts = [heading.start for heading in document.headings]
    ends = [*starts[1:], len(document.text)]
    for heading, end in zip(document.headings, ends, strict=False):
        title = " ".join(heading.title.split())
        is_named = len(title) <= MAX_TITLE_CHARS and any(map(str.isalpha, title))
        if heading.start and is_named and end - heading.start >= MIN_SECTION_CHARS:
            yield ABOUT.get(language, ABOUT["en"]).format(title)
