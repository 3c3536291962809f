"""The config.json of the transformers model that a GGUF file's metadata describe.

Not supported: architectures and rope scalings that are not listed here; such a file is refused,
never read approximately.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.weights.errors import shown
from engine.weights.gguf_file import Gguf
from engine.weights.model_config import LIMITS, MAX_ROPE_THETA
from engine.weights.tokenizer import token_id

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TensorName = tuple[str, tuple[int, ...], int]

CHUNK_VALUES = 1 << 20  # dequantised at a time: 4 MiB of f32 stays in the caches


@dataclass(frozen=True, slots=True)
class Architecture:
    """How one GGUF architecture maps to a transformers model type."""

    model_class: str
    extra: tuple[str, ...] = ()  # tensors of a layer beside those all have
    interleaved: bool = False  # rows of q and k are stored in GGML's rope order


ARCHITECTURES = {
    "llama": Architecture("LlamaForCausalLM", interleaved=True),
    "qwen2": Architecture("Qwen2ForCausalLM", ("attn_q.bias", "attn_k.bias", "attn_v.bias")),
    "qwen3": Architecture("Qwen3ForCausalLM", ("attn_q_norm.weight", "attn_k_norm.weight")),
}


def model_config(file: Gguf) -> dict[str, Any]:
    """config.json of the transformers model that the file's metadata describes."""
    name = file.text("general.architecture")
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise file.unsupported(f"architecture {shown(name)} (not one of {known})")
    scaling = file.text(f"{name}.rope.scaling.type", "none")
    if scaling != "none" or file.field(f"{name}.expert_count", 0):
        what = "experts" if scaling == "none" else f"rope scaling {shown(scaling)}"
        raise file.unsupported(what)
    hidden = file.integer(f"{name}.embedding_length", LIMITS["hidden_size"])
    heads = file.integer(f"{name}.attention.head_count", LIMITS["num_attention_heads"])
    kv_heads = file.integer(f"{name}.attention.head_count_kv", heads, heads)
    head_dim = file.integer(
        f"{name}.attention.key_length", LIMITS["head_dim"], max(1, hidden // heads)
    )
    if heads % kv_heads:
        raise file.damaged(
            f"'{name}.attention.head_count' {heads} is not a multiple of head_count_kv {kv_heads}"
        )
    if head_dim % 2:
        raise file.damaged(f"'{name}.attention.key_length' is {head_dim}, expected an even number")
    rotary = file.integer(f"{name}.rope.dimension_count", LIMITS["head_dim"], head_dim)
    if rotary != head_dim:
        raise file.unsupported("a head that is rotary in part")
    layers = file.integer(f"{name}.block_count", LIMITS["num_hidden_layers"])
    if layers > len(file.tensors):
        raise file.damaged(f"'{name}.block_count' is {layers}: it has fewer tensors than layers")
    return {
        "architectures": [ARCHITECTURES[name].model_class],
        "model_type": name,
        "dtype": "bfloat16",
        "vocab_size": tensor_shape(file, "token_embd.weight")[0],
        "hidden_size": hidden,
        "intermediate_size": file.integer(
            f"{name}.feed_forward_length", LIMITS["intermediate_size"]
        ),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": _short(file.number(f"{name}.attention.layer_norm_rms_epsilon", 1)),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": _short(file.number(f"{name}.rope.freq_base", MAX_ROPE_THETA, 10000.0)),
        },
        "max_position_embeddings": file.integer(
            f"{name}.context_length", LIMITS["max_position_embeddings"]
        ),
        "attention_bias": False,
        "tie_word_embeddings": _tied(file),
        "bos_token_id": token_id(file, "bos"),
        "eos_token_id": file.integer("tokenizer.ggml.eos_token_id", LIMITS["vocab_size"], least=0),
    }


def _short(value: float) -> float:
    """The shortest decimal that is the same f32: 1e-06, not 9.99999997e-07."""
    import numpy as np

    return float(str(np.float32(value)))


def tensor_shape(file: Gguf, name: str) -> tuple[int, ...]:
    """Shape of a required tensor."""
    if name not in file.tensors:
        raise file.damaged(f"it has no tensor '{name}'")
    return file.tensors[name].shape


def _tied(file: Gguf) -> bool:
    """Whether the head is the embedding: absent, or equal to it in every value."""
    head, embedding = file.tensors.get("output.weight"), file.tensors.get("token_embd.weight")
    if head is None or embedding is None:
        return True
    if head.shape != embedding.shape or len(head.shape) != 2:
        return False
    pairs = zip(chunks(file, "output.weight"), chunks(file, "token_embd.weight"), strict=True)
    return all(bool((one == other).all()) for one, other in pairs)


def tensor_names(config: dict[str, Any]) -> dict[str, TensorName]:
    """Every tensor of a model by its name in GGUF: its name in safetensors, its shape there, and
    the heads whose rows GGUF has in GGML's rope order (0: in the same order)."""
    architecture = ARCHITECTURES[config["model_type"]]
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    vocabulary = config["vocab_size"]
    turn = int(architecture.interleaved)
    table: dict[str, TensorName] = {
        "token_embd.weight": ("model.embed_tokens.weight", (vocabulary, hidden), 0),
        "output_norm.weight": ("model.norm.weight", (hidden,), 0),
    }
    if not config["tie_word_embeddings"]:
        table["output.weight"] = ("lm_head.weight", (vocabulary, hidden), 0)
    layer: dict[str, TensorName] = {
        "attn_norm.weight": ("input_layernorm.weight", (hidden,), 0),
        "attn_q.weight": ("self_attn.q_proj.weight", (heads * head, hidden), turn * heads),
        "attn_k.weight": ("self_attn.k_proj.weight", (kv_heads * head, hidden), turn * kv_heads),
        "attn_v.weight": ("self_attn.v_proj.weight", (kv_heads * head, hidden), 0),
        "attn_output.weight": ("self_attn.o_proj.weight", (hidden, heads * head), 0),
        "ffn_norm.weight": ("post_attention_layernorm.weight", (hidden,), 0),
        "ffn_gate.weight": ("mlp.gate_proj.weight", (inner, hidden), 0),
        "ffn_up.weight": ("mlp.up_proj.weight", (inner, hidden), 0),
        "ffn_down.weight": ("mlp.down_proj.weight", (hidden, inner), 0),
    }
    extra: dict[str, TensorName] = {
        "attn_q.bias": ("self_attn.q_proj.bias", (heads * head,), 0),
        "attn_k.bias": ("self_attn.k_proj.bias", (kv_heads * head,), 0),
        "attn_v.bias": ("self_attn.v_proj.bias", (kv_heads * head,), 0),
        "attn_q_norm.weight": ("self_attn.q_norm.weight", (head,), 0),
        "attn_k_norm.weight": ("self_attn.k_norm.weight", (head,), 0),
    }
    layer |= {name: extra[name] for name in architecture.extra}
    for number in range(config["num_hidden_layers"]):
        for name, (target, shape, turned) in layer.items():
            table[f"blk.{number}.{name}"] = (f"model.layers.{number}.{target}", shape, turned)
    return table


def chunks(file: Gguf, name: str) -> Iterator[NDArray[np.float32]]:
    """A matrix or a vector in f32, some rows at a time."""
    shape = file.tensors[name].shape
    rows, columns = (1, shape[0]) if len(shape) == 1 else shape
    step = max(1, CHUNK_VALUES // columns)
    for first in range(0, rows, step):
        yield file.rows(name, first, min(step, rows - first))
