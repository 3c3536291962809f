"""The models of a folder that has the files of one hub repository.

They are GGUF files, or one model as safetensors. LM Studio and the hub's cache have such folders.
"""

from __future__ import annotations

from pathlib import Path

from engine.weights.catalogue.local_models.local_model import (
    LocalModel,
    entries,
    gguf_problem,
    read_json,
)
from engine.weights.errors import WeightsError
from engine.weights.gguf.parts import is_later_part, parts_of

MAX_CONFIG_BYTES = 1 << 20
MAX_INDEX_BYTES = 32 << 20  # bytes of a sharded model's list of tensors
INDEX = "model.safetensors.index.json"

# Files that belong to a model, by which llama.cpp knows them: vision projectors, importance
# matrices, draft heads.
ACCESSORIES = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")


def repository_models(name: str, folder: Path, inside: Path | None = None) -> list[LocalModel]:
    """List the models in `folder`, called `name` or, where there are several, `name/FILE`.

    With `inside`, a file must be in that folder once links are followed.
    """
    try:
        files, found = gguf_files(folder), _folder_model(name, folder)
    except WeightsError as error:
        return [LocalModel(name, folder, problem=str(error))]
    shared = () if found else (name,)  # with a folder, the name alone is that
    for file in files:
        long = f"{name}/{file.relative_to(folder).as_posix()}"
        problem = gguf_problem(file)
        if not problem and inside and not all(is_inside(one, inside) for one in parts_of(file)):
            problem = f"a link out of {inside}: download it again"
        if shared and len(files) == 1:
            return [LocalModel(name, file, (long,), problem)]
        found.append(LocalModel(long, file, shared, problem))
    return found


def is_inside(path: Path, folder: Path) -> bool:
    """Return whether a path is in a folder once links are followed."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a loop of links
        return False


def gguf_files(folder: Path) -> list[Path]:
    """List the GGUF files of a repository, in the folder or one below.

    Of a split file only the first part is listed. Files that only accompany a model are not.
    """
    files = []
    for path in entries(folder):
        files += entries(path) if path.is_dir() else [path]
    return [
        file
        for file in files
        if file.name.lower().endswith(".gguf")
        and not any(word in file.name.lower() for word in ACCESSORIES)
        and not is_later_part(file)
    ]


def _folder_model(name: str, folder: Path) -> list[LocalModel]:
    """List the model that the folder itself is, if it has all of the files of one."""
    needed = folder / "config.json", folder / "tokenizer.json"
    weights = [path for path in entries(folder) if path.suffix == ".safetensors"]
    if not weights or not all(path.is_file() for path in (*needed, *weights)):
        return []  # it is of another kind, or still being downloaded
    if not _has_all_shards(folder):
        return []
    config = read_json(folder / "config.json", MAX_CONFIG_BYTES)
    return [LocalModel(name, folder, problem=_quantized(config))]


def _has_all_shards(folder: Path) -> bool:
    """Return whether the files that the index of a sharded model names are there."""
    if not (folder / INDEX).exists():
        return True
    places = read_json(folder / INDEX, MAX_INDEX_BYTES).get("weight_map")
    names = {str(place) for place in places.values()} if isinstance(places, dict) else set()
    return names <= {path.name for path in entries(folder)}


def _quantized(config: dict[str, object]) -> str:
    """Say why a folder of quantized weights cannot be run; "" for other folders."""
    if "quantization" in config:  # MLX writes both
        kind = "MLX"
    elif isinstance(one := config.get("quantization_config"), dict):
        kind = str(one.get("quant_method", "a quantization that it does not name"))
    else:
        return ""
    return f"weights quantized by {kind} are not supported: choose its GGUF or unquantized files"
