"""Files in the form of Ollama's own converter are read as those of llama.cpp's: the same config,
the same tensors, and transformers' logits. What Ollama's sources leave open is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.model.families import read_metadata
from engine.model.families.gguf_tensors import GgufTensors
from engine.model.unsupported import UnsupportedModel
from engine.weights import WeightsError, locate
from engine.weights.gguf.chat_templates import GEMMA3 as GEMMA3_TEMPLATE
from engine.weights.gguf.chat_templates import GPT_OSS
from engine.weights.gguf.gguf_file import read_gguf
from engine.weights.gguf.ollama_form import llama_cpp_form, read_model
from engine.weights.gguf.sentencepiece import BYTE
from engine.weights.gguf.tokenizer import generation_config, tokenizer, tokenizer_config
from tests.model.test_families import MINISTRAL, chain
from tests.model.test_gguf_families import (
    GEMMA3,
    LOCAL,
    MODELS,
    ODD,
    PROMPT,
    ROPES,
    SLIDING,
    check,
    logits_of,
    random_model,
    refusal_of,
    settings_of,
)
from tests.model.test_target import begin, load
from tests.support import ollama_form as forms
from tests.support.gguf_of_model import write_gguf_of
from tests.support.ollama_form import Change, fields, renamed_tensors, tensors, together
from tests.support.tiny_gguf import SPECIAL, TEMPLATE, TOKENS

OTHERS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "gemma3-4b": (
        "gemma3_text",
        34,
        GEMMA3 | {"rope_parameters": ROPES | {SLIDING: LOCAL}, "rms_norm_eps": 1e-6},
    ),
    "mistral3": ("mistral", 2, {"head_dim": 24, "sliding_window": None}),
    "ministral3": ("ministral3", 2, MINISTRAL),
    "llama": ("llama", 2, {"head_dim": 8}),
}
FORMS: dict[str, Change] = {
    "gpt-oss": forms.GPT_OSS,
    "gemma3-4b": forms.GEMMA_3,
    "gemma3": forms.GEMMA_3_TEXT,
    "gemma4-26b-a4b": forms.GEMMA_4,
    "mistral3": forms.UNSCALED_MISTRAL_3,
    "ministral3": forms.MINISTRAL_3,
    "olmo3": forms.OLMO_3,
    "qwen3-next": together(forms.HYBRID, fields(norm_top_k_prob=True)),
    "qwen3.5": forms.QWEN_3_5,
    "qwen3.5-moe": together(forms.QWEN_3_5, fields(norm_top_k_prob=True)),
    "llama": forms.llama_head_dim,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """model(name) -> the folder of a tiny random model, created once."""
    root = tmp_path_factory.mktemp("models")

    def make(name: str) -> Path:
        if not (root / name).exists():
            random_model(root / name, *(MODELS | OTHERS)[name])
        return root / name

    return make


@pytest.mark.parametrize("name", FORMS)
def test_config_and_tensors_are_those_of_llama_cpps_file(
    model: Any, tmp_path: Path, name: str
) -> None:
    write_gguf_of(model(name), tmp_path / "plain.gguf")
    write_gguf_of(model(name), tmp_path / "ollama.gguf", change=FORMS[name])
    assert read_metadata(read_model(tmp_path / "ollama.gguf")) == read_metadata(
        read_gguf(tmp_path / "plain.gguf")
    )
    with (
        GgufTensors(tmp_path / "plain.gguf") as plain,
        GgufTensors(tmp_path / "ollama.gguf") as found,
    ):
        split = {one for one in plain.outputs if "experts.gate_up_proj" in one}
        assert plain.outputs.keys() - split <= found.outputs.keys()
        for one in plain.outputs.keys() - split:
            assert np.array_equal(plain.read(one).rows, found.read(one).rows), one


@pytest.mark.parametrize("name", FORMS)
def test_logits_are_those_of_transformers(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    write_gguf_of(model(name), tmp_path / "m.gguf", change=FORMS[name])
    target = load(locate(str(tmp_path / "m.gguf")), "auto", threads=1)
    begin(target, PROMPT[:31])
    logits = target.forward(PROMPT[30], chain(PROMPT[31:])).logits
    truth = logits_of(settings_of(model(name)), model(name))[30:]
    # transformers itself is that far from its own logits in f64.
    error = 3e-4 if name == "qwen3.5-moe" else 1e-4
    torch.testing.assert_close(logits, truth, rtol=error, atol=error)


REFUSALS: list[tuple[str, Change, str]] = [
    ("gpt-oss", tensors(blk__0__ffn_gate_up_exps__weight=(4, 96, 32)), "ffn_gate_up_exps"),
    ("gpt-oss", tensors(blk__0__attn_qkv__weight=(128, 32)), "'blk.0.attn_qkv.weight'"),
    ("gpt-oss", tensors(blk__0__attn_output__weight=(32, 64)), "'blk.0.attn_output.weight' under"),
    ("gpt-oss", tensors(v__blk__0__attn_q__weight=(8, 8)), "'v.blk.0.attn_q.weight'"),
    ("gpt-oss", fields(rope__scaling__original_context_length=0), "original_context_length' is 0"),
    ("gpt-oss", fields(expert_count=0), "'gpt-oss.expert_count' is 0"),
    ("gpt-oss", fields(expert_weights_scale=2.5), "gpt-oss.expert_weights_scale"),
    ("gemma3-4b", fields(block_count=33), "gemma3.rope.scaling.factor"),
    ("gemma3-4b", fields(rope__scaling__extrapolation_factor=1.0), "extrapolation_factor"),
    ("gemma3-4b", fields(rope__scaling__type="yarn"), "gemma3.rope.scaling.factor"),
    ("gemma3-4b", forms.tokenizer(token_type=[1]), "'tokenizer.ggml.token_type' 1"),
    ("gemma4-26b-a4b", forms.tokenizer(token_type=[1] * 999), "'tokenizer.ggml.token_type' 999"),
    ("gemma3", fields(rope__freq_base_swa=2e4), "'gemma3.rope.freq_base_swa'"),
    ("gemma3", tensors(dense__0__weight=(64, 32)), "'dense.0.weight'"),
    ("gemma3", fields(text__feed_forward_length=48), "gemma3.text.feed_forward_length"),
    ("gemma4-26b-a4b", tensors(rope_factors__weight=(8,)), "'rope_factors.weight'"),
    ("ministral3", fields(rope__scaling__mscale=0.7), "mistral3.rope.scaling.mscale"),
    ("ministral3", fields(rope__scaling__type=None), "without YaRN"),
    ("mistral3", fields(rope__scaling__factor=4.0), "rope scaling ''"),
    ("olmo3", fields(rope__scaling__attn_factor=-1.5), "attn_factor"),
    ("qwen3-next", fields(norm_top_k_prob=False), "qwen3next.norm_top_k_prob"),
    ("qwen3.5", fields(ssm__v_head_reordered=False), "qwen35.ssm.v_head_reordered"),
    ("qwen3.5", fields(rope__mrope_interleaved=False), "qwen35.rope.mrope_interleaved"),
    ("qwen3.5", fields(attention__head_count_kv=[0, 0, 1, 2]), "'qwen35.attention.head_count_kv'"),
    ("qwen3.5", renamed_tensors({"ssm_beta.weight": "ssm_ba.weight"}), "ssm_ba.weight"),
    ("llama", fields(attention__head_dim=4), "'llama.attention.key_length'"),
]


@pytest.mark.parametrize(("name", "change", "reason"), REFUSALS)
def test_what_is_not_certain_is_refused(
    model: Any, tmp_path: Path, name: str, change: Change, reason: str
) -> None:
    assert reason in refusal_of(model(name), tmp_path / "m.gguf", together(FORMS[name], change))


@pytest.mark.parametrize("name", FORMS)
def test_odd_metadata_are_read_or_refused(model: Any, tmp_path: Path, name: str) -> None:
    """Whatever stands in a field: no other error."""
    write_gguf_of(model(name), tmp_path / "m.gguf", change=FORMS[name])
    file = read_gguf(tmp_path / "m.gguf")
    start, read = file.text("general.architecture"), 0
    for key in [one for one in file.fields if one.startswith((f"{start}.", "tokenizer.ggml."))]:
        for value in ODD:
            try:
                found = llama_cpp_form(replace(file, fields=file.fields | {key: value}))
                settings = check(found)
            except (WeightsError, UnsupportedModel) as error:
                assert str(error).isprintable()
            else:
                read += 1
                json.dumps(settings, allow_nan=False)
    assert read


def test_llama_cpps_files_stay_as_they_are(model: Any, tmp_path: Path) -> None:
    for name in FORMS:
        write_gguf_of(model(name), tmp_path / "m.gguf")
        file = read_gguf(tmp_path / "m.gguf")
        assert llama_cpp_form(file) == file


# --- tokenizers ---------------------------------------------------------------------------------


def read(model: Any, tmp_path: Path, name: str, *changes: Change) -> Any:
    write_gguf_of(model(name), tmp_path / "m.gguf", change=together(FORMS[name], *changes))
    return read_model(tmp_path / "m.gguf")


def test_all_tokens_that_end_an_answer_are_read(model: Any, tmp_path: Path) -> None:
    file = read(model, tmp_path, "gpt-oss", forms.tokenizer(eos_token_ids=[5, 6]))
    assert {5, 6, file.fields["tokenizer.ggml.eos_token_id"]} <= {
        *generation_config(file)["eos_token_id"]
    }
    for bad in (-1, 1 << 30):
        file = read(model, tmp_path, "gpt-oss", forms.tokenizer(eos_token_ids=[bad]))
        assert bad not in generation_config(file)["eos_token_id"]


@pytest.mark.parametrize(
    ("name", "splits"), [("gpt-oss", "gpt-4o"), ("ministral3", "tekken"), ("mistral3", "tekken")]
)
def test_a_text_is_split_as_the_family_does(
    model: Any, tmp_path: Path, name: str, splits: str
) -> None:
    file = read(model, tmp_path, name)
    assert file.fields["tokenizer.ggml.pre"] == splits
    assert tokenizer_config(file)["model_max_length"] == 512


def test_gemma3s_marks_are_tokens_and_no_blank_comes_first(model: Any, tmp_path: Path) -> None:
    marks = ["<start_of_turn>", "<end_of_turn>"]
    names = [name for name, _ in SPECIAL]
    plain = forms.tokenizer(
        model="llama", tokens=[*TOKENS[:-2], *marks, *names],
        token_type=[1] * len(TOKENS) + [kind for _, kind in SPECIAL],
    )  # fmt: skip
    file = read(model, tmp_path, "gemma3", plain)
    made = tokenizer(file, len(TOKENS) + len(SPECIAL))
    assert {*marks} <= {one["content"] for one in made["added_tokens"] if one["special"]}
    assert "Prepend" not in json.dumps(made["normalizer"])
    end = len(TOKENS) - 1
    assert end in generation_config(file)["eos_token_id"]


def test_tokens_without_a_row_of_the_embedding_are_left_out(model: Any, tmp_path: Path) -> None:
    file = read(model, tmp_path, "gemma3-4b")
    assert len(file.fields["tokenizer.ggml.tokens"]) == len(TOKENS) + len(SPECIAL)
    assert "<image_soft_token>" not in json.dumps(tokenizer(file, len(TOKENS) + len(SPECIAL)))


def test_gemma4s_tokenizer_has_merges_and_bytes(model: Any, tmp_path: Path) -> None:
    tokens = [*TOKENS, *(name for name, _ in SPECIAL)]
    tokens[3] = "<0x0A>"
    kinds = [1] * len(TOKENS) + [kind for _, kind in SPECIAL]
    file = read(model, tmp_path, "gemma4-26b-a4b", forms.tokenizer(tokens=tokens, token_type=kinds))
    assert file.fields["tokenizer.ggml.model"] == "gemma4"
    assert file.fields["tokenizer.ggml.token_type"][3] == BYTE
    made = tokenizer(file, len(tokens))["model"]
    assert made["byte_fallback"] and made["merges"]


@pytest.mark.parametrize(("name", "template"), [("gpt-oss", GPT_OSS), ("gemma3", GEMMA3_TEMPLATE)])
def test_a_file_without_a_chat_template_gets_its_familys(
    model: Any, tmp_path: Path, name: str, template: str
) -> None:
    assert tokenizer_config(read(model, tmp_path, name))["chat_template"] == TEMPLATE
    found = tokenizer_config(read(model, tmp_path, name, forms.no_template))
    assert found["chat_template"] == template


def test_llama_3_is_known_by_its_marks(model: Any, tmp_path: Path) -> None:
    """Older files of it do not say how a text is split."""
    file = read(model, tmp_path, "llama")
    tokens = [f"{n}" for n in range(128010)]
    marks = {128006: "<|start_header_id|>", 128009: "<|eot_id|>"}
    llama_3 = [marks.get(n, one) for n, one in enumerate(tokens)]
    for pre in ("default", "qwen2"):
        for names, split in ((llama_3, "llama-bpe"), (tokens, pre), (tokens[:9], pre)):
            given = {"tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": names}
            found = llama_cpp_form(replace(file, fields=file.fields | given))
            assert found.fields["tokenizer.ggml.pre"] == (split if pre == "default" else pre)
