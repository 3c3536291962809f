"""The workspace: only living text is found, all of it, and each piece knows where it came from."""

from __future__ import annotations

import os
import random
import threading
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import index.workspace
from index import Span, Workspace, naive

Ids = NDArray[np.int32]


class Bytes:
    """A token is a byte."""

    byte_lengths = np.ones(256, np.int32)

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        return [np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in texts]

    def encode_with_offsets(self, text: str) -> tuple[Ids, NDArray[np.int64]]:
        raise AssertionError("bytes always add up")


class Composed:
    """A token is a code point of the composed (NFC), lower-case text."""

    byte_lengths = np.array(
        [len(chr(i).encode("utf-8", "surrogatepass")) for i in range(1 << 17)], np.int32
    )

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        return [self.encode_with_offsets(text)[0] for text in texts]

    def encode_with_offsets(self, text: str) -> tuple[Ids, NDArray[np.int64]]:
        ids: list[int] = []
        starts: list[int] = []
        at = 0
        while at < len(text):
            stop = at + 1
            while stop < len(text) and unicodedata.combining(text[stop]):
                stop += 1
            for char in unicodedata.normalize("NFC", text[at:stop]).lower():
                ids.append(ord(char))
                starts.append(at)
            at = stop
        return np.array(ids, np.int32), np.array(starts, np.int64)


class Bpe:
    """A real byte-level BPE, learnt from a few words."""

    def __init__(self) -> None:
        self.tokenizer = Tokenizer(models.BPE())
        self.tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=300,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        words = ["def return self value", "größer 日本 naïve 🙂 value self"]
        self.tokenizer.train_from_iterator(words * 20, trainer)
        vocabulary = self.tokenizer.get_vocab()
        self.byte_lengths = np.zeros(len(vocabulary), np.int32)
        for token, number in vocabulary.items():
            self.byte_lengths[number] = len(token)  # a character stands for a byte

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        return [np.array(one.ids, np.int32) for one in self.tokenizer.encode_batch_fast(texts)]

    def encode_with_offsets(self, text: str) -> tuple[Ids, NDArray[np.int64]]:
        raise AssertionError("a byte-level tokenizer's bytes always add up")


BPE = Bpe()
TEXT = st.text(alphabet="abe\u0301é🙂\n", max_size=20)
PATHS = st.sampled_from(["a", "b", "c/d"])


def answers(workspace: Workspace, tail: Ids, k: int) -> list[tuple[int, int, str, int]]:
    return [
        (match.length, match.count, match.path, match.end) for match in workspace.match(tail, k)
    ]


def expected(texts: dict[str, str], encoder: Any, tail: Ids, k: int) -> list[Any]:
    """By brute force; `texts` in the order they changed."""
    oracle = naive.Automaton()
    for ids in encoder.encode_batch(list(texts.values())):
        oracle.add(ids)
    found = oracle.match(tail, k, followed=True)
    paths = list(texts)
    return [
        (found.length, found.count, paths[doc], end)
        for doc, end in zip(found.docs.tolist(), found.ends.tolist(), strict=True)
    ]


@pytest.mark.parametrize("encoder", [Bytes(), Composed(), BPE])
@pytest.mark.parametrize("segment", [8, 40, 1 << 18])
@settings(max_examples=60, deadline=None)
@given(
    changes=st.lists(st.tuples(PATHS, st.none() | TEXT, st.booleans()), max_size=12),
    tails=st.lists(TEXT, min_size=1, max_size=3),
    k=st.integers(1, 5),
)
def test_after_any_changes_the_living_text_is_found_and_no_other(
    encoder: Any,
    segment: int,
    changes: list[tuple[str, str | None, bool]],
    tails: list[str],
    k: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index.workspace, "SEGMENT", segment)
        workspace = Workspace(None, encoder)
        living: dict[str, str] = {}
        for path, text, ask in [*changes, ("a", "ab", True)]:
            workspace.update(path, text)
            living.pop(path, None)
            if text is not None:
                living[path] = text
            if not ask:
                continue
            for tail in encoder.encode_batch(tails + list(living.values())):
                assert answers(workspace, tail, k) == expected(living, encoder, tail, k)
            assert workspace.paths == sorted(living)
            assert workspace.size == sum(map(len, encoder.encode_batch(list(living.values()))))


@pytest.mark.parametrize("encoder", [Bytes(), BPE])
@settings(max_examples=150, deadline=None)
@given(text=st.text(alphabet="ab e\u0301é日🙂\n", min_size=2, max_size=30), data=st.data())
def test_a_span_is_the_least_text_that_covers_the_tokens(
    encoder: Any, text: str, data: st.DataObject
) -> None:
    (ids,) = encoder.encode_batch([text])
    if len(ids) < 2:
        return
    workspace = Workspace(None, encoder)
    workspace.update("a.py", text, version=7)
    match = workspace.match(ids[:1], k=1000)[-1]  # the first occurrence
    rest = match.continuation(len(ids))
    start = data.draw(st.integers(0, len(rest) - 1))
    stop = data.draw(st.integers(start + 1, len(rest)))
    span = match.span(start, stop)
    assert span is not None
    assert (span.path, span.version) == ("a.py", 7)
    before = int(encoder.byte_lengths[ids[: match.end + start]].sum())
    after = before + int(encoder.byte_lengths[rest[start:stop]].sum())
    borders = [len(text[:at].encode()) for at in range(len(text) + 1)]
    assert borders[span.start] <= before < borders[span.start + 1]
    assert borders[span.stop - 1] < after <= borders[span.stop]
    assert match.span(start, start) is None
    assert match.span(len(rest), len(rest) + 3) is None


