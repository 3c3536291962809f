"""The drafter's weights as a file: what was saved is loaded, and nothing else is."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save

from engine.drafting import drafter_weights as module
from engine.drafting._drafting import Drafter, Ngram, Vocabulary, Weights, layout, weight_count
from engine.drafting.drafter_weights import (
    SHIPPED,
    WEIGHT_KINDS,
    checksum,
    load_weights,
    load_weights_or_default,
    save_weights,
)

Arrays = dict[Any, NDArray[Any]]


def some(seed: int, scale: float = 1.0) -> dict[Any, Weights]:
    """Weights of both kinds."""
    chance = np.random.default_rng(seed)
    values = chance.normal(scale=scale, size=(2, weight_count())).astype(np.float32)
    return {kind: Weights(values[n]) for n, kind in enumerate(WEIGHT_KINDS)}


def halves(weights: dict[Any, Weights]) -> Arrays:
    """As they are stored."""
    return {kind: np.asarray(one.values).astype(np.float16) for kind, one in weights.items()}


def write(file: Path, arrays: Arrays, **about: str) -> Path:
    """A file of any arrays whose notes are right, but for `about`."""
    notes = {"layout": layout(), "crc32": checksum(arrays)} | about
    file.write_bytes(save(dict(arrays), {"draftline": json.dumps(notes)}))
    return file


def refusal(file: Path) -> str:
    """The one line that a file is refused with."""
    with pytest.raises(ValueError) as caught:
        load_weights(file)
    line = str(caught.value)
    assert line.startswith(f"{file}: ") and "train " in line and "\n" not in line
    return line


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A good file."""
    file = tmp_path / "whole.safetensors"
    save_weights(some(1), file, {"edits": "some.jsonl"})
    return file


# -- what is saved is loaded -------------------------------------------------------------------


@settings(max_examples=10)
@given(seed=st.integers(0, 99), scale=st.sampled_from([0.0, 1e-6, 1.0, 1000.0]))
def test_what_is_loaded_is_what_was_saved_to_half_precision(
    tmp_path_factory: pytest.TempPathFactory, seed: int, scale: float
) -> None:
    file = tmp_path_factory.mktemp("weights") / "w.safetensors"
    saved = some(seed, scale)
    save_weights(saved, file, {})
    first, stored = load_weights(file), halves(saved)
    for kind in WEIGHT_KINDS:
        assert np.array_equal(np.asarray(first[kind].values), stored[kind].astype(np.float32))
    bytes_then = file.read_bytes()
    save_weights(first, file, {})
    assert file.read_bytes() == bytes_then, "the same weights are the same file"


def test_loaded_weights_have_learnt_already(whole: Path) -> None:
    """What is learnt while drafting moves them less than weights that know nothing."""
    squares = np.asarray(load_weights(whole)["file"].squares)
    assert set(squares.tolist()) == set(module.INITIAL_SQUARES)
    assert squares.min() > np.asarray(Weights().squares).min()


def test_the_file_is_replaced_whole_and_is_everybody_s_to_read(tmp_path: Path) -> None:
    file, link = tmp_path / "w.safetensors", tmp_path / "link"
    file.write_bytes(b"old")
    link.symlink_to(file.name)
    save_weights(some(2), link, {"packages": "a, b"})
    assert link.is_symlink() and stat.S_IMODE(file.stat().st_mode) == 0o644
    assert sorted(tmp_path.iterdir()) == [link, file], "nothing is left beside it"
    with safe_open(str(file), "numpy") as opened:
        assert json.loads(opened.metadata()["draftline"])["packages"] == "a, b"


def test_what_cannot_be_saved_leaves_the_old_file(whole: Path) -> None:
    before = whole.read_bytes()
    for bad in (np.nan, np.inf, 1e6):
        weights = some(3)
        values = np.array(weights["hunk"].values)
        values[7] = bad
        weights["hunk"] = Weights(values)
        with pytest.raises(ValueError, match="'hunk' weights are not finite"):
            save_weights(weights, whole, {})
    with pytest.raises(OSError):
        save_weights(some(3), whole.parent / "no" / "folder", {})
    assert whole.read_bytes() == before and list(whole.parent.iterdir()) == [whole]


# -- what is damaged is refused ----------------------------------------------------------------


