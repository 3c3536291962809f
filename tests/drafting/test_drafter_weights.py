"""The drafter's weight file: saved weights are loaded back, and anything else is rejected."""

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


def random_weights(seed: int, scale: float = 1.0) -> dict[Any, Weights]:
    """Random weights of every kind."""
    rng = np.random.default_rng(seed)
    values = rng.normal(scale=scale, size=(2, weight_count())).astype(np.float32)
    return {kind: Weights(values[n]) for n, kind in enumerate(WEIGHT_KINDS)}


def stored_values(weights: dict[Any, Weights]) -> Arrays:
    """The weights in half precision, as they are stored."""
    return {kind: np.asarray(item.values).astype(np.float16) for kind, item in weights.items()}


def write(file: Path, arrays: Arrays, **overrides: str) -> Path:
    """Write a file of any arrays whose metadata is valid except for the given `overrides`."""
    metadata = {"layout": layout(), "crc32": checksum(arrays)} | overrides
    file.write_bytes(save(dict(arrays), {"draftline": json.dumps(metadata)}))
    return file


def load_error(file: Path) -> str:
    """The one-line error that loading this file raises."""
    with pytest.raises(ValueError) as caught:
        load_weights(file)
    line = str(caught.value)
    assert line.startswith(f"{file}: ") and "train " in line and "\n" not in line
    return line


@pytest.fixture
def valid_file(tmp_path: Path) -> Path:
    """A valid weight file."""
    file = tmp_path / "valid.safetensors"
    save_weights(random_weights(1), file, {"edits": "some.jsonl"})
    return file


# -- saving and loading ------------------------------------------------------------------------


@settings(max_examples=10)
@given(seed=st.integers(0, 99), scale=st.sampled_from([0.0, 1e-6, 1.0, 1000.0]))
def test_weights_are_saved_and_loaded_in_half_precision(
    tmp_path_factory: pytest.TempPathFactory, seed: int, scale: float
) -> None:
    file = tmp_path_factory.mktemp("weights") / "w.safetensors"
    saved = random_weights(seed, scale)
    save_weights(saved, file, {})
    loaded, stored = load_weights(file), stored_values(saved)
    for kind in WEIGHT_KINDS:
        assert np.array_equal(np.asarray(loaded[kind].values), stored[kind].astype(np.float32))
    saved_bytes = file.read_bytes()
    save_weights(loaded, file, {})
    assert file.read_bytes() == saved_bytes, "the same weights give the same file"


def test_loaded_weights_count_as_trained(valid_file: Path) -> None:
    """Online learning moves them less than it moves untrained weights."""
    squares = np.asarray(load_weights(valid_file)["file"].squares)
    assert set(squares.tolist()) == set(module.INITIAL_SQUARES)
    assert squares.min() > np.asarray(Weights().squares).min()


def test_saving_follows_links_and_leaves_a_world_readable_file(tmp_path: Path) -> None:
    file, link = tmp_path / "w.safetensors", tmp_path / "link"
    file.write_bytes(b"old")
    link.symlink_to(file.name)
    save_weights(random_weights(2), link, {"packages": "a, b"})
    assert link.is_symlink() and stat.S_IMODE(file.stat().st_mode) == 0o644
    assert sorted(tmp_path.iterdir()) == [link, file], "no temporary file is left"
    with safe_open(str(file), "numpy") as opened:
        assert json.loads(opened.metadata()["draftline"])["packages"] == "a, b"


def test_a_failed_save_keeps_the_old_file(valid_file: Path) -> None:
    before = valid_file.read_bytes()
    for bad in (np.nan, np.inf, 1e6):
        weights = random_weights(3)
        values = np.array(weights["hunk"].values)
        values[7] = bad
        weights["hunk"] = Weights(values)
        with pytest.raises(ValueError, match="'hunk' weights are not finite"):
            save_weights(weights, valid_file, {})
    with pytest.raises(OSError):
        save_weights(random_weights(3), valid_file.parent / "no" / "folder", {})
    assert valid_file.read_bytes() == before and list(valid_file.parent.iterdir()) == [valid_file]


# -- invalid files -----------------------------------------------------------------------------