def test_spans_of_a_normalising_tokenizer_count_the_text_as_it_is() -> None:
    workspace = Workspace(None, Composed())
    text = "Cafe\u0301 ole\u0301!"
    workspace.update("menu", text)
    (match,) = workspace.match([ord(char) for char in "caf"])
    assert "".join(map(chr, match.continuation(5))) == "é olé"
    assert match.span(0, 1) == Span("menu", 3, 5)
    assert match.span(2, 5) == Span("menu", 6, 10)
    assert text[3:5] == "e\u0301"
    assert match.span(0, 99) == Span("menu", 3, len(text))


def test_what_changed_last_comes_first() -> None:
    workspace = Workspace(None, Bytes())
    for path in ("old", "new", "newest"):
        workspace.update(path, "same text")
    assert [match.path for match in workspace.match([ord("s")], k=2)] == ["newest", "new"]
    workspace.update("old", "same again")
    assert [match.path for match in workspace.match([ord("s")])] == ["old", "newest", "new"]
    workspace.update("old", None)
    workspace.update("never there", None)
    assert [match.path for match in workspace.match([ord("s")])] == ["newest", "new"]


def test_a_match_keeps_its_text_when_the_document_changes() -> None:
    workspace = Workspace(None, Bytes())
    workspace.update("a", "one two", version=1)
    (match,) = workspace.match(list(b"one"))
    workspace.update("a", "three", version=2)
    assert workspace.match(list(b"one two")) == workspace.match(list(b"two")) == []
    assert bytes(match.continuation(9).tolist()) == b" two"
    assert match.span(0, 4) == Span("a", 3, 7, 1)


@pytest.mark.parametrize("encoder", [Bytes(), Composed(), BPE])
def test_a_folder_is_indexed_oldest_first(tmp_path: Path, encoder: Any) -> None:
    (tmp_path / "sub").mkdir()
    texts = {"sub/b.py": "value = e\u0301 1\n", "a.py": "value = 2\n", "sub/c.py": "value\n"}
    for age, (path, text) in enumerate(texts.items()):
        (tmp_path / path).write_text(text, "utf-8")
        os.utime(tmp_path / path, ns=(0, 1000 * age))
    (tmp_path / ".env").write_text("value = secret\n")
    (tmp_path / "data").write_bytes(b"value\0")
    calls: list[tuple[str, int, int]] = []
    workspace = Workspace(tmp_path, encoder)
    workspace.build(lambda *call: calls.append(call))
    assert calls[-1][1:] == (4, 4)
    assert workspace.paths == sorted(texts)
    assert workspace.skipped == {".env": "may hold secrets", "data": "binary"}
    assert workspace.nbytes > 0
    for tail in encoder.encode_batch(["value", " = ", "val", "\n"]):
        assert answers(workspace, tail, 9) == expected(texts, encoder, tail, 9)
    workspace.update("a.py", None)
    del texts["a.py"]
    for tail in encoder.encode_batch(["value = 2", "value"]):
        assert answers(workspace, tail, 9) == expected(texts, encoder, tail, 9)


def test_building_again_forgets_what_is_gone(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("first text")
    workspace = Workspace(tmp_path, Bytes())
    workspace.build()
    workspace.update("buffer", "first buffer")
    (tmp_path / "a").write_text("second text")
    workspace.build()
    assert workspace.paths == ["a"]
    assert workspace.match(list(b"first"))[0].length == 1
    assert workspace.match(list(b"second"))[0].length == 6


def test_segments_stay_few_and_large_ones_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index.workspace, "SEGMENT", 4000)
    workspace = Workspace(None, Bytes())
    chance = random.Random(3)
    for change in range(300):
        workspace.update(f"{change % 90}", "x" * chance.randrange(200))
        workspace.match([1])
        sizes = [segment.size for segment in workspace._segments]
        assert sum(sizes) == workspace.size
        assert len(sizes) <= 2 + 3 * workspace.size / 4000 + np.log2(2 + workspace.size)
        assert max(sizes) <= 4000


def test_no_root_is_an_empty_workspace() -> None:
    workspace = Workspace(None, Bytes())
    workspace.build()
    assert (workspace.match([1, 2]), workspace.paths, workspace.size) == ([], [], 0)


def test_readers_never_see_what_died_before_they_asked() -> None:
    """Every version of every document names itself; a reader notes the newest before it asks."""
    workspace = Workspace(None, Bytes())
    written = [0] * 3
    stop = threading.Event()
    wrong: list[str] = []
    asked = 0

    def read() -> None:
        nonlocal asked
        while not stop.is_set():
            newest = list(written)
            for match in workspace.match(list(b"ver"), k=9):
                asked += 1
                document = int(match.path)
                if match.document.version < newest[document]:
                    wrong.append(f"{match.path} at {match.document.version}")
                if f"version {match.document.version} " not in match.document.text:
                    wrong.append("a version with another one's text")

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for version in range(1, 300):
        document = version % 3
        workspace.update(str(document), f"version {version} of {document}", version)
        written[document] = version
    while not asked:
        assert any(reader.is_alive() for reader in readers)
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []
