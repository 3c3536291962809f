"""Every causal language model of transformers runs as transformers' own does and keeps the law, or
is refused in one line that says why: tiny random models of all model types."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.drafting import NullDrafter
from engine.model.torch.torch_target import TorchTarget
from engine.model.unsupported import UnsupportedModel
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.weights import WeightsError
from tests.model.test_target import (
    assert_nodes_have_the_bits_of_one_token_passes,
    load,
    some_tokens,
    some_tree,
)
from tests.support import law
from tests.support.drafters import drafters
from tests.support.law import answer, run
from tests.support.tiny_families import save_config, tiny_family

endless = law.endless  # a fixture

TOKENS = 64
FAMILIES = """
    apertus arcee bitnet cohere_compass_text ctrl dots1 ernie4_5 ernie4_5_moe flex_olmo gemma
    gemma3 gemma3_text gemma4 gemma4_text glm glm4 glm4_moe gpt-sw3 gpt2 gpt_bigcode gpt_neox
    gpt_oss granite granitemoe granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe hy_v3
    hyperclovax internlm3 iquestcoder jais2 laguna llama mellum minimax_m2 minimax_m3_vl_text
    ministral3 mistral mixtral nemotron olmo olmo2 olmo3 olmoe opt persimmon phi phi3 phimoe
    qwen2 qwen2_moe qwen3 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next
    seed_oss smollm3 solar_open starcoder2
"""
RUNS = FAMILIES.split()
# Refused by config.json and the class, before weights are read: a reason, and the model types.
REFUSED = {
    "layers with a sliding window": """
        afmoe beam cohere2 cohere2_moe cwm exaone4 exaone_moe flint gemma2 gemma3n_text
        gemma4_unified_text gpt_neo granite_swa granitemoe_swa kolibri1
        llama4_text mimo_v2_flash ministral modernbert-decoder vaultgemma""",
    "layers with recurrent state": """
        bamba falcon_h1 falcon_mamba granitemoehybrid inkling2_text inkling_text jamba lfm2 lfm2_moe
        lfm3 mamba mamba2 minimax nemotron_h olmo_hybrid qwen4_exp_text
        recurrent_gemma rwkv xlstm zamba zamba2 zaya""",
    "MLA": """
        axk1 axk2 bailing_hybrid deepseek_v2 deepseek_v3 deepseek_v32 dots3_note_text glm4_moe_lite
        glm_moe_dsa hy_v4 kimi_linear longcat_flash minicpm3 youtu""",
    "layers of type 'compressed_sparse_attention'": "deepseek_v4",
    "encoder-decoder": """
        bart bigbird_pegasus blenderbot blenderbot-small marian mbart musicgen musicgen_melody mvp
        pegasus plbart prophetnet whisper""",
    "masked language model": """
        bert big_bird camembert data2vec-text electra ernie megatron-bert rembert roberta
        roberta-prelayernorm roc_bert roformer xlm-roberta xlm-roberta-xl xmod""",
    "composite": """
        dots3_note emu3 fuyu gemma3n gemma4_assistant gemma4_unified
        gemma4_unified_assistant got_ocr2 llama4 mllama moss_transcribe_diarize qwen4_exp""",
    "a model of images": "git",
    "a model of audio": "moshi phi4_multimodal",
    "attention cannot be replaced": """
        biogpt bloom blt codegen cpmant falcon gpt_neox_japanese gptj mpt openai-gpt reformer
        stablelm trocr xglm xlm xlnet""",
    "rescales logits": "cohere",
    "caps logits": "nanochat",
    "drops keys": "doge",
}
REASONS = {kind: reason for reason, kinds in REFUSED.items() for kind in kinds.split()}
# Refused by a few tokens at load.
CHECKED = {
    "aria_text": "depends on the number of tokens",
    "dbrx": "depends on the number of tokens",
    "bert-generation": "logits differ",
    "diffllama": "logits differ",
    "jetmoe": "logits differ",
    "hrm_text": "does not run here",
}
# Norms of their own, learned positions, experts.
FAST = ("gemma", "opt", "qwen2_moe")
SOME = ("nothing", "right", "trees", "next token", "recycling")  # drafters, in the fast tests


def kinds_of_transformers() -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def refusal(folder: Path, error: type[Exception] = UnsupportedModel) -> str:
    """The one line with which a folder is refused."""
    with pytest.raises(error) as caught:
        load(folder, threads=1)
    said = str(caught.value)
    assert said.isprintable() and len(said) < 600
    return said


def test_every_model_type_either_runs_or_is_refused() -> None:
    assert sorted([*RUNS, *REASONS, *CHECKED]) == sorted(kinds_of_transformers())


@pytest.mark.parametrize("kind", REASONS)
def test_what_cannot_run_is_refused_before_weights_are_read(tmp_path: Path, kind: str) -> None:
    """There are none in the folder."""
    save_config(tmp_path, kind)
    said = refusal(tmp_path)
    assert REASONS[kind] in said and said.startswith(f"{kind}: ")
    assert "choose" in said


@pytest.mark.parametrize("kind", CHECKED)
def test_what_would_change_answers_is_refused_at_load(tmp_path: Path, kind: str) -> None:
    said = refusal(tiny_family(tmp_path, kind))
    assert CHECKED[kind] in said and said.startswith(f"{kind}: ")
    assert "choose" in said


def assert_runs(folder: Path, kind: str, tokenizer: Tokenizer, names: tuple[str, ...] = ()) -> None:
    """Greedy text of `TOKENS` tokens equals that of transformers; the nodes of a tree have the bits
    of one-token passes; and drafters (`names`, or all) change no text."""
    target = load(tiny_family(folder, kind), threads=1)
    assert target.exact
    ids = some_tokens(20, target.vocab)
    assert_is_the_text_of_transformers(target, tokenizer, ids)
    draft = some_tree(24, target.vocab)
    assert_nodes_have_the_bits_of_one_token_passes(target, ids, draft, 3)
    prompt = Prompt(ids, max_tokens=TOKENS)
    _, expected = run(target, tokenizer, prompt, NullDrafter())
    truth = target.tokens[len(ids) :]
    prompt.predictions = [truth[5:40]]
    for name, drafter in drafters(truth, target.vocab).items():
        if not names or name in names:
            _, done = run(target, tokenizer, prompt, drafter)
            assert answer(done) == answer(expected), name


def assert_is_the_text_of_transformers(
    target: TorchTarget, tokenizer: Tokenizer, ids: list[int]
) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(target.folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        text = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
            max_new_tokens=TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0,
        )[0].tolist()  # fmt: skip
    run(target, tokenizer, Prompt(ids, max_tokens=TOKENS + 1), NullDrafter())
    assert target.tokens[: len(text)] == text


@pytest.mark.parametrize("kind", FAST)
def test_what_runs_keeps_the_law(tmp_path: Path, endless: Tokenizer, kind: str) -> None:
    assert_runs(tmp_path, kind, endless, SOME)


@pytest.mark.full
@pytest.mark.parametrize("kind", RUNS)
def test_whatever_runs_keeps_the_law_with_every_drafter(
    tmp_path: Path, endless: Tokenizer, kind: str
) -> None:
    assert_runs(tmp_path, kind, endless)


def with_settings(folder: Path, **changes: Any) -> Path:
    """A folder with Llama's tiny config.json and these fields."""
    save_config(folder, "llama")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


@pytest.mark.parametrize(
    "method", ["gptq", "awq", "bitsandbytes", "fp8", "compressed-tensors", "mxfp4", "\x1b[2J" * 99]
)
def test_quantised_weights_are_refused_by_the_name_of_their_method(
    tmp_path: Path, method: str
) -> None:
    said = refusal(with_settings(tmp_path, quantization_config={"quant_method": method, "bits": 4}))
    assert ascii(method[:4])[1:-1] in said
    assert "bf16 version, or a GGUF file" in said


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("t5", "encoder-decoder"),
        ("wav2vec2", "audio"),
        ("speech_to_text", "audio|encoder-decoder"),
        ("vit", "images"),
        ("llava_next", "images and text"),
        ("distilbert", "masked language model"),
        ("clip", "not a language model|images"),
        ("my_own_model", "unknown to this version of transformers"),
        ("\x1b[2J\n", "unknown to this version of transformers"),
    ],
)
def test_other_models_are_named_as_what_they_are(tmp_path: Path, kind: str, reason: str) -> None:
    said = refusal(
        with_settings(tmp_path, model_type=kind, auto_map={"AutoModelForCausalLM": "model.My"})
    )
    assert re.search(reason, said) and "choose" in said
    assert not (tmp_path / "model.py").exists()


def test_sizes_for_each_layer_are_no_damage(tmp_path: Path) -> None:
    """Gemma 3n has such, Llama does not."""
    said = refusal(with_settings(tmp_path, intermediate_size=[48, -1]), WeightsError)
    assert "intermediate_size" in said
    save_config(tmp_path, "gemma3n_text")
    assert isinstance(json.loads((tmp_path / "config.json").read_text())["intermediate_size"], list)
    assert "sliding window" in refusal(tmp_path)
