"""Spans of documents in the prompt: drafted copies carry their place in the document, and drafts do
not change."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafting import DraftContext
from engine.editing.edits import plain
from engine.prompts.builder import prompt_of
from engine.prompts.prompt_spans import places
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft, Passage, Piece, Request
from engine.text_stream import Origin, TextStream, joined
from tests.drafting.test_next_token import replay
from tests.support.drafters import real

GUIDE = (
    "\ufeff# Guide\r\n\r\nThe caf\u00e9's table \U0001f60b has rows.\r\n"
    "It is r\u00e9ad at the start.\r\n"
)
NOTES = (
    "The cache of \u65e5\u672c\u8a9e was removed; it is read at the start, and then never again."
)
BROKEN = "\ufffd"
TEXTS = {"guide": GUIDE, "notes": NOTES}
texts = st.text(max_size=50) | st.text("ab\u00e9\U0001f60b\r\n\ufeff ", max_size=50)


@pytest.fixture(scope="module")
def tokenizer(tiny: Any) -> Tokenizer:
    return Tokenizer(tiny("llama"))


def ended(text: str) -> str:
    """The text with LF line ends, as in prompts."""
    return re.sub("\r\n?", "\n", text)


def request_showing(passages: Sequence[Passage]) -> Request:
    """A chat request whose prompt contains all passages."""
    shown = "".join(f"[{n}] text:\n{plain(one.text)}\n" for n, one in enumerate(passages, 1))
    messages = ({"role": "user", "content": f"Text:\n{shown}\nWhat?"},)
    return Request("chat", messages=messages, documents=tuple(passages))


@given(st.lists(st.tuples(texts, texts), max_size=3))
def test_each_token_of_a_passage_has_its_span(
    tokenizer: Tokenizer, found: list[tuple[str, str]]
) -> None:
    """Wherever the passage starts in its document; all of it but its ends is covered."""
    documents = {str(n): before + text for n, (before, text) in enumerate(found)}
    passages = [Passage(str(n), len(before), text) for n, (before, text) in enumerate(found)]
    prompt = prompt_of(request_showing(passages), tokenizer)
    if not passages:
        assert prompt.documents is None
        return
    assert prompt.documents is not None
    covered: dict[str, set[int]] = {key: set() for key in documents}
    for token, id in enumerate(prompt.ids):
        span = prompt.documents(token)
        if span is not None:
            covered[span.path].update(range(span.start, span.stop))
            said = tokenizer.decode([id])
            assert BROKEN in said or said == ended(documents[span.path][span.start : span.stop])
    for one in passages:
        document = documents[one.document]
        inside = {at for at in range(one.start, len(document)) if document[at] not in "\r\n\ufeff"}
        assert len(inside - covered[one.document]) <= 8, "more than tokens that cross its ends"


def test_a_passage_missing_from_the_prompt_has_no_spans(tokenizer: Tokenizer) -> None:
    turns = [("a\nNOTES", tokenizer.encode("a\nNOTES")), ("", [1])]
    table = places([Passage("d", 0, "NOTES"), Passage("e", 0, "")], turns, tokenizer)
    assert table is not None and not any(map(table, range(9)))


def written(tokenizer: Tokenizer, request: Request, answer: str) -> tuple[list[Draft], list[Piece]]:
    """The drafts for this answer of the model, and the pieces of its stream."""
    prompt = prompt_of(request, tokenizer)
    stream = TextStream(tokenizer, ())
    truth = tokenizer.encode(answer)
    drafts: list[Draft] = []
    pieces: list[Piece] = []

    def seen(context: DraftContext, draft: Draft, path: list[int]) -> None:
        drafts.append(draft)
        origins: list[Origin] = [(draft.sources[node], draft.span(node)) for node in path]
        new = truth[len(context.output) :][: len(path) + 1]
        pieces.extend(stream.push(new, [*origins, ("model", None)][: len(new)])[1])

    replay(real(), DraftContext(prompt.ids, documents=prompt.documents), truth, seen)
    return drafts, joined([*pieces, *stream.finish()])


PARTS = st.lists(
    st.tuples(st.sampled_from(list(TEXTS)), st.integers(0, 60), st.integers(5, 60)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40)
@given(PARTS)
def test_spans_of_copies_contain_the_copied_text(
    tokenizer: Tokenizer, parts: list[tuple[str, int, int]]
) -> None:
    """The answer mixes parts of documents with other text. With and without `documents` the drafts
    are equal, and each piece with a span equals the document's text there."""
    answer = " so: ".join(plain(TEXTS[key])[at : at + count] for key, at, count in parts)
    request = request_showing([Passage(key, 0, text) for key, text in TEXTS.items()])
    ours, pieces = written(tokenizer, request, answer)
    theirs, bare = written(tokenizer, replace(request, documents=()), answer)
    for one, other in zip(ours, theirs, strict=True):
        assert (one.tokens, one.parents, one.probs) == (other.tokens, other.parents, other.probs)
    assert not any(piece.source == "documents" or piece.span for piece in bare)
    assert "".join(piece.text for piece in pieces) == answer
    for piece in pieces:
        assert (piece.span is not None) == (piece.source == "documents")
        if piece.span is not None:
            text = TEXTS[piece.span.path]
            assert ended(text[piece.span.start : piece.span.stop]) == piece.text


def test_most_of_a_copy_has_a_span_and_other_text_has_none(tokenizer: Tokenizer) -> None:
    request = request_showing([Passage("notes", 100, NOTES)])
    _, pieces = written(tokenizer, request, NOTES)
    copied = [piece for piece in pieces if piece.source == "documents"]
    assert sum(len(piece.text) for piece in copied) > 0.5 * len(NOTES)
    assert any(len(piece.text) > 10 for piece in copied), "consecutive tokens are joined"
    for piece in copied:
        assert piece.span and NOTES[piece.span.start - 100 : piece.span.stop - 100] == piece.text
    both = request_showing([Passage("guide", 0, GUIDE), Passage("notes", 0, NOTES)])
    _, pieces = written(tokenizer, replace(both, documents=both.documents[:1]), NOTES)
    sources = Counter(one.source for one in pieces for _ in one.text)
    assert sources["context"] > 0.5 * len(NOTES) > sources["documents"]