@settings(max_examples=60)
@given(data=st.data())
def test_no_bit_of_a_file_can_flip_unseen(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """It is refused; or the bit was in a note or a blank, and the weights are the same."""
    folder = tmp_path_factory.getbasetemp()
    good, file = folder / "good.safetensors", folder / "flipped.safetensors"
    save_weights(some(4), good, {"edits": "some.jsonl"})
    raw = bytearray(good.read_bytes())
    place = st.integers(0, 400) | st.integers(0, len(raw) - 1)
    raw[data.draw(place, "byte")] ^= 1 << data.draw(st.integers(0, 7), "bit")
    file.write_bytes(raw)
    try:
        loaded = load_weights(file)
    except ValueError as error:
        assert str(error).startswith(f"{file}: ") and "\n" not in str(error)
    else:
        for kind, values in halves(some(4)).items():
            assert np.array_equal(np.asarray(loaded[kind].values), values.astype(np.float32))


def test_a_part_of_a_file_is_refused(whole: Path) -> None:
    """In every byte of its head, and here and there."""
    raw = whole.read_bytes()
    for size in (*range(600), *range(600, len(raw), 9973), len(raw) - 1):
        whole.write_bytes(raw[:size])
        assert "cannot read weights" in refusal(whole)
    whole.write_bytes(raw + b"\0")
    assert "cannot read weights" in refusal(whole)


def test_files_of_something_else_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.safetensors"
    good = halves(some(6))
    assert load_weights(write(file, good)), "a good one, made the same way"
    assert "another version" in refusal(write(file, good, layout="1"))
    assert "checksum" in refusal(write(file, good, crc32="00000000"))
    for notes in ({}, {"draftline": "[]"}, {"layout": layout()}):
        file.write_bytes(save(good, notes))
        assert "another version" in refusal(file)
    file.write_bytes(save(good, {"draftline": "{"}))
    assert "cannot read weights" in refusal(file)
    one = {"file": good["file"]}
    notes = {"draftline": json.dumps({"layout": layout(), "crc32": checksum(good)})}
    file.write_bytes(save(one, notes))
    assert "cannot read weights" in refusal(file)


@pytest.mark.parametrize("kind", WEIGHT_KINDS)
def test_wrong_values_are_refused(tmp_path: Path, kind: str) -> None:
    good = halves(some(7))
    nan, infinite = good[kind].copy(), good[kind].copy()
    nan[5], infinite[-1] = np.nan, -np.inf
    wrong = [nan, infinite, good[kind][:-1], good[kind][None], good[kind].view(np.int16)]
    wrong += [good[kind].astype(np.float32), np.zeros(0, np.float16)]
    for values in wrong:
        file = write(tmp_path / "w.safetensors", good | {kind: values})
        assert f"{kind!r} is damaged" in refusal(file)


@pytest.mark.parametrize("name", ["BF16", "I16", "F8_E4M3", "F32", "x"])
def test_other_types_are_refused(whole: Path, name: str) -> None:
    """The same bytes; only the head says that they are something else."""
    raw = whole.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    head = raw[8 : 8 + size].replace(b'"F16"', f'"{name}"'.encode())
    whole.write_bytes(len(head).to_bytes(8, "little") + head + raw[8 + size :])
    refusal(whole)


def test_no_file_and_no_file_of_weights(tmp_path: Path) -> None:
    refusal(tmp_path / "nowhere")
    refusal(tmp_path)
    (tmp_path / "empty").touch()
    refusal(tmp_path / "empty")
    (tmp_path / "text").write_text("weights\n" * 9)
    refusal(tmp_path / "text")


# -- drafting goes on without ------------------------------------------------------------------


def test_drafting_starts_without_what_cannot_be_read(
    tmp_path: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        found = load_weights_or_default(tmp_path / "nowhere")
    (record,) = caplog.records
    assert record.name == "engine.drafting.drafter_weights" and record.levelno == logging.WARNING
    assert "nowhere" in record.getMessage() and "\n" not in record.getMessage()
    for kind in WEIGHT_KINDS:
        assert not np.asarray(found[kind].values).any()
    caplog.clear()
    assert np.asarray(load_weights_or_default(whole)["file"].values).any() and not caplog.records


@settings(max_examples=25)
@given(
    seed=st.integers(0, 999),
    scale=st.sampled_from([1.0, 100.0, 30_000.0]),
    texts=st.tuples(*[st.lists(st.integers(0, 6), min_size=1, max_size=30)] * 2),
)
def test_any_finite_weights_draft_no_harm(
    seed: int, scale: float, texts: tuple[list[int], list[int]]
) -> None:
    """Whatever the weights say, drafts are trees of probabilities, and learning goes on."""
    values = np.clip(np.asarray(some(seed, scale)["file"].values), -65504, 65504)
    weights = Weights(np.ascontiguousarray(values))
    vocabulary = Vocabulary(np.arange(7, dtype=np.uint32), np.zeros(7, np.uint8))
    drafter = Drafter(vocabulary, Ngram(), weights)
    expected, answer = texts
    drafter.begin(np.array(expected, np.int32), 0, np.array([0], np.int32))
    for token in answer:
        _, parents, probs, _, _ = drafter.propose(8, np.linspace(1, 1.1, 9))
        assert len(probs) <= 8 and all(0 <= p <= 1.0001 for p in probs)
        assert all(-1 <= parent < n for n, parent in enumerate(parents))
        drafter.commit([token], 0.2)


# -- what is shipped ---------------------------------------------------------------------------


def test_the_shipped_weights_are_small_finite_and_say_where_they_come_from() -> None:
    assert 0 < SHIPPED.stat().st_size < 1_000_000
    for kind, weights in load_weights().items():
        values = np.asarray(weights.values)
        assert np.isfinite(values).all() and values.any(), kind
    with safe_open(str(SHIPPED), "numpy") as opened:
        notes = json.loads(opened.metadata()["draftline"])
    card = SHIPPED.with_name("MODEL_CARD.md").read_text("utf-8")
    for package in notes["packages"].split(", "):
        assert package in card, "the card lists what they were trained on"
