"""The memory a model needs on one GPU or several, and models with random weights."""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from engine.config import Config
from engine.model.families import read_config
from engine.model.torch.cuda.weight_formats import FORMATS
from engine.model.torch.loading import load as load_model
from engine.model.torch.placement import (
    Size,
    capacity_left,
    capacity_on,
    check_fits,
    choose_dtype,
    out_of_memory_is_unsupported,
    placed,
    refuse_several,
    shares,
    with_rows,
)
from engine.model.torch.placement import size_of as size_of_config
from engine.model.torch.random_weights import RandomWeights
from engine.model.torch.torch_target import TorchTarget
from engine.model.unsupported import UnsupportedModel
from engine.records import Draft
from tests.conftest import tiny_model
from tests.model.test_target import begin, load
from tests.support.stub_card import list_cards

CODER_7B = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-6,
}
GB = 10**9


def size_of(settings: dict[str, Any], dtype: str, some: range | None = None) -> Size:
    return size_of_config(read_config(settings), dtype, some)


def test_the_size_of_a_known_model() -> None:
    """Qwen2.5-Coder-7B has 7.62 billion parameters and 56 KB of keys and values per token."""
    size = size_of(CODER_7B, "bf16")
    assert size.weights == pytest.approx(2 * 7.615e9, rel=0.003)
    assert size.token == 2 * 28 * 4 * 128 * 2
    assert size_of(CODER_7B, "f32").weights == pytest.approx(2 * size.weights, rel=0.003)


@pytest.mark.parametrize("dtype", ["int8", "fp8"])
def test_the_size_with_8_bit_matrices(dtype: str) -> None:
    """The embedding is not quantized; if it is tied to the head, the head is a second matrix."""
    words = CODER_7B["vocab_size"] * CODER_7B["hidden_size"]  # type: ignore[operator]
    size = size_of(CODER_7B, dtype)
    assert size.weights == pytest.approx(7.615e9 + words, rel=0.003)
    tied = CODER_7B | {"tie_word_embeddings": True}
    assert size_of(tied, dtype).weights == size.weights
    assert size_of(tied, "bf16").weights == size_of(CODER_7B, "bf16").weights - 2 * words
    assert size.token == size_of(CODER_7B, "bf16").token


def test_the_size_with_4_bit_matrices() -> None:
    """Half a byte for each weight and two for each 64; the head takes one, the embedding two."""
    words = CODER_7B["vocab_size"] * CODER_7B["hidden_size"]  # type: ignore[operator]
    size = size_of(CODER_7B, "int4")
    rotation = 32768 * 128 * 4
    expected = (7.615e9 - 2 * words) * (1 / 2 + 2 / 64) + words + 2 * words + rotation
    assert size.weights == pytest.approx(expected, rel=0.001)
    tied = CODER_7B | {"tie_word_embeddings": True}
    assert size_of(tied, "int4").weights == size.weights


CODERS = {7: CODER_7B} | {  # Qwen2.5-Coder by billions of parameters
    billions: CODER_7B | {
        "hidden_size": 5120, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": 40, "num_key_value_heads": 8,
    }
    for billions, inner, layers in ((14, 13824, 48), (32, 27648, 64))
}  # fmt: skip


@pytest.mark.parametrize(
    ("billions", "card_gb", "tokens"), [(7, 8, 32768), (14, 12, 8192), (32, 24, 16000)]
)
def test_4_bits_are_what_larger_models_fit_a_card_in(
    billions: int, card_gb: int, tokens: int
) -> None:
    """With context for files. A card of 12 GB has 12.9 of our units; what is more here than 12 is
    left to the desktop. No other format fits."""
    free = card_gb * GB
    size = size_of(CODERS[billions], "int4")
    check_fits("coder", size, tokens, "Some Card", free, free)
    for dtype in ("f32", "bf16", "int8", "fp8"):
        with pytest.raises(UnsupportedModel):
            check_fits("coder", size_of(CODERS[billions], dtype), 1, "Some Card", free, free)


def test_the_documented_sizes_are_the_predicted_ones() -> None:
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    rows = re.findall(r"^\| Qwen2.5-Coder (\d+)B \| (.*) GB \|$", text, re.MULTILINE)
    assert {int(billions) for billions, _ in rows} == set(CODERS)
    for billions, cells in rows:
        sizes = [size_of(CODERS[int(billions)], dtype) for dtype in ("bf16", "int8", "int4")]
        needed = [one.weights + 4096 * one.token + one.overhead for one in sizes]
        assert cells.split(" GB | ") == [f"{one / GB:.1f}" for one in needed]


