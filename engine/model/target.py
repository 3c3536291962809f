"""Target: the model whose text the user gets, its cache, and the sequences it remembers.

The cache holds exactly the rows of `tokens`. The last committed token is not in it yet: every
forward pass runs that token and the draft behind it, `keep` then drops the rows of what was not
accepted. Nothing here samples, drafts or knows text.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from engine.config import Config
from engine.model import _kernels
from engine.model.cuda.cuda_graphs import BUCKETS, MOST
from engine.model.cuda.static_forward import Static
from engine.model.hf_model import Generic, UnsupportedModel, refuse
from engine.model.kv_cache import Sequence, common_prefix, copied
from engine.model.llama import Llama, Named, supports
from engine.model.ops import Rows
from engine.model.placement import (
    choose_devices,
    choose_dtype,
    memory_told,
    placed,
    refuse_several,
    room_on,
)
from engine.model.row_invariance import checked
from engine.records import Draft, RequestError, Scores
from engine.weights.integrity import settings_of

log = logging.getLogger(__name__)

CPU_CHUNK, GPU_CHUNK = 128, 1024  # prompt tokens a pass: small enough to be cancelled in between
EXACT_CHUNK = 256  # where a row's attention is summed in parts, which take memory
MEMORY_FULL = "the card's memory is full: end what else uses it, or ask for less"
GRAIN = 256  # cache rows are allocated in multiples of this


class Target:
    """A loaded model. One thread at a time; `engine.worker` owns it."""

    def __init__(self, folder: Path, config: Config, weights: Named | None = None) -> None:
        """Load `folder` (config.json, safetensors). `weights`: tensors by name (a dict, or
        `engine.model.random_weights`) in place of files, for a model of Llama's family. UnsupportedModel,
        WeightsError or OSError with one line."""
        self.folder = folder
        self.settings = settings_of(folder)
        self.devices = choose_devices(config.device)  # in the order of the layers
        self.dtype_name = choose_dtype(config.dtype, self.device, folder)
        q8 = self.dtype_name == "q8"
        if self.device.type == "cpu":
            threads = config.threads or os.cpu_count() or 1
            _kernels.set_threads(threads)
            torch.set_num_threads(1 if q8 else threads)  # two pools would wait for each other
        int8 = self.dtype_name == "int8"
        dtype = torch.bfloat16 if int8 or self.dtype_name == "bf16" else torch.float32
        refuse(self.settings)
        cuda, ours = self.device.type == "cuda", supports(self.settings)
        several = len(self.devices) > 1
        if several:
            refuse_several(len(self.devices), self.settings, ours, self.dtype_name, config)
        exact = config.exact and self.device.type != "cpu"
        tiled = "exact" if exact else "int8" if int8 else ""  # what needs Triton's products
        if tiled and not (cuda and ours):
            raise UnsupportedModel(
                f"{tiled}: not for {self.settings.get('model_type')} on {self.device.type}: choose "
                "a Llama or Qwen model on cuda, or leave it out"
            )
        if tiled and find_spec("triton") is None:
            raise UnsupportedModel(f"{tiled} needs Triton on a GPU: install it, or leave it out")
        places, sizes, widths = None, None, (dtype.itemsize, 1 if int8 else dtype.itemsize)
        if ours:
            asked = config.max_context
            places, sizes = placed(folder.name, self.settings, widths, asked, self.devices)
        self.model: Llama | Generic
        with torch.inference_mode(), memory_told(folder.name, self.devices):
            if ours:
                self.model = Llama(folder, self.device, dtype, q8, exact, weights, int8, places)
            else:
                self.model = Generic(folder, self.device, dtype, q8)
        self.vocab = self.model.vocab
        self.context = min(config.max_context or 1 << 30, self.model.max_positions)
        memory = config.cache_bytes
        if sizes:
            self.context, memory = room_on(self.devices, sizes, self.context, memory)
        # On several devices attention takes memory for every row and every key: few rows at once.
        self.chunk = CPU_CHUNK if several or self.device.type == "cpu" else GPU_CHUNK
        self.limits = (max(1, config.cached_sequences), memory)
        self.sequences: list[Sequence] = []  # least recently used first; the last is current
        self.pending: tuple[int, Draft] | None = None  # what the last forward ran
        self.keeps_states = False  # hidden states stay beside keys and values: drafters may ask
        self.said_short = False
        self.most = MOST  # rows of a pass of static shape, at most
        self.static = None
        if isinstance(self.model, Llama) and _wants_static(config, self.devices) and not q8:
            self.static = Static(self.model, config.exact, config.graphs == "auto")
            self.chunk = EXACT_CHUNK if exact else self.chunk
        self.exact = checked(self) if self.device.type == "cpu" or exact else False

    @property
    def device(self) -> torch.device:
        """Where hidden states and logits are: the last layers' device."""
        return self.devices[-1]

    @property
    def device_name(self) -> str:
        """The device as a person would name it."""
        if self.device.type == "cuda":
            return ", ".join(torch.cuda.get_device_name(one) for one in self.devices)
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
        if self.keeps_states:  # what was read before that was asked is read again
            self.sequences = [one for one in self.sequences if one.states is not None]
        shared = [common_prefix(one.tokens, prompt[:-1]) for one in self.sequences]
        need = -(-(len(prompt) + room + 1) // GRAIN) * GRAIN
        best = max(range(len(shared)), key=lambda n: shared[n], default=-1)
        cached = shared[best] if best >= 0 else 0
        try:
            current = self._current(best, cached, need)
        except torch.OutOfMemoryError:
            cached, current = 0, self._only(need)
        del current.tokens[cached:]
        self.sequences.append(current)
        self._forget()
        return cached

    def _current(self, best: int, cached: int, need: int) -> Sequence:
        """The sequence to go on with, taken from those that are remembered, or a copy."""
        if cached and cached * 2 >= len(self.sequences[best].tokens):
            current = self.sequences.pop(best)  # it goes on, or was changed near its end
            return current if current.capacity >= need else self._copy(current, cached, need)
        return self._copy(self.sequences[best] if cached else Sequence(), cached, need)

    def _only(self, need: int) -> Sequence:
        """A fresh sequence where memory is short: all others are forgotten."""
        self.sequences.clear()
        torch.cuda.empty_cache()
        try:
            return self._copy(Sequence(), 0, need)
        except torch.OutOfMemoryError as error:
            raise RequestError(
                f"the card has no memory for {need} tokens: select fewer lines, or ask for a "
                "shorter answer"
            ) from error

    def resume(self, tokens: list[int], room: int) -> None:
        """Go on with a sequence. Nothing to do, unless another request ran since: then what is
        no longer in the cache is read again."""
        if self.tokens != tokens[:-1]:
            self.begin(tokens, room)
            for _ in self.prefill(tokens, room):
                pass

    def _copy(self, source: Sequence, rows: int, capacity: int) -> Sequence:
        return copied(self.model, source, rows, capacity, self.keeps_states)

    def _forget(self) -> None:
        count, limit = self.limits
        while len(self.sequences) > 1 and (
            len(self.sequences) > count or sum(one.nbytes for one in self.sequences) > limit
        ):
            del self.sequences[0]

    # -- passes --------------------------------------------------------------------------------

    @torch.inference_mode()
    def prefill(
        self,
        prompt: list[int],
        room: int,
        seen: Callable[[list[int], Tensor], None] | None = None,
    ) -> Iterator[int]:
        """After `begin`: read `prompt` but its last token, a chunk a turn; yields how many of its
        tokens are in the cache. Between two turns the caller may stop, or run another request.
        `seen` is given the tokens of each chunk and their hidden states [tokens, width]."""
        while len(self.tokens) < len(prompt) - 1 or self.tokens != prompt[:-1]:
            start = len(self.tokens)
            if self.tokens != prompt[:start]:
                self.begin(prompt, room)
                continue
            chunk = prompt[start : min(start + self.chunk, len(prompt) - 1)]
            try:
                states = self._read(chunk)
            except torch.OutOfMemoryError as error:
                if self.chunk <= MOST:
                    raise RuntimeError(MEMORY_FULL) from error
                self.chunk //= 2
                self._short(f"prompts are read {self.chunk} tokens at a time")
                continue
            self.tokens.extend(chunk)
            if seen is not None:
                seen(chunk, states)
            yield len(self.tokens)

    @torch.inference_mode()
    def forward(self, last: int, draft: Draft, hidden: bool = False) -> Scores:
        """Run the last committed token and the draft behind it; `keep` must follow. Where a card's
        memory is short, only the draft's first nodes are run: all that logits have rows for.

        Raises ValueError when the cache has no room; on any error the cache is as before."""
        if self.static is not None and len(draft) < MOST:
            return self._step(self.static, last, draft, hidden)
        states = self._run([last, *draft.tokens], [-1, *(parent + 1 for parent in draft.parents)])
        scores = Scores(self.model.head(states), states if hidden else None)
        self.pending = (last, draft)
        return scores

    def _step(self, static: Static, last: int, draft: Draft, hidden: bool) -> Scores:
        current = self.sequence
        base, (keys, values) = len(current.tokens), current.cache[0]
        while True:
            draft = draft.first(self.most - 1)
            self._check_room(1 + len(draft))
            parents = [-1, *(parent + 1 for parent in draft.parents)]
            try:
                said = static.step([last, *draft.tokens], parents, keys, values, base)
                logits = said.logits.to(torch.float32, copy=True)
                states = said.states.clone() if hidden else None
                break
            except torch.OutOfMemoryError as error:
                if not len(draft):
                    raise RuntimeError(MEMORY_FULL) from error
                self.most = max(size for size in BUCKETS if size <= len(draft))
                self._short(f"drafts are cut to {self.most - 1} tokens")
        if current.states is not None:
            current.states[base : base + len(parents)] = said.states
        self.pending = (last, draft)
        chosen, likely = partial(static.choices, said, logits), partial(static.likely, logits)
        return Scores(logits, states, chosen, likely)

    def _short(self, what: str) -> None:
        """Memory is short: free what is not in use, and say so once."""
        torch.cuda.empty_cache()
        if not self.said_short:
            log.warning("the card's memory is full: %s, which is slower", what)
        self.said_short = True

    def _check_room(self, rows: int) -> None:
        if len(self.tokens) + rows > self.sequence.capacity:
            raise ValueError(
                f"the cache holds {self.sequence.capacity} rows: draft {self.room()} at most"
            )

    @torch.inference_mode()
    def keep(self, path: list[int]) -> None:
        """Commit the last forward's first token and the draft's nodes on `path`, in order; the
        rows of all other nodes are dropped."""
        assert self.pending is not None, "keep without forward"
        last, draft = self.pending
        self.pending = None
        current, base = self.sequence, len(self.tokens) + 1
        kept = current.cache if current.states is None else (*current.cache, current.states)
        if self.static is not None and len(path) <= MOST:
            for part in kept:
                self.static.keep(part, base, path)
        elif path != list(range(len(path))):
            rows = torch.tensor(path) + base
            for part in kept:
                moved = part.index_select(-2, rows.to(part.device))
                part[..., base : base + len(path), :] = moved
        current.tokens += [last, *(draft.tokens[node] for node in path)]

    @torch.inference_mode()
    def skim(self, token: int, ahead: int, layers: int) -> Tensor:
        """The hidden state [1, width] of one token, `ahead` places behind the last committed one,
        after the first `layers` layers and the norm. What stands between was skimmed before. The
        committed rows stay as they are; the next `forward` writes over these."""
        current = self.sequence
        base = len(current.tokens) + ahead
        if base >= current.capacity:
            raise ValueError(f"the cache holds {current.capacity} rows: skim fewer tokens")
        if self.static is not None:
            keys, values = current.cache[0]
            return self.static.read([token], keys, values, base, layers)
        ids = torch.tensor([token], dtype=torch.int64, device=self.devices[0])
        rows = Rows.of(base, [-1], self.devices[0])
        return self.model.run(ids, rows, current.cache, layers)

    @torch.inference_mode()
    def logits(self, states: Tensor) -> Tensor:
        """Logits [rows, vocabulary] of hidden states that `prefill` gave."""
        return self.model.head(states)

    def room(self) -> int:
        """Draft nodes that the cache of the current sequence can still take."""
        room = self.sequence.capacity - len(self.tokens) - 1
        return room if self.static is None else min(room, self.most - 1)

    def warm(self) -> Iterator[tuple[int, int]]:
        """Capture the graphs that passes of static shape replay, one a turn: (captured, of)."""
        if self.static is not None:
            yield from self.static.warm()

    def _read(self, chunk: list[int]) -> Tensor:
        """Final hidden states of tokens that follow the committed ones."""
        if self.static is None:
            return self._run(chunk, [-1, *range(len(chunk) - 1)])
        self._check_room(len(chunk))
        current = self.sequence
        base, (keys, values) = len(current.tokens), current.cache[0]
        states = self.static.read(chunk, keys, values, base)
        if current.states is not None:
            current.states[base : base + len(chunk)] = states
        return states

    def _run(self, tokens: list[int], parents: list[int]) -> Tensor:
        current = self.sequence
        base = len(current.tokens)
        self._check_room(len(tokens))
        rows = Rows.of(base, parents, self.devices[0])
        ids = torch.tensor(tokens, dtype=torch.int64, device=self.devices[0])
        states = self.model.run(ids, rows, current.cache)
        if current.states is not None:
            current.states[base : base + len(tokens)] = states
        return states


def _wants_static(config: Config, devices: list[torch.device]) -> bool:
    """Whether passes have static shapes."""
    if config.graphs not in ("auto", "off", "static"):
        raise ValueError(f"graphs {config.graphs!r}: choose auto, off or static")
    if len(devices) > 1:
        log.warning("%s: passes are launched step by step, without CUDA graphs", config.device)
        return False
    cuda = devices[0].type == "cuda"
    return config.graphs == "static" or (cuda and (config.graphs == "auto" or config.exact))
