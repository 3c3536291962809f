"""Target: the model whose text the user gets, its cache, and the sequences it remembers.

The cache holds exactly the rows of `tokens`. The last committed token is not in it yet: every
forward pass runs that token and the draft behind it, `keep` then drops the rows of what was not
accepted. Nothing here samples, drafts or knows text.
"""

from __future__ import annotations

import json
import logging
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from engine import _kernels
from engine.config import Config
from engine.generic import Generic, UnsupportedModel, refuse
from engine.kernels import Rows
from engine.llama import Llama, supports
from engine.records import Draft, RequestError, Scores

log = logging.getLogger(__name__)

CPU_CHUNK, GPU_CHUNK = 128, 1024  # prompt tokens a pass: small enough to be cancelled in between
GRAIN = 256  # cache rows are allocated in multiples of this


@dataclass(slots=True)
class Sequence:
    """One remembered sequence: row i of keys and values belongs to tokens[i]."""

    tokens: list[int] = field(default_factory=list)
    keys: Tensor = field(default_factory=lambda: torch.empty(0))  # [layers, kv, capacity, d]
    values: Tensor = field(default_factory=lambda: torch.empty(0))

    @property
    def capacity(self) -> int:
        return self.keys.shape[2] if self.keys.dim() == 4 else 0

    @property
    def nbytes(self) -> int:
        return 2 * self.keys.numel() * self.keys.element_size()


