"""The Ask tab before the first question: what to do, a sample document, questions."""

from __future__ import annotations

from collections.abc import Collection
from html import escape
from pathlib import Path

from index.documents.documents import content_id

SAMPLE = Path(__file__).with_name("sample_lease.md")
SAMPLE_NAME = "Sample lease.md"
SAMPLE_QUESTIONS = (
    "When does the lease end?",
    "How much is the rent for heating and hot water?",
    "May the tenant keep a dog?",
)
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


def empty_conversation(documents: Collection[str]) -> str:
    """`documents`: the ids of the user's documents."""
    if not documents:
        return (
            f'<div class="hint">{TITLE}'
            "<p>Add documents, then ask. Each answer shows the passages that it rests on.</p>"
            '<button type="button" name="sample">Try it with a sample document</button></div>'
        )
    sample = content_id(SAMPLE_NAME, SAMPLE.read_bytes())
    questions = "".join(
        f'<li><button type="button" name="question">{escape(question)}</button></li>'
        for question in (SAMPLE_QUESTIONS if sample in documents else ())
    )
    return (
        f'<div class="hint">{TITLE}'
        "<p>Each answer shows the passages that it rests on.</p>"
        f"{f'<ul>{questions}</ul>' if questions else ''}</div>"
    )
