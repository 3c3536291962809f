"""Our own documents and questions for `python -m bench qa` are sound; what counts as an answer."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.qa.own import (
    DOCUMENTS,
    Checklist,
    OwnQuestion,
    add_documents,
    find_passage,
    groups,
    load_checklists,
    load_questions,
    mentions,
    with_passages,
)
from index.documents.documents import Document, Documents

MIN_ANSWERABLE, MIN_UNANSWERABLE = 15, 6  # of each group
WORDS = st.text("ab ", min_size=1, max_size=12).filter(lambda text: text.strip())


@pytest.fixture(scope="module")
def documents() -> Iterator[dict[str, Document]]:
    with Documents() as library:
        yield add_documents(library)


@pytest.fixture(scope="module")
def questions() -> list[OwnQuestion]:
    return load_questions()


def test_every_passage_is_once_in_its_document(
    documents: dict[str, Document], questions: list[OwnQuestion]
) -> None:
    for question, placed in zip(questions, with_passages(questions, documents), strict=True):
        found = documents[placed.document].text[placed.start : placed.stop]
        parts = [" ".join(part.split()) for part in question.passage]
        assert all(part in " ".join(found.split()) for part in parts), question.id
        assert bool(found) == bool(question.passage) == bool(question.answer), question.id


def test_every_document_is_asked_about(questions: list[OwnQuestion]) -> None:
    assert {one.document for one in questions} == {path.name for path in DOCUMENTS.glob("*.*")}


def test_ids_and_questions_are_unique(questions: list[OwnQuestion]) -> None:
    assert len({one.id for one in questions}) == len(questions)
    assert len({(one.question, one.follows) for one in questions}) == len(questions)


def test_a_follow_up_follows_an_answerable_question_about_the_same_document(
    questions: list[OwnQuestion],
) -> None:
    known = {one.id: one for one in questions}
    following = [one for one in questions if one.follows]
    assert len(following) >= 12
    for one in following:
        before = known[one.follows]
        assert before.passage and before.document == one.document


def test_there_are_enough_questions_in_each_group(questions: list[OwnQuestion]) -> None:
    by_group = groups(questions)
    assert {*by_group} == {"de", "en", "fr", "zh", "tables"}
    for name, some in by_group.items():
        counts = Counter(bool(one.passage) for one in some)
        assert counts[True] >= MIN_ANSWERABLE, name
        assert counts[False] >= MIN_UNANSWERABLE, name


def test_checklists_fit_their_documents(documents: dict[str, Document]) -> None:
    """A document has each fact and chapter, and a chapter's words are in that chapter only."""
    for checklist in load_checklists():
        text = documents[checklist.document].text
        score = checklist.score(text)
        assert score["facts_found"] == score["facts"] >= 10
        assert score["chapters_covered"] == score["chapters"] >= 12
        headings = [match.start() for match in re.finditer(r"(?m)^## ", text)]
        chapters = [text[a:b] for a, b in zip(headings, [*headings[1:], len(text)], strict=True)]
        for (title, *words), chapter in zip(checklist.chapters, chapters, strict=False):
            assert title in chapter.splitlines()[0]
            for word in words:
                assert [one for one in chapters if mentions(one, [word])] == [chapter], word


@given(st.lists(WORDS, max_size=3), st.text("ab \n", max_size=20))
def test_a_passage_is_found_whatever_is_between_its_parts(parts: list[str], before: str) -> None:
    line = f"X {' | '.join(parts)} Y"
    text = f"{before}\n\n{line}\n"
    passage = ["X", *parts, "Y"]
    start, stop = find_passage(text, passage)
    assert text[start:stop] == line
    for other, times in ((text + text, 2), ("", 0), ("X \n Y", 0)):
        with pytest.raises(ValueError, match=f"found {times} times"):
            find_passage(other, passage)


@pytest.mark.parametrize(
    ("text", "form", "found"),
    [
        ("It costs 3.95 euros.", "3.95", True),
        ("It costs 13.95 euros.", "3.95", False),
        ("Version 3.5", "3", False),
        ("the years 30 to 39", "3", False),
        ("There are 3.", "3", True),
        ("Bis zu **zwei Nettokaltmieten**", "Zwei  Nettokaltmieten", True),
        ("Monate", "Monat", False),
        ("l'espace café", "espace café", True),
        ("保修期为3年", "3年", True),
        ("显示E3时", "E3", True),
        ("整机自购买之日起保修两年。", "两年", True),
        ("£389.00", "£389", False),
    ],
)
def test_short_answers_are_whole_words_and_numbers(text: str, form: str, found: bool) -> None:
    assert mentions(text, [form]) == found
    assert mentions(text, ["nowhere", form]) == found


@given(st.text(max_size=9).filter(lambda text: re.sub(r"[`*\s]", "", text)))
def test_a_form_between_blanks_is_mentioned(form: str) -> None:
    assert mentions(f"so ( {form} ) it is", [form])


def test_a_checklist_counts_facts_and_chapters() -> None:
    checklist = Checklist("a.md", (("four years", "2029"), ("£5",)), (("Term", "renewed"),))
    score = checklist.score("It runs until 2029 and is then renewed.")
    assert score == {"facts_found": 1, "facts": 2, "chapters_covered": 1, "chapters": 1}


@pytest.mark.parametrize("line", ["{}", "no", "[]", '{"id": 1}'])
def test_a_malformed_record_is_one_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(line)
    for load in (load_questions, load_checklists):
        with pytest.raises(ValueError, match=r"a\.jsonl, line 1: "):
            load(path)


def test_a_passage_that_is_missing_is_named(documents: dict[str, Document]) -> None:
    record = {"id": "a", "language": "en", "document": "price-list.csv", "question": "?"}
    for change, message in (
        ({"passage": ["Unicorn"], "answer": ["1"]}, "price-list.csv: expected once, found 0 times"),
        ({"passage": [], "answer": [], "follows": "b"}, "follows b, which is not before it"),
        ({"passage": [], "answer": [], "document": "none.md"}, "none.md"),
    ):
        made = json.loads(json.dumps(record | change))
        question = OwnQuestion(
            "a", "en", made["document"], "?", tuple(made["passage"]), tuple(made["answer"]),
            made.get("follows", ""), False,
        )  # fmt: skip
        with pytest.raises(ValueError, match=message):
            with_passages([question], documents)
