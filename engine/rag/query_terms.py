"""The content words of a question, and which of them some texts lack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from index.documents.full_text import query_terms
from index.documents.languages import DEFAULT_LANGUAGE, WordFinder, detect


def content_words(question: str) -> list[str]:
    """Return the words that say what a question is about, in lower case.

    None if it is about a document as a whole ("What is this file about?").
    """
    return [term.word.lower() for term in query_terms(question) if term.is_content]


def missing_words(wanted: Iterable[str], texts: Sequence[str]) -> list[str]:
    """Return the words that none of the texts contains in any inflection."""
    text = "\n".join(texts)
    finder = WordFinder(text, (detect(text), DEFAULT_LANGUAGE))
    return [word for word in wanted if word not in finder]
