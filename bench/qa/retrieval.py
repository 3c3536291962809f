"""Retrieval: whether the passage that answers a question is found.

A question is a hit at k if the k best chunks, over all documents, contain its whole passage. No
model is used.
"""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from engine.rag.answer import Turn, prepare
from engine.rag.follow_up import rewrite
from engine.records import Message
from index.documents.documents import Chunk, Document, Documents

DEPTHS = (1, 3, 10)
CONTEXT = 8192  # tokens; the context of a model that is not asked
QUERY_WORDS = 5  # words, the rarest of a sentence
UNANSWERABLE = Path(__file__).with_name("unanswerable.jsonl")  # questions about the same documents
FIELDS = ("id", "doc_id", "source_path", "document", "question", "answer", "answer_start")
SENTENCE = re.compile(
    r"(?:^|(?<=[.!?]\s))[A-Z](?:(?!\n\s*\n)[^.!?]){60,400}[.!?](?=\s)", re.MULTILINE
)
WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class PassageQuestion:
    """A question, and the code point range of the passage that answers it."""

    name: str
    question: str
    document: str  # a key of the texts
    start: int
    stop: int
    earlier: tuple[Turn, ...] = ()  # what it follows


class SearchRow(NamedTuple):
    """One search."""

    name: str  # the question's name
    depth: int | None  # the number of best chunks that contain the passage; None: more than 10
    seconds: float


class WordTokenizer:
    """Takes words for tokens, in place of a model's tokenizer."""

    def encode(self, text: str) -> list[int]:
        return [len(word) for word in WORD.findall(text)]

    def chat(self, messages: tuple[Message, ...]) -> list[int]:
        return self.encode("\n".join(str(one["content"]) for one in messages))


def load(path: Path) -> tuple[dict[str, tuple[str, str]], list[PassageQuestion]]:
    """Documents by key, as (file name, text), and the questions.

    Raises OSError, or ValueError with one line for a malformed record.
    """
    documents: dict[str, tuple[str, str]] = {}
    asked: list[PassageQuestion] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            one: dict[str, Any] = json.loads(line)
            key, start = str(one["doc_id"]), int(one["answer_start"])
            name = key + Path(one["source_path"]).suffix
            documents[key] = (name, str(one["document"]))
            stop = start + len(one["answer"])
            asked.append(PassageQuestion(str(one["id"]), str(one["question"]), key, start, stop))
            same = one["document"][start:stop] == one["answer"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number}: {error!r}: a record has {', '.join(FIELDS)}"
            ) from error
        if not same:
            raise ValueError(f"{path}, line {number}: the answer is not at answer_start")
    return documents, asked


def generated(
    documents: dict[str, tuple[str, str]], count: int, seed: int = 0
) -> list[PassageQuestion]:
    """Return a fixed sample of sentences, queried by their rarest words."""
    seen = Counter(word.lower() for _, text in documents.values() for word in WORD.findall(text))
    every = [
        (key, match.start(), match.group())
        for key, (_, text) in documents.items()
        for match in SENTENCE.finditer(text)
    ]
    found = []
    for key, start, text in random.Random(seed).sample(every, min(count, len(every))):
        words = [word for word in dict.fromkeys(WORD.findall(text)) if len(word) > 1]
        rare = sorted(words, key=lambda word: seen[word.lower()])[:QUERY_WORDS]
        query = " ".join(word for word in words if word in rare)
        found.append(PassageQuestion(f"{key}:{start}", query, key, start, start + len(text)))
    return found


def holds(chunks: Sequence[Chunk], document: str, text: str, start: int, stop: int) -> bool:
    """Return whether the chunks together contain all of a passage except blanks."""
    left = {at for at in range(start, stop) if not text[at].isspace()}
    for chunk in chunks:
        if chunk.document == document:
            left.difference_update(range(chunk.start, chunk.stop))
    return not left


def refusals(asked: Sequence[PassageQuestion], library: Documents) -> dict[str, Any]:
    """Count answerable questions that are refused and unanswerable ones that are not.

    They are the public questions and those of UNANSWERABLE.
    """
    more = [json.loads(line) for line in UNANSWERABLE.read_text("utf-8").splitlines()]
    given = [(one, True) for one in asked]
    given += [(PassageQuestion("", one["question"], "", 0, 0), one["answerable"]) for one in more]
    counts = Counter((known, refused(question, library)) for question, known in given)
    return {
        "answerable": counts[True, True] + counts[True, False],
        "refused_wrongly": counts[True, True],
        "unanswerable": counts[False, True] + counts[False, False],
        "not_refused": counts[False, False],
    }


def refused(one: PassageQuestion, library: Documents) -> bool:
    """Return whether a question about all documents is refused without a call of the model."""
    ids = [document.id for document in library.list()]
    tokenizer = WordTokenizer()
    prepared = prepare(one.question, library, ids, tokenizer, CONTEXT, earlier=one.earlier)
    return prepared.request is None


def search(
    documents: dict[str, Document], asked: Sequence[PassageQuestion], library: Documents
) -> list[SearchRow]:
    """Search all documents for each question."""
    rows = []
    for one in asked:
        query = rewrite(one.question, [turn.question for turn in one.earlier]) or one.question
        began = time.perf_counter()
        found = [hit.chunk for hit in library.search(query, max(DEPTHS))]
        seconds = time.perf_counter() - began
        document = documents[one.document]
        place = (document.id, document.text, one.start, one.stop)
        depth = next((k for k in range(1, max(DEPTHS) + 1) if holds(found[:k], *place)), None)
        rows.append(SearchRow(one.name, depth, seconds))
    return rows


def hit_rates(rows: Sequence[SearchRow]) -> dict[str, Any]:
    """Hit rates, search time, and the questions that are not hit at 3."""
    depths = [row.depth or math.inf for row in rows]
    shares: dict[str, Any] = {
        f"hit@{k}": round(sum(depth <= k for depth in depths) / len(rows), 4) for k in DEPTHS
    }
    return shares | {
        "questions": len(rows),
        "search_ms": round(median(row.seconds for row in rows) * 1000, 2),
        "not_among_3": [row.name for row in rows if not row.depth or row.depth > 3],
    }


def add_texts(documents: dict[str, tuple[str, str]], library: Documents) -> dict[str, Document]:
    """Add documents given as (file name, text)."""
    return {key: library.add_data(name, text.encode()) for key, (name, text) in documents.items()}
