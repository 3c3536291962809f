"""The weights that a pass reads, beside what the loaded products hold; and timing them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import weights
from engine.config import Config
from engine.model.speed import (
    ROWS,
    WEIGHT_BYTES,
    measured,
    read_bytes,
    storage_format,
    weight_bytes,
)
from engine.model.torch.cuda.weight_formats import FORMATS, head_format, matrix_bytes
from engine.model.torch.torch_target import TorchTarget
from tests.conftest import tiny_model
from tests.support.tiny_gguf import write_gguf


def held(target: TorchTarget) -> int:
    """Bytes of a model's products."""
    model: Any = target.model
    model = getattr(model, "native", model)
    products = [model._head]
    for block in model.blocks:
        attention = getattr(block, "mixer", block)
        products += [attention.qkv, attention.out, block.mlp.gate_up, block.mlp.down]
    return sum(one.nbytes for one in products)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "q8", "q4"])
def test_a_pass_reads_the_products_weights(dtype: str, tied: bool, tmp_path: Path) -> None:
    folder = tiny_model(
        tmp_path, tie_word_embeddings=tied, hidden_size=64, intermediate_size=128, layers=1
    )
    target = TorchTarget(folder, Config(model=str(folder), dtype=dtype))
    assert weight_bytes(target) == pytest.approx(held(target), rel=0.05)


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_card_s_formats_have_their_own_sizes(dtype: str) -> None:
    """But for the scales of 8-bit weights, which are few; the head's format is another in int4."""
    for name, narrow in (
        ("model.layers.0.q.weight", dtype),
        ("lm_head.weight", head_format(dtype)),
    ):
        size = WEIGHT_BYTES[storage_format(name, dtype)] * 1024 * 4096
        assert size == pytest.approx(matrix_bytes(narrow, 2, 1024, 4096), rel=0.001)


@pytest.mark.parametrize("head", ["own", "absent"])
def test_a_gguf_file_is_read_as_it_is_stored(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    write_gguf(tmp_path / "tiny.gguf", head=head)
    folder = weights.locate(str(tmp_path / "tiny.gguf"))
    target = TorchTarget(folder, Config(model=str(folder)))
    assert target.dtype_name == "stored"
    assert weight_bytes(target) == pytest.approx(held(target), rel=0.05)


def test_one_row_reads_its_experts_and_no_table_or_picture() -> None:
    sizes = {
        "model.embed_tokens.weight": 1000, "lm_head.weight": 100, "model.layers.0.q.weight": 10,
        "model.layers.0.mlp.experts.gate_proj.weight": 800, "vision_tower.a.weight": 10_000,
    }  # fmt: skip
    assert read_bytes(sizes, {"num_experts": 8, "num_experts_per_tok": 2}) == 310
    assert read_bytes(sizes, {"num_local_experts": 8, "num_experts_per_tok": 9}) == 910
    del sizes["lm_head.weight"]  # the table is the head
    assert read_bytes(sizes, {}) == 1810


def test_passes_are_timed_and_the_model_is_left_as_it_was(tiny: Any) -> None:
    target = TorchTarget(tiny(), Config(model="tiny"))
    target.begin([1, 2, 3], 8)
    sequences = [*target.pool.sequences]
    speed = measured(target)
    assert (*speed.seconds,) == ROWS and all(0 < one < 1e6 for one in speed.seconds.values())
    assert speed.tokens_per_second * speed.seconds[1] == pytest.approx(1)
    assert [*target.pool.sequences] == sequences and target.tokens == []


def test_a_context_without_room_is_refused(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, context=64)
    with pytest.raises(ValueError, match="context of 64 tokens is too short"):
        measured(TorchTarget(folder, Config(model="tiny")))
