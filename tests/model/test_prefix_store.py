"""Prefixes on disk: a model goes on from them as from a cold start, bit for bit, and the folder
keeps to its limit."""

from __future__ import annotations

import itertools
import logging
import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Config
from engine.model import _kernels, pooled_target
from engine.model.native.native_target import NativeTarget
from engine.model.prefix_store import (
    MAX_WANTED,
    MIN_TOKENS,
    STORED_CHECKPOINTS,
    PrefixStore,
    fingerprint_of,
    prefix_files,
)
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft
from index.workspace import array_file
from tests.model.test_gguf_families import model
from tests.model.test_native_gguf import stored as gguf_model
from tests.model.test_target import begin, some_tokens, some_tree
from tests.support.drafters import trying
from tests.support.gguf_of_model import VOCABULARY
from tests.support.law import SAMPLED, answer, plain, run
from tests.support.prefixes import CHUNK, RowsTarget, files, keep, opened, stored

__all__ = ["gguf_model", "model"]  # fixtures
FAMILIES = ("phi3-longrope", "gemma3-linear", "gpt-oss", "olmo3", "gemma4-e2b", "gemma4-26b-a4b",
            "qwen3-next", "qwen3.5", "qwen3.5-moe", "llama-3", "qwen3-moe")  # fmt: skip
KINDS = [*((name, "auto") for name in FAMILIES),
         *((name, "q8") for name in ("llama-3", "gpt-oss", "gemma4-e2b", "qwen3.5"))]  # fmt: skip
Q8_0 = gguf.GGMLQuantizationType.Q8_0
HYBRIDS = [False, True]


def tokens(count: int, seed: int = 0) -> list[int]:
    return some_tokens(count, 1000, seed)


