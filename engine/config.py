"""Config: all settings of an engine. An unknown key is a TypeError."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

SMALL_MODEL, USUAL_MODEL = "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"
NEXT_EDIT_MODELS = "sweepai/sweep-next-edit-0.5B", "sweepai/sweep-next-edit-1.5B"
MODEL_VARIABLE = "DRAFTLINE_MODEL"
PREFIXES_VARIABLE = "DRAFTLINE_PREFIXES"
MIN_MEMORY_BYTES = 6_000_000_000  # bytes of a machine for the usual model, an editor and a browser
MIN_NEXT_EDIT_BYTES = 10_000_000_000  # bytes for the larger model for next edits beside that
Verification = Literal["match", "rejection"]
Graphs = Literal["auto", "off", "static"]
KV_FORMATS = ("auto", "q8")


def default_model(memory_bytes: int) -> str:
    """Choose the model where none is named, on a machine with so much memory."""
    by_memory = USUAL_MODEL if memory_bytes >= MIN_MEMORY_BYTES else SMALL_MODEL
    return os.environ.get(MODEL_VARIABLE) or by_memory


def next_edit_model(name: str) -> str:
    """Return the model for next edits that a setting names; "auto" stands for one by memory."""
    return NEXT_EDIT_MODELS[memory_bytes() >= MIN_NEXT_EDIT_BYTES] if name == "auto" else name


def memory_bytes() -> int:
    """Measure the machine's memory, in bytes."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    import psutil  # type: ignore[import-untyped]

    return int(psutil.virtual_memory().total)  # Windows


DEFAULT_MODEL = default_model(memory_bytes())


USUAL_BUDGET = 48  # draft nodes of a step
WIDE_BUDGET = 127  # draft nodes of a step where many rows take hardly longer than one


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of an Engine."""

    # a built-in name, a folder, a GGUF file, a hub id, or another program's: ollama:NAME,
    # lmstudio:NAME, llamacpp:NAME, hub:NAME
    model: str = DEFAULT_MODEL
    # auto (a CUDA card, else the CPU), cpu, cuda, mps; cuda:0,cuda:1: the layers are split across
    # these cards
    device: str = "auto"
    dtype: str = "auto"  # auto, f32, bf16, q8 and q4 (on a CPU), int8, fp8 and int4 (on CUDA)
    # keys and values in the cache: auto (f32 on a CPU, the weights' format on a card) or, of a GGUF
    # file on a CPU q8: 8 bits and a scale for each 32 numbers, which take 3.6 times less memory
    kv: str = "auto"
    lora: Sequence[str] = ()  # LoRA adapters, GGUF files, for a GGUF file: FILE or FILE:SCALE
    # auto: CUDA graphs on a card; static: passes of the same static shapes without capturing, also
    # on a CPU (for tests); off: passes of any shape, launched kernel by kernel
    graphs: Graphs = "auto"
    # on a CUDA card: kernels that do not round by shape, so that drafts cannot change the answer by
    # a single bit; None: where the card and the model have them. On a CPU this always holds
    exact: bool | None = None
    threads: int = 0  # CPU threads; 0: one per core
    # draft nodes per step, at most; 0: WIDE_BUDGET for Llama's family in bf16 with CUDA graphs and
    # without `exact`, else USUAL_BUDGET
    budget: int = 0
    # match: the same text as without speculation, for every seed; rejection: Leviathan's and Chen's
    # rule, which only keeps the distribution of sampled text (greedy text is the same)
    verification: Verification = "match"
    drafter: str = "auto"  # engine/drafting/registry.py has all; "name:option=value,option=value"
    corpus: Path | None = None  # datastore to draft from, made by `draftline train corpus`
    # folder or folders whose files are indexed to draft from
    workspace: str | Path | Sequence[str | Path] | None = None
    max_context: int = 0  # tokens; 0: the model's own, as far as memory allows
    cached_sequences: int = 4  # recent sequences kept for prefix reuse
    # bytes of these sequences, at most; 0: half of what a card has left, 1 GiB on a CPU
    cache_bytes: int = 0
    library: bool = True  # build the standard library's n-gram model while idle
    # store on disk what the model computes for prompts of edits and completions of indexed files
    prefixes: bool = field(default_factory=lambda: os.environ.get(PREFIXES_VARIABLE) != "off")


def devices(text: str) -> list[str]:
    """Split a `Config.device` into device names, in the order of the layers.

    ValueError with one line for unknown names and for combinations that a model cannot be split
    across.
    """
    names = text.split(",")
    for name in names:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,3})?", name):
            raise ValueError(
                f"device {name!r}: choose auto, cpu, cuda, mps, or several cards, as in "
                "cuda:0,cuda:1"
            )
    if len(names) == 1 or set(names) == {"cpu"}:  # cpu,cpu tests splitting without cards
        return names
    if any(not name.startswith("cuda:") for name in names):
        raise ValueError(
            f"device {text}: a model is split across numbered cards only, as in cuda:0,cuda:1"
        )
    if len({int(name[5:]) for name in names}) < len(names):
        raise ValueError(f"device {text}: a card is named twice")
    return names
