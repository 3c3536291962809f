"""The key facts of contracts in four languages, and of nothing else."""

from __future__ import annotations

import pytest

from engine.rag.contract_facts import contract_facts
from engine.rag.outline import find_outline
from index.documents.documents import Document
from index.documents.formats.headings import find_headings

ENGLISH = """# Lease of a boat

This lease is made on 3 May 2025 between Ann Lee, owner, and Bo Ray.

## 1 The boat

The boat is named Petrel and lies in the harbour.

## 2 Term

The lease runs from 1 June 2025 for three years.

## 3 Rent

| Month | Rent |
|---|---|
| June to August | £310 |

## 4 Damage

Damage of up to £75 is borne by the sailor.

Signed on 3 May 2025
"""
GERMAN = """# Dienstvertrag

zwischen der Nord GmbH, Kiel, und Frau Eva Ott, Bonn, wird vereinbart:

## § 1 Dauer

Der Vertrag beginnt am 1. Juli 2025 und ist unbefristet.

## § 2 Vergütung

Die Vergütung beträgt 2.400 EUR im Monat.

Kiel, den 9. Mai 2025
"""
FRENCH = """# Contrat de location

Entre Mme Anne Roux, bailleur, et M. Luc Petit, locataire.

## Article 1 Durée

Le contrat prend effet le 1er mars 2025 pour trois ans.

## Article 2 Loyer

Le loyer est de 640 € par mois, payable d'avance.
"""
CHINESE = """# 房屋租赁合同

甲方：王芳
乙方：李强

## 第一条 租赁期限

租赁期自2025年3月1日起，共两年。

## 第二条 租金

租金为每月三千元，即3000元，按季度支付。
"""


def facts(text: str, name: str = "d.md") -> dict[str, tuple[str, ...]]:
    document = Document("d", name, "md", text, (), find_headings("md", text))
    return dict(contract_facts(document, find_outline(document)))


def test_parties_term_sums_and_dates_each_once() -> None:
    assert facts(ENGLISH) == {
        "Parties": ("This lease is made on 3 May 2025 between Ann Lee, owner, and Bo Ray.",),
        "Term": ("The lease runs from 1 June 2025 for three years.",),
        "Sums": ("June to August | £310", "Damage of up to £75 is borne by the sailor."),
        "Dates": ("Signed on 3 May 2025",),
    }


@pytest.mark.parametrize(
    ("text", "labels", "words"),
    [
        (
            GERMAN,
            ["Parteien", "Laufzeit", "Beträge", "Termine"],
            ["Nord GmbH", "1. Juli 2025", "2.400 EUR", "9. Mai 2025"],
        ),
        (FRENCH, ["Parties", "Durée", "Montants"], ["Luc Petit", "1er mars 2025", "640 €"]),
        (CHINESE, ["当事人", "期限", "金额"], ["李强", "2025年3月1日", "3000元"]),
    ],
)
def test_other_languages(text: str, labels: list[str], words: list[str]) -> None:
    found = facts(text)
    assert list(found) == labels
    for word, sentences in zip(words, found.values(), strict=True):
        assert any(word in one for one in sentences)


@pytest.mark.parametrize(
    "text",
    [
        ENGLISH.replace("Lease of", "Guide to"),
        ENGLISH.replace("between", "for"),
        "# Rent\n\nBetween June and August it is £310.",
        "",
    ],
)
def test_other_documents_have_none(text: str) -> None:
    assert facts(text) == {}
