"""Answers to questions with a known passage, and summaries: what they hold, what they cite, and how
much sooner they come than by plain decoding.

Each request is run with and without speculation by turns, every time from nothing learnt, on a
prompt that is in the cache. Both texts must be equal.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Sequence
from statistics import mean, median
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.common import report
from bench.common.stats import bootstrap
from engine.rag.answer import CitedAnswer, cite_answer, prepare
from engine.rag.citations import Citation
from engine.rag.summarize import Summary, summarize
from engine.rag.summary_plan import SummaryOptions
from engine.records import Step

if TYPE_CHECKING:
    from bench.qa.retrieval import Asked
    from engine import Done, Engine, Request
    from index.documents.documents import Document, Documents

MARKUP = re.compile(r"[`*]+")
QUOTES = 0.5  # of an answer's words are copied: it quotes


class Answered(NamedTuple):
    """One question; without an answer where the documents are said to hold none."""

    name: str
    answer: CitedAnswer | None
    right: bool  # it has the words of the known passage
    ratios: list[float]  # of the plain time to ours, by repeat
    whole: list[float]  # the same of whole answers, the reading of the prompt with them
    tokens: int
    prepare_ms: float  # retrieval and prompt


def contains(answer: str, passage: str) -> bool:
    """Whether an answer has a passage's words in a row; blanks, case and marks of emphasis or code
    do not matter."""
    one, other = (" ".join(MARKUP.sub("", text).split()).casefold() for text in (answer, passage))
    return other in one


def precise(citations: Sequence[Citation], answer: str, texts: dict[str, str]) -> int:
    """How many of the citations name a place that has the quoted words. Not by the engine's own
    means."""
    found = 0
    for one in citations:
        span = texts[one.document][one.source_start : one.source_stop]
        quote = answer[one.start : one.stop]
        found += _words(quote) != "" and _words(quote) in _words(span)
    return found


def _words(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def answers(
    documents: dict[str, tuple[str, str]],
    asked: Sequence[Asked],
    library: Documents,
    engine: Engine,
    repeats: int,
) -> dict[str, Any]:
    """Ask every question about all documents together."""
    added = {key: library.add_data(name, text.encode()) for key, (name, text) in documents.items()}
    ids = [one.id for one in added.values()]
    rows = []
    for number, one in enumerate(asked):
        report.progress("", number, len(asked), one.name, "answer")
        began = time.perf_counter()
        prepared = prepare(one.question, library, ids, engine, engine.context)
        took = (time.perf_counter() - began) * 1000
        if prepared.request is None:
            rows.append(Answered(one.name, None, False, [], [], 0, took))
            continue
        done, ratios, whole = paired(engine, prepared.request, repeats)
        passage = documents[one.document][1][one.start : one.stop]
        right = contains(done.text, passage)
        tokens = done.usage.completion_tokens
        said = cite_answer(prepared, done.text)
        rows.append(Answered(one.name, said, right, ratios, whole, tokens, took))
    return figures(rows, {one.id: one.text for one in added.values()})


def paired(engine: Engine, request: Request, repeats: int) -> tuple[Done, list[float], list[float]]:
    """The answer, and how many times sooner it is written than plainly, by repeat; then the same
    with the reading of the prompt."""
    done = engine.submit(request, speculation=False).result()
    reading = done.usage.prefill_seconds
    ratios, whole = [], []
    for repeat in range(repeats):
        seconds = {}
        for speculation in (False, True) if repeat % 2 else (True, False):
            engine.forget()
            other = engine.submit(request, speculation=speculation).result()
            if (other.text, other.reason) != (done.text, done.reason):
                raise RuntimeError(f"speculation changed an answer: {done.text!r}, {other.text!r}")
            seconds[speculation] = other.usage.decode_seconds
        ratios.append(seconds[False] / seconds[True])
        whole.append((reading + seconds[False]) / (reading + seconds[True]))
    return done, ratios, whole


def figures(rows: Sequence[Answered], texts: dict[str, str]) -> dict[str, Any]:
    """What the questions come to."""
    told = [row for row in rows if row.answer is not None]
    given = [row.answer for row in told if row.answer is not None]
    citations = sum(len(one.citations) for one in given)
    right = sum(precise(one.citations, one.text, texts) for one in given)
    quoting = [row for row in told if row.answer is not None and row.answer.covered >= QUOTES]
    return {
        "answer_containment": round(sum(row.right for row in rows) / len(rows), 4),
        "citation_precision": round(right / citations, 4) if citations else None,
        "citations": citations,
        "cited_answers": sum(bool(one.citations) for one in given),
        "covered": round(mean(one.covered for one in given), 4) if given else None,
        "not_answered": [row.name for row in rows if row.answer is None],
        "prepare_ms": round(median(row.prepare_ms for row in rows), 2),
        "ratio_to_plain": ratio_of([row.ratios for row in told]),
        "ratio_where_quoted": ratio_of([row.ratios for row in quoting]),
        "lowest_ratio": lowest([row.ratios for row in told]),
        "ratio_whole": ratio_of([row.whole for row in told]),
        "lowest_whole": lowest([row.whole for row in told]),
        "each": [each(row) for row in rows],
    }


def each(row: Answered) -> dict[str, Any]:
    """One question's line of the results."""
    return {
        "question": row.name,
        "right": row.right,
        "tokens": row.tokens,
        "covered": row.answer and round(row.answer.covered, 4),
        "ratio": round(median(row.ratios), 4) if row.ratios else None,
    }


def lowest(ratios: Sequence[list[float]]) -> float | None:
    """The lowest of the medians of each request; None for none."""
    return round(min(median(one) for one in ratios), 4) if ratios else None


def ratio_of(ratios: Sequence[list[float]]) -> float | None:
    """The geometric mean of the medians of each request; None for none."""
    usable = [one for one in ratios if one]
    return round(bootstrap(usable).value, 4) if usable else None


def summaries(
    documents: Sequence[Document], engine: Engine, options: SummaryOptions
) -> dict[str, Any]:
    """Each document summarized plainly and with speculation: one after the other, once."""
    ratios, cited, right, whole = [], 0, 0, 0
    for number, one in enumerate(documents):
        found: dict[bool, Summary] = {}
        seconds = {False: 0.0, True: 0.0}
        for speculation in (False, True):
            report.progress("", number, len(documents), one.name, "summary")
            engine.forget()
            for event in summarize(engine, one, options, speculation=speculation):
                if isinstance(event, Summary):
                    found[speculation] = event
                elif isinstance(event, Step) and event.prefill is None:
                    seconds[speculation] += event.seconds
        if found[False] != found[True]:
            raise RuntimeError(f"{one.name}: speculation changed its summary")
        ratios.append([seconds[False] / seconds[True]])
        summary = found[True]
        cited += len(summary.citations)
        right += precise(summary.citations, summary.text, {one.id: one.text})
        whole += summary.whole
    return {
        "summaries": whole,
        "citations": cited,
        "citation_precision": round(right / cited, 4) if cited else None,
        "ratio_to_plain": ratio_of(ratios),
        "lowest_ratio": round(min(ratio for (ratio,) in ratios), 4),
    }
