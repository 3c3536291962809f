"""SpecDec++: a draft model with a head that says when its tokens will be refused.

Huang et al., "SpecDec++: Boosting Speculative Decoding via Adaptive Candidate Lengths". The head
reads the draft model's last hidden state of a token and says how likely that token is accepted;
a round ends once P(some token was refused) is above a threshold (`lengths.Likely`, with the lag of
one token that the paper's rule has). `engine.research.train.acceptance` makes the head. What it says decides
how long drafts are, never the answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.drafting.draft_length import ConfidenceStop
from engine.drafting.draft_model import DraftModel, SeparateModel
from engine.drafting.methods.head_checkpoint import CheckpointError, load_head, save_head

if TYPE_CHECKING:
    from engine.model.torch_target import TorchTarget

KIND = "acceptance head"
LAYERS = 3
THRESHOLD, BOUNDS = 0.7, (2, 20)  # as published


class AcceptanceHead(nn.Module):
    """`layers` blocks x + silu(W x + b), then logits [rows, 2] of (refused, accepted). `tied`: all
    blocks are the same one, as in the published code; else each has weights of its own, as in the
    paper."""

    def __init__(self, width: int, layers: int = LAYERS, tied: bool = False) -> None:
        super().__init__()
        self.width, self.layers, self.tied = width, layers, tied
        blocks = min(layers, 1) if tied else layers
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.out = nn.Linear(width, 2)

    def forward(self, hidden: Tensor) -> Tensor:
        x = hidden.float()
        for n in range(self.layers):
            x = x + F.silu(self.blocks[0 if self.tied else n](x))
        found: Tensor = self.out(x)
        return found

    @torch.inference_mode()
    def accepted(self, hidden: Tensor) -> Tensor:
        """Probability [rows] that the token is accepted at whose place `hidden` [rows, width]
        stands."""
        return self.forward(hidden).softmax(-1)[..., 1]

    def _published(self) -> dict[str, str]:
        """Names of tensors here and in published checkpoints."""
        names = {}
        for part in ("weight", "bias"):
            names[f"out.{part}"] = f"model.{self.layers}.{part}"
            for n in range(len(self.blocks)):
                names[f"blocks.{n}.{part}"] = f"model.{n}.linear.{part}"
        return names

    def save(self, folder: Path, model: Path) -> None:
        """For the draft model in the folder `model`, with the published names of tensors."""
        weights = {}
        mine = self.state_dict()
        weights = {theirs: mine[name] for name, theirs in self._published().items()}
        about = {
            "hidden_size": self.width, "num_layers": self.layers, "tie_blocks": self.tied,
        }  # fmt: skip
        save_head(folder, KIND, about, weights, model)

    @classmethod
    def load(cls, folder: Path, model: Path, width: int) -> AcceptanceHead:
        """Of a draft model in the folder `model`, whose states have `width`. CheckpointError with
        one line. A published head, which does not say it, is tied."""
        config, weights = load_head(folder, KIND, model, ("hidden_size", "num_layers"))
        if config["hidden_size"] != width:
            raise CheckpointError(
                f"{folder}: for states of {config['hidden_size']} values, those of {model.name} "
                f"have {width}: train a head for {model.name}"
            )
        head = cls(width, config["num_layers"], config.get("tie_blocks", True))
        names = head._published().items()
        try:
            head.load_state_dict({mine: weights[theirs] for mine, theirs in names})
        except (KeyError, RuntimeError) as error:
            why = " ".join(str(error).split())
            raise CheckpointError(f"{folder}: not such a head ({why}): train it again") from error
        return head.eval()


def specdec(
    model: TorchTarget,
    head: AcceptanceHead,
    threshold: float = THRESHOLD,
    bounds: tuple[int, int] = BOUNDS,
) -> DraftModel:
    """The drafter of one answer."""
    head = head.to(model.device)

    def belief(prob: float, hidden: Any) -> float:
        return float(head.accepted(hidden))

    return DraftModel(
        SeparateModel(model), ConfidenceStop(belief, threshold, bounds, lag=True), "specdec++"
    )
