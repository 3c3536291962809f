"""The class that vLLM loads as its proposer of drafts. Nothing here imports vLLM.

    vllm serve MODEL --speculative-config '{"method": "custom_class",
        "model": "engine.drafting.hosts.vllm.Proposer", "num_speculative_tokens": 16}'

vLLM verifies the drafts, so they never change what it samples. It passes the requests of its batch
as rows of token ids; see `batch_drafter`. docs/vllm.md lists the environment variables.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.drafting.drafter_weights import load_weights_or_default
from engine.drafting.hosts.batch_drafter import BatchDrafter, DraftingLimits
from engine.drafting.hosts.prompt_blocks import TokenTexts
from engine.drafting.hosts.shared_text import RECENT_TOKENS, SharedText
from engine.drafting.next_token import NextTokenModel
from engine.drafting.stdlib_ngram import StdlibNgram
from engine.drafting.vocabulary import vocabulary
from engine.model.cost_model import USUAL, USUAL_GPU, CostModel
from engine.prompts.tokenizer import Tokenizer
from engine.weights import WeightsError, find, home
from engine.weights.resolve import path_of
from index._core import Frozen
from index.workspace.persistence import open_shared

log = logging.getLogger("vllm.draftline")  # below vLLM's own logger, which has a handler

INDEX, HISTORY, COSTS = "DRAFTLINE_INDEX", "DRAFTLINE_HISTORY", "DRAFTLINE_COSTS"
USUAL_COSTS = {"cpu": USUAL, "gpu": USUAL_GPU}  # costs of passes by their rows


class Proposer:
    """vLLM's interface of proposers (`method: custom_class`)."""

    def __init__(self, vllm_config: Any) -> None:
        """Open the drafter.

        Raises ValueError or OSError with one line that names what cannot be used.
        """
        model, speculative = vllm_config.model_config, vllm_config.speculative_config
        tokenizer = Tokenizer(tokenizer_folder(str(model.tokenizer)))
        limits = DraftingLimits(
            speculative.num_speculative_tokens,
            model.max_model_len,
            model.get_vocab_size(),
            frozenset(tokenizer.eos),
        )
        library = StdlibNgram(home(), tokenizer)
        if not library.ready:
            log.info("counting Python's standard library, once for each tokenizer")
            for _ in library.build():
                pass
        next_token = NextTokenModel(vocabulary(tokenizer), library, load_weights_or_default())
        index = shared_index(os.environ.get(INDEX, ""), tokenizer.fingerprint)
        self._drafter = BatchDrafter(
            next_token,
            TokenTexts(tokenizer.token_bytes),
            SharedText(index, history_tokens(os.environ.get(HISTORY, ""))),
            usual_costs(os.environ.get(COSTS, ""), vllm_config.device_config.device_type),
            limits,
        )
        tokens = sum(segment.living for segment in index)
        log.info("Draftline drafts up to %d tokens; shared index: %d tokens", limits.tokens, tokens)

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no model to load."""

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: NDArray[np.int32],
        token_ids_cpu: NDArray[np.int32],
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Propose a draft for each row of the batch, [] for none.

        `sampled_token_ids`: the tokens that the last pass added to it. `token_ids_cpu` [rows,
        context]: its tokens, `num_tokens_no_spec` of them.
        """
        return self._drafter.propose(sampled_token_ids, num_tokens_no_spec, token_ids_cpu)


def tokenizer_folder(name: str) -> Path:
    """Return the local folder of a tokenizer that vLLM has loaded, by folder or hub id."""
    try:
        found = path_of(name) or find(name)
    except WeightsError as error:
        raise ValueError(str(error)) from error
    if found is None or not (found / "tokenizer.json").is_file():
        raise ValueError(
            f"{name}: no tokenizer.json is at hand: give vLLM the folder of the model, "
            "or run `draftline models fetch` with this name first"
        )
    return found


def shared_index(paths: str, fingerprint: str) -> list[Frozen]:
    """Map the segments of saved indexes.

    Their folders are joined by the system's separator of paths. Raises OSError, or ValueError if
    one is damaged or made with another tokenizer.
    """
    folders = [Path(part) for part in paths.split(os.pathsep) if part]
    return [
        segment.core
        for folder in folders
        for segment in open_shared(folder, fingerprint)
        if isinstance(segment.core, Frozen)
    ]


def usual_costs(name: str, device: str) -> CostModel:
    """Return the costs of passes to start from, by default those of the device.

    Raises ValueError for an unknown name.
    """
    if name not in ("", *USUAL_COSTS):
        raise ValueError(f"{COSTS}={name}: choose from {', '.join(USUAL_COSTS)}")
    return CostModel(USUAL_COSTS[name or ("cpu" if device == "cpu" else "gpu")])


def history_tokens(text: str) -> int:
    """Read how many tokens of earlier answers are kept.

    Raises ValueError for what is no number.
    """
    if not text:
        return RECENT_TOKENS
    if not text.isdecimal():
        raise ValueError(f"{HISTORY}={text}: give a number of tokens, 0 to keep no answers")
    return int(text)
