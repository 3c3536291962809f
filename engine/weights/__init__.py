"""Model name -> a local folder with safetensors, tokenizer.json and config.json, ready to load.

A name is a built-in one, a folder, a GGUF file, or (only when the user names it) a hub id. Built-in
models and GGUF files are converted once into the cache, which DRAFTLINE_HOME moves. Nothing here
loads weights or needs torch.

builtins.py the models known by name · names.py what a name means, what counts as ready ·
cache.py fetch, add, remove · wheels.py, hub.py, local.py where bytes come from · child.py downloads
as processes · sums.py SHA-256 · gguf_file.py, convert.py, tokenizer.py GGUF -> folder · errors.py
"""

from engine.config import DEFAULT_MODEL
from engine.weights.builtins import BUILTINS, LARGER, Builtin, Wheels
from engine.weights.cache import Source, add, free_bytes, locate, remove
from engine.weights.errors import Progress, WeightsError
from engine.weights.resolve import Model, find, gguf, home, installed

__all__ = [
    "BUILTINS",
    "DEFAULT_MODEL",
    "LARGER",
    "Builtin",
    "Model",
    "Progress",
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
]
