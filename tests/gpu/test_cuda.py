"""CUDA, where library kernels round differently by shape: texts may diverge only where the model's
two best logits nearly tie. How often they do is printed."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from engine.config import Config  # noqa: E402
from engine.model.torch.torch_target import TorchTarget  # noqa: E402
from engine.prompts.builder import Prompt  # noqa: E402
from engine.prompts.tokenizer import Tokenizer  # noqa: E402
from engine.records import Draft  # noqa: E402
from tests.support.drafters import drafters  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]
TIE = {"f32": 1e-3, "bf16": 0.25}  # gap of the two best logits below which a choice is a tie


@pytest.mark.parametrize("graphs", ["auto", "static", "off"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_texts_diverge_only_at_near_ties(tiny: Any, kind: str, dtype: str, graphs: Any) -> None:
    from tests.support.law import plain, run

    folder = tiny(kind)
    target = TorchTarget(folder, Config(device="cuda", dtype=dtype, graphs=graphs, exact=False))
    for _ in target.warm():
        pass
    tokenizer = Tokenizer(folder)
    tokenizer.eos = frozenset()
    flips = 0
    prompt = Prompt([7, 8, 9, 10], max_tokens=60)
    _, truth = plain(target, tokenizer, prompt)
    for name, drafter in drafters(truth, target.vocab).items():
        run(target, tokenizer, prompt, drafter)
        found = target.tokens[len(prompt.ids) :][:59]
        apart = next(
            (n for n, (a, b) in enumerate(zip(found, truth, strict=False)) if a != b), None
        )
        if apart is not None:
            flips += 1
            text = prompt.ids + truth[:apart]
            target.begin(text, 64)
            for _ in target.prefill(text, 64):
                pass
            two = target.forward(text[-1], Draft()).logits[0].topk(2).values
            assert float(two[0] - two[1]) < TIE[dtype], name
    tried = len(drafters(truth, target.vocab))
    print(f"{kind} {dtype} {graphs}: {flips} of {tried} texts diverge at a near tie")


def test_a_tree_is_kept_as_on_the_cpu(tiny: Any) -> None:
    """The next logits after `keep` agree with the CPU's."""
    folder = tiny("llama")
    logits = []
    for device in ("cpu", "cuda"):
        target = TorchTarget(folder, Config(device=device, dtype="f32"))
        prompt = list(range(5, 60))
        target.begin(prompt, 64)
        for _ in target.prefill(prompt, 64):
            pass
        draft = Draft()
        for token, parent in ((9, -1), (11, -1), (12, 1), (13, 1), (14, 2)):
            draft.add(token, parent, 0.5, "test")
        target.forward(prompt[-1], draft)
        target.keep([1, 2, 4])
        logits.append(target.forward(20, Draft()).logits.cpu())
    torch.testing.assert_close(logits[0], logits[1], rtol=1e-3, atol=1e-3)