class Target:
    """A loaded model. One thread at a time; `engine.worker` owns it."""

    def __init__(self, folder: Path, config: Config) -> None:
        """Load `folder` (config.json, safetensors). UnsupportedModel or OSError with one line."""
        self.settings = json.loads((folder / "config.json").read_text("utf-8"))
        self.device = choose_device(config.device)
        self.dtype_name = choose_dtype(config.dtype, self.device, folder)
        q8 = self.dtype_name == "q8"
        if self.device.type == "cpu":
            threads = config.threads or os.cpu_count() or 1
            _kernels.set_threads(threads)
            torch.set_num_threads(1 if q8 else threads)  # two pools would wait for each other
        dtype = torch.bfloat16 if self.dtype_name == "bf16" else torch.float32
        refuse(self.settings)
        body = Llama if supports(self.settings) else Generic
        with torch.inference_mode():
            self.model: Llama | Generic = body(folder, self.device, dtype, q8)
        self.vocab = self.model.vocab
        self.context = min(config.max_context or 1 << 30, self.model.max_positions)
        self.chunk = CPU_CHUNK if self.device.type == "cpu" else GPU_CHUNK
        self.limits = (max(1, config.cached_sequences), config.cache_bytes)
        self.sequences: list[Sequence] = []  # least recently used first; the last is current
        self.pending: tuple[int, Draft] | None = None  # what the last forward ran
        self.exact = self._check() if self.device.type == "cpu" else False

    @property
    def device_name(self) -> str:
        """The device as a person would name it."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return f"{self.device.type} {platform.machine()}"

    @property
    def tokens(self) -> list[int]:
        """Tokens whose rows are in the cache, of the current sequence."""
        return self.sequence.tokens

    @property
    def sequence(self) -> Sequence:
        """The current sequence."""
        return self.sequences[-1]

    # -- sequences -----------------------------------------------------------------------------

    def begin(self, prompt: list[int], room: int) -> int:
        """Make a sequence current that starts as `prompt` does, with space for `room` more rows;
        returns how many of the prompt's tokens its cache already holds (at most all but one)."""
        if not prompt:
            raise RequestError("the prompt is empty: nothing to continue")
        self.pending = None
        shared = [common_prefix(one.tokens, prompt[:-1]) for one in self.sequences]
        need = -(-(len(prompt) + room + 1) // GRAIN) * GRAIN
        best = max(range(len(shared)), key=lambda n: shared[n], default=-1)
        cached = shared[best] if best >= 0 else 0
        if cached and cached * 2 >= len(self.sequences[best].tokens):
            current = self.sequences.pop(best)  # it goes on, or was changed near its end
            if current.capacity < need:
                current = self._copy(current, cached, need)
        else:
            current = self._copy(self.sequences[best] if cached else Sequence(), cached, need)
        del current.tokens[cached:]
        self.sequences.append(current)
        self._forget()
        return cached

    def resume(self, tokens: list[int], room: int) -> None:
        """Go on with a sequence. Nothing to do, unless another request ran since: then what is
        no longer in the cache is read again."""
        if self.tokens != tokens[:-1]:
            self.begin(tokens, room)
            for _ in self.prefill(tokens, room):
                pass

    def _copy(self, source: Sequence, rows: int, capacity: int) -> Sequence:
        model = self.model
        shape = (model.layers, model.kv_heads, capacity, model.head_dim)
        keys = torch.empty(shape, dtype=model.cache_dtype, device=self.device)
        values = torch.empty_like(keys)
        if rows:
            keys[:, :, :rows] = source.keys[:, :, :rows]
            values[:, :, :rows] = source.values[:, :, :rows]
        return Sequence(source.tokens[:rows], keys, values)

    def _forget(self) -> None:
        count, limit = self.limits
        while len(self.sequences) > 1 and (
            len(self.sequences) > count or sum(one.nbytes for one in self.sequences) > limit
        ):
            del self.sequences[0]

    # -- passes --------------------------------------------------------------------------------

    @torch.inference_mode()
    def prefill(self, prompt: list[int], room: int) -> Iterator[int]:
        """After `begin`: read `prompt` but its last token, a chunk a turn; yields how many of its
        tokens are in the cache. Between two turns the caller may stop, or run another request."""
        while len(self.tokens) < len(prompt) - 1 or self.tokens != prompt[:-1]:
            start = len(self.tokens)
            if self.tokens != prompt[:start]:
                self.begin(prompt, room)
                continue
            chunk = prompt[start : min(start + self.chunk, len(prompt) - 1)]
            self._run(chunk, [-1, *range(len(chunk) - 1)])
            self.tokens.extend(chunk)
            yield len(self.tokens)

    @torch.inference_mode()
    def forward(self, last: int, draft: Draft, hidden: bool = False) -> Scores:
        """Run the last committed token and the draft behind it; `keep` must follow.

        Raises ValueError when the cache has no room; on any error the cache is as before."""
        states = self._run([last, *draft.tokens], [-1, *(parent + 1 for parent in draft.parents)])
        scores = Scores(self.model.head(states), states if hidden else None)
        self.pending = (last, draft)
        return scores

    @torch.inference_mode()
    def keep(self, path: list[int]) -> None:
        """Commit the last forward's first token and the draft's nodes on `path`, in order; the
        rows of all other nodes are dropped."""
        assert self.pending is not None, "keep without forward"
        last, draft = self.pending
        self.pending = None
        current, base = self.sequence, len(self.tokens) + 1
        if path != list(range(len(path))):
            rows = torch.tensor(path, device=self.device) + base
            for cache in (current.keys, current.values):
                cache[:, :, base : base + len(path)] = cache.index_select(2, rows)
        current.tokens += [last, *(draft.tokens[node] for node in path)]

    def room(self) -> int:
        """Draft nodes that the cache of the current sequence can still take."""
        return self.sequence.capacity - len(self.tokens) - 1

    def _run(self, tokens: list[int], parents: list[int]) -> Tensor:
        current = self.sequence
        base = len(current.tokens)
        if base + len(tokens) > current.capacity:
            raise ValueError(
                f"the cache holds {current.capacity} rows: draft {self.room()} at most"
            )
        rows = Rows.of(base, parents, self.device)
        ids = torch.tensor(tokens, dtype=torch.int64, device=self.device)
        return self.model.run(ids, rows, current.keys, current.values)

    # -- the law, checked on this machine ------------------------------------------------------

    @torch.inference_mode()
    def _check(self) -> bool:
        """Whether rows get the same bits alone and in passes of 2, 16, 64 and 128 rows, on this
        machine's own kernels (first layer and head; all layers of a `Generic` model)."""
        ids = torch.arange(1, CPU_CHUNK + 1) * 7919 % self.vocab
        scratch = self._copy(Sequence(), 0, 2 * CPU_CHUNK)
        run, head = self.model.run, self.model.head

        def states(start: int, stop: int) -> Tensor:
            rows = Rows.of(start, [-1, *range(stop - start - 1)], self.device)
            return run(ids[start:stop], rows, scratch.keys, scratch.values, layers=1)

        alone = torch.cat([states(n, n + 1) for n in range(3)])
        logits = torch.cat([head(alone[n : n + 1]) for n in range(3)])
        same = True
        for count in (2, 16, 64, CPU_CHUNK):
            together, few = states(0, count), min(count, 3)
            same &= torch.equal(together[:few], alone[:few])
            if count <= 16:
                same &= torch.equal(head(together)[:few], logits[:few])
        if not same:
            log.warning(
                "this machine's kernels round by shape (%s): decoding plainly, so that "
                "speculation cannot change the answer",
                self.dtype_name,
            )
        return same


def common_prefix(one: list[int], other: list[int]) -> int:
    """Length of the longest common prefix."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(n for n in range(length) if one[n] != other[n])


def choose_device(name: str) -> torch.device:
    """`auto` takes cuda, then mps, then cpu."""
    if name != "auto":
        if name.startswith("cuda") and not torch.cuda.is_available():
            raise UnsupportedModel("device cuda: none is available here; use --device cpu")
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def choose_dtype(name: str, device: torch.device, folder: Path) -> str:
    """`auto`: bf16 on a GPU; on a CPU q8 for a model that was published quantised (its weights
    have no more than 8 bits of information each), else bf16 where the processor has it, else f32.
    """
    if name != "auto":
        if name not in {"f32", "bf16", "q8"}:
            raise ValueError(f"dtype {name!r}: choose auto, f32, bf16 or q8")
        if name == "q8" and device.type != "cpu":
            raise ValueError(f"dtype q8 runs on the CPU only: choose bf16 or f32 on {device.type}")
        return name
    if device.type != "cpu":
        return "bf16"
    note = folder / "draftline.json"
    if note.is_file() and json.loads(note.read_text("utf-8")).get("quantization"):
        return "q8"
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return "bf16" if native() else "f32"
