"""Fixtures and fakes of all tests: tiny random models on disk, a fake target, workspaces that are
closed after the test."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

import tests.support.small_model
import tests.support.triton_interpreter  # noqa: F401
from engine.records import Draft, Scores
from index import Workspace
from tests.support.encoders import Bytes
from tests.support.private_home import private_home
from tests.support.python_start.given_costs import GIVEN

# Else examples would have constants of all modules that a process has imported by then, and so
# depend on which tests ran before.
providers._get_local_constants = lambda: providers._local_constants

# `make test` runs the same examples every time; `make test-full` generates new ones.
settings.register_profile(
    "same",
    settings(),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore", settings.get_profile("same"), derandomize=False, print_blob=True
)
settings.load_profile("same")

# Before torch is loaded. `torch.set_num_threads` (below) is of the calling thread alone: that of a
# model would share each of its small products with a second one, which waits by spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")

CORPUS = (
    """def add(left, right):
    return left + right  # sums \u00e9t\u00e9 \U0001f60b

class Point:
    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y
""".splitlines(keepends=True)
    * 4
)
CHAT = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
PYTHON_START = Path(__file__).parent / "support" / "python_start"
KINDS = ("llama", "qwen2", "qwen3", "gpt2", "phi")


def byte_bpe(folder: Path, size: int = 300) -> int:
    """Train a small byte-level BPE tokenizer into `folder`; returns its size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<|end|>", "<|start|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(CHAT, "utf-8")
    return int(tokenizer.get_vocab_size())


