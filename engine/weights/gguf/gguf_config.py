"""The config.json of the transformers model that a GGUF file's metadata describe, and the names of
its tensors.

What `gguf_families` does not know is refused, never read approximately: architectures, tensors, and
metadata that nobody reads.
"""

from __future__ import annotations

from collections.abc import Collection

from engine.weights.errors import WeightsError, shown
from engine.weights.gguf.families import FAMILIES
from engine.weights.gguf.families.family import COMMON, Config, Family, Table, tensor_shape
from engine.weights.gguf.gguf_file import Gguf
from engine.weights.model_config import check_config

FORMATS = {  # of tensors that can be read
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
    "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
}  # fmt: skip
BY_ARCHITECTURE = {family.architecture: family for family in FAMILIES}
BY_MODEL_TYPE = {kind: family for family in FAMILIES for kind in family.model_types}


def model_config(file: Gguf) -> Config:
    """config.json of the transformers model (of its text part) that the metadata describe."""
    name = file.text("general.architecture")
    if name not in BY_ARCHITECTURE:
        known = ", ".join(BY_ARCHITECTURE)
        raise file.unsupported(f"architecture {shown(name)} (not one of {known})")
    family = BY_ARCHITECTURE[name]
    _check_fields(file, family)
    config = family.config(file)
    check_config(file.path, config)
    return config


def _check_fields(file: Gguf, family: Family) -> None:
    """Refuse metadata of the architecture that nobody reads, but for what is 0, false or empty: a
    scale among them would change every answer."""
    start = f"{family.architecture}."
    read = {start + name for name in COMMON | family.fields}
    for key, value in file.fields.items():
        if key.startswith(start) and key not in read and value:
            raise file.unsupported(f"field {shown(key)} = {shown(value)}")


def tensor_names(config: Config, names: Collection[str] = ()) -> Table:
    """Every tensor of a model by its name in GGUF: its name in safetensors, its shape there, and
    the heads whose rows GGUF has in GGML's rope order (0: in the same order). `names`: those that
    the file has; some tensors can be stored in two ways."""
    return BY_MODEL_TYPE[config["model_type"]].tensors(config, names)


def checked_tensors(file: Gguf, config: Config) -> Table:
    """`tensor_names`, where the file has all of these tensors in these shapes and no others, in
    formats that can be read. WeightsError otherwise."""
    from gguf.constants import GGMLQuantizationType

    table = tensor_names(config, file.tensors)
    others = BY_MODEL_TYPE[config["model_type"]].others(config)
    unknown = file.tensors.keys() - table.keys() - {"output.weight"} - others
    if unknown:
        raise file.unsupported(f"tensor {shown(min(unknown))} in a {config['model_type']} model")
    for name, (_, shape, _) in table.items():
        if tensor_shape(file, name) not in (shape, _bare(shape)):
            found = list(file.tensors[name].shape)
            raise file.damaged(f"tensor '{name}' is {found}, the metadata say {list(shape)}")
        kind = GGMLQuantizationType(file.tensors[name].kind).name
        if kind not in FORMATS:
            raise WeightsError(
                f"{file.path}: tensor '{name}' is stored as {kind}, which cannot be read here: "
                "choose another quantization of the model, such as Q4_K_M"
            )
    return table


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without dimensions of 1 at its start, which llama.cpp's quantizer drops."""
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape
