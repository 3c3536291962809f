"""The workspace finds exactly the live text, and the span that each match came from."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import index.workspace.segment_set
import index.workspace.workspace
from engine.prompts.tokenizer import Tokenizer
from index import Span, Workspace
from tests.conftest import byte_bpe
from tests.oracles import naive
from tests.support.encoders import Bytes, Composed

TEXT = st.text(alphabet="abe\u0301é🙂\n", max_size=20)
NAMES = ("a", "b", "c/d", "c/e")


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("bpe")
    byte_bpe(folder)
    return Tokenizer(folder)


class Model:
    """The expected texts by path, in the order of their changes."""

    def __init__(self, encoder: Any) -> None:
        self.encoder = encoder
        self.disk: dict[str, str] = {}
        self.buffers: dict[str, str] = {}
        self.living: dict[str, str] = {}

    def see(self, path: str) -> None:
        """The text that counts for a path may be another one now."""
        text = self.buffers.get(path, self.disk.get(path))
        if text is None:
            self.living.pop(path, None)
        elif self.living.get(path) != text:
            self.living.pop(path, None)
            self.living[path] = text

    def rename(self, old: str, new: str) -> None:
        self.disk[new] = self.disk.pop(old)
        kept = [(new if path == old else path, text) for path, text in self.living.items()
                if path != new]  # fmt: skip
        self.living = dict(kept)

    def match(self, tail: Any, k: int, near: str | None) -> list[tuple[int, int, str, int]]:
        """By brute force."""
        oracle = naive.Automaton()
        for ids in self.encoder.encode_batch(list(self.living.values())):
            oracle.add(ids)
        found = oracle.match(tail, 10**6, followed=True)
        paths = list(self.living)
        places = [(paths[doc], end) for doc, end in zip(found.docs, found.ends, strict=True)]
        if near is not None:
            folder = Path(near).parent
            places.sort(
                key=lambda one: (one[0] == near, Path(one[0]).parent == folder), reverse=True
            )
        return [(found.length, found.count, path, int(end)) for path, end in places[:k]]


def answers(workspace: Workspace, tail: Any, k: int, near: str | None = None) -> list[Any]:
    return [
        (match.length, match.count, match.path, match.end)
        for match in workspace.match(tail, k, near=near)
    ]


OPERATION = st.tuples(
    st.sampled_from(["write", "write", "delete", "open", "open", "close", "rename", "settle"]),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    TEXT,
    st.booleans(),
)


def perform(workspace: Workspace, model: Model, root: Path, step: int, operation: Any) -> None:
    kind, name, other, text, scan = operation
    path, target = str(root / name), str(root / other)
    changed = [path]
    if kind == "write":
        Path(path).write_text(text, "utf-8", newline="")
        os.utime(path, (step, step))
        model.disk[path] = text
    elif kind == "delete" and path in model.disk:
        Path(path).unlink()
        del model.disk[path]
    elif kind == "open":
        workspace.update(path, text, step)
        model.buffers[path] = text
        model.see(path)
        return
    elif kind == "close":
        workspace.update(path, None)
        model.buffers.pop(path, None)
    elif kind == "rename" and path in model.disk and path != target and not model.buffers:
        Path(path).replace(target)
        workspace.rename(path, target)
        model.rename(path, target)
        changed.append(target)
    elif kind == "settle":
        workspace.compact()
        return
    workspace.scan() if scan else workspace.refresh(changed)
    model.see(path)


@pytest.mark.parametrize(("young", "few", "bulk"), [(20, 5, 30), (60, 1000, 30), (1 << 16,) * 3])
@settings(max_examples=70)
@given(
    operations=st.lists(OPERATION, max_size=14),
    tails=st.lists(TEXT, min_size=1, max_size=3),
    k=st.integers(1, 5),
    kind=st.sampled_from(["bytes", "composed", "bpe"]),
)
def test_exactly_the_live_text_is_found_after_any_changes(
    bpe: Tokenizer,
    tmp_path_factory: pytest.TempPathFactory,
    young: int,
    few: int,
    bulk: int,
    operations: list[Any],
    tails: list[str],
    k: int,
    kind: str,
) -> None:
    encoder: Any = {"bytes": Bytes(), "composed": Composed(), "bpe": bpe}[kind]
    root = tmp_path_factory.mktemp("root")
    (root / "c").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index.workspace.segment_set, "ACTIVE_SEGMENT_TOKENS", young)
        patch.setattr(index.workspace.workspace, "MAX_ACTIVE_BATCH_TOKENS", few)
        patch.setattr(index.workspace.workspace, "FREEZE_BATCH_TOKENS", bulk)
        with Workspace(root, encoder) as workspace:
            workspace.build()
            model = Model(encoder)
            for step, operation in enumerate(operations, 1):
                perform(workspace, model, root, step, operation)
                assert workspace.paths == sorted(model.living)
                questions = encoder.encode_batch(tails + list(model.living.values()))
                assert workspace.size == sum(len(ids) for ids in questions[len(tails) :])
                for tail in questions:
                    for near in (None, str(root / "c/d")):
                        assert answers(workspace, tail, k, near) == model.match(tail, k, near)
    shutil.rmtree(root)


@settings(max_examples=150)
@given(
    text=st.text(alphabet="ab e\u0301é日🙂\n", min_size=2, max_size=30),
    data=st.data(),
    real=st.booleans(),
)
def test_a_span_is_the_shortest_text_covering_the_tokens(
    bpe: Tokenizer, text: str, data: st.DataObject, real: bool
) -> None:
    encoder: Any = bpe if real else Bytes()
    (ids,) = encoder.encode_batch([text])
    if len(ids) < 2:
        return
    with Workspace(None, encoder) as workspace:
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


def test_spans_of_a_normalizing_tokenizer_refer_to_the_original_text(workspaces: Any) -> None:
    workspace = workspaces(None, Composed())
    text = "Cafe\u0301 ole\u0301!"
    workspace.update("menu", text)
    (match,) = workspace.match([ord(char) for char in "Caf"])
    assert "".join(map(chr, match.continuation(5))) == "é olé"
    assert match.span(0, 1) == Span("menu", 3, 5)
    assert match.span(2, 5) == Span("menu", 6, 10)
    assert text[3:5] == "e\u0301"
    assert match.span(0, 99) == Span("menu", 3, len(text))


def test_the_probability_of_a_branch(workspaces: Any) -> None:
    workspace = workspaces()
    for path in "abc":
        workspace.update(path, f"x{path}")
    workspace.update("d", "xa")
    found = {match.path: match.prob for match in workspace.match(list(b"x"))}
    assert found == {"a": 0.5, "b": 0.25, "c": 0.25, "d": 0.5}
    assert workspace.tree(list(b"x"), 1).tokens.tolist() == list(b"a")


def test_a_match_keeps_its_text_when_the_document_changes(workspaces: Any) -> None:
    workspace = workspaces()
    workspace.update("a", "one two", version=1)
    (match,) = workspace.match(list(b"one"))
    workspace.update("a", "three", version=2)
    workspace.compact()
    assert workspace.match(list(b"one two")) == workspace.match(list(b"two"))
    assert [one.path for one in workspace.match(list(b"th"))] == ["a"]
    assert bytes(match.continuation(9).tolist()) == b" two"
    assert match.span(0, 4) == Span("a", 3, 7, 1)


def test_outdated_buffer_versions_are_ignored(workspaces: Any) -> None:
    workspace = workspaces()
    workspace.update("a", "newer", version=5)
    workspace.update("a", "older", version=4)
    assert workspace.match(list(b"ol"), limit=1)[:0] == []
    assert workspace.match(list(b"ne"))[0].length == 2
    assert workspace.match(list(b"ol"), k=1) == []


@pytest.mark.parametrize(
    ("path", "text"), [("/x/.env", "key = 1"), ("big", "x" * (1 << 20) + "x"), ("half", "a\ud800b")]
)
def test_skipped_buffers_still_hide_their_files(workspaces: Any, path: str, text: str) -> None:
    workspace = workspaces()
    if path != "/x/.env":
        workspace.update(path, "was here", 1)
    workspace.update(path, text, 2)
    assert workspace.paths == []
    assert workspace.match(list(b"wa")) == []
    workspace.update(path, None)
    assert workspace.paths == []


def test_there_are_few_segments(monkeypatch: pytest.MonkeyPatch, workspaces: Any) -> None:
    monkeypatch.setattr(index.workspace.segment_set, "ACTIVE_SEGMENT_TOKENS", 400)
    workspace = workspaces()
    chance = np.random.default_rng(3)
    for change in range(600):
        workspace.update(f"{change % 90}", "x" * int(chance.integers(200)))
        if change % 10 == 0:
            workspace.compact()
            stats = workspace.stats()
            assert stats.segments <= 2 + np.log2(2 + workspace.size / 400)
            assert stats.dead < 0.5 or workspace.size < 1000
    assert len(workspace.paths) == 90


def test_an_empty_workspace(workspaces: Any) -> None:
    workspace = workspaces()
    workspace.build()
    assert (workspace.match([1, 2]), workspace.paths, workspace.size) == ([], [], 0)
    assert workspace.stats().dead == 0


@pytest.mark.parametrize("young", [40, 1 << 16])
def test_readers_never_see_text_deleted_before_their_query(
    monkeypatch: pytest.MonkeyPatch, workspaces: Any, young: int
) -> None:
    """Each text names its version; a reader notes the newest version before its query."""
    monkeypatch.setattr(index.workspace.segment_set, "ACTIVE_SEGMENT_TOKENS", young)
    workspace = workspaces()
    written = [0] * 3
    stop = threading.Event()
    wrong: list[str] = []
    queries = 0

    def read() -> None:
        nonlocal queries
        while not stop.is_set():
            newest = list(written)
            for match in workspace.match(list(b"version "), k=9):
                queries += 1
                text = bytes(match.document.tokens.tolist()).decode()
                rest = bytes(match.continuation(99).tolist()).decode()
                version, _, document = rest.split()
                if int(version) < newest[int(document)]:
                    wrong.append(f"{document} at {version}")
                if not text.endswith(rest) or match.path != document:
                    wrong.append(f"{match.path}: {text!r} with {rest!r}")

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for version in range(1, 400):
        document = version % 3
        workspace.update(str(document), f"version {version} of {document}", version)
        written[document] = version
    deadline = time.monotonic() + 180
    while not queries and time.monotonic() < deadline:
        assert any(reader.is_alive() for reader in readers)
    stop.set()
    for reader in readers:
        reader.join()
    assert queries and wrong == []
