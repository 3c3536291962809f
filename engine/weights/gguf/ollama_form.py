"""GGUF files as Ollama's own converter writes them, in the form of llama.cpp's.

Ollama's library has files of both converters. Its own had other names for some fields and tensors,
left out values that its own runtime knew, and puts the parts that see and hear into the same file:
these are left unread. Only what its converter's history makes certain is translated; all else
stays as it is, for `engine.model.families` to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.weights.errors import WeightsError, shown
from engine.weights.gguf import chat_templates
from engine.weights.gguf.gguf_file import Gguf, Tensor, read_gguf
from engine.weights.gguf.sentencepiece import BYTE, CONTROL, NORMAL
from engine.weights.gguf.tokenizer import vocabulary_of

NO_MODELS = {  # values of general.type
    "adapter": "an adapter (LoRA)",
    "mmproj": "the part of a model that sees or hears",
    "imatrix": "a matrix of importances",
}
ARCHITECTURE, PRE, MODEL = "general.architecture", "tokenizer.ggml.pre", "tokenizer.ggml.model"
TEMPLATE = "tokenizer.chat_template"
TOKENS, KINDS = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
SEES_AND_HEARS = ("v.", "mm.", "a.")  # starts of names of tensors
GEMMA3_SCALED_LAYERS = (34, 48, 62)  # layers of 4B, 12B and 27B
GEMMA3_SCALE = 8.0  # factor of their rotary embedding
GEMMA3_GLOBAL, GEMMA3_LOCAL = (f"gemma3.rope.{layers}.freq_base" for layers in ("global", "local"))
GEMMA3_VALUES = {  # values of fields that may be absent
    "gemma3.attention.layer_norm_rms_epsilon": 1e-6,
    "gemma3.rope.freq_base": 1e6,
    "gemma3.rope.freq_base_swa": 1e4,
    "tokenizer.ggml.add_space_prefix": False,
    TEMPLATE: chat_templates.GEMMA3,
}
GEMMA3_MARKS = ("<start_of_turn>", "<end_of_turn>")  # plain tokens in older files
INVENTED_CAP = 30.0  # cap of logits in older files of text models, which have none
LLAMA3_MARKS = {128006: "<|start_header_id|>", 128009: "<|eot_id|>"}
LAYER = re.compile(r"blk\.\d+\.")
BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
MISTRAL3_SCALING = ("type", "factor", "yarn_beta_fast", "yarn_beta_slow")
NO_SCALING = ("", "default")  # types that mean no scaling

Fields = dict[str, Any]
Fix = Callable[[Gguf, Fields], None]


@dataclass(frozen=True)
class Form:
    """The differences of Ollama's files of one architecture.

    Fields are named without the architecture. `architecture`: llama.cpp's name of it. `fields`:
    llama.cpp's names of fields. `tensors`: llama.cpp's names of a layer's tensors. `unread`: starts
    of the names of fields that say nothing about a text; `unread_tensors`: the same for tensors.
    `implied`: fields that say what llama.cpp's form means without them, and their only value.
    `pre`: how the tokenizer splits a text, where the file has "default". `fix`: changes the fields
    further, once they have llama.cpp's names.
    """

    architecture: str
    fields: Mapping[str, str] = field(default_factory=dict)
    tensors: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    unread_tensors: tuple[str, ...] = ()
    implied: Mapping[str, Any] = field(default_factory=dict)
    pre: str = ""
    fix: Fix = lambda file, fields: None


def read_model(path: Path) -> Gguf:
    """Parse a GGUF file of either converter.

    WeightsError as of `read_gguf`, for what is no language model, and for fields and tensors of
    Ollama's form that contradict others.
    """
    file = read_gguf(path)
    kind = file.fields.get("general.type", "model")
    if file.fields.get(ARCHITECTURE) == "clip":
        kind = "mmproj"
    if isinstance(kind, str) and kind in NO_MODELS:
        raise WeightsError(f"{path}: {NO_MODELS[kind]}, no model: name the model's own file")
    if not file.tensors:
        raise WeightsError(f"{path}: it has a vocabulary only, no weights: choose a whole model")
    return llama_cpp_form(file)


def llama_cpp_form(file: Gguf) -> Gguf:
    """Translate a file to the form of llama.cpp's converter; keep one that has it."""
    name = file.text(ARCHITECTURE)
    form = FORMS.get(name)
    if form is None:
        return file
    fields = _fields(file, name, form)
    if form.pre and fields.get(PRE, "default") == "default":
        fields[PRE] = form.pre
    form.fix(file, fields)
    return replace(file, fields=fields, tensors=_tensors(file, form))


def _fields(file: Gguf, name: str, form: Form) -> Fields:
    """Name the fields as llama.cpp does, without those that nobody reads."""
    found: Fields = {}
    for key, value in file.fields.items():
        start, _, rest = key.partition(".")
        target = key
        if start == name:
            if rest.startswith(form.unread):
                continue
            if rest in form.implied:
                if value != form.implied[rest]:
                    raise file.unsupported(f"field {shown(key)} = {shown(value)}")
                continue
            target = f"{form.architecture}.{form.fields.get(rest, rest)}"
        if target in found and found[target] != value:
            raise file.unsupported(f"field {shown(key)} = {shown(value)}, unlike {shown(target)}")
        found[target] = value
    return found | {ARCHITECTURE: form.architecture}


def _tensors(file: Gguf, form: Form) -> dict[str, Tensor]:
    """Name the tensors as llama.cpp does, without those that nobody reads."""
    found: dict[str, Tensor] = {}
    for name, tensor in file.tensors.items():
        if name.startswith(form.unread_tensors):
            continue
        layer = LAYER.match(name)
        start = layer.group() if layer else ""
        rest = name.removeprefix(start)
        target = start + form.tensors.get(rest, rest)
        if target in found:
            raise file.unsupported(f"tensor {shown(target)} under two names")
        found[target] = tensor
    return found


# --- what differs in more than a name -----------------------------------------------------------


def _llama(file: Gguf, fields: Fields) -> None:
    """Say how a text is split, for files of Llama 3 that do not."""
    tokens = fields.get(TOKENS)
    if (
        isinstance(tokens, list)
        and fields.get(PRE, "default") == "default"
        and all(tokens[n : n + 1] == [mark] for n, mark in LLAMA3_MARKS.items())
    ):
        fields[PRE] = "llama-bpe"


def _gpt_oss(file: Gguf, fields: Fields) -> None:
    """Add the width of an expert, the scaling and the chat template.

    The file's one width is that of an expert, and its scaling is YaRN. It has no chat template.
    """
    width = fields.get("gpt-oss.feed_forward_length")
    fields.setdefault("gpt-oss.expert_feed_forward_length", width)
    fields.setdefault("gpt-oss.rope.scaling.type", "yarn")
    fields.setdefault(TEMPLATE, chat_templates.GPT_OSS)


def _gemma3(file: Gguf, fields: Fields) -> None:
    """Add values that the files lack, and drop a cap of logits that the models lack.

    Files of older text models have that cap. Tokens of images may be beyond the embedding.
    """
    sees = any(name.startswith(SEES_AND_HEARS) for name in file.tensors)
    if not sees and not file.fields.keys() & {GEMMA3_GLOBAL, GEMMA3_LOCAL}:
        return
    cap = "gemma3.final_logit_softcapping"
    kind, scale = "gemma3.rope.scaling.type", "gemma3.rope.scaling.factor"
    if GEMMA3_GLOBAL in file.fields and fields.get(cap) == INVENTED_CAP:
        del fields[cap]
    scaled = fields.get("gemma3.block_count") in GEMMA3_SCALED_LAYERS
    if scaled and not fields.keys() & {kind, scale}:
        fields |= {kind: "linear", scale: GEMMA3_SCALE}
    elif scale not in fields and sees:
        raise file.unsupported(f"no {shown(scale)}, and none known for its number of layers")
    for key, value in GEMMA3_VALUES.items():
        fields.setdefault(key, value)
    rows = file.shape("token_embd.weight")[0]
    fields |= _vocabulary(file, CONTROL, lambda token: token in GEMMA3_MARKS, rows)


def _gemma4(file: Gguf, fields: Fields) -> None:
    """Say that the tokenizer has merges, whatever its name says, and mark tokens of bytes."""
    if fields.get(MODEL) == "llama" and "tokenizer.ggml.merges" in fields:
        fields[MODEL] = "gemma4"
        fields |= _vocabulary(file, BYTE, lambda token: BYTE_TOKEN.fullmatch(token) is not None)


def _vocabulary(
    file: Gguf, kind: int, of_kind: Callable[[str], bool], most: int | None = None
) -> Fields:
    """Take at most so many tokens and their types.

    Plain tokens that are `of_kind` get the type `kind`.
    """
    tokens, kinds = vocabulary_of(file)
    pairs = list(zip(tokens, kinds, strict=True))[:most]
    return {
        TOKENS: tokens[:most],
        KINDS: [kind if one == NORMAL and of_kind(token) else one for token, one in pairs],
    }


def _mistral3(file: Gguf, fields: Fields) -> None:
    """Drop a scaling of no type, by 0, which files of models without scaling have."""
    kind, *numbers = (f"mistral3.rope.scaling.{name}" for name in MISTRAL3_SCALING)
    if fields.get(kind) in NO_SCALING and not any(fields.get(key) for key in numbers):
        for key in (kind, *numbers):
            fields.pop(key, None)


def _hybrid(name: str) -> Fix:
    """Make the fix of files of a model with layers of linear attention.

    Such layers may be those with no heads of keys and values, and the last of four sections, which
    is 0, may be missing.
    """
    heads, sections = f"{name}.attention.head_count_kv", f"{name}.rope.dimension_sections"
    linear = f"{name}.attention.recurrent_layers"

    def fix(file: Gguf, fields: Fields) -> None:
        counts, parts = fields.get(heads), fields.get(sections)
        if isinstance(counts, list) and all(type(count) is int for count in counts) and 0 in counts:
            fields[heads] = [count or max(counts) for count in counts]
            fields.setdefault(linear, [count == 0 for count in counts])
        if isinstance(parts, list) and len(parts) == 3:
            fields[sections] = [*parts, 0]

    return fix


def _gated_delta_net(name: str) -> Form:
    return Form(
        name,
        tensors={"ssm_dt": "ssm_dt.bias"},
        unread=("vision.", "vision_start_token_id", "vision_end_token_id", "image_token_id",
                "mrope_sections", "rope.mrope_section"),
        unread_tensors=(*SEES_AND_HEARS, "mtp."),
        implied={"norm_top_k_prob": True, "rope.mrope_interleaved": True}
        | ({} if name == "qwen3next" else {"ssm.v_head_reordered": True}),
        fix=_hybrid(name),
    )  # fmt: skip


FORMS = {  # Ollama's architecture -> form
    "gptoss": Form(
        "gpt-oss",
        tensors={
            "attn_out.weight": "attn_output.weight",
            "attn_out.bias": "attn_output.bias",
            "attn_sinks": "attn_sinks.weight",
            "ffn_norm.weight": "post_attention_norm.weight",
        },
        pre="gpt-4o",
        fix=_gpt_oss,
    ),
    "gemma3": Form(
        "gemma3",
        fields={
            "rope.global.freq_base": "rope.freq_base",
            "rope.local.freq_base": "rope.freq_base_swa",
        },
        unread=("vision.", "mm."),
        unread_tensors=SEES_AND_HEARS,
        fix=_gemma3,
    ),
    "gemma4": Form(
        "gemma4",
        tensors={"ffn_gate_inp.per_expert_scale": "ffn_down_exps.scale"},
        unread=("vision.", "audio.", "mm."),
        unread_tensors=(*SEES_AND_HEARS, "model.vision_tower."),
        fix=_gemma4,
    ),
    "mistral3": Form(
        "mistral3",
        fields={
            "rope.scaling.beta_fast": "rope.scaling.yarn_beta_fast",
            "rope.scaling.beta_slow": "rope.scaling.yarn_beta_slow",
            "rope.scaling.mscale_all_dim": "rope.scaling.yarn_log_multiplier",
            "rope.scaling_beta": "attention.temperature_scale",
        },
        unread=("vision.", "mm.", "image_token_index", "spatial_merge_size"),
        unread_tensors=SEES_AND_HEARS,
        implied={"rope.scaling.mscale": 1.0},
        pre="tekken",
        fix=_mistral3,
    ),
    "olmo3": Form("olmo2"),
    "llama": Form("llama", fields={"attention.head_dim": "attention.key_length"}, fix=_llama),
    **{name: _gated_delta_net(name) for name in ("qwen3next", "qwen35", "qwen35moe")},
}