@pytest.mark.parametrize(("dtype", "other"), [("int8", "q8"), ("fp8", "q8"), ("int4", "q4")])
def test_a_card_s_formats_are_refused_without_one(
    tmp_path: Path, tiny: Any, dtype: str, other: str
) -> None:
    line = f"dtype {dtype} runs on CUDA only: choose {other} or bf16 on cpu"
    with pytest.raises(ValueError, match=line):
        choose_dtype(dtype, torch.device("cpu"), tmp_path)
    with pytest.raises(ValueError, match=line):
        load_model(tiny("llama"), Config(device="cpu", dtype=dtype))
    assert choose_dtype(dtype, torch.device("cuda"), tmp_path) == dtype


def test_an_unknown_dtype_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    known = "choose auto, f32, bf16, q8, q4, int8, fp8 or int4"
    with pytest.raises(ValueError, match=f"dtype 'int3': {known}"):
        choose_dtype("int3", torch.device("cuda"), tmp_path)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_predicted_sizes_equal_the_loaded_ones(tiny: Any, kind: str) -> None:
    target = load(tiny(kind))
    matrices = [
        one for one in load_file(tiny(kind) / "model.safetensors").values() if one.dim() > 1
    ]
    size = size_of(target.settings, "f32")
    model: Any = target.model
    assert size.weights == sum(one.nbytes for one in matrices) + model.phases.nbytes
    begin(target, [3, 4, 5])
    assert size.token * target.sequence.capacity == target.sequence.nbytes


def test_a_model_that_does_not_fit_is_an_error() -> None:
    size = size_of(CODER_7B, "bf16")
    with pytest.raises(UnsupportedModel) as caught:
        check_fits("coder-7b", size, 2048, "Some Card", 11 * GB, 12 * GB)
    line = str(caught.value)
    assert "\n" not in line
    for part in (
        "coder-7b needs 16.", "15.2 GB for weights", "0.1 GB for 2048 tokens", "to compute",
        "Some Card has 11.0 GB of 12.0 GB free", "smaller model", "--device cpu",
    ):  # fmt: skip
        assert part in line


def test_what_would_fit_is_named() -> None:
    """Of the dtypes and of the built-in models, and only what does."""
    whole, narrow = size_of(CODER_7B, "bf16"), size_of(CODER_7B, "int8")
    for free, fitting in (
        (11, "choose --dtype int8 (9.0 GB), a smaller model such as qwen2.5-coder-1.5b (4.4 GB)"),
        (8, "choose a smaller model such as qwen2.5-coder-1.5b (4.4 GB)"),
        (2.3, "choose a smaller model such as qwen2.5-coder-0.5b (2.1 GB)"),
        (0.5, "choose a smaller model, end what else uses the card"),
    ):
        with pytest.raises(UnsupportedModel) as caught:
            others = {"--dtype int8": narrow}
            check_fits("coder-7b", whole, 1024, "Some Card", int(free * GB), 12 * GB, others)
        assert fitting in str(caught.value) and "\n" not in str(caught.value)


def test_wider_passes_take_memory_for_their_logits() -> None:
    size = Size(10, 1, 500)
    assert with_rows(size, 1000, 1) == with_rows(size, 1000, 64) == size
    assert with_rows(size, 1000, 256) == Size(10, 1, 500 + 192 * 6 * 1000)


@given(st.integers(0, 100), st.integers(1, 9), st.integers(0, 50), st.integers(1, 40))
def test_the_check_accepts_exactly_what_fits(
    weights: int, token: int, overhead: int, tokens: int
) -> None:
    """Exactly the needed memory is enough, and one byte less is not."""
    size = Size(weights, token, overhead)
    need = weights + tokens * token + overhead
    check_fits("m", size, tokens, "card", need, need)
    with pytest.raises(UnsupportedModel):
        check_fits("m", size, tokens, "card", need - 1, need)
    assert capacity_left(size, tokens, need - weights) == tokens  # once the weights are loaded
    assert capacity_left(size, tokens, need - weights - 1) == max(1, tokens - 1)
    assert capacity_left(size, tokens, 0) == 1


def test_a_shorter_context_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert capacity_left(Size(0, 10, 0), 50, 10**6) == 50
    assert not caplog.records
    assert capacity_left(Size(0, 10, 0), 50, 300) == 30
    assert [one.message for one in caplog.records] == [
        "memory for 30 of 50 tokens is left on this card: longer prompts are refused"
    ]


