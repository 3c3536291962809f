"""Copying from earlier text: suffix lookup, prompt lookup, REST and corpora, by naive searches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafting import DraftContext
from engine.records import Draft
from research.methods.datastore import CorpusError, WorkspaceDatastore, load, save
from research.methods.prompt_lookup import PromptLookupDrafter
from research.methods.rest import RestDrafter
from research.methods.sam import SamDrafter, SamHybridDrafter
from research.methods.suffix_lookup import SuffixLookup
from tests.support.retrieval import FEW, GOLDEN, Other, corpus, drafted, followed, paths_of

# -- suffix lookup ---------------------------------------------------------------------------------


def test_golden_lengths_and_first_positions() -> None:
    """For each prefix: the longest suffix that occurred earlier, and its first occurrence."""
    text, found = SuffixLookup([], []), []
    for token in [1, 2, 1, 2, 3, 1, 2, 1, 2]:
        text.extend([token])
        length = text.longest()
        found.append((length, text.first(length) if length else -1))
    assert found == [
        (0, -1), (0, -1), (1, 1), (2, 2), (0, -1), (1, 1), (2, 2), (3, 3), (4, 4)
    ]  # fmt: skip


@settings(max_examples=150)
@given(st.lists(FEW, max_size=3), FEW, st.lists(FEW, max_size=3), st.integers(1, 12))
def test_suffix_lookup_matches_a_naive_search(
    others: list[list[int]], prompt: list[int], steps: list[list[int]], count: int
) -> None:
    text, own = SuffixLookup(others, prompt), list(prompt)
    for committed in [[], *steps]:
        text.extend(committed)
        own += committed
        occurrences = {n: followed([*others, own], own[-n:]) for n in range(1, len(own) + 1)}
        length = max((n for n in occurrences if occurrences[n]), default=0)
        assert text.longest() == length
        starts = [sum(len(other) + 1 for other in others[:n]) for n in range(len(others) + 1)]
        first = {
            n: starts[occurrences[n][0][0]] + occurrences[n][0][1] for n in range(1, length + 1)
        }
        for n in range(1, length + 1):
            assert text.first(n) == first[n]
        assert length == len(own) or text.first(length + 1) == -1
        if length:
            enough = [n for n in first if len(text.tokens) - first[n] >= count]
            assert text.first_before(length, count) == first[max(enough, default=1)]
        assert text.after(0, 100) == [*others, own][0][:100]


def test_a_long_repetition_is_matched_in_full() -> None:
    text = SuffixLookup([], [1, 2] * 300)
    assert text.longest() == 598 and text.first(598) == 598


# -- prompt lookup ---------------------------------------------------------------------------------


def looked_up(text: list[int], longest: int, tokens: int) -> list[int]:
    """The published rule: the first window whose whole continuation is inside the text."""
    for count in range(longest, 0, -1):
        for start in range(count, len(text) - tokens + 1):
            if text[start - count : start] == text[-count:] and start < len(text) - count:
                return text[start : start + tokens]
    return []


@settings(max_examples=150)
@given(FEW, st.lists(FEW, max_size=3), st.integers(1, 4), st.integers(1, 12))
def test_prompt_lookup_follows_the_published_rule(
    prompt: list[int], steps: list[list[int]], longest: int, tokens: int
) -> None:
    drafter, context = PromptLookupDrafter(longest, tokens), DraftContext(prompt, capacity=100)
    drafter.begin(context)
    for committed in [[], *steps]:
        context.output += committed
        drafter.observe(Draft(), [], committed, None, 0.0)
        text = prompt + context.output
        assert drafter.propose(context, None).tokens == looked_up(text, longest, tokens)


@settings(max_examples=100)
@given(FEW)
def test_no_ngram_match_is_longer_than_the_longest_suffix(prompt: list[int]) -> None:
    """Wherever an n-gram is found, the longest match has n tokens or more."""
    for count in (1, 2, 3):
        if followed([prompt], prompt[-count:]) and count <= len(prompt):
            assert SuffixLookup([], prompt).longest() >= count


# -- REST ------------------------------------------------------------------------------------------


def test_rest_matches_the_longest_suffix_of_two_to_sixteen_tokens() -> None:
    store = corpus([1, 2, 3, 4, 5], [2, 3, 9], [3, 7])
    assert drafted(RestDrafter(store), [1, 2, 3]).tokens == [4, 5]
    assert drafted(RestDrafter(store), [8, 2, 3]).tokens[0] in (4, 9)
    assert drafted(RestDrafter(store), [8, 8, 3]).tokens == []
    long = [*range(100, 120)]
    both = corpus([*long, 1], [*long[4:], 2], [*long[5:], 3])
    # only the last 16 of the 20 tokens are matched
    assert sorted(drafted(RestDrafter(both), long).tokens) == [1, 2]


@settings(max_examples=60)
@given(st.lists(FEW, min_size=1, max_size=6), FEW, st.integers(1, 10))
def test_rest_keeps_the_most_frequent_continuations(
    documents: list[list[int]], tail: list[int], nodes: int
) -> None:
    draft = drafted(RestDrafter(corpus(*documents), nodes, deep=3), tail)
    paths = paths_of(draft)
    lengths = [n for n in range(2, min(16, len(tail)) + 1) if followed(documents, tail[-n:])]
    if not lengths:
        assert paths == []
        return
    counts = Counter(
        tuple(documents[text][position : position + size])
        for text, position in followed(documents, tail[-max(lengths) :])
        for size in (1, 2, 3)
        if position + size <= len(documents[text])
    )
    kept = sorted((counts[path] for path in paths), reverse=True)
    assert kept == sorted(counts.values(), reverse=True)[: len(kept)]
    assert len(kept) == min(nodes, len(counts))


# -- corpora ---------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(FEW, min_size=1, max_size=5), FEW)
def test_a_corpus_run_follows_the_first_occurrence(
    documents: list[list[int]], tail: list[int]
) -> None:
    length, found = corpus(*documents).after(tail, 5)
    lengths = [n for n in range(1, len(tail) + 1) if followed(documents, tail[-n:])]
    assert length == max(lengths, default=0)
    if length:
        text, position = followed(documents, tail[-length:])[0]
        assert found == documents[text][position : position + 5]


def test_a_saved_corpus_loads_unchanged(tmp_path: Path) -> None:
    built, file = corpus(*GOLDEN), tmp_path / "golden"
    save(built, file, "print", {"model": "m"})
    loaded = load(file, "print", 10)
    assert loaded.after([5, 6], 3) == built.after([5, 6], 3) == (2, [7, 8, 0])
    assert drafted(RestDrafter(loaded), [5, 6]).tokens == drafted(RestDrafter(built), [5, 6]).tokens


def test_invalid_corpora_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "golden"
    with pytest.raises(CorpusError, match=r"no such corpus: make it with `draftline train corpus`"):
        load(file, "print", 10)
    save(corpus(*GOLDEN), file, "print", {"model": "small"})
    with pytest.raises(CorpusError, match="of small, not of this model: make it"):
        load(file, "other", 10)
    with pytest.raises(CorpusError, match="contains token ids beyond the vocabulary of this model"):
        load(file, "print", 9)
    with pytest.raises(CorpusError, match="not a regular file"):
        load(tmp_path, "print", 10)
    raw = bytearray(file.read_bytes())
    for offset in (3, 20, len(raw) - 3):
        damaged = bytearray(raw)
        damaged[offset] ^= 0x55
        file.write_bytes(damaged)
        with pytest.raises(CorpusError, match=r"cannot read the corpus .*make it"):
            load(file, "print", 10)
    file.write_bytes(raw[:-8])
    with pytest.raises(CorpusError, match="cannot read the corpus"):
        load(file, "print", 10)


def test_a_workspace_can_replace_a_corpus(workspaces: Any) -> None:
    workspace = workspaces()
    workspace.update("a.txt", "the cat sat")
    tail = list(b"a cat ")
    draft = drafted(SamDrafter(WorkspaceDatastore(workspace), bias=0), tail)
    assert bytes(draft.tokens) == b"sat" and set(draft.sources) == {"workspace"}
    assert (
        bytes(
            drafted(SamHybridDrafter(Other(), WorkspaceDatastore(workspace), bias=0), tail).tokens
        )
        == b"sat"
    )