# -- the law -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kv"), KINDS)
def test_a_text_after_a_restart_is_that_of_a_cold_start(
    gguf_model: Any, name: str, kv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits of a tree, and whole answers; for the same prompt, and for one with another end."""
    monkeypatch.setattr(pooled_target, "CHECKPOINT_TOKENS", 64)
    folder, config = gguf_model(name, Q8_0), Config(device="cpu", threads=1, kv=kv)
    tokenizer, tree = Tokenizer(folder), some_tree(12, VOCABULARY)
    prompt = some_tokens(240, VOCABULARY)
    other = [*prompt[:200], *some_tokens(30, VOCABULARY, seed=1)]

    def start(home: Path | None) -> tuple[Any, PrefixStore | None]:
        target: Any = NativeTarget(folder, config)
        target.chunk = 32
        return target, PrefixStore(home, target, tokenizer.fingerprint) if home else None

    def logits(target: Any, ids: list[int]) -> tuple[int, Any]:
        cached = begin(target, ids)
        return cached, target.forward(ids[-1], tree).logits

    target, store = start(tmp_path / "cache")
    assert store is not None and begin(target, prompt) == 0
    target.forward(prompt[-1], tree)  # the answer goes on behind the prompt
    target.keep([0])
    keep(store, prompt)
    is_hybrid = target.sequence.recurrent is not None
    for ids, most in ((prompt, len(prompt) - 1), (other, 192 if is_hybrid else 200)):
        cold, warm = start(None)[0], start(tmp_path / "cache")[0]
        (none, expected), (cached, found) = logits(cold, ids), logits(warm, ids)
        assert (none, cached) == (0, most)
        assert np.array_equal(found, expected)
    both: tuple[dict[str, Any], ...] = ({}, {"seed": 5, **SAMPLED})
    for options in both:
        cold, warm = start(None)[0], start(tmp_path / "cache")[0]
        one = Prompt(prompt, max_tokens=24)
        expected_done, truth = plain(cold, tokenizer, one, **options)
        one.predictions = [truth[3:20]]
        for drafter in trying(truth, VOCABULARY).values():
            warm.pool.sequences.clear()
            _, done = run(warm, tokenizer, one, drafter, **options)
            assert done.usage.cached_tokens == len(prompt) - 1
            assert answer(done) == answer(expected_done)


@pytest.mark.parametrize("has_states", HYBRIDS)
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_rows_are_those_of_their_prompts(
    tmp_path_factory: pytest.TempPathFactory, has_states: bool, data: st.DataObject
) -> None:
    """Of many prompts with common starts, read, written and used in any order, with restarts;
    `RowsTarget.read` compares every number."""
    home = tmp_path_factory.mktemp("home")
    texts = [tokens(700, seed) for seed in range(3)]
    target = RowsTarget(has_states)
    store = opened(home, target, limit=data.draw(st.sampled_from([1 << 19, 1 << 30])))
    for _ in range(data.draw(st.integers(1, 8))):
        one, other = data.draw(st.permutations(texts))[:2]
        at, length = data.draw(st.integers(1, 600)), data.draw(st.integers(1, 100))
        prompt = [*one[:at], *other[:length]]
        target.read(prompt)
        match data.draw(st.sampled_from(["go on", "write", "restart"])):
            case "write":
                keep(store, prompt)
            case "restart":
                keep(store, prompt)
                target = RowsTarget(has_states)
                store = opened(home, target)


def test_a_request_between_two_steps_of_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At each of them: what is written later is right, and nothing is left of the first try."""
    monkeypatch.setattr(array_file, "STEP_BYTES", 1 << 10)
    prompt, other = tokens(300), [*tokens(150), *tokens(100, seed=1)]
    for step in itertools.count():
        home, target = tmp_path / str(step), RowsTarget()
        store = opened(home, target)
        target.read(prompt)
        store.want(prompt, lambda: True)
        writing = store.save()
        if len([*itertools.islice(writing, step)]) < step:
            break
        target.read(other)  # continues the sequence that is being written
        for _ in writing:
            pass
        target = RowsTarget()
        opened(home, target)
        assert target.read(prompt) == 150
        assert len(files(home)) == 1
    assert step > 20 and not caplog.records


# -- what is written, and what is used -------------------------------------------------------------


def test_only_what_is_worth_it_is_written(tmp_path: Path) -> None:
    long = tokens(400)
    stored(tmp_path, tokens(MIN_TOKENS), long, [*long[:300], *tokens(60, seed=1)], long)
    assert len(files(tmp_path)) == 1
    (file,) = files(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    target = RowsTarget()
    opened(tmp_path, target)
    assert target.read([*long[:MIN_TOKENS], 1, 2]) == MIN_TOKENS
    target = RowsTarget()
    opened(tmp_path, target)
    assert target.read([*long[: MIN_TOKENS - 1], 1, 2]) == 0


def test_memory_comes_before_the_disk(tmp_path: Path) -> None:
    """Where it has hardly less of a prompt."""
    prompt = tokens(500)
    stored(tmp_path, prompt)
    for first, cached in ((500 - MIN_TOKENS, 500 - MIN_TOKENS), (499 - MIN_TOKENS, 499)):
        target = RowsTarget()
        target.read(prompt[: first + 1])
        opened(tmp_path, target)
        assert target.read(prompt) == cached


def test_states_are_those_of_the_last_checkpoints(tmp_path: Path) -> None:
    prompt = tokens(5 * CHUNK + 9)
    stored(tmp_path, prompt, has_states=True)
    target = RowsTarget(has_states=True)
    opened(tmp_path, target)
    assert target.read(prompt) == len(prompt) - 1
    for shared, cached in ((5 * CHUNK + 3, 5 * CHUNK), (5 * CHUNK - 1, 0)):
        target.pool.sequences.clear()
        assert target.read([*prompt[:shared], 1, 2]) == cached
    (file,) = files(tmp_path)
    found = array_file.ArrayFile(file)
    assert found.about == {"checkpoints": [5 * CHUNK, len(prompt) - 1]}
    assert len(found.arrays) == 3 + 2 * STORED_CHECKPOINTS


def test_what_keys_ask_is_neither_written_nor_given(tmp_path: Path) -> None:
    prompt, other = tokens(300), tokens(300, seed=1)
    target = RowsTarget()
    store = opened(tmp_path, target)
    target.read(prompt, owner="a key")
    keep(store, prompt)
    assert not files(tmp_path)
    target.read(other)
    keep(store, other)
    target.pool.sequences.clear()
    assert target.read(other, owner="a key") == 0 and target.read(other) == 299


def test_what_may_not_be_written_is_not(tmp_path: Path) -> None:
    target = RowsTarget()
    store = opened(tmp_path, target)
    target.read(tokens(300))
    assert store.want(tokens(300), lambda: False)
    assert [*store.save()] == [] and not files(tmp_path)


def test_the_latest_prompts_are_written(tmp_path: Path) -> None:
    """`save` is asked for once, while any wait; too many that wait are forgotten."""
    target = RowsTarget()
    target.pool.max_sequences = 3 * MAX_WANTED
    store = opened(tmp_path, target)
    asked = []
    for seed in range(2 * MAX_WANTED):
        target.read(tokens(200, seed))
        asked.append(store.want(tokens(200, seed), lambda: True))
    assert asked == [True] + [False] * (2 * MAX_WANTED - 1)
    assert not [pause for pause in store.save() if pause]
    assert len(files(tmp_path)) == MAX_WANTED
    assert store.want(tokens(200, MAX_WANTED - 1), lambda: True)


def test_an_entry_takes_the_place_of_what_it_has_most_of(tmp_path: Path) -> None:
    text = tokens(600)
    first, grown, changed = text[:300], text[:500], [*text[:260], *tokens(300, seed=1)]
    assert len(stored(tmp_path, first)) == 1
    stored(tmp_path, grown)
    assert len(files(tmp_path)) == 1
    stored(tmp_path, changed)
    assert len(files(tmp_path)) == 1
    stored(tmp_path, [*text[:200], *tokens(400, seed=2)])
    assert len(files(tmp_path)) == 2


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    prompts = [tokens(300, seed) for seed in range(5)]
    paths = stored(tmp_path, *prompts[:3])
    size = paths[0].stat().st_size
    for age, path in enumerate(paths):
        os.utime(path, (age, age))
    target = RowsTarget(name="another")  # the limit is that of all models
    store = opened(tmp_path, target, limit=3 * size + 500)
    user = RowsTarget()
    opened(tmp_path, user)
    assert user.read(prompts[0]) == 299  # used now
    target.read(prompts[3])
    keep(store, prompts[3])
    assert set(files(tmp_path)) >= {paths[0], paths[2]} and not paths[1].exists()
    target.read(prompts[4])
    keep(store, prompts[4])
    assert paths[0].exists() and not paths[2].exists() and len(files(tmp_path)) == 3
    assert user.read(prompts[1]) == 0, "its file is gone, which is no damage"
    assert len(prefix_files(tmp_path, Path("another"))) == 2


def test_processes_that_share_the_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One's entry is cleared, and another's has other checkpoints: neither is damage."""
    prompt = tokens(300)
    (path,) = stored(tmp_path, prompt, has_states=True)
    user, other = RowsTarget(has_states=True), RowsTarget(has_states=True)
    store = opened(tmp_path, user)
    path.unlink()
    writer = opened(tmp_path, other)
    other.read([*prompt[:100], 1])
    other.read(prompt)  # from token 100 on, in other chunks
    keep(writer, prompt)
    assert array_file.ArrayFile(path).about == {"checkpoints": [292, 299]}
    assert user.read(prompt) == 299
    path.unlink()
    keep(store, prompt)
    assert files(tmp_path) == [path] and not caplog.messages


def test_a_smaller_context_uses_what_fits(tmp_path: Path) -> None:
    (path,) = stored(tmp_path, tokens(500))
    target = RowsTarget()
    target.context = 400
    opened(tmp_path, target)
    assert target.read(tokens(500)[:300]) == 299 and path.exists()


def test_what_is_larger_than_the_limit_is_not_written(tmp_path: Path) -> None:
    target = RowsTarget()
    store = opened(tmp_path, target, limit=10_000)
    target.read(tokens(300))
    keep(store, tokens(300))
    assert not files(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("weights_digest", "other"), ("dtype_name", "q4"), ("kv", "q8")],
)
def test_rows_of_other_weights_or_numbers_are_dropped(
    tmp_path: Path, name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    stored(tmp_path, tokens(300), tokens(300, seed=1))
    target = RowsTarget()
    setattr(target, name, value)
    opened(tmp_path, target)
    assert target.read(tokens(300)) == 0 and not files(tmp_path)
    assert caplog.messages == ["2 stored prompts of another model or version are dropped"]


def test_rows_in_8_bits_and_in_32_are_kept_apart(
    gguf_model: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry of one kind is never used for the other."""
    folder, prompt = gguf_model("llama-3", Q8_0), some_tokens(240, VOCABULARY)
    for kv in ("q8", "auto", "q8"):
        target: Any = NativeTarget(folder, Config(device="cpu", threads=1, kv=kv))
        store = PrefixStore(tmp_path, target, "t")
        assert begin(target, prompt) == 0
        keep(store, prompt)
        assert len(files(tmp_path)) == 1
        target.pool.sequences.clear()
        assert begin(target, prompt) == len(prompt) - 1
    assert caplog.messages == ["1 stored prompts of another model or version are dropped"] * 2


def test_a_fingerprint_says_all_that_the_rows_depend_on(
    gguf_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, source = gguf_model("llama-3", Q8_0), tmp_path / "m.gguf"

    def found(tokenizer: str = "t", **formats: str) -> str:
        config = Config(device="cpu", **formats)  # type: ignore[arg-type]
        return fingerprint_of(NativeTarget(folder, config), tokenizer)

    before = found()
    assert found() == before and found("u") != before
    assert found(dtype="q8") != before and found(kv="q8") != before
    isa = _kernels.isa()
    _kernels.set_isa("plain")
    assert found() != before
    _kernels.set_isa(isa)
    with monkeypatch.context() as patch:
        patch.setattr("engine.model.prefix_store.own_version", lambda: "9.9")
        assert found() != before
    status, data = source.stat(), bytearray(source.read_bytes())
    data[-1] ^= 1  # of the last tensor
    source.write_bytes(data)
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert NativeTarget(folder, Config(device="cpu")).weights_digest not in before


def test_an_engine_can_do_without_the_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A link in its place is not followed: nothing is read or written there."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "prefixes").symlink_to(tmp_path / "elsewhere")
    target = RowsTarget()
    with caplog.at_level(logging.WARNING):
        store = opened(tmp_path, target)
        assert target.read(tokens(300)) == 0 and not store.want(tokens(300), lambda: True)
    assert len(caplog.messages) == 1 and "symbolic link" in caplog.text
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_draft_rows_are_no_rows_of_a_prompt(gguf_model: Any, tmp_path: Path) -> None:
    """What was drafted behind a prompt and refused is in the cache's memory, not in the file."""
    target: Any = NativeTarget(gguf_model("llama-3", Q8_0), Config(device="cpu", threads=1))
    store = PrefixStore(tmp_path, target, "t")
    prompt = some_tokens(200, VOCABULARY)
    begin(target, prompt)
    target.forward(prompt[-1], Draft([5, 6], [-1, 0], [1.0] * 2, ["test"] * 2))
    keep(store, [*prompt, 5, 6])
    (file,) = files(tmp_path)
    assert array_file.ArrayFile(file).arrays["tokens"].tolist() == prompt[:-1]
