"""SpecDec++: unchanged answers with any head, its stopping rule, and mismatched heads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.drafting import NullDrafter
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from research.methods.head_checkpoint import CheckpointError, fingerprint
from research.methods.specdec import AcceptanceHead, specdec
from research.train.acceptance import untrained_head
from tests.support.heads import pair
from tests.support.law import SAMPLED, answer, run

PROMPT = Prompt([40, 41, 42, 43], max_tokens=40)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("specdec")


@pytest.fixture(scope="module")
def models(root: Path) -> tuple[TorchTarget, TorchTarget]:
    return pair(root)


@pytest.fixture(scope="module")
def endless(root: Path, models: tuple[TorchTarget, TorchTarget]) -> Tokenizer:
    tokenizer = Tokenizer(root / "model")
    tokenizer.eos = frozenset()
    return tokenizer


def head_of(kind: str, width: int = 32) -> AcceptanceHead:
    """Untrained heads, and degenerate ones that training would not produce."""
    head = untrained_head(width, 3, kind == "tied", 0)
    with torch.no_grad():
        if kind == "broken":
            head.out.weight.fill_(float("nan"))
        elif kind in ("sure", "doubtful"):
            head.out.weight.zero_()
            head.out.bias.copy_(torch.tensor([-9.0, 9.0] if kind == "sure" else [9.0, -9.0]))
    return head


@pytest.mark.parametrize("options", [{}, SAMPLED], ids=str)
@pytest.mark.parametrize("kind", ["untied", "tied", "sure", "doubtful", "broken"])
def test_no_head_changes_the_answer(
    models: tuple[TorchTarget, TorchTarget], endless: Tokenizer, kind: str, options: Any
) -> None:
    target, draft = models
    _, expected = run(target, endless, PROMPT, NullDrafter(), **options)
    steps, done = run(target, endless, PROMPT, specdec(draft, head_of(kind)), **options)
    assert answer(done) == answer(expected) and done.usage.drafted > 0
    drafted = [step.drafted for step in steps if step.prefill is None]
    if kind == "sure":
        assert drafted[0] == 20
    if kind == "doubtful":  # one token behind: the first's probability comes with the second
        assert set(drafted[:-3]) == {2}


def test_the_stopping_rule_by_hand(
    models: tuple[TorchTarget, TorchTarget], endless: Tokenizer
) -> None:
    """The first round, against the product of the head's probabilities for each token's own
    state."""
    target, draft = models
    head, threshold = head_of("untied"), 0.9
    steps, done = run(target, endless, PROMPT, specdec(draft, head, threshold, (1, 9)))
    text, at = [*PROMPT.ids, *endless.encode(done.text)], len(PROMPT.ids)
    assert len(text) > 20
    # the first round again, with only the draft model
    draft.begin(PROMPT.ids, 40)
    for _ in draft.prefill(PROMPT.ids, 40):
        pass
    from engine.records import Draft

    token, product, count = PROMPT.ids[-1], 1.0, 0
    while count < 9:
        scores = draft.forward(token, Draft(), hidden=True)
        draft.keep([])
        token, count = int(scores.logits[0].argmax()), count + 1
        if count > 1:
            product *= float(head.accepted(scores.hidden)[0])
        if 1 - product > threshold:
            break
    first = next(step for step in steps if step.prefill is None)
    assert first.drafted == count > 1 and at == 4


def test_tied_heads_have_one_block() -> None:
    tied, untied = untrained_head(8, 3, True, 0), untrained_head(8, 3, False, 0)
    assert len(tied.blocks) == 1 and len(untied.blocks) == 3
    x = torch.randn(5, 8)
    block = tied.blocks[0]
    y = x
    for _ in range(3):
        y = y + torch.nn.functional.silu(y @ block.weight.T + block.bias)  # type: ignore[operator]
    expected = torch.nn.functional.linear(y, tied.out.weight, tied.out.bias)
    assert torch.allclose(tied(x), expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["untied", "tied"])
def test_heads_are_saved_and_loaded(root: Path, tmp_path: Path, kind: str, models: Any) -> None:
    head = head_of(kind)
    head.save(tmp_path / "head", root / "other")
    loaded = AcceptanceHead.load(tmp_path / "head", root / "other", 32)
    states = torch.randn(9, 32)
    assert torch.equal(loaded.accepted(states), head.accepted(states))
    assert sorted(path.name for path in (tmp_path / "head").iterdir()) == [
        "config.json", "model.safetensors",
    ]  # fmt: skip


def test_published_heads_can_be_loaded(root: Path, tmp_path: Path, models: Any) -> None:
    """Their config has only two entries, and all their blocks are the same."""
    head = head_of("tied")
    head.save(tmp_path, root / "other")
    weights = load_file(tmp_path / "model.safetensors")
    assert set(weights) == {
        "model.0.linear.weight", "model.0.linear.bias", "model.3.weight", "model.3.bias"
    }  # fmt: skip
    for n in (1, 2):
        for part in ("weight", "bias"):
            weights[f"model.{n}.linear.{part}"] = weights[f"model.0.linear.{part}"].clone()
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"hidden_size": 32, "num_layers": 3}')
    states = torch.randn(9, 32)
    loaded = AcceptanceHead.load(tmp_path, root / "other", 32)
    assert torch.equal(loaded.accepted(states), head.accepted(states))


def test_mismatched_heads_raise_one_line_errors(root: Path, tmp_path: Path, models: Any) -> None:
    good = tmp_path / "good"
    head_of("untied").save(good, root / "other")

    def load_error(folder: Path, model: Path = root / "other", width: int = 32) -> str:
        with pytest.raises(CheckpointError) as caught:
            AcceptanceHead.load(folder, model, width)
        line = str(caught.value)
        assert str(folder) in line and "\n" not in line
        return line

    assert "contains no config.json: give the folder of a trained acceptance head" in load_error(
        tmp_path / "none"
    )
    line = load_error(good, root / "model")
    assert "trained for other, not for model" in line and "train one for model" in line
    assert "trained for hidden size 32, other has 64" in load_error(good, width=64)

    def changed(name: str, **values: Any) -> Path:
        folder = tmp_path / name
        shutil.copytree(good, folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | values))
        return folder

    assert "'eagle head', expected 'acceptance head'" in load_error(
        changed("kind", kind="eagle head")
    )
    assert "not an acceptance head" in load_error(changed("layers", num_layers=7))
    assert "lacks hidden_size, num_layers" in load_error(changed("words", num_layers="3"))
    assert "do not match" in load_error(changed("sum", crc32="00000000"))
    cut = changed("cut")
    data = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(data[:100])
    assert "cannot be read" in load_error(cut)
    (cut / "config.json").write_text("{")
    assert "cannot be read" in load_error(cut)
    (cut / "config.json").write_text("[]")
    (cut / "model.safetensors").write_bytes(data)
    assert "config.json is not a JSON object" in load_error(cut)
    (cut / "config.json").write_text("{}")
    assert "config.json lacks hidden_size, num_layers" in load_error(cut)
    head_of("broken").save(tmp_path / "broken", root / "other")
    assert "weights are not finite" in load_error(tmp_path / "broken")


def test_fingerprints_tell_models_apart(root: Path, tmp_path: Path, models: Any) -> None:
    assert fingerprint(root / "model") != fingerprint(root / "other")
    shutil.copytree(root / "model", tmp_path / "elsewhere")
    assert fingerprint(tmp_path / "elsewhere") == fingerprint(root / "model")
