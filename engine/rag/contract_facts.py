"""The key facts of a contract: its parties, term, sums and dates, as sentences and table rows of
its own. They are found by patterns in four languages; no model is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engine.editing.edits import plain
from engine.rag.outline import Outline
from engine.rag.sentences import normalize, own_sentences, table_rows, text_lines

if TYPE_CHECKING:
    from index.documents.documents import Document

PREAMBLE_CHARS = 3000  # of the document's beginning, where the parties are named
MAX_PARTIES_CHARS = 800
MAX_DATE_LINE_CHARS = 80  # of a line that is not a sentence, such as that above the signatures
AMOUNT = re.compile(
    r"(?:[€$£¥₹]|\b(?:EUR|USD|GBP|CHF|RMB|CNY|JPY)\b)\s?\d"
    r"|\d[\s\u202f]?(?:[€$£¥₹元]|%?\s?(?:EUR|Euros?|USD|dollars?|GBP|pounds|CHF|Franken|francs|RMB|"
    r"CNY)\b|万元|人民币)",
    re.IGNORECASE,
)
MONTH = (
    r"(?:Jan(?:uary|uar|vier)?|Feb(?:ruary|ruar)?|Février|Mar(?:ch|s)?|März|Apr(?:il)?|Avril|May|Mai|"
    r"Jun[ei]?|Juin|Jul[yi]?|Juillet|Aug(?:ust)?|Août|Sept?(?:ember|embre)?|Oct(?:ober|obre)?|"
    r"Okt(?:ober)?|Nov(?:ember|embre)?|De[cz](?:ember)?|Décembre)"
)
DATE = re.compile(
    rf"\b\d{{1,2}}(?:\.|er|st|nd|rd|th)?\s{MONTH}\b\.?(?:\s\d{{4}})?"
    rf"|\b{MONTH}\s\d{{1,2}},?\s\d{{4}}\b"
    r"|\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[./]\d{1,2}[./]\d{4}\b|\d{4}\s*年\s*\d{1,2}\s*月",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ContractWords:
    """Patterns of one language: in the title of a contract, before its parties, and in the titles
    of clauses; and the labels of the facts."""

    title: re.Pattern[str]
    between: re.Pattern[str]
    term: re.Pattern[str]
    payment: re.Pattern[str]
    labels: tuple[str, str, str, str]


def _words(
    title: str, between: str, term: str, payment: str, labels: tuple[str, str, str, str]
) -> ContractWords:
    first, second, third, fourth = (
        re.compile(one, re.IGNORECASE) for one in (title, between, term, payment)
    )
    return ContractWords(first, second, third, fourth, labels)


LANGUAGES = (
    _words(
        r"\b(agreement|contract|lease)\b",
        r"\bbetween\b",
        r"\b(term|duration|commencement|period)\b",
        r"\b(fees?|payments?|price|rent|deposit|charges|remuneration|salary|compensation)\b",
        ("Parties", "Term", "Sums", "Dates"),
    ),
    _words(
        r"(vertrag|vereinbarung)\b",
        r"\bzwischen\b",
        r"(mietzeit|laufzeit|dauer|vertragsbeginn|befristung)\b",
        r"(miete|kaution|vergütung|preise?|entgelt|zahlung|gehalt|honorar|kosten)\b",
        ("Parteien", "Laufzeit", "Beträge", "Termine"),
    ),
    _words(
        r"\b(contrat|convention|bail|accord)\b",
        r"\bentre\b",
        r"\b(durée|entrée en vigueur|période)\b",
        r"\b(prix|loyer|paiement|dépôt|rémunération|tarifs?|honoraires|salaire)\b",
        ("Parties", "Durée", "Montants", "Dates"),
    ),
    _words(
        r"(合同|合约|协议|協議|契約)",
        r"甲\s*方",
        r"(期限|期间|有效期)",
        r"(租金|押金|价款|费用|付款|支付|报酬|工资)",
        ("当事人", "期限", "金额", "日期"),
    ),
)


class KeyFact(NamedTuple):
    """What a contract says about one thing, such as "Parties", in its own words."""

    label: str
    sentences: tuple[str, ...]


def contract_facts(document: Document, outline: Outline) -> tuple[KeyFact, ...]:
    """The key facts of a contract; none if the document does not look like one. Each sentence is
    listed once; those of clauses about the term or payments come first."""
    text = plain(document.text)
    found = _language(document, outline, text)
    if found is None:
        return ()
    language, between = found
    titles = {normalize(one.title) for one in document.headings}
    clauses = []
    for chapter in outline.chapters:
        own = plain(document.text[chapter.start : chapter.stop])
        clauses.append((chapter.title, [*table_rows(own), *own_sentences(own, titles)]))
    dated = (one for one in text_lines(text) if len(one) <= MAX_DATE_LINE_CHARS)
    parties = _parties(text, between, outline)
    listed = [normalize(parties)]

    def take(units: Iterable[str]) -> tuple[str, ...]:
        taken = []
        for one in units:
            key = normalize(one)
            if not any(key in other for other in listed):
                listed.append(key)
                taken.append(one)
        return tuple(taken)

    facts = (
        (parties,),
        take(one for title, units in clauses if language.term.search(title) for one in units),
        take(_matching(clauses, language.payment, AMOUNT)),
        take(_matching([*clauses, ("", [*dated])], language.term, DATE)),
    )
    named = zip(language.labels, facts, strict=True)
    return tuple(KeyFact(label, sentences) for label, sentences in named if sentences)


def _language(
    document: Document, outline: Outline, text: str
) -> tuple[ContractWords, re.Match[str]] | None:
    """The words of the contract's language, and where its parties begin."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    for language in LANGUAGES:
        between = language.between.search(text[:PREAMBLE_CHARS])
        names = (outline.title, document.name, first)
        if between and any(map(language.title.search, names)):
            return language, between
    return None


def _parties(text: str, between: re.Match[str], outline: Outline) -> str:
    """From the line that introduces the parties up to the first clause, on one line."""
    start = text.rfind("\n", 0, between.start()) + 1
    clause = next((one.title for one in outline.chapters if one.title), "")
    stop = text.find(clause, between.end()) if clause else -1
    line = text.rfind("\n", 0, stop) if stop > 0 else len(text)
    parties = text[start:line].strip()
    if len(parties) > MAX_PARTIES_CHARS:
        parties = parties[:MAX_PARTIES_CHARS].rpartition("\n")[0] or parties[:MAX_PARTIES_CHARS]
    paragraphs = parties.split("\n\n")
    if len(paragraphs) > 1 and paragraphs[-1].endswith((":", "：")):
        paragraphs.pop()  # such as "the following is agreed:"
    return " ".join(" ".join(paragraphs).split())


def _matching(
    clauses: Sequence[tuple[str, Sequence[str]]],
    titles: re.Pattern[str],
    pattern: re.Pattern[str],
) -> Iterator[str]:
    """The sentences and rows with a match; those of the clauses that `titles` matches first."""
    for wanted in (True, False):
        for title, units in clauses:
            if bool(titles.search(title)) == wanted:
                yield from (one for one in units if pattern.search(one))
