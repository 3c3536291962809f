"""Builders of the drafters in `registry.py`.

Each builder runs once per engine, with the engine's parts and the values of all options. It loads
what the drafter needs, or raises ValueError or OSError with a one-line message, and returns a
factory that makes the drafter of one answer. Modules are imported inside the builders so that
choosing one drafter does not import the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.config import Config
from engine.drafting import Drafter

if TYPE_CHECKING:
    from engine.drafting._drafting import Recycling
    from engine.drafting.answer_history import AnswerHistory
    from engine.drafting.draft_length import AdaptiveLength, ConstantLength
    from engine.drafting.draft_model import DraftModel
    from engine.drafting.next_token import NextTokenDrafter, NextTokenModel
    from engine.model.cost_model import CostModel
    from engine.prompts.tokenizer import Tokenizer
    from index.workspace.workspace import Workspace

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineParts:
    """The parts of an engine that its drafters are built from."""

    config: Config
    target: Any  # engine.model.native.native_target.NativeTarget or torch_target.TorchTarget
    tokenizer: Tokenizer
    cost: CostModel
    model: NextTokenModel
    history: AnswerHistory
    lengths: list[ConstantLength] = field(default_factory=list)  # schedules shared by answers


@dataclass(frozen=True, slots=True)
class RequestParts:
    """The parts that belong to one answer."""

    workspace: Workspace | None
    table: Callable[[int], Recycling]  # row width -> the client's Token Recycling table


DrafterFactory = Callable[[RequestParts], Drafter]
Builder = Callable[[EngineParts, Mapping[str, Any]], DrafterFactory]  # takes every option


def auto(
    parts: EngineParts, options: Mapping[str, Any]
) -> Callable[[RequestParts], NextTokenDrafter]:
    from engine.drafting.next_token import NextTokenDrafter
    from engine.drafting.recycling import WIDTH

    budget = parts.target.budget
    return lambda request: NextTokenDrafter(
        parts.model, parts.cost, budget, request.workspace, request.table(WIDTH)
    )


def draft_model(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.draft_model import draft_model, load_draft

    lengths = _lengths(parts, options)
    model = load_draft(options["model"], parts.config, parts.tokenizer)
    return lambda request: draft_model(model, lengths)


def auto_and_model(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.draft_length import AdaptiveLength
    from engine.drafting.draft_model import draft_model, load_draft
    from engine.drafting.hybrid import HybridDrafter

    model = load_draft(options["model"], parts.config, parts.tokenizer)
    make_auto, lengths = auto(parts, {}), AdaptiveLength(options["most"])
    parts.lengths.append(lengths)
    return lambda request: HybridDrafter(
        make_auto(request), draft_model(model, lengths), lengths, parts.cost
    )


def mtp(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    make, _ = _mtp_drafter(parts, options)
    return lambda request: make()


def auto_and_mtp(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.hybrid import HybridDrafter

    make, lengths = _mtp_drafter(parts, options)
    make_auto = auto(parts, {})
    return lambda request: HybridDrafter(make_auto(request), make(), lengths, parts.cost)


def _mtp_drafter(
    parts: EngineParts, options: Mapping[str, Any]
) -> tuple[Callable[[], DraftModel], AdaptiveLength]:
    """Load the layer that predicts the token after the next; ValueError where there is none."""
    from engine.drafting.draft_length import AdaptiveLength
    from engine.drafting.draft_model import DraftModel
    from engine.drafting.mtp import MtpSource
    from engine.model.native.native_target import NativeTarget

    target, lengths = parts.target, AdaptiveLength(options["most"])
    if not isinstance(target, NativeTarget):
        why = "mtp drafts only for GGUF files on the CPU: choose another drafter"
        raise ValueError(f"{target.folder}: {why}")
    layer = target.mtp_head()
    parts.lengths.append(lengths)
    return lambda: DraftModel(MtpSource(layer, target.head_tile), lengths, "mtp"), lengths


def _lengths(parts: EngineParts, options: Mapping[str, Any]) -> ConstantLength:
    """Make the schedule of draft lengths.

    It learns across answers until the engine forgets.
    """
    from engine.drafting.draft_length import (
        AdaptiveLength,
        ConfidenceStop,
        ConstantLength,
        HeuristicLength,
    )

    kinds = {"constant": ConstantLength, "heuristic": HeuristicLength, "adaptive": AdaptiveLength}
    kind, most = options["lengths"], options["most"]
    if kind == "confident":
        return ConfidenceStop(threshold=options["threshold"], bounds=(1, max(most, 1)))
    if kind not in kinds:
        raise ValueError(f"lengths {kind}: choose from {', '.join(kinds)}, confident")
    parts.lengths.append(kinds[kind](most))
    return parts.lengths[-1]


def warn_if_cut(parts: EngineParts, nodes: int) -> None:
    """Warn if drafts of `nodes` nodes have more than a pass of the target takes."""
    if parts.target.static is None:
        return
    if nodes > (most := parts.target.max_rows - 1):
        log.warning(
            "drafts of %d nodes are cut to %d, as many as a pass on this card takes with a budget "
            "of %d", nodes, most, parts.target.budget,
        )  # fmt: skip
