"""`NativeTarget` gives the logits and texts of `TorchTarget` on the same file, keeps the law, and
runs where torch is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine import Config, Engine, Request
from engine.model import opening
from engine.model.native.model import BLOCK_POSITIONS, RotaryTable
from engine.model.native.native_target import NativeTarget
from engine.model.native.product import is_finite, joined, narrowed, widened
from engine.model.opening import needs_torch, open_target
from engine.model.torch.tensor_arrays import array_of, tensor_of
from engine.model.torch.torch_target import TorchTarget
from engine.model.unsupported import UnsupportedModel
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft, RequestError
from engine.weights import locate
from tests.model.test_gguf_families import MODELS, model
from tests.model.test_native_gguf import stored
from tests.model.test_target import begin, some_tokens, some_tree
from tests.support.drafters import drafters, trying
from tests.support.gguf_of_model import VOCABULARY
from tests.support.law import SAMPLED, answer, plain, run
from tests.support.tiny_gguf import write_folder, write_gguf

__all__ = ["model", "stored"]  # fixtures
Q8_0 = gguf.GGMLQuantizationType.Q8_0
TOKENS = some_tokens(40, VOCABULARY)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a tiny GGUF file."""
    root = tmp_path_factory.mktemp("native")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(root / "home"))
        write_gguf(root / "m.gguf")
        yield locate(str(root / "m.gguf"))


def both(folder: Path, **options: Any) -> tuple[NativeTarget, TorchTarget]:
    config = Config(device="cpu", threads=1, **options)
    return NativeTarget(folder, config), TorchTarget(folder, config)


@pytest.mark.parametrize("name", MODELS)
def test_logits_have_the_bits_of_the_torch_target(stored: Any, name: str) -> None:
    """Of a prompt read in chunks, of trees whose paths are kept, and of a prefix that is reused."""
    ours, theirs = both(stored(name, Q8_0))
    assert ours.exact and theirs.exact and ours.dtype_name == theirs.dtype_name == "stored"
    assert (ours.vocab, ours.context) == (theirs.vocab, theirs.context)
    targets: list[Any] = [ours, theirs]
    for target in targets:
        target.chunk = 16
        begin(target, TOKENS)
    tree, last = some_tree(12, VOCABULARY), TOKENS[-1]
    child = tree.parents.index(-1, 1) if -1 in tree.parents[1:] else 0
    for path in ([child], [], [0]):
        mine, its = (target.forward(last, tree, hidden=True) for target in targets)
        assert np.array_equal(mine.logits, its.logits.numpy())
        assert np.array_equal(mine.hidden, its.hidden.numpy())
        for target in targets:
            target.keep(path)
        assert ours.tokens == theirs.tokens
        last = tree.tokens[path[-1]] if path else 3
    shared = [*TOKENS[:30], 9, 9, 9]
    cached = {begin(target, shared) for target in targets}
    assert len(cached) == 1
    mine, its = (target.forward(9, Draft()) for target in targets)
    assert np.array_equal(mine.logits, its.logits.numpy())


@pytest.mark.parametrize("dtype", ["auto", "q8", "q4"])
@pytest.mark.parametrize("sampled", [False, True])
def test_the_law_holds_and_texts_are_those_of_the_torch_target(
    folder: Path, dtype: str, sampled: bool
) -> None:
    """With the drafters that need no model, and with none."""
    ours, theirs = both(folder, dtype=dtype)
    tokenizer = Tokenizer(folder)
    options = {"seed": 5, **(SAMPLED if sampled else {})}
    prompt = Prompt(tokenizer.encode("def ret(in, def):\n    ret"), max_tokens=24)
    expected, truth = plain(ours, tokenizer, prompt, **options)  # type: ignore[arg-type]
    other, same = plain(theirs, tokenizer, prompt, **options)  # type: ignore[arg-type]
    assert answer(expected) == answer(other) and truth == same
    prompt.predictions = [truth[3:20]]
    for name, drafter in trying(truth, ours.vocab).items():
        _, done = run(ours, tokenizer, prompt, drafter, **options)
        assert answer(done) == answer(expected), name


@pytest.mark.parametrize("sampled", [False, True])
def test_the_law_holds_with_keys_and_values_in_8_bits(folder: Path, sampled: bool) -> None:
    """Of every drafter, also behind a prompt that is read in chunks or continues a cached one."""
    target = NativeTarget(folder, Config(device="cpu", threads=1, kv="q8"))
    usual = NativeTarget(folder, Config(device="cpu", threads=1))
    tokenizer = Tokenizer(folder)
    options = {"seed": 5, **(SAMPLED if sampled else {})}
    prompt = Prompt(tokenizer.encode("def ret(in, def):\n    ret" * 6), max_tokens=24)
    assert target.exact
    expected, truth = plain(target, tokenizer, prompt, **options)  # type: ignore[arg-type]
    prompt.predictions = [truth[3:20]]
    for n, (name, drafter) in enumerate(drafters(truth, target.vocab).items()):
        if n % 2:  # else it continues what is cached
            target.pool.sequences.clear()
        target.chunk = 32 if n % 4 == 1 else 128
        _, done = run(target, tokenizer, prompt, drafter, **options)
        assert answer(done) == answer(expected), name
    for one in (target, usual):
        begin(one, prompt.ids)  # type: ignore[arg-type]
    bytes_of = [one.sequence.nbytes / one.sequence.capacity for one in (target, usual)]
    assert 3 * bytes_of[0] < bytes_of[1]
    mine, its = (one.forward(prompt.ids[-1], Draft()).logits for one in (target, usual))
    assert 0 < np.abs(mine - its).max() < 0.05 * np.abs(its).max()


def test_only_formats_of_the_cache_that_a_runtime_has_are_taken(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"^kv 'q4': choose auto or q8$"):
        open_target(folder, Config(device="cpu", kv="q4"))
    with pytest.raises(ValueError, match=r"^kv q8: only a GGUF file .* dtype bf16: leave it at au"):
        open_target(folder, Config(device="cpu", dtype="bf16", kv="q8"))


def test_another_request_between_two_chunks_changes_nothing(folder: Path) -> None:
    target = NativeTarget(folder, Config(device="cpu", threads=1))
    ids = [n % 100 for n in range(3, 80)]
    begin(target, ids)  # type: ignore[arg-type]
    expected = target.forward(ids[-1], Draft()).logits
    again = NativeTarget(folder, Config(device="cpu", threads=1))
    again.chunk = 16
    again.begin(ids, 8)
    for done in again.prefill(ids, 8):
        if done == 32:
            begin(again, [7, 8, 9])  # type: ignore[arg-type]
    assert np.array_equal(again.forward(ids[-1], Draft()).logits, expected)


def test_requests_that_do_not_fit_are_refused(folder: Path, monkeypatch: Any) -> None:
    target = NativeTarget(folder, Config(device="cpu", threads=1))
    with pytest.raises(RequestError, match="empty"):
        target.begin([], 4)
    begin(target, [1, 2, 3])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="draft 2"):
        tree = some_tree(target.capacity() + 1, VOCABULARY)
        target.forward(3, tree)

    def full(capacity: int) -> Any:
        raise MemoryError

    monkeypatch.setattr(target.model, "new_cache", full)
    with pytest.raises(RequestError, match="no memory for 1024 tokens: select fewer lines"):
        target.begin([*range(90)] * 10, 8)
    assert not target.pool.sequences


CODE = """
import json, sys

for name in ("torch", "transformers", "safetensors.torch"):
    sys.modules[name] = None  # as where they are not installed
from engine import Config, Engine, Request
from engine.sampling.grammar import json_grammar

with Engine(Config(model=sys.argv[1], device="cpu", threads=1, library=False)) as engine:
    asked = [
        Request("complete", "def ret(in):", max_tokens=20),
        Request("complete", "def ret(in):", max_tokens=20, temperature=0.8, top_p=0.9, seed=3),
        Request("chat", messages=({"role": "user", "content": "def"},), max_tokens=12,
                grammar=json_grammar({"type": "integer"})),
    ]
    texts = [
        [engine.submit(one, speculation=drafts, drafter=drafter).result().text
         for drafts, drafter in ((False, ""), (True, "auto"), (True, "sam"))]
        for one in asked
    ]
print(json.dumps(texts))
"""


