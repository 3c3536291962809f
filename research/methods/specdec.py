"""SpecDec++: a draft model with an acceptance head that decides when to stop drafting.

Huang et al., "SpecDec++: Boosting Speculative Decoding via Adaptive Candidate Lengths" (2024, arXiv
2405.19715). The head predicts from the draft model's last hidden state of a token how likely that
token is to be accepted; drafting stops once P(some token is rejected) exceeds a threshold
(`draft_length.ConfidenceStop`, with the published rule's lag of one token). Heads are trained by
`research.train.acceptance`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.drafting.draft_length import ConfidenceStop
from engine.drafting.draft_model import DraftModel, SeparateModel
from research.methods.head_checkpoint import CheckpointError, load_head, save_head

if TYPE_CHECKING:
    from engine.model.torch.torch_target import TorchTarget

KIND = "acceptance head"
LAYERS = 3
THRESHOLD, BOUNDS = 0.7, (2, 20)  # as published


class AcceptanceHead(nn.Module):
    """A stack of `layers` blocks x + silu(W x + b), then logits [rows, 2] of (rejected, accepted).

    `tied`: all blocks share their weights, as in the published code; else each has its own, as in
    the paper.
    """

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
        """Predict P(accepted) [rows] of the tokens whose hidden states [rows, width] are given."""
        return self.forward(hidden).softmax(-1)[..., 1]

    def _published(self) -> dict[str, str]:
        """Map our tensor names to those of published checkpoints."""
        names = {}
        for part in ("weight", "bias"):
            names[f"out.{part}"] = f"model.{self.layers}.{part}"
            for n in range(len(self.blocks)):
                names[f"blocks.{n}.{part}"] = f"model.{n}.linear.{part}"
        return names

    def save(self, folder: Path, model: Path) -> None:
        """Save for the draft model in the folder `model`, with the published tensor names."""
        mine = self.state_dict()
        weights = {theirs: mine[name] for name, theirs in self._published().items()}
        about = {
            "hidden_size": self.width, "num_layers": self.layers, "tie_blocks": self.tied,
        }  # fmt: skip
        save_head(folder, KIND, about, weights, model)

    @classmethod
    def load(cls, folder: Path, model: Path, width: int) -> AcceptanceHead:
        """Load a head for the draft model in the folder `model`.

        `width`: values in its hidden states. Raises CheckpointError. Heads that do not say
        otherwise are tied, as published.
        """
        config, weights = load_head(folder, KIND, model, ("hidden_size", "num_layers"))
        if config["hidden_size"] != width:
            raise CheckpointError(
                f"{folder}: trained for hidden size {config['hidden_size']}, {model.name} has "
                f"{width}: train a head for {model.name}"
            )
        head = cls(width, config["num_layers"], config.get("tie_blocks", True))
        names = head._published().items()
        try:
            head.load_state_dict({mine: weights[theirs] for mine, theirs in names})
        except (KeyError, RuntimeError) as error:
            why = " ".join(str(error).split())
            raise CheckpointError(
                f"{folder}: not an acceptance head ({why}): train it again"
            ) from error
        return head.eval()


def specdec(
    model: TorchTarget,
    head: AcceptanceHead,
    threshold: float = THRESHOLD,
    bounds: tuple[int, int] = BOUNDS,
) -> DraftModel:
    """Make a drafter for one answer."""
    head = head.to(model.device)

    def estimate(prob: float, hidden: Any) -> float:
        return float(head.accepted(hidden))

    return DraftModel(
        SeparateModel(model), ConfidenceStop(estimate, threshold, bounds, lag=True), "specdec++"
    )
