"""Models that other programs have downloaded, run where they are.

They are those of Ollama, LM Studio, the hub's cache and llama.cpp. One file for each program says
where it keeps its models and how they are named; `lookup` lists them all and turns
`ollama:qwen2.5-coder:7b` into a path; `details` reads what a list shows from the first bytes of a
file. The programs' folders are only read: nothing in them is changed, moved, linked or locked.
"""

from engine.weights.catalogue.local_models.details import Details, details_of
from engine.weights.catalogue.local_models.local_model import LocalModel, Program, gguf_problem
from engine.weights.catalogue.local_models.lookup import (
    in_hub_cache,
    local_models,
    ollama_template,
    path_of_local,
)
from engine.weights.catalogue.local_models.repository import gguf_files

__all__ = [
    "Details",
    "LocalModel",
    "Program",
    "details_of",
    "gguf_files",
    "gguf_problem",
    "in_hub_cache",
    "local_models",
    "ollama_template",
    "path_of_local",
]