def test_an_engine_runs_where_torch_is_not_installed(home: Path, tmp_path: Path) -> None:
    """With and without drafts, greedy, sampled and under a grammar."""
    write_gguf(tmp_path / "m.gguf")
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "m.gguf")],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    texts = json.loads(done.stdout.splitlines()[-1])
    assert all(len({*each}) == 1 and each[0] for each in texts)
    config = Config(model=str(tmp_path / "m.gguf"), device="cpu", threads=1, library=False)
    with Engine(config) as engine:
        asked = Request("complete", "def ret(in):", max_tokens=20)
        assert engine.submit(asked).result().text == texts[0][0]
        with pytest.raises(ValueError, match="drafter eagle2: this engine runs without torch"):
            engine._drafter("eagle2:head=x", None, "")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, ""),
        ({"device": "cpu"}, ""),
        ({"device": "cpu", "dtype": "q4"}, ""),
        ({"device": "cuda"}, "device cuda"),
        ({"device": "mps"}, "device mps"),
        ({"device": "cpu", "dtype": "bf16"}, "dtype bf16"),
        ({"device": "cpu", "graphs": "static"}, "graphs static"),
    ],
)
def test_what_needs_torch_is_named(
    folder: Path, monkeypatch: Any, options: dict[str, str], why: str
) -> None:
    monkeypatch.setattr(opening, "has_card_driver", lambda: False)
    config = Config(**options)  # type: ignore[arg-type]
    assert needs_torch(folder, config) == why
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    if why:
        with pytest.raises(
            UnsupportedModel, match=rf"{why} needs torch.*draftline\[gpu\]"
        ) as error:
            open_target(folder, config)
        assert "\n" not in str(error.value)
    else:
        assert isinstance(open_target(folder, config), NativeTarget)


def test_a_card_is_used_where_torch_is_installed(
    folder: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Where it is not, one line says what to install."""
    monkeypatch.setattr(opening, "has_card_driver", lambda: True)
    assert needs_torch(folder, Config()) == "a card"
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    assert needs_torch(folder, Config()) == ""
    assert [line for line in caplog.messages if "draftline[gpu]" in line]


def test_safetensors_files_run_on_torch(tmp_path: Path) -> None:
    made = write_folder(tmp_path / "m")
    assert needs_torch(made, Config(device="cpu")) == "a model of safetensors files"
    assert isinstance(open_target(made, Config(device="cpu", threads=1)), TorchTarget)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40))
def test_numbers_are_rounded_to_bfloat16_as_torch_rounds_them(bits: list[int]) -> None:
    values = np.array(bits, np.uint32).view(np.float32)
    values = values[np.isfinite(values)]
    ours = narrowed(values)
    theirs = torch.from_numpy(values).to(torch.bfloat16)
    assert np.array_equal(ours, theirs.view(torch.uint16).numpy())
    assert np.array_equal(widened(ours), theirs.float().numpy())
    assert is_finite(ours) == bool(theirs.isfinite().all())
    assert np.array_equal(array_of(tensor_of(ours)), ours)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weights_of_every_float_are_shared(dtype: torch.dtype) -> None:
    weight = torch.randn(3, 4).to(dtype)
    assert torch.equal(tensor_of(array_of(weight)), weight)
    mixed = joined([array_of(weight), array_of(weight.float())])
    assert mixed.dtype == np.float32 and np.array_equal(mixed[3:], weight.float().numpy())


def test_a_rotation_does_not_depend_on_how_far_the_table_has_grown() -> None:
    from engine.model.model_config import Rope

    rope = Rope(16, 8, tuple(10_000.0 ** -(n / 8) for n in range(8)), 1.25)
    far = np.array([0, 5, 3 * BLOCK_POSITIONS + 7])
    grown, fresh = RotaryTable(rope), RotaryTable(rope)
    grown.at(np.array([3]))
    assert np.array_equal(grown.at(far), fresh.at(far))
    angles = torch.tensor(far, dtype=torch.float32)[:, None] * torch.tensor(rope.frequencies)
    expected = torch.polar(torch.full_like(angles, 1.25), angles)
    assert np.allclose(fresh.at(far), expected.numpy(), rtol=3e-7, atol=3e-7)
