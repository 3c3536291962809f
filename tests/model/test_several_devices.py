"""One model on several devices: each layer's weights, keys and values are on that layer's device,
and logits are bit-identical.

Two GPUs are not needed: `cpu,cpu` runs the same code to compare values, and torch's fake tensors,
which may be on any device, raise an error where an operation mixes devices.
"""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorDeviceMismatchError, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from engine import Config, Engine, Request
from engine.config import devices
from engine.drafting import NullDrafter
from engine.model.families import read_config
from engine.model.torch.llama import Llama
from engine.model.torch.placement import choose_device
from engine.model.torch.random_weights import RandomWeights
from engine.model.torch.torch_target import TorchTarget
from engine.model.unsupported import UnsupportedModel
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from research.methods.eagle import embed
from research.methods.sdsat import install_embeddings
from tests.conftest import tiny_model
from tests.model.test_target import begin, load, path_to, some_tokens, some_tree
from tests.support.drafters import drafters
from tests.support.law import SAMPLED, answer, plain, run
from tests.support.stub_card import list_cards

LAYERS = 5
SEVERAL = ("cpu,cpu", "cpu,cpu,cpu")
LLAMAS = [("llama", "f32"), ("llama", "bf16"), ("qwen2", "bf16"), ("qwen3", "f32")]


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """deep(kind) -> a model of LAYERS layers."""
    root = tmp_path_factory.mktemp("deep")
    made: dict[str, Path] = {}

    def make(kind: str = "llama") -> Path:
        if kind not in made:
            made[kind] = tiny_model(root / kind, kind, layers=LAYERS)
        return made[kind]

    return make


def on(folder: Path, device: str, dtype: str = "f32", **options: Any) -> TorchTarget:
    return TorchTarget(folder, Config(device=device, dtype=dtype, threads=1, **options))


def whole(target: TorchTarget) -> torch.Tensor:
    """Keys and values of all layers for the cached rows [2, layers, kv heads, rows, d]."""
    return torch.cat(target.sequence.cache, 1)[..., : len(target.tokens), :]


# -- the same bits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("device", SEVERAL)
@pytest.mark.parametrize(("kind", "dtype"), LLAMAS)
def test_several_devices_give_equal_bits(deep: Any, kind: str, dtype: str, device: str) -> None:
    """Logits, hidden states, caches after paths of trees, and a sequence that starts as a copy of a
    cached one."""
    one, many = on(deep(kind), "cpu", dtype), on(deep(kind), device, dtype)
    count = device.count("cpu")
    text = some_tokens(150, one.vocab)
    for target in (one, many):
        target.keeps_states = True
        begin(target, text)
    assert len(one.sequence.cache) == 1
    assert len(many.sequence.cache) == count
    for seed, size in enumerate((0, 1, 9, 40)):
        draft = some_tree(size, one.vocab, seed)
        path = path_to(draft, size - 1) if size else []
        results = []
        for target in (one, many):
            scores = target.forward(text[-1], draft, hidden=True)
            target.keep(path)
            states = target.sequence.states
            assert states is not None
            kept = states[: len(target.tokens)]
            results.append([scores.logits, scores.hidden, kept, whole(target)])
        text += [draft.tokens[node] for node in path] + [5]
        assert one.tokens == many.tokens == text[:-1]
        assert all(torch.equal(*pair) for pair in zip(*results, strict=True))
    for target in (one, many):
        assert begin(target, [*text[:60], 9, 9]) == 60  # copied from the cached sequence
        assert len(target.pool.sequences) == 2
    assert torch.equal(whole(one), whole(many))
    assert one.sequence.nbytes == many.sequence.nbytes
    assert one.sequence.capacity == many.sequence.capacity


@pytest.mark.parametrize(("kind", "sampled"), [("llama", False), ("qwen2", True)])
def test_no_drafter_changes_the_answer(deep: Any, kind: str, sampled: bool) -> None:
    one, many = on(deep(kind), "cpu"), on(deep(kind), "cpu,cpu,cpu")
    tokenizer = Tokenizer(deep(kind))
    tokenizer.eos = frozenset()
    options: dict[str, Any] = {"seed": 3, **(SAMPLED if sampled else {})}
    prompt = Prompt(some_tokens(30, one.vocab), max_tokens=30)
    expected, truth = plain(many, tokenizer, prompt, **options)
    assert answer(run(one, tokenizer, prompt, NullDrafter(), **options)[1]) == answer(expected)
    prompt.predictions = [truth[3:30]]
    for name, drafter in drafters(truth, many.vocab).items():
        _, done = run(many, tokenizer, prompt, drafter, **options)
        assert answer(done) == answer(expected), name


def test_speculation_does_not_change_answers_on_several_devices(deep: Any, home: Path) -> None:
    text = "def add(left, right):\n    return left + right\n"
    answers: dict[str, list[Any]] = {}
    for device in ("cpu", "cpu,cpu"):
        config = Config(model=str(deep()), device=device, dtype="bf16", threads=1, library=False)
        with Engine(config) as engine:
            for temperature in (0.0, 0.8):
                request = Request(
                    "edit", text * 3, path="a.py", instruction="rename add", seed=2,
                    temperature=temperature, max_tokens=40, predictions=(text,),
                )  # fmt: skip
                slow = engine.submit(request, speculation=False).result()
                for drafter in ("auto", "recycling"):
                    done = engine.submit(request, drafter=drafter).result()
                    assert done.reason == slow.reason and done.text == slow.text, drafter
                    assert done.usage.drafted, drafter
                answers.setdefault(device, []).append((slow.reason, slow.text))
    assert answers["cpu"] == answers["cpu,cpu"]


# -- placement on fake devices --------------------------------------------------------------------


class Moves(TorchDispatchMode):
    """Records operations that move data between devices, as (from, to)."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        flat = [one for one in (*args, *(kwargs or {}).values(), out) if torch.is_tensor(one)]
        places = [str(one.device) for one in flat if one.dim()]
        self.seen += [pair for pair in itertools.pairwise(places) if len(set(pair)) > 1]
        return out


def test_every_layer_is_placed_and_computed_on_its_device(deep: Any) -> None:
    """On fake devices: torch rejects operations that mix two of them."""
    target = on(deep(), "cpu,cpu,cpu")
    settings = target.settings | {"tie_word_embeddings": True}
    places = [(torch.device("meta", number), count) for number, count in enumerate((2, 1, 2))]
    placement = [device for device, count in places for _ in range(count)]
    with FakeTensorMode(), torch.inference_mode():
        with pytest.raises(FakeTensorDeviceMismatchError):
            torch.empty(2, device=placement[0]) + torch.empty(2, device=placement[-1])
        noise = RandomWeights(settings, torch.device("cpu"), torch.float32)
        noise.shapes.pop("lm_head.weight", None)
        config = read_config(settings)
        model: Any = Llama(config, noise, placement[-1], torch.float32, places=places)
        for layer, device in zip(model.blocks, placement, strict=True):
            products = (layer.qkv, layer.out, layer.mlp.gate_up, layer.mlp.down)
            for one in (layer.norm_in, layer.norm_mlp, *(each.weight for each in products)):
                assert one.device == device
        assert model.embedding.device == model.phases.device == placement[0]
        assert model.norm.device == model.head(torch.empty(1, 32, device=placement[-1])).device
        target.model, target.devices = model, [one for one, _ in places]
        text, draft = some_tokens(40, target.vocab), some_tree(9, target.vocab)
        target.keeps_states = True
        begin(target, text)
        cache = target.sequence.cache
        assert [(part.device, part.shape[1]) for part in cache] == places
        with Moves() as moves:
            scores = target.forward(text[-1], draft, hidden=True)
        assert scores.logits.device == scores.hidden.device == placement[-1]
        onward = [("meta:0", "meta:1"), ("meta:1", "meta:2")]
        layers = [move for move in moves.seen if "cpu" not in move]
        assert layers == [onward[0]] * 2 + [onward[1]] * 2  # the hidden state and the rotation
        sent = [there for here, there in moves.seen if here == "cpu"]
        assert sent == ["meta:0"] * 3 + [
            "meta:1",
            "meta:2",
        ]  # ids, positions; masks
        path = path_to(draft, 8)
        assert path != [*range(len(path))]
        with Moves() as moves:
            target.keep(path)
        assert {here for here, _ in moves.seen} == {"cpu"}  # row indices
        assert embed(target, [3, 4]).device == placement[-1]
        assert install_embeddings(target, torch.empty(1, 32)) == [target.vocab]
        assert model.embedding.device == placement[0]


# -- refused settings -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["auto", "cpu", "cuda", "mps", "cuda:1", "cuda:1,cuda:0", *SEVERAL]
)
def test_valid_devices(text: str) -> None:
    assert devices(text) == text.split(",")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("abacus", "device 'abacus': choose auto, cpu, cuda, mps, or several cards"),
        ("", "device '': choose"),
        ("cuda:0,", "device '': choose"),
        ("cuda:x", "device 'cuda:x': choose"),
        ("cuda:-1", "device 'cuda:-1': choose"),
        ("cuda:0,cpu", "split across numbered cards only"),
        ("cuda,cuda", "split across numbered cards only"),
        ("auto,cuda:1", "split across numbered cards only"),
        ("mps,mps", "split across numbered cards only"),
        ("cuda:1,cuda:0,cuda:01", "a card is named twice"),
    ],
)
def test_invalid_devices(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        devices(text)
    assert "\n" not in str(caught.value)


def test_a_missing_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    list_cards(monkeypatch)
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(UnsupportedModel, match="device cuda:2: the last card here is cuda:1"):
        choose_device("cuda:2")


@pytest.mark.parametrize(
    ("kind", "device", "options", "says"),
    [
        ("gpt2", "cpu,cpu", {}, "gpt2 runs on one device: name one, or choose a Llama or Qwen"),
        ("llama", "cpu,cpu,cpu", {}, "it has 2 layers: name 2 devices at most"),
        ("llama", "cpu,cpu", {"dtype": "q8"}, "q8 runs on one device: name one, or choose --dtype"),
        ("llama", "cpu,cpu", {"exact": True}, "--exact runs on one device: name one, or leave it"),
    ],
)
def test_features_of_one_device_are_refused_on_several(
    tiny: Any, kind: str, device: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(UnsupportedModel, match=says) as caught:
        on(tiny(kind), device, **{"dtype": "f32", **options})
    assert "\n" not in str(caught.value)


def test_cuda_graphs_are_off_on_several_devices_and_logged_once(tiny: Any, caplog: Any) -> None:
    caplog.set_level(logging.WARNING)
    target = load(tiny("llama"))
    assert not caplog.records
    target = on(tiny("llama"), "cpu,cpu", graphs="static")
    assert target.static is None
    assert [one.message for one in caplog.records] == [
        "cpu,cpu: passes are launched step by step, without CUDA graphs"
    ]
