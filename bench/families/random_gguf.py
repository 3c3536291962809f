"""Random weights of a model's shape as a GGUF file.

Matrices are in Q4_K, or in Q8_0 where their rows are not whole blocks of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType as Kind
from tokenizers import pre_tokenizers

from bench.families.gguf_metadata import ARCHITECTURES, add_metadata
from engine.model.families import read_config
from engine.model.families.gguf_names import mtp_outputs, outputs_of

CHUNK_BYTES = 1 << 20  # bytes, random ones, which repeat
PLAIN = ("ffn_gate_inp.weight", "ssm_conv1d.weight")  # weights that are always f32, as in llama.cpp


def write_random_gguf(config: dict[str, Any], path: Path, kind: Kind = Kind.Q4_K) -> None:
    """Write a model of `config` to `path`, with matrices of `kind` where that is possible."""
    arch, _ = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    add_metadata(writer, config)
    _add_vocabulary(writer, config["vocab_size"])
    chance = np.random.default_rng(0)
    described = read_config(config)
    outputs = [*outputs_of(described).values()]
    if config.get("mtp_num_hidden_layers"):
        outputs += mtp_outputs(described).values()
    for name, shape, _ in outputs:
        if len(shape) == 1 or name in PLAIN or name.rpartition(".")[2] == "bias":
            writer.add_tensor(name, _vector(name, shape, chance))
            continue
        stored = _kind(config, name, shape[-1], kind)
        if stored == Kind.F32:
            writer.add_tensor(name, _vector(name, shape, chance))
        else:
            writer.add_tensor(name, _rows(stored, shape, chance), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    """Tokens that nobody reads: passes are timed by token ids."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*letters, "ab", *(f"t{n}" for n in range(size - len(letters) - 1))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * size)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(1)


def _kind(config: dict[str, Any], name: str, columns: int, wanted: Kind) -> Kind:
    if any(one in name for one in PLAIN):
        return Kind.F32
    if config["model_type"] == "gpt_oss" and "_exps" in name:
        return Kind.MXFP4
    kinds = (wanted, Kind.Q8_0) if wanted != Kind.F32 else ()
    fitting = [one for one in kinds if columns % gguf.GGML_QUANT_SIZES[one][0] == 0]
    return fitting[0] if fitting else Kind.F32


def _vector(name: str, shape: tuple[int, ...], chance: np.random.Generator) -> Any:
    """Norms of 1, negative decays, small biases and matrices."""
    if "norm" in name or "scale" in name:
        return np.ones(shape, np.float32)
    values = chance.standard_normal(shape, np.float32) * np.float32(0.02)
    return -np.abs(values) - np.float32(0.5) if name.endswith("ssm_a") else values


def _rows(kind: Kind, shape: tuple[int, ...], chance: np.random.Generator) -> Any:
    """Blocks of random levels, with scales that give numbers of about 0.02."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    count = int(np.prod(shape)) // block
    some = np.frombuffer(chance.bytes(CHUNK_BYTES // size * size), np.uint8).reshape(-1, size)
    some = some.copy()
    if kind == Kind.Q4_K:  # d, dmin, scales and minima, levels
        some[:, 0:2] = np.frombuffer(np.float16(1.4e-4).tobytes(), np.uint8)
        some[:, 2:4] = np.frombuffer(np.float16(1.05e-3).tobytes(), np.uint8)
    elif kind == Kind.Q8_0:
        some[:, 0:2] = np.frombuffer(np.float16(2.7e-4).tobytes(), np.uint8)
    else:  # MXFP4: a power of two
        some[:, 0] = 121
    whole = np.resize(some, (count, size))
    return whole.reshape(*shape[:-1], shape[-1] // block * size)