@settings(max_examples=60)
@given(data=st.data())
def test_flipped_bits_are_detected(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The file is rejected, or the bit was in metadata or padding and the weights are unchanged."""
    folder = tmp_path_factory.getbasetemp()
    good, file = folder / "good.safetensors", folder / "flipped.safetensors"
    save_weights(random_weights(4), good, {"edits": "some.jsonl"})
    raw = bytearray(good.read_bytes())
    offset = st.integers(0, 400) | st.integers(0, len(raw) - 1)
    raw[data.draw(offset, "byte")] ^= 1 << data.draw(st.integers(0, 7), "bit")
    file.write_bytes(raw)
    try:
        loaded = load_weights(file)
    except ValueError as error:
        assert str(error).startswith(f"{file}: ") and "\n" not in str(error)
    else:
        for kind, values in stored_values(random_weights(4)).items():
            assert np.array_equal(np.asarray(loaded[kind].values), values.astype(np.float32))


def test_truncated_and_extended_files_are_rejected(valid_file: Path) -> None:
    """At every byte of the header, and at some offsets after it."""
    raw = valid_file.read_bytes()
    for size in (*range(600), *range(600, len(raw), 9973), len(raw) - 1):
        valid_file.write_bytes(raw[:size])
        assert "cannot read weights" in load_error(valid_file)
    valid_file.write_bytes(raw + b"\0")
    assert "cannot read weights" in load_error(valid_file)


def test_incompatible_files_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "other.safetensors"
    good = stored_values(random_weights(6))
    assert load_weights(write(file, good)), "a valid file, written the same way"
    assert "another version" in load_error(write(file, good, layout="1"))
    assert "checksum" in load_error(write(file, good, crc32="00000000"))
    for metadata in ({}, {"draftline": "[]"}, {"layout": layout()}):
        file.write_bytes(save(good, metadata))
        assert "another version" in load_error(file)
    file.write_bytes(save(good, {"draftline": "{"}))
    assert "cannot read weights" in load_error(file)
    incomplete = {"file": good["file"]}
    metadata = {"draftline": json.dumps({"layout": layout(), "crc32": checksum(good)})}
    file.write_bytes(save(incomplete, metadata))
    assert "cannot read weights" in load_error(file)


@pytest.mark.parametrize("kind", WEIGHT_KINDS)
def test_invalid_values_are_rejected(tmp_path: Path, kind: str) -> None:
    good = stored_values(random_weights(7))
    nan, infinite = good[kind].copy(), good[kind].copy()
    nan[5], infinite[-1] = np.nan, -np.inf
    wrong = [nan, infinite, good[kind][:-1], good[kind][None], good[kind].view(np.int16)]
    wrong += [good[kind].astype(np.float32), np.zeros(0, np.float16)]
    for values in wrong:
        file = write(tmp_path / "w.safetensors", good | {kind: values})
        assert f"{kind!r} is damaged" in load_error(file)


@pytest.mark.parametrize("name", ["BF16", "I16", "F8_E4M3", "F32", "x"])
def test_other_dtypes_are_rejected(valid_file: Path, name: str) -> None:
    """The bytes are the same; only the header declares another dtype."""
    raw = valid_file.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + size].replace(b'"F16"', f'"{name}"'.encode())
    valid_file.write_bytes(len(header).to_bytes(8, "little") + header + raw[8 + size :])
    load_error(valid_file)


def test_missing_and_unrelated_files_are_rejected(tmp_path: Path) -> None:
    load_error(tmp_path / "nowhere")
    load_error(tmp_path)
    (tmp_path / "empty").touch()
    load_error(tmp_path / "empty")
    (tmp_path / "text").write_text("weights\n" * 9)
    load_error(tmp_path / "text")


# -- fallback ----------------------------------------------------------------------------------


def test_drafting_starts_with_default_weights_if_none_can_be_read(
    tmp_path: Path, valid_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        found = load_weights_or_default(tmp_path / "nowhere")
    (record,) = caplog.records
    assert record.name == "engine.drafting.drafter_weights" and record.levelno == logging.WARNING
    assert "nowhere" in record.getMessage() and "\n" not in record.getMessage()
    for kind in WEIGHT_KINDS:
        assert not np.asarray(found[kind].values).any()
    caplog.clear()
    assert (
        np.asarray(load_weights_or_default(valid_file)["file"].values).any() and not caplog.records
    )


@settings(max_examples=25)
@given(
    seed=st.integers(0, 999),
    scale=st.sampled_from([1.0, 100.0, 30_000.0]),
    texts=st.tuples(*[st.lists(st.integers(0, 6), min_size=1, max_size=30)] * 2),
)
def test_any_finite_weights_give_valid_drafts(
    seed: int, scale: float, texts: tuple[list[int], list[int]]
) -> None:
    """Whatever the weights are, drafts are trees of probabilities, and learning continues."""
    values = np.clip(np.asarray(random_weights(seed, scale)["file"].values), -65504, 65504)
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


# -- shipped weights ---------------------------------------------------------------------------


def test_shipped_weights_are_small_finite_and_documented() -> None:
    assert 0 < SHIPPED.stat().st_size < 1_000_000
    for kind, weights in load_weights().items():
        values = np.asarray(weights.values)
        assert np.isfinite(values).all() and values.any(), kind
    with safe_open(str(SHIPPED), "numpy") as opened:
        metadata = json.loads(opened.metadata()["draftline"])
    card = SHIPPED.with_name("MODEL_CARD.md").read_text("utf-8")
    for package in metadata["packages"].split(", "):
        name = package.rpartition(":")[2]  # behind the language
        assert f"\n| {name} | " in card, "the model card lists the training packages"