@pytest.mark.parametrize(
    ("layers", "free", "expected"),
    [
        (28, [80], [28]),
        (28, [80, 80], [14, 14]),
        (5, [80, 80, 80], [2, 2, 1]),
        (28, [80, 40], [19, 9]),
        (80, [10, 20, 10], [20, 40, 20]),
        (3, [100, 1, 100], [1, 1, 1]),  # every listed device gets a layer
        (9, [0, 90], [1, 8]),
    ],
)
def test_layers_are_split_by_free_memory(layers: int, free: list[int], expected: list[int]) -> None:
    assert shares(layers, free) == expected


@given(st.lists(st.integers(0, 50), min_size=1, max_size=4), st.integers(0, 7))
def test_no_other_split_leaves_more_on_the_fullest_device(free: list[int], more: int) -> None:
    layers = len(free) + more

    def least(counts: Sequence[int]) -> float:
        return min(room / count for room, count in zip(free, counts, strict=True))

    counts = shares(layers, free)
    assert sum(counts) == layers and min(counts) >= 1
    every = itertools.product(range(1, more + 2), repeat=len(free))
    assert least(counts) == max(least(one) for one in every if sum(one) == layers)


def test_the_sizes_of_the_parts_add_up_to_the_model() -> None:
    for tied, dtype in itertools.product((False, True), ("bf16", "f32")):
        settings = CODER_7B | {"tie_word_embeddings": tied}
        one, layers = size_of(settings, dtype), range(28)
        parts = [size_of(settings, dtype, some) for some in (layers[:9], layers[9:10], layers[10:])]
        head = (
            152064 * 3584 * (2 if dtype == "bf16" else 4) if tied else 0
        )  # the last device has a copy
        assert sum(part.weights for part in parts) == one.weights + head
        assert sum(part.token for part in parts) == one.token
        assert parts[0].weights > 9 * parts[1].weights < parts[2].weights


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Free bytes of two fake GPUs, by number."""
    found: dict[int, int] = {}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda card: (found[card.index], 24 * GB))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda card: "Some Card")
    return found


CARDS = [torch.device("cuda", number) for number in range(2)]


@pytest.mark.parametrize("gb", [(10, 12), (12, 10), (11, 11), (6, 16), (16, 6), (24, 24)])
def test_no_placement_allows_a_longer_context(free: dict[int, int], gb: tuple[int, int]) -> None:
    free |= {0: gb[0] * GB, 1: gb[1] * GB}

    def room(first: int) -> float:
        """Bytes per layer for keys and values, on the GPU that has fewer."""
        parts = [size_of(CODER_7B, "bf16", some) for some in (range(first), range(first, 28))]
        left = [free[n] - one.weights - one.overhead for n, one in enumerate(parts)]
        return min(left[0] / first, left[1] / (28 - first))

    places, sizes = placed("coder", read_config(CODER_7B), "bf16", 0, CARDS)
    assert [card for card, _ in places] == CARDS and sum(count for _, count in places) == 28
    assert room(places[0][1]) == max(room(count) for count in range(1, 28))
    assert sizes[0] == size_of(CODER_7B, "bf16", range(places[0][1]))


def test_the_context_fits_every_gpu(free: dict[int, int], caplog: pytest.LogCaptureFixture) -> None:
    free |= {0: 10 * GB, 1: 12 * GB}
    _, sizes = placed("coder", read_config(CODER_7B), "bf16", 0, CARDS)
    for number, size in enumerate(sizes):
        assert size.weights + 1024 * size.token + size.overhead <= free[number]
        free[number] -= size.weights  # as after loading
    context, memory = capacity_on(CARDS, sizes, 1 << 20, 1 << 40)
    left = [free[number] - size.overhead for number, size in enumerate(sizes)]
    assert context == min(room // size.token for room, size in zip(left, sizes, strict=True))
    token = sum(size.token for size in sizes)  # cached sequences are split alike
    assert all(memory * size.token // token <= left[n] for n, size in enumerate(sizes))
    assert any((memory + token) * size.token // token > left[n] for n, size in enumerate(sizes))
    assert capacity_on(CARDS, sizes, 100, 1 << 10) == (100, 1 << 10)
    assert "is left on Some Card (cuda:" in caplog.text
    whole = min(room * token // size.token for room, size in zip(left, sizes, strict=True))
    assert capacity_on(CARDS, sizes, 100, 0) == (100, whole // 2)  # where no number is given
    free |= {0: 12 * GB, 1: 4 * GB}
    with pytest.raises(UnsupportedModel) as caught:
        placed("coder", read_config(CODER_7B), "bf16", 0, CARDS)
    line = str(caught.value)
    assert line.startswith("coder, layers ") and "Some Card (cuda:" in line and "\n" not in line


def test_the_sizes_in_other_dtypes_are_those_of_one_card(free: dict[int, int]) -> None:
    free |= {0: 11 * GB, 1: 11 * GB}
    line = r"choose --dtype int8 \(9\.\d GB\), --dtype fp8 \(9.*GB\), --dtype int4 \(6\.\d GB\), a"
    with pytest.raises(UnsupportedModel, match=line):
        placed("coder", read_config(CODER_7B), "bf16", 0, CARDS[:1])
    free |= {0: 8 * GB, 1: 1 * GB}
    for dtype in ("bf16", "int8", "fp8"):
        with pytest.raises(UnsupportedModel, match=r"choose --dtype int4 \(6\.\d GB\), a smaller"):
            placed("coder", read_config(CODER_7B), dtype, 0, CARDS[:1])
    free |= {0: 5 * GB}
    with pytest.raises(UnsupportedModel, match="choose a smaller model such as"):
        placed("coder", read_config(CODER_7B), "int4", 0, CARDS[:1])
    free |= {0: 11 * GB, 1: 1 * GB}
    with pytest.raises(UnsupportedModel, match="choose a smaller model"):  # int8 is not split
        placed("coder", read_config(CODER_7B), "bf16", 0, CARDS)
    free |= {0: 16 * GB}
    line = r"choose --dtype int8 \(9.*GB\), --dtype fp8 .*, --dtype int4 .*, a smaller"
    with pytest.raises(UnsupportedModel, match=line):
        placed("coder", read_config(CODER_7B), "f32", 0, CARDS[:1])


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_card_s_formats_are_not_split(dtype: str) -> None:
    line = f"{dtype} runs on one device: name one, or choose --dtype bf16"
    with pytest.raises(UnsupportedModel, match=line):
        refuse_several(2, CODER_7B, True, dtype, Config(device="cuda:0,cuda:1"))


def test_auto_takes_the_cpu_for_a_model_that_a_card_cannot_hold(
    tiny: Any, free: dict[int, int], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """And says why, with the sizes; a card that was named refuses."""
    list_cards(monkeypatch, free=10**8)
    folder = tiny("llama")
    loaded = load_model(folder, Config(device="auto", dtype="f32", threads=1))
    assert loaded.device.type == "cpu"
    (line,) = (one.getMessage() for one in caplog.records)
    assert "it does not fit the card, so it runs on the CPU" in line
    assert "Some Card has 0.1 GB of 24.0 GB free" in line
    with pytest.raises(UnsupportedModel, match=r"needs 0\.6 GB .* or take --device cpu"):
        load_model(folder, Config(device="cuda", dtype="f32", threads=1))


def test_only_out_of_memory_errors_are_translated() -> None:
    with pytest.raises(KeyError), out_of_memory_is_unsupported("some", []):
        raise KeyError("other")


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
def test_random_weights_have_a_model_s_names_and_shapes(
    tmp_path: Path, kind: str, tied: bool
) -> None:
    folder = tiny_model(tmp_path, kind)
    real = load_file(folder / "model.safetensors")
    settings = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": tied}
    (folder / "config.json").write_text(json.dumps(settings))
    for file in folder.iterdir():
        if file.name != "config.json":
            file.unlink()
    expected = {name: tuple(one.shape) for name, one in real.items()}
    if tied:
        del expected["lm_head.weight"]
    cpu = torch.device("cpu")
    noise = RandomWeights(settings, cpu, torch.float32, seed=1)
    assert noise.shapes == expected
    assert {name: tuple(noise[name].shape) for name in noise.shapes} == expected
    assert noise.get("model.norm.weight") is not None
    assert noise.get("no.such.weight") is None
    logits = []
    for weights in (noise, {name: noise[name] for name in noise.shapes}):
        for graphs in ("off", "static"):
            config = Config(device="cpu", dtype="f32", threads=2, graphs=graphs)
            target = TorchTarget(folder, config, weights=weights)
            begin(target, [5, 6, 7])
            logits.append(target.forward(7, Draft()).logits)
    assert logits[0].isfinite().all()
    assert logits[0].std() > 0
    assert all(torch.equal(one, logits[0]) for one in logits)
    other = RandomWeights(settings, cpu, torch.float32, seed=2)
    name = "model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(noise[name], other[name])
    assert not torch.equal(noise[name], noise["model.layers.1.mlp.up_proj.weight"])
