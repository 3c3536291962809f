"""The tensors of a GGUF file by the names that safetensors files have for them.

What no family knows is refused, never read approximately: tensors that nobody reads, other shapes,
formats that the kernels do not have.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from engine.model.families import BY_MODEL_TYPE
from engine.model.families.family import MTP_TENSORS, Family
from engine.model.families.metadata import Settings
from engine.model.families.tensors import container, shapes_of
from engine.model.model_config import Attention, ModelConfig
from engine.model.unsupported import UnsupportedModel
from engine.weights.errors import WeightsError, shown
from engine.weights.gguf.gguf_file import Gguf

FORMATS = {  # formats of tensors that can be read
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
    "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
}  # fmt: skip
WHOLE_MODEL = {  # names of a model's tensors outside its layers, in safetensors -> in GGUF
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm",
}


class Output(NamedTuple):
    """A tensor in a model's form, and where it comes from."""

    source: str  # its name in the GGUF file
    shape: tuple[int, ...]
    rope_heads: int  # heads whose rows are put back in order; 0: rows stay as they are


def outputs_of(config: ModelConfig, there: Collection[str] = ()) -> dict[str, Output]:
    """List every tensor of a model by its name in safetensors.

    `there`: the names that its GGUF file has; some tensors can be stored in two ways."""
    family, shapes = BY_MODEL_TYPE[config.family], shapes_of(config)
    stored = {target: source for source, target in family.names.items()}
    found = {}
    for name, shape in shapes.items():
        whole, whole_shape = container(name, shapes)
        source, fused = _stored_name(stored, name), _stored_name(stored, whole)
        if whole != name and fused and (fused in there or not source):
            found[whole] = Output(fused, whole_shape, 0)
        else:
            assert source, f"{family.model_type}: no GGUF name of {name}"
            found[name] = Output(source, shape, _rope_heads(family, config, name))
    return found


def checked_outputs(file: Gguf, settings: Settings, config: ModelConfig) -> dict[str, Output]:
    """List the same, if the file has these tensors in these shapes and no others.

    WeightsError otherwise, and for formats that cannot be read."""
    family, outputs = BY_MODEL_TYPE[config.family], outputs_of(config, file.tensors)
    sources = {output.source for output in outputs.values()}
    unknown = file.tensors.keys() - sources - {"output.weight"} - family.unread(settings)
    if unknown:
        raise file.unsupported(f"tensor {shown(min(unknown))} in a {family.model_type} model")
    _check(file, outputs)
    return outputs


def mtp_layer(
    file: Gguf, settings: Settings, config: ModelConfig
) -> tuple[ModelConfig, dict[str, Output]]:
    """Describe the layer that predicts the token after the next as a model of one layer.

    `settings` and `config`: the whole model's. UnsupportedModel where its file has no such layer,
    or several; WeightsError for tensors that are missing, or of another shape or format.
    """
    count = settings.get("mtp_num_hidden_layers") or 0
    if count != 1:
        raise UnsupportedModel(
            f"{file.path}: it has {count or 'no'} layers that predict the token after the next, "
            "and one is needed: choose another drafter"
        )
    found = mtp_outputs(config, file.tensors)
    _check(file, found)
    return _mtp_config(config), found


def mtp_outputs(config: ModelConfig, there: Collection[str] = ()) -> dict[str, Output]:
    """List the tensors of that layer, by the names of a model of one layer.

    Besides, those of MTP_TENSORS; an embedding or an output layer of its own only if its file has
    one. `there`: the names that its file has.
    """
    at, norm, table = f"blk.{len(config.layers)}.", (config.width,), (config.vocab, config.width)
    own = {f"blk.0.{one.removeprefix(at)}" for one in there if one.startswith(at)}
    found = {
        name: output._replace(source=at + output.source.removeprefix("blk.0."))
        for name, output in outputs_of(_mtp_config(config), own).items()
        if name.startswith("model.layers.")
    }
    for name, stored in MTP_TENSORS.items():
        source = f"{at}{stored}.weight"
        if name in ("model.embed_tokens", "lm_head"):
            if source in there:
                found[f"{name}.weight"] = Output(source, table, 0)
            continue
        if name == "model.norm" and there and source not in there:
            source = "output_norm.weight"
        shape = (config.width, 2 * config.width) if name == "mtp.fc" else norm
        found[f"{name}.weight"] = Output(source, shape, 0)
    return found


def _mtp_config(config: ModelConfig) -> ModelConfig:
    full = next(layer for layer in config.layers if isinstance(layer.mixer, Attention))
    return replace(config, layers=(full,))


def _check(file: Gguf, outputs: dict[str, Output]) -> None:
    """Refuse tensors that are missing, or have another shape or format. WeightsError."""
    for source, shape, _ in outputs.values():
        found = file.shape(source)
        if found not in (shape, _bare(shape)):
            raise file.damaged(
                f"tensor '{source}' is {list(found)}, the metadata say {list(shape)}"
            )
        kind = file.stored_as(source)
        if kind not in FORMATS:
            raise WeightsError(
                f"{file.path}: tensor '{source}' is stored as {kind}, which cannot be read here: "
                "choose another quantization of the model, such as Q4_K_M"
            )


def _stored_name(stored: dict[str, str], name: str) -> str:
    """Translate the name of a tensor into GGUF's; "" where its family has none.

    `stored`: names in GGUF of a layer's tensors by those in safetensors."""
    if name.startswith("model.layers."):
        number, _, rest = name.removeprefix("model.layers.").partition(".")
        if rest in stored:
            return f"blk.{number}.{stored[rest]}"
        stem, _, kind = rest.rpartition(".")
        return f"blk.{number}.{stored[stem]}.{kind}" if stem in stored else ""
    stem, _, kind = name.rpartition(".")
    return f"{WHOLE_MODEL[stem]}.{kind}"


def _rope_heads(family: Family, config: ModelConfig, name: str) -> int:
    """Count the heads of a projection whose rows the file has in GGML's rope order."""
    stem = name.rpartition(".")[0]
    if not family.interleaved or not stem.endswith(("q_proj", "k_proj")):
        return 0
    mixer = config.layers[int(name.split(".")[2])].mixer
    assert isinstance(mixer, Attention)
    return mixer.heads if stem.endswith("q_proj") else mixer.kv_heads


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Drop dimensions of 1 at the start of a shape, as llama.cpp's quantizer does."""
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape
