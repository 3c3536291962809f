"""Models of LM Studio: MODELS/PUBLISHER/REPO/FILE.gguf, or MODELS/PUBLISHER/REPO/ with safetensors.

https://lmstudio.ai/docs/app/advanced/import-model describes the folder. Where it is, its command
line (github.com/lmstudio-ai/lms, `modelsFolder.ts`) decides so: `downloadsFolder` of settings.json
in LM Studio's home, which ~/.lmstudio-home-pointer names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine.weights.catalogue.local_models.local_model import (
    LocalModel,
    Program,
    entries,
    home_folder,
    read_json,
)
from engine.weights.catalogue.local_models.repository import is_inside, repository_models
from engine.weights.errors import WeightsError

MAX_SETTINGS_BYTES = 4 << 20
MAX_POINTER_BYTES = 4096  # bytes of the longest path


def folders() -> list[Path]:
    """Return the configured models folder, or the ones of newer and older versions."""
    homes = [home_folder(".lmstudio"), home_folder(".cache", "lm-studio")]
    if pointed := _pointed():
        homes = [pointed]
    return list(dict.fromkeys(_models_folder(home) for home in homes))


def models(folder: Path) -> Iterator[LocalModel]:
    """Yield the models of LM Studio's models folder.

    Users link files and folders into it, so links are followed, but for those that lead back.
    """
    for publisher in entries(folder):
        for repository in entries(publisher):
            if not is_inside(folder, publisher) and not is_inside(folder, repository):
                name = f"{PROGRAM.prefix}:{publisher.name}/{repository.name}"
                yield from repository_models(name, repository)


def _pointed() -> Path | None:
    """Read the home that LM Studio's pointer file names."""
    pointer = home_folder(".lmstudio-home-pointer")
    if not pointer.is_file():
        return None
    try:
        with pointer.open("rb") as file:
            text = file.read(MAX_POINTER_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None
    return Path(text) if text and "\0" not in text else None


def _models_folder(home: Path) -> Path:
    """Find the models folder of an LM Studio home.

    Without readable settings it is the default one, as for LM Studio.
    """
    try:
        folder = read_json(home / "settings.json", MAX_SETTINGS_BYTES).get("downloadsFolder")
    except WeightsError:
        folder = None
    if isinstance(folder, str) and folder and "\0" not in folder:
        return Path(folder).expanduser()
    return home / "models"


PROGRAM = Program("lmstudio", "LM Studio", folders, models, "its settings name its folder")
