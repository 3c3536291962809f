"""Every family of models agrees with transformers and keeps the law, in torch's pass of Llama's
family and in the native pass of all others: tiny random models all of whose tensors matter."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.model.families import read_config
from engine.model.families.llama import BY_MODEL_TYPE, NEEDED
from engine.model.families.refusal import has_llama_pass, refuse
from engine.model.torch.hf_model import with_defaults
from engine.model.torch.llama import Llama
from engine.model.torch.tensor_model import TensorModel
from engine.model.torch.torch_target import TorchTarget
from engine.model.unsupported import UnsupportedModel
from engine.records import Draft
from engine.weights.config_json import check_config, text_part
from tests.conftest import byte_bpe, tiny_model
from tests.model.test_static_forward import static
from tests.model.test_target import (
    assert_nodes_have_the_bits_of_one_token_passes,
    begin,
    load,
    some_tokens,
    some_tree,
)
from tests.support import native_families

TRAINED = {"original_max_position_embeddings": 16, "rope_theta": 1e4}
YARN = {"rope_type": "yarn", "factor": 4.0, **TRAINED}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, **TRAINED}
BIASES = {"attention_bias": True, "mlp_bias": True}
GRANITE = {
    "embedding_multiplier": 12.0,
    "attention_multiplier": 1.5,
    "residual_multiplier": 0.22,
    "logits_scaling": 6.0,
}
MINISTRAL = {
    "head_dim": 16,
    "rope_parameters": YARN | {"llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0},
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "granite": ("granite", GRANITE),
    "granite-biases": ("granite", GRANITE | BIASES),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 0]}),
    "smollm3-biases": ("smollm3", {"no_rope_layer_interval": 2, **BIASES}),
    "llama-3": ("llama", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0, **LLAMA3}}),
    "llama-linear": ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 3.0}}),
    "llama-biases": ("llama", {"head_dim": 24, **BIASES}),
    "qwen2-yarn": ("qwen2", {"rope_parameters": YARN}),
    "qwen3-biases": ("qwen3", {"head_dim": 16, "attention_bias": True}),
    "mistral": ("mistral", {"head_dim": 24, "sliding_window": None}),
    "ministral3": ("ministral3", MINISTRAL),
    "mistral3": ("mistral3", MINISTRAL),
}
# Their law in the fast tests; the others' in all.
FAST = [
    ("granite", "q8"), ("granite", "bf16"), ("smollm3", "q8"), ("mistral3", "q8"),
    ("llama-3", "bf16"), ("llama-linear", "f32"), ("qwen2-yarn", "bf16"),
    *((name, "f32") for name in native_families.FAMILIES),
]  # fmt: skip
LAW = [
    case if case in FAST else pytest.param(*case, marks=pytest.mark.full)
    for names, dtypes in (
        (FAMILIES, ("f32", "bf16", "q8")), (native_families.FAMILIES, ("f32", "q8")),
    )
    for case in itertools.product(names, dtypes)
]  # fmt: skip


ABSENT = object()


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """family(name) -> the folder of a tiny random model, created once."""
    root = tmp_path_factory.mktemp("families")

    def make(name: str) -> Path:
        if name not in FAMILIES:
            there = (root / name).exists()
            return root / name if there else native_families.native_model(root / name, name)
        kind, changes = FAMILIES[name]
        if not (root / name).exists():
            maker = composite if kind == "mistral3" else tiny_model
            maker(root / name, kind, **changes)
        return root / name

    return make


def composite(folder: Path, kind: str, **changes: Any) -> None:
    """A tiny model of texts and images as Mistral publishes them."""
    from transformers import Mistral3Config, Mistral3ForConditionalGeneration

    folder.mkdir()
    text = {
        "model_type": "ministral3",
        "vocab_size": byte_bpe(folder),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        **changes,
    }
    vision = {
        "model_type": "pixtral",
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "head_dim": 8,
    }
    torch.manual_seed(0)
    config = Mistral3Config(text_config=text, vision_config=vision, tie_word_embeddings=False)
    model = Mistral3ForConditionalGeneration(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.copy_(torch.randn_like(weight) * 0.3)
    model.save_pretrained(folder)


def oracle(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    kind = json.loads((folder / "config.json").read_text())["model_type"]
    auto = AutoModelForImageTextToText if kind == "mistral3" else AutoModelForCausalLM
    return auto.from_pretrained(folder, dtype=torch.float32).eval()


def chain(tokens: list[int]) -> Draft:
    draft = Draft()
    for node, token in enumerate(tokens):
        draft.add(token, node - 1, 1.0, "test")
    return draft


def relative_errors(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """The distance of each row of logits, relative to the row's length. (A single small logit may
    be off by more: what f32 rounds differs between processors, and recurrent states amplify it.)"""
    return (ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)


@pytest.mark.parametrize("name", [*FAMILIES, *native_families.FAMILIES])
def test_logits_and_greedy_text_agree_with_transformers(family: Any, name: str) -> None:
    target = load(family(name), threads=1)
    assert isinstance(target.model, Llama if name in FAMILIES else TensorModel)
    assert target.exact
    tokens = some_tokens(40, target.vocab)
    begin(target, tokens[:31])
    logits = target.forward(tokens[30], chain(tokens[31:])).logits
    with torch.inference_mode():
        model = oracle(family(name))
        expected = model(input_ids=torch.tensor([tokens])).logits[0][30:]
        if name in FAMILIES:
            torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
        assert relative_errors(logits, expected).max() < 1e-4
        answer = model.generate(
            torch.tensor([tokens]), max_new_tokens=16, do_sample=False, eos_token_id=None
        )[0].tolist()
    begin(target, tokens)
    text = [*tokens]
    while len(text) < len(answer):
        text.append(int(target.forward(text[-1], Draft()).logits[0].argmax()))
        target.keep([])
    assert text == answer


@pytest.mark.parametrize("name", FAMILIES)
def test_8_bit_weights_give_nearly_the_same_logits(family: Any, name: str) -> None:
    """Nearer than those of a model without one of its scalars or its way of rotation."""
    wide, packed = load(family(name), threads=1), load(family(name), "q8", threads=1)
    tokens = some_tokens(40, wide.vocab)
    logits = []
    for target in (wide, packed):
        begin(target, tokens[:31])
        logits.append(target.forward(tokens[30], chain(tokens[31:])).logits)
    error = (logits[0] - logits[1]).norm() / logits[0].norm()
    assert error < 0.1, float(error)


@pytest.mark.parametrize(("name", "dtype"), LAW)
def test_nodes_of_a_tree_have_the_bits_of_one_token_passes(
    family: Any, name: str, dtype: str
) -> None:
    """And so has the cache after them, where there is one cache for all layers."""
    target = load(family(name), dtype, threads=1)
    assert target.exact
    prompt, draft = some_tokens(60, target.vocab), some_tree(24, target.vocab)
    assert_nodes_have_the_bits_of_one_token_passes(target, prompt, draft, 3)
    if name not in FAMILIES:
        return
    text = [*target.tokens, 5]
    kept = target.sequence.cache[0][..., : len(text) - 1, :].clone()
    target.pool.sequences.clear()
    assert begin(target, text) == 0
    assert torch.equal(target.sequence.cache[0][..., : len(text) - 1, :], kept)


def test_yarn_s_context_goes_beyond_the_trained_length(tmp_path: Path) -> None:
    """As far as its factor says, with the logits of transformers there."""
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    folder = tiny_model(tmp_path, "qwen2", context=64, rope_parameters=rope | {"rope_theta": 1e4})
    tokens = some_tokens(250, 200)
    with torch.inference_mode():
        expected = oracle(folder)(input_ids=torch.tensor([tokens])).logits[0][230:]
    for options in ({}, {"graphs": "static"}):
        target = load(folder, threads=1, **options)
        assert target.context == 256
        begin(target, tokens[:231])
        logits = target.forward(tokens[230], chain(tokens[231:])).logits
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    native = load(folder, "q8", threads=1)
    assert native.context == 256


STATIC = ["granite", "smollm3", "ministral3", "llama-3", "llama-linear", "qwen2-yarn"]


@pytest.mark.parametrize("name", STATIC)
def test_passes_of_static_shape_have_the_same_bits(family: Any, name: str) -> None:
    targets: list[TorchTarget] = [make(family(name), threads=1) for make in (static, load)]
    prompt = some_tokens(60, targets[0].vocab)
    draft = some_tree(20, targets[0].vocab)
    for target in targets:
        begin(target, prompt)
    ours, theirs = (target.forward(prompt[-1], draft).logits for target in targets)
    assert torch.equal(ours, theirs)


def test_the_context_ends_where_rotary_embeddings_change(tmp_path: Path) -> None:
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 64, **factors}
    changes = {"rope_parameters": rope, "original_max_position_embeddings": 64}
    target = load(tiny_model(tmp_path, "phi3", sliding_window=None, **changes), threads=1)
    assert target.exact
    assert target.context == 64


# Fields that every published config.json has.
STATED = (*NEEDED, "model_type", "num_key_value_heads", "rope_parameters")


@pytest.mark.parametrize("kind", sorted(BY_MODEL_TYPE))
def test_an_absent_field_means_what_transformers_takes_it_for(kind: str) -> None:
    """Published files leave out what is their class's default; Llama's family reads them as they
    are."""
    from transformers import CONFIG_MAPPING

    whole = CONFIG_MAPPING[kind]().to_dict()
    for name in sorted(whole.keys() - set(STATED)):
        settings = {other: value for other, value in whole.items() if other != name}
        assert read_config(settings) == read_config(with_defaults(Path(), settings)), name


def test_openai_s_own_config_json_is_read(family: Any) -> None:
    """It has the limit of gpt-oss's SwiGLU without its alpha, which older transformers have not
    either."""
    folder = family("gpt-oss")
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("swiglu_alpha", None)
    for block in (layer.experts for layer in read_config(settings).layers):
        assert block is not None
        assert (block.alpha, block.limit) == (1.702, settings["swiglu_limit"])
    settings.pop("swiglu_limit")
    (block,) = {layer.experts for layer in read_config(settings).layers}
    assert block is not None
    assert block.limit == 7.0


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("mistral", {"sliding_window": ABSENT}, "sliding window"),
        ("mistral3", {"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        (
            "granite",
            {"logits_scaling": 8.0, "quantization_config": {"quant_method": "fp8"}},
            "quantised by 'fp8'",
        ),
        ("llama", {"logits_scaling": 8.0}, "rescales"),
    ],
)
def test_families_that_cannot_run_are_refused_with_the_reason(
    kind: str, changes: dict[str, Any], reason: str
) -> None:
    from transformers import CONFIG_MAPPING

    settings = CONFIG_MAPPING[kind]().to_dict() | changes
    settings = {name: value for name, value in settings.items() if value is not ABSENT}
    check_config(Path("config.json"), settings)
    settings = text_part(settings)
    with pytest.raises(UnsupportedModel, match=reason) as caught:
        refuse(settings, has_llama_pass(settings))
    assert str(caught.value).startswith(f"{kind}: ")
    assert "\n" not in str(caught.value)
