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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import Config
from engine.drafting import Drafter

if TYPE_CHECKING:
    from engine.drafting._drafting import Recycling
    from engine.drafting.answer_history import AnswerHistory
    from engine.drafting.draft_length import ConstantLength
    from engine.drafting.methods.datastore import Datastore
    from engine.drafting.next_token import NextTokenDrafter, NextTokenModel
    from engine.model.cost_model import CostModel
    from engine.prompts.tokenizer import Tokenizer
    from index.workspace.workspace import Workspace

log = logging.getLogger(__name__)

TYPICAL_CONTEXT_TOKENS = 1024  # at which the costs of passes of different sizes are compared


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What an engine's drafters are built from."""

    config: Config
    target: Any  # engine.model.native.native_target.NativeTarget or torch_target.TorchTarget
    tokenizer: Tokenizer
    cost: CostModel
    model: NextTokenModel
    history: AnswerHistory
    lengths: list[ConstantLength] = field(default_factory=list)  # schedules shared by answers


@dataclass(frozen=True, slots=True)
class RequestParts:
    """What belongs to one answer."""

    workspace: Workspace | None
    table: Callable[[int], Recycling]  # row width -> the client's Token Recycling table


DrafterFactory = Callable[[RequestParts], Drafter]
Builder = Callable[[EngineParts, Mapping[str, Any]], DrafterFactory]


def auto(
    parts: EngineParts, options: Mapping[str, Any]
) -> Callable[[RequestParts], NextTokenDrafter]:
    from engine.drafting.methods.token_recycling import WIDTH
    from engine.drafting.next_token import NextTokenDrafter

    budget = parts.config.budget
    return lambda request: NextTokenDrafter(
        parts.model, parts.cost, budget, request.workspace, request.table(WIDTH)
    )


def prompt_lookup(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.methods.prompt_lookup import PromptLookupDrafter

    return lambda request: PromptLookupDrafter(**options)


def sam(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.methods.sam import SamDrafter

    _warn_if_cut(parts, options["most"] - 1)
    datastore = _datastore(parts)
    return lambda request: SamDrafter(datastore(request), **options)


def recycling(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting._drafting import Recycling
    from engine.drafting.methods.token_recycling import RecyclingDrafter, template

    shape, width = template(options["template"]), options["width"]
    if not 1 <= width <= 64:
        raise ValueError(f"width {width}: choose 1 to 64 successors per token")
    _warn_if_cut(parts, len(shape))
    vocabulary, cold, prompt = parts.target.vocab, options["cold"], options["prompt"]

    def make(request: RequestParts) -> Drafter:
        table = Recycling(vocabulary, width) if cold else request.table(width)
        return RecyclingDrafter(table, shape, prompt)

    return make


def sam_and(other: Builder, *other_options: str) -> Builder:
    """SAM-Decoding combined with another drafter, which receives `other_options`."""

    def build(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
        from engine.drafting.methods.sam import SamHybridDrafter

        make_other, datastore = other(parts, options), _datastore(parts)
        own = {name: value for name, value in options.items() if name not in other_options}
        return lambda request: SamHybridDrafter(make_other(request), datastore(request), **own)

    return build


def rest(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.methods.rest import RestDrafter

    if parts.config.corpus is None and parts.config.workspace is None:
        raise ValueError(
            "drafter rest: nothing to copy from: give a corpus (`draftline train corpus` makes "
            "one) or a workspace"
        )
    _warn_if_cut(parts, options["nodes"])
    datastore = _datastore(parts)

    def make(request: RequestParts) -> Drafter:
        source = datastore(request)
        assert source is not None
        return RestDrafter(source, **options)

    return make


def draft_model(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.draft_model import draft_model, load_draft

    model = load_draft(options["model"], parts.config, parts.tokenizer)
    lengths = _lengths(parts, options)
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


def self_draft(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.draft_model import self_draft

    layers = options["layers"] or parts.target.model.layers // 2
    lengths = _lengths(parts, options)
    return lambda request: self_draft(layers, lengths)


def _lengths(parts: EngineParts, options: Mapping[str, Any]) -> ConstantLength:
    """The schedule of draft lengths; it learns across answers until the engine forgets."""
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


def specdec(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.draft_model import load_draft
    from engine.drafting.methods.specdec import AcceptanceHead, specdec

    model = load_draft(options["model"], parts.config, parts.tokenizer, tensors=True)
    head = AcceptanceHead.load(Path(options["head"]), model.folder, model.model.width)
    bounds = (options["least"], options["most"])
    specdec(model, head, options["threshold"], bounds)  # validates the options
    return lambda request: specdec(model, head, options["threshold"], bounds)


def eagle(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    _check_tensors(parts, "eagle2")
    from engine.drafting.methods.eagle import auto_total, eagle
    from engine.drafting.methods.eagle_head import EagleHead

    target = parts.target
    head = EagleHead.load(Path(options["head"]), target.folder, target.settings)
    total = options["total"] or auto_total(lambda rows: parts.cost(rows, TYPICAL_CONTEXT_TOKENS))
    sizes = (total, options["depth"], options["width"])
    eagle(target, head, *sizes)  # validates the options
    _warn_if_cut(parts, total - 1)
    return lambda request: eagle(target, head, *sizes)


def sdsat(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    _check_tensors(parts, "sdsat")
    from engine.drafting.methods.sdsat import SdsatDrafter, install_embeddings, load

    target = parts.target
    embeddings = load(Path(options["tokens"]), target.folder, target.model.width)
    slots, tree = options["slots"], options["tree"]
    SdsatDrafter([0], slots, tree)  # validates the options
    ids = install_embeddings(target, embeddings)
    return lambda request: SdsatDrafter(ids, slots, tree)


def _check_tensors(parts: EngineParts, name: str) -> None:
    """ValueError where the engine was opened without torch, for a drafter that needs none."""
    if not parts.target.has_tensors:
        remedy = f"start it with --drafter {name}:..."
        raise ValueError(f"drafter {name}: this engine runs without torch: {remedy}")


def _warn_if_cut(parts: EngineParts, nodes: int) -> None:
    """Say where drafts of `nodes` nodes have more than a pass of the target takes."""
    if parts.target.static is None:
        return
    if nodes > (most := parts.target.max_rows - 1):
        log.warning(
            "drafts of %d nodes are cut to %d, as many as a pass on this card takes with a budget "
            "of %d", nodes, most, parts.config.budget,
        )  # fmt: skip


def _datastore(parts: EngineParts) -> Callable[[RequestParts], Datastore | None]:
    """What is copied from besides prompt and answer: the corpus, else the workspace, if any."""
    from engine.drafting.methods.datastore import WorkspaceDatastore, load

    if parts.config.corpus is not None:
        file, made_for = parts.config.corpus, parts.tokenizer.fingerprint
        corpus = load(file, made_for, parts.target.vocab, parts.config.model)
        return lambda request: corpus
    return lambda request: (
        WorkspaceDatastore(request.workspace) if request.workspace is not None else None
    )
