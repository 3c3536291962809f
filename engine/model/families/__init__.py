"""The families of models that run here, one file each; families of one shape share a file.

A family's file says what a config.json and the metadata of a GGUF file mean, and how its tensors
are called in both. CONTRIBUTING.md says how to add one.
"""

from __future__ import annotations

from engine.model.families import (
    gated_delta_net,
    gemma3,
    gemma4,
    gpt_oss,
    llama,
    olmo,
    phi3,
    qwen3_moe,
)
from engine.model.families.family import Family, model_config
from engine.model.families.metadata import COMMON, Settings
from engine.model.model_config import ModelConfig
from engine.weights.config_json import check_config
from engine.weights.errors import shown
from engine.weights.gguf.gguf_file import Gguf
from engine.weights.gguf.ollama_form import FORMS

FAMILIES: tuple[Family, ...] = (
    *llama.FAMILIES,
    qwen3_moe.FAMILY,
    phi3.FAMILY,
    gemma3.FAMILY,
    gemma4.FAMILY,
    gpt_oss.FAMILY,
    *olmo.FAMILIES,
    *gated_delta_net.FAMILIES,
)
BY_MODEL_TYPE = {family.model_type: family for family in FAMILIES}


def knows_architecture(name: str) -> bool:
    """Return whether GGUF files of this architecture may run here."""
    form = FORMS.get(name)
    known = {family.architecture for family in FAMILIES}
    return (form.architecture if form else name) in known


def family_of(settings: Settings) -> Family | None:
    """Find the family of a config.json; None for one that has no pass of our own."""
    return BY_MODEL_TYPE.get(settings.get("model_type", ""))


def read_config(settings: Settings) -> ModelConfig:
    """Read the config of a model of a known family from a checked config.json with all its fields.

    UnsupportedModel names a field that it lacks, or that its family has not."""
    return model_config(BY_MODEL_TYPE[settings["model_type"]], settings)


def read_metadata(file: Gguf) -> Settings:
    """Translate the metadata of a GGUF file into the fields of a config.json.

    What no family knows is refused: architectures, and metadata that nobody reads."""
    name = file.text("general.architecture")
    families = [family for family in FAMILIES if family.architecture == name]
    if not families:
        known = ", ".join(dict.fromkeys(family.architecture for family in FAMILIES))
        raise file.unsupported(f"architecture {shown(name)} (not one of {known})")
    _check_fields(file, name, frozenset().union(*(family.fields for family in families)))
    settings = families[0].settings(file)
    check_config(file.path, settings)
    return settings


def _check_fields(file: Gguf, name: str, fields: frozenset[str]) -> None:
    """Refuse metadata of the architecture that nobody reads, but for what is 0, false or empty.

    A scale among them would change every answer."""
    read = {f"{name}.{field}" for field in COMMON | fields}
    for key, value in file.fields.items():
        if key.startswith(f"{name}.") and key not in read and value:
            raise file.unsupported(f"field {shown(key)} = {shown(value)}")
