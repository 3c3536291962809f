"""Config: every choice of an engine in one dataclass. An unknown key is a TypeError."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

DEFAULT_MODEL = "qwen2.5-coder-0.5b"
Verification = Literal["match", "rejection"]
Graphs = Literal["auto", "off", "static"]


@dataclass(frozen=True, slots=True)
class Config:
    """What an Engine is made of. `budget` is the one dial of drafting: nodes a step at most."""

    model: str = DEFAULT_MODEL  # a built-in name, a folder, a GGUF file or a hub id
    # auto, cpu, cuda, mps; cuda:0,cuda:1: each of these cards has some of the layers
    device: str = "auto"
    dtype: str = "auto"  # auto, f32, bf16, q8 (on a CPU), int8 (on CUDA)
    # auto: on a CUDA card passes are captured as graphs; static: passes of the same shapes, never
    # captured, on a CPU too, for tests; off: passes of any shape, launched step by step
    graphs: Graphs = "auto"
    # on a CUDA card: kernels that do not round by shape, so that the answer is the same bit for bit
    # with any draft; slower. On a CPU it always is
    exact: bool = False
    threads: int = 0  # CPU threads; 0: one a core
    budget: int = 48
    # match: with one seed the text is the same as without speculation; rejection: Leviathan's and
    # Chen's rule, by which sampled text is only distributed alike (greedy text is the same)
    verification: Verification = "match"
    drafter: str = "auto"  # engine/drafting/registry.py has all; "name:option=value,option=value"
    corpus: Path | None = None  # texts to copy from, made by `draftline train corpus`
    workspace: Path | None = None  # folder whose files may be copied from
    max_context: int = 0  # tokens; 0: the model's own, within memory
    cached_sequences: int = 4  # recent sequences kept for prefix reuse
    cache_bytes: int = 1 << 30  # their memory at most
    library: bool = True  # count what the language's library says, while nothing is asked


def devices(text: str) -> list[str]:
    """The names in a `Config.device`, in the order of the layers. ValueError with one line for what
    there is not, and for several that one model cannot lie on."""
    names = text.split(",")
    for name in names:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,3})?", name):
            raise ValueError(
                f"device {name!r}: choose auto, cpu, cuda, mps, or several cards, as cuda:0,cuda:1"
            )
    if len(names) == 1 or set(names) == {"cpu"}:  # cpu,cpu: how it is tried without cards
        return names
    if any(not name.startswith("cuda:") for name in names):
        raise ValueError(f"device {text}: several are cards with their numbers, as cuda:0,cuda:1")
    if len({int(name[5:]) for name in names}) < len(names):
        raise ValueError(f"device {text}: a card is named twice: name each one once")
    return names
