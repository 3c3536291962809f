"""GGUF files as Ollama's own converter writes them: changes of a writer that holds a model in the
form of llama.cpp's. `write_gguf_of` makes them before it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gguf
import numpy as np

from tests.support.tiny_gguf import CONTROL, MERGES, SPECIAL, TOKENS

Change = Callable[[Any], None]
ADDS = {bool: "bool", int: "uint32", float: "float32", str: "string", list: "array"}
KINDS = "tokenizer.ggml.token_type"


def together(*changes: Change) -> Change:
    def change(writer: Any) -> None:
        for one in changes:
            one(writer)

    return change


def fields(**values: Any) -> Change:
    """Fields by their names without the architecture's, with _ for the dots; None removes one."""

    def change(writer: Any) -> None:
        for name, value in values.items():
            set_field(writer, f"{writer.arch}.{name.replace('__', '.')}", value)

    return change


def set_field(writer: Any, key: str, value: Any) -> None:
    writer.kv_data[0].pop(key, None)
    if value == "":  # which `add_string` leaves out
        writer.add_key_value(key, value, gguf.GGUFValueType.STRING)
    elif value is not None:
        getattr(writer, f"add_{ADDS[type(value)]}")(key, value)


def value_of(writer: Any, name: str) -> Any:
    """The value of a field, by its name without the architecture's."""
    return writer.kv_data[0][f"{writer.arch}.{name}"].value


def renamed(**names: str) -> Change:
    """The same fields by other names."""

    def change(writer: Any) -> None:
        for name, other in names.items():
            value = value_of(writer, name := name.replace("__", "."))
            fields(**{name: None, other: value})(writer)

    return change


def tensors(**shapes: tuple[int, ...]) -> Change:
    """More tensors, with __ for the dots in their names."""

    def change(writer: Any) -> None:
        for name, shape in shapes.items():
            writer.add_tensor(name.replace("__", "."), np.ones(shape, np.float32))

    return change


def renamed_tensors(names: dict[str, str]) -> Change:
    """The same tensors of layers by other names."""

    def change(writer: Any) -> None:
        for name, one in list(writer.tensors[0].items()):
            start, _, rest = name.partition(".")
            layer, _, rest = rest.partition(".")
            if start == "blk" and rest in names:
                del writer.tensors[0][name]
                writer.tensors[0][f"blk.{layer}.{names[rest]}"] = one

    return change


def architecture(name: str) -> Change:
    """Another name of the architecture, in all fields."""

    def change(writer: Any) -> None:
        old, data = writer.arch, writer.kv_data[0]
        set_field(writer, "general.architecture", name)
        for key in [one for one in data if one.startswith(f"{old}.")]:
            data[name + key.removeprefix(old)] = data.pop(key)
        writer.arch = name

    return change


def tokenizer(**values: Any) -> Change:
    def change(writer: Any) -> None:
        for name, value in values.items():
            set_field(writer, f"tokenizer.ggml.{name}", value)

    return change


def no_template(writer: Any) -> None:
    set_field(writer, "tokenizer.chat_template", None)


VISION = together(
    fields(vision__block_count=1, vision__image_size=896, vision__attention__head_count=2),
    tensors(
        v__blk__0__attn_q__weight=(8, 8),
        v__patch_embedding__weight=(8, 3, 2, 2),
        mm__input_projection__weight=(8, 32),
    ),
)


def _tokens_of_images(writer: Any) -> None:
    """One more token than the embedding has rows."""
    tokenizer(
        tokens=[*TOKENS, *(name for name, _ in SPECIAL), "<image_soft_token>"],
        token_type=[1] * len(TOKENS) + [kind for _, kind in SPECIAL] + [CONTROL],
    )(writer)


def _scalar_heads_by_layer(writer: Any) -> None:
    """Heads of keys and values by layer, and none in those of linear attention."""
    linear, heads = value_of(writer, "attention.recurrent_layers"), "attention.head_count_kv"
    count = value_of(writer, heads)
    fields(
        attention__recurrent_layers=None,
        attention__head_count_kv=[0 if one else count for one in linear],
    )(writer)


