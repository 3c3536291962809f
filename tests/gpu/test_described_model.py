"""Described models on a CUDA card agree with the CPU's native forward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from engine.config import Config  # noqa: E402
from engine.model.torch.cuda.described_model import DescribedModel  # noqa: E402
from engine.model.torch.cuda.static_pass import BUCKETS, DESCRIBED_ROWS  # noqa: E402
from engine.model.torch.torch_target import TorchTarget  # noqa: E402
from tests.model.test_described_model import NAMES, family  # noqa: E402
from tests.model.test_target import begin, path_to, some_tokens, some_tree  # noqa: E402

__all__ = ["family"]  # a fixture
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


def on(device: str, folder: Path, **options: Any) -> TorchTarget:
    return TorchTarget(folder, Config(device=device, threads=2, **options))


@pytest.mark.parametrize("graphs", ["auto", "off"])
@pytest.mark.parametrize("name", NAMES)
def test_logits_agree_with_the_cpu(family: Any, name: str, graphs: str) -> None:
    """After a prompt, for few rows and many, and after a path; graphs are captured before."""
    targets = [
        on("cuda", family(name), dtype="f32", graphs=graphs),
        on("cpu", family(name), dtype="f32"),
    ]
    assert isinstance(targets[0].model, DescribedModel)
    for _ in targets[0].warm():
        pass
    if graphs == "auto":
        captured: Any = targets[0].static.graphs  # type: ignore[union-attr]
        assert captured.on, "compiling or a capture failed: the log says which"
        assert sorted(captured.captured) == [size for size in BUCKETS if size <= DESCRIBED_ROWS]
    text = some_tokens(150, targets[0].vocab)
    for target in targets:
        begin(target, text)
    for size in (0, 1, 5, 20, 63, 0):
        draft = some_tree(size, targets[0].vocab, size)
        ours, theirs = (one.forward(text[-1], draft).logits.cpu() for one in targets)
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
        path = path_to(draft, size - 1) if size else []
        for target in targets:
            target.keep(path)
        text += [draft.tokens[node] for node in path] + [5]


@pytest.mark.parametrize("name", NAMES)
def test_bf16_gives_nearly_the_same_logits(family: Any, name: str) -> None:
    logits = []
    for dtype in ("bf16", "f32"):
        target = on("cuda", family(name), dtype=dtype)
        for _ in target.warm():
            pass
        text = some_tokens(100, target.vocab)
        begin(target, text)
        logits.append(target.forward(text[-1], some_tree(20, target.vocab)).logits)
    error = (logits[0] - logits[1]).norm() / logits[1].norm()
    assert error < 0.2, float(error)
