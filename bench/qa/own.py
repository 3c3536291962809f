"""Documents and questions of our own: German, French, Chinese and English ones, and tables.

A line of questions.jsonl is one question: `passage` is where the document answers it, as parts that
follow each other on one line, such as the cells of a row; `answer` lists the accepted forms of the
short answer. Both are empty if no document answers it. `follows` is the id of the question asked
before ("And on Sundays?"). A line of summaries.jsonl is what a summary of one document should say.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bench.qa.retrieval import PassageQuestion, hit_rates, refused, search
from engine.rag.answer import Turn
from index.documents.documents import Document, Documents

FOLDER = Path(__file__).parent
DOCUMENTS = FOLDER / "documents"
QUESTIONS = FOLDER / "questions.jsonl"
CHECKLISTS = FOLDER / "summaries.jsonl"

LATIN = "a-z\u00df-\u024f"
MARKUP = re.compile(r"[`*]+")
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class OwnQuestion:
    """One line of questions.jsonl."""

    id: str
    language: str  # de, en, fr, zh
    document: str  # a file name
    question: str
    passage: tuple[str, ...]
    answer: tuple[str, ...]
    follows: str  # "" for none
    table: bool


@dataclass(frozen=True, slots=True)
class Checklist:
    """One line of summaries.jsonl."""

    document: str
    facts: tuple[tuple[str, ...], ...]  # the accepted forms of each
    chapters: tuple[tuple[str, ...], ...]  # the title of each, and words that only it contains

    def score(self, summary: str) -> dict[str, int]:
        """Count the facts that a summary has, and the chapters that it mentions."""
        return {
            "facts_found": sum(mentions(summary, forms) for forms in self.facts),
            "facts": len(self.facts),
            "chapters_covered": sum(mentions(summary, words) for words in self.chapters),
            "chapters": len(self.chapters),
        }


def load_questions(path: Path = QUESTIONS) -> list[OwnQuestion]:
    """Load the questions. Raises OSError, or ValueError with one line for a bad record."""
    return _load(path, _question)


def load_checklists(path: Path = CHECKLISTS) -> list[Checklist]:
    """Load the checklists. Raises OSError, or ValueError with one line for a bad record."""
    return _load(path, _checklist)


def _question(record: dict[str, Any]) -> OwnQuestion:
    names = ("id", "language", "document", "question")
    return OwnQuestion(
        *(str(record[name]) for name in names),
        passage=tuple(record["passage"]),
        answer=tuple(record["answer"]),
        follows=record.get("follows", ""),
        table=record.get("table", False),
    )


def _checklist(record: dict[str, Any]) -> Checklist:
    facts, chapters = (tuple(map(tuple, record[name])) for name in ("facts", "chapters"))
    return Checklist(str(record["document"]), facts, chapters)


def _load(path: Path, read: Callable[[dict[str, Any]], Record]) -> list[Record]:
    found = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            found.append(read(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: {error!r}: see bench/qa/own.py") from error
    return found


def add_documents(library: Documents) -> dict[str, Document]:
    """Our own documents, by file name."""
    return {path.name: library.add(path) for path in sorted(DOCUMENTS.glob("*.*"))}


def find_passage(text: str, passage: Sequence[str]) -> tuple[int, int]:
    """Return the code points of a passage.

    Raises ValueError unless the text has it exactly once.
    """
    parts = (r"\s+".join(map(re.escape, part.split())) for part in passage)
    found = [match.span() for match in re.finditer(r"[^\n]*?".join(parts), text)]
    if len(found) != 1:
        raise ValueError(f"expected once, found {len(found)} times: {' ... '.join(passage)}")
    return found[0]


def with_passages(
    questions: Iterable[OwnQuestion], documents: dict[str, Document]
) -> list[PassageQuestion]:
    """Return the questions with the places of their passages: 0 to 0 if unanswerable."""
    known: dict[str, OwnQuestion] = {}
    placed = []
    for one in questions:
        known[one.id] = one
        before = known.get(one.follows)
        earlier = (Turn(before.question, before.answer[0]),) if before else ()
        try:
            text = documents[one.document].text
            start, stop = find_passage(text, one.passage) if one.passage else (0, 0)
            if one.follows and not before:
                raise ValueError(f"follows {one.follows}, which is not before it")
        except (KeyError, ValueError) as error:
            raise ValueError(f"question {one.id}: {one.document}: {error}") from error
        placed.append(PassageQuestion(one.id, one.question, one.document, start, stop, earlier))
    return placed


def groups(questions: Sequence[OwnQuestion]) -> dict[str, list[OwnQuestion]]:
    """Return the questions of each language; those about tables are a group as well."""
    found = {
        language: [one for one in questions if one.language == language]
        for language in sorted({one.language for one in questions})
    }
    return found | {"tables": [one for one in questions if one.table]}


def measure_own(questions: Sequence[OwnQuestion], library: Documents) -> dict[str, Any]:
    """Hit rates and refusals, over all questions and by group."""
    documents = add_documents(library)
    placed = with_passages(questions, documents)
    rows = {row.name: row for row in search(documents, placed, library)}
    refusals = {one.name for one in placed if refused(one, library)}

    def figures(some: Sequence[OwnQuestion]) -> dict[str, Any]:
        others = [one.id for one in some if not one.passage]
        accepted = [id for id in others if id not in refusals]
        asked = [one.id for one in some if one.passage]
        return hit_rates([rows[id] for id in asked]) | {
            "refused_wrongly": [id for id in asked if id in refusals],
            "unanswerable": len(others),
            "unanswerable_refused": share(len(others) - len(accepted), len(others)),
            "not_refused": accepted,
        }

    by_group = {name: figures(some) for name, some in groups(questions).items()}
    return figures(questions) | {"groups": by_group}


def share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def mentions(text: str, forms: Iterable[str]) -> bool:
    """Return whether a text has one of some words or numbers.

    "3" is not in "30", "1.3" or "3.5".
    """
    plain = _plain(text)
    return any(re.search(_pattern(_plain(form)), plain) for form in forms)


def _plain(text: str) -> str:
    """Return a text without Markdown emphasis and differences of case and blanks."""
    return " ".join(unicodedata.normalize("NFKC", MARKUP.sub("", text)).casefold().split())


def _pattern(form: str) -> str:
    before = after = ""
    if form[0].isdigit():
        before = r"(?<!\d)(?<!\d[.,])"
    elif re.match(f"[{LATIN}]", form):
        before = f"(?<![{LATIN}])"
    if form[-1].isdigit():
        after = r"(?!\d|[.,]\d)"
    elif re.match(f"[{LATIN}]", form[-1]):
        after = f"(?![{LATIN}])"
    return before + re.escape(form) + after