def _first_three_sections(writer: Any) -> None:
    sections = value_of(writer, "rope.dimension_sections")[:3]
    fields(
        rope__dimension_sections=sections, mrope_sections=sections, rope__mrope_section=sections
    )(writer)


def _split_gate_and_up(writer: Any) -> None:
    """The experts' gate and up apart."""
    for name in [one for one in writer.tensors[0] if "gate_up_exps" in one]:
        gate, up = np.split(writer.tensors[0].pop(name).tensor, 2, axis=1)
        for half, values in (("gate", gate), ("up", up)):
            writer.add_tensor(name.replace("gate_up", half), np.ascontiguousarray(values))


HYBRID = together(renamed_tensors({"ssm_dt.bias": "ssm_dt"}), _scalar_heads_by_layer)
QWEN_3_5 = together(
    HYBRID,
    _first_three_sections,
    VISION,
    fields(
        ssm__v_head_reordered=True,
        rope__mrope_interleaved=True,
        image_token_id=7,
        vision_start_token_id=8,
        vision_end_token_id=9,
        vision__deepstack_visual_indexes=[1, 2],
    ),
    tensors(mtp__layers__0__attn_q__weight=(8, 8), mtp__fc__weight=(8, 8)),
)
GPT_OSS = together(
    architecture("gptoss"),
    fields(rope__scaling__type=None, expert_feed_forward_length=None),
    renamed_tensors({
        "attn_output.weight": "attn_out.weight",
        "attn_output.bias": "attn_out.bias",
        "attn_sinks.weight": "attn_sinks",
        "post_attention_norm.weight": "ffn_norm.weight",
    }),
    tokenizer(pre="default", eos_token_ids=[256, 257]),
)  # fmt: skip
GEMMA_3 = together(
    VISION,
    _tokens_of_images,
    fields(
        mm__tokens_per_image=256,
        attention__layer_norm_rms_epsilon=None,
        rope__freq_base=None,
        rope__freq_base_swa=None,
        rope__scaling__type=None,
        rope__scaling__factor=None,
    ),
)
GEMMA_3_TEXT = together(
    renamed(
        rope__freq_base="rope__global__freq_base", rope__freq_base_swa="rope__local__freq_base"
    ),
    fields(final_logit_softcapping=30.0),
)
GEMMA_4 = together(
    VISION,
    _split_gate_and_up,
    renamed_tensors({"ffn_down_exps.scale": "ffn_gate_inp.per_expert_scale"}),
    fields(audio__block_count=1, audio__conv_kernel_size=5, vision__projector__scale_factor=3),
    tensors(a__blk__0__attn_q__weight=(8, 8), v__clamp_data=(32,)),
    tokenizer(model="llama", pre="gemma4", merges=MERGES),
)
MISTRAL_3 = together(
    VISION,
    fields(image_token_index=10, spatial_merge_size=2, mm__projector_bias=True),
    fields(mm__projector_hidden_act="gelu"),
    tokenizer(pre="default"),
)
MINISTRAL_3 = together(
    MISTRAL_3,
    renamed(
        rope__scaling__yarn_log_multiplier="rope__scaling__mscale_all_dim",
        attention__temperature_scale="rope__scaling_beta",
    ),
    fields(rope__scaling__mscale=1.0),
    fields(rope__scaling__beta_fast=32.0, rope__scaling__beta_slow=1.0),
)
UNSCALED_MISTRAL_3 = together(
    MISTRAL_3,
    fields(
        rope__scaling__type="",
        rope__scaling__factor=0.0,
        rope__scaling__yarn_beta_fast=0.0,
        rope__scaling__yarn_beta_slow=0.0,
    ),
)
OLMO_3 = architecture("olmo3")


def llama_head_dim(writer: Any) -> None:
    """The width of heads twice."""
    fields(attention__head_dim=value_of(writer, "attention.key_length"))(writer)
