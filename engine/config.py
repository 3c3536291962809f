"""Config: every choice of an engine in one dataclass. An unknown key is a TypeError."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEFAULT_MODEL = "qwen2.5-coder-0.5b"


@dataclass(frozen=True, slots=True)
class Config:
    """What an Engine is made of. `budget` is the one dial of drafting: nodes a step at most."""

    model: str = DEFAULT_MODEL  # a built-in name, a folder, a GGUF file or a hub id
    device: str = "auto"  # auto, cpu, cuda, mps
    dtype: str = "auto"  # auto, f32, bf16, q8
    threads: int = 0  # CPU threads; 0: one a core
    budget: int = 48
    workspace: Path | None = None  # folder whose files may be copied from
    max_context: int = 0  # tokens; 0: the model's own, within memory
    cached_sequences: int = 4  # recent sequences kept for prefix reuse
    cache_bytes: int = 1 << 30  # their memory at most
    library: bool = True  # count what the language's library says, while nothing is asked