def tiny_model(
    folder: Path,
    kind: str = "llama",
    seed: int = 0,
    context: int = 512,
    layers: int = 2,
    **changes: Any,
) -> Path:
    """Save a model with random weights in `folder`, as transformers does; returns `folder`.
    `changes`: of its config."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    vocab = byte_bpe(folder)
    common = {"vocab_size": vocab, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None}
    shapes: dict[str, dict[str, Any]] = {
        "gpt2": {"n_embd": 32, "n_layer": layers, "n_head": 4, "n_positions": context},
        "phi": {"partial_rotary_factor": 0.5},
    }
    llama = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": context,
        "tie_word_embeddings": False,
    }
    shape = shapes["gpt2"] if kind == "gpt2" else llama | shapes.get(kind, {})
    if kind == "qwen3":
        shape = shape | {"head_dim": 16}
    torch.manual_seed(seed)
    config = CONFIG_MAPPING[kind](**common | shape | changes)
    model = AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():  # larger weights, or all choices would be near ties
        for name, weight in model.named_parameters():
            if weight.dim() > 1 or name.endswith("bias"):
                weight.copy_(torch.randn_like(weight) * 0.3)
    model.save_pretrained(folder)
    return folder


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage among the many objects that all tests are: hardly any of them is."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """tiny(kind) -> the folder of a tiny random model, created once per session."""
    root = tmp_path_factory.mktemp("models")
    made: dict[str, Path] = {}

    def make(kind: str = "llama") -> Path:
        if kind not in made:
            made[kind] = tiny_model(root / kind, kind)
        return made[kind]

    return make


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """One thread wherever a test names no number: the models are tiny, and threads that spin for
    work would only keep the other test worker waiting."""
    import torch

    before, set_threads = torch.get_num_threads(), torch.set_num_threads
    set_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "cpu_count", lambda: 1)
        patch.setattr(torch, "set_num_threads", lambda count: set_threads(1))
        yield
    set_threads(before)


@pytest.fixture(scope="session", autouse=True)
def given_costs() -> Iterator[None]:
    """Engines get fixed costs, here and in the processes that tests start.
    tests/model/test_cost_measurement.py measures."""
    paths = [str(PYTHON_START), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        for name, given in GIVEN.items():
            patch.setattr(f"engine.engine.{name}", given)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        yield


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tests of this process have a cache folder of their own."""
    with private_home(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A cache folder (DRAFTLINE_HOME) for this test alone."""
    before = os.environ.get("DRAFTLINE_HOME")
    os.environ["DRAFTLINE_HOME"] = str(tmp_path / "home")
    yield tmp_path / "home"
    if before is None:
        del os.environ["DRAFTLINE_HOME"]
    else:
        os.environ["DRAFTLINE_HOME"] = before


@lru_cache(1 << 14)
def _hashed_row(vocab: int, seed: int) -> Any:
    import torch

    return torch.randn(vocab, generator=torch.Generator().manual_seed(seed)) * 3


class HashTarget:
    """A `Target` (engine/model/target.py) whose logits are a hash of the preceding tokens: no
    weights and no cache, so that a wrong `keep` or `resume` changes the next logits at once."""

    static, max_rows = None, 64  # of a model on a card
    budget = 48

    def __init__(self, vocab: int = 11, context: int = 400, seed: int = 0, eos: int = -1) -> None:
        self.vocab, self.context, self.seed, self.eos = vocab, context, seed, eos
        self.tokens: list[int] = []
        self.allocated = self.epoch = 0
        self.pending: tuple[int, Draft] | None = None

    def begin(self, prompt: list[int], capacity: int, owner: str = "") -> int:
        self.tokens, self.allocated = [], len(prompt) + capacity
        self.epoch += 1
        return 0

    def prefill(
        self, prompt: list[int], capacity: int, on_chunk: Any = None, owner: str = ""
    ) -> Iterator[int]:
        epoch = self.epoch
        while True:
            if self.epoch != epoch:  # another request ran between two chunks
                self.begin(prompt, capacity)
                epoch = self.epoch
            if len(self.tokens) >= len(prompt) - 1:
                return
            before, self.tokens = self.tokens, prompt[: min(len(self.tokens) + 3, len(prompt) - 1)]
            if on_chunk is not None:
                lengths = range(len(before) + 1, len(self.tokens) + 1)
                on_chunk(self.tokens[len(before) :], [self.tokens[:n] for n in lengths])
            yield len(self.tokens)

    def logits(self, states: list[list[int]]) -> Any:
        """The hidden state of a token is the sequence up to it."""
        import torch

        return torch.stack([self.row(text) for text in states])

    def resume(self, tokens: list[int], capacity: int, owner: str = "") -> None:
        self.tokens, self.allocated = tokens[:-1], len(tokens) + capacity
        self.epoch += 1

    def capacity(self) -> int:
        return self.allocated - len(self.tokens) - 1

    def row(self, text: list[int]) -> Any:
        """Logits after `text`. They depend on its last three tokens only, so that text repeats."""
        return _hashed_row(self.vocab, hash((self.seed, *text[-3:])) & 0x7FFFFFFF)

    def forward(self, last: int, draft: Draft, hidden: bool = False) -> Scores:
        import torch

        assert len(draft) <= self.capacity(), "a draft longer than the cache"
        texts = [[*self.tokens, last]]
        for node, parent in enumerate(draft.parents):
            texts.append([*texts[parent + 1], draft.tokens[node]])
        self.pending = (last, draft)
        return Scores(torch.stack([self.row(text) for text in texts]))

    def keep(self, path: list[int]) -> None:
        assert self.pending is not None
        last, draft = self.pending
        self.pending = None
        assert [draft.parents[node] for node in path] == [-1, *path[:-1]][: len(path)]
        self.tokens = [*self.tokens, last, *(draft.tokens[node] for node in path)]


@pytest.fixture
def workspaces() -> Iterator[Any]:
    """workspaces(...) -> a Workspace that is closed after the test."""
    made: list[Workspace] = []

    def make(root: Path | list[Path] | None = None, encoder: Any = None, **more: Any) -> Workspace:
        made.append(Workspace(root, encoder or Bytes(), **more))
        return made[-1]

    yield make
    for workspace in made:
        workspace.close()
