"""vLLM's own proposers for replays, in the environment that `make test-vllm` makes.

Both are vLLM's classes; only their configuration and the batch that they look at are made here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from bench.vllm.replay import Propose
from bench.vllm.server import METHODS

MAX_ROWS, MAX_CONTEXT = 256, 1 << 17  # requests at once, tokens of a request


def peers() -> dict[str, Callable[[int], Propose]]:
    """Return the makers of proposers of at most so many tokens, by name.

    Only those that are installed are there.
    """
    if find_spec("vllm") is None:
        return {}
    known: dict[str, Callable[[int], Propose]] = {"ngram": ngram}
    if find_spec("arctic_inference") is not None:
        known["suffix"] = suffix
    return known


def ngram(tokens: int) -> Propose:
    """`NgramProposer`, with the lengths of METHODS."""
    module: Any = import_module("vllm.v1.spec_decode.ngram_proposer")
    proposer = module.NgramProposer(config(tokens, **METHODS["ngram"]))
    return lambda numbers, *batch: proposer.propose(tokens, *batch)


def suffix(tokens: int) -> Propose:
    """`SuffixDecodingProposer`, with vLLM's defaults."""
    module: Any = import_module("vllm.v1.spec_decode.suffix_decoding")
    defaults = import_module("vllm.config.speculative").SpeculativeConfig
    names = [name for name in vars(defaults) if name.startswith("suffix_decoding_")]
    proposer = module.SuffixDecodingProposer(
        config(tokens, **{name: getattr(defaults, name) for name in names})
    )
    prompts: dict[int, int] = {}  # tokens of each request's prompt

    def propose(numbers: Sequence[int], sampled: Any, sizes: Any, rows: Any) -> list[list[int]]:
        for number, new, size in zip(numbers, sampled, sizes, strict=False):
            prompts.setdefault(number, int(size) - len(new))
        ids = [str(number) for number in numbers]
        batch = SimpleNamespace(
            req_ids=ids,
            req_id_to_index={name: place for place, name in enumerate(ids)},
            num_tokens_no_spec=sizes,
            num_prompt_tokens=[prompts[number] for number in numbers],
            token_ids_cpu=rows,
        )
        drafts: list[list[int]] = proposer.propose(tokens, batch, sampled)
        return drafts

    return propose


def config(tokens: int, **asked: Any) -> Any:
    """Make as much of vLLM's configuration as the proposers read."""
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=tokens, **asked),
        model_config=SimpleNamespace(max_model_len=MAX_CONTEXT),
        scheduler_config=SimpleNamespace(max_num_seqs=MAX_ROWS),
        parallel_config=SimpleNamespace(tensor_parallel_size=1),
    )
