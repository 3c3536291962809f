"""What makes the drafters of an engine, by name in `names.py`.

Each function here is called once, with the engine's parts and the options given, all of them; it
loads what is needed or refuses in one line (ValueError, OSError), and returns a function that makes
the drafter of one answer. What a drafter needs of its own is imported there, so that choosing one
stays light.
"""

from __future__ import annotations

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
    from engine.model.cost_model import Cost
    from engine.prompts.tokenizer import Tokenizer
    from index.workspace.workspace import Workspace

TYPICAL_CONTEXT_TOKENS = 1024  # tokens in the cache, where passes of different sizes are compared


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What the drafters of an engine are made of."""

    config: Config
    target: Any  # engine.model.target.Target
    tokenizer: Tokenizer
    cost: Cost
    model: NextTokenModel
    history: AnswerHistory
    lengths: list[ConstantLength] = field(
        default_factory=list
    )  # that drafters share between answers


@dataclass(frozen=True, slots=True)
class RequestParts:
    """What belongs to one answer."""

    workspace: Workspace | None
    table: Callable[[int], Recycling]  # the client's own, by how many successors a token has


DrafterFactory = Callable[[RequestParts], Drafter]


def auto(
    parts: EngineParts, options: Mapping[str, Any]
) -> Callable[[RequestParts], NextTokenDrafter]:
    from engine.drafting.methods.token_recycling import WIDTH
    from engine.drafting.next_token import NextTokenDrafter

    budget = parts.config.budget
    return lambda asked: NextTokenDrafter(
        parts.model, parts.cost, budget, asked.workspace, asked.table(WIDTH)
    )


def prompt_lookup(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.methods.prompt_lookup import PromptLookupDrafter

    return lambda asked: PromptLookupDrafter(**options)


def sam(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.methods.sam import SamDrafter

    static = _static(parts)
    return lambda asked: SamDrafter(static(asked), **options)


def recycling(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting._drafting import Recycling
    from engine.drafting.methods.token_recycling import RecyclingDrafter, template

    shape, width = template(options["template"]), options["width"]
    if not 1 <= width <= 64:
        raise ValueError(f"width {width}: a token has 1 to 64 successors: choose one of these")
    size, cold, prompt = parts.target.vocab, options["cold"], options["prompt"]

    def make(asked: RequestParts) -> Drafter:
        table = Recycling(size, width) if cold else asked.table(width)
        return RecyclingDrafter(table, shape, prompt)

    return make


def sam_and(other: Callable[[EngineParts, Mapping[str, Any]], DrafterFactory], *taken: str) -> Any:
    """SAM-Decoding combined with another drafter, which takes the options `taken`."""

    def load(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
        from engine.drafting.methods.sam import SamHybridDrafter

        make, static = other(parts, options), _static(parts)
        own = {name: value for name, value in options.items() if name not in taken}
        return lambda asked: SamHybridDrafter(make(asked), static(asked), **own)

    return load


def rest(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.methods.rest import RestDrafter

    if parts.config.corpus is None and parts.config.workspace is None:
        raise ValueError(
            "drafter rest: there is nothing to copy from: name a corpus (`draftline train corpus` "
            "makes one) or a workspace"
        )
    static = _static(parts)

    def make(asked: RequestParts) -> Drafter:
        texts = static(asked)
        assert texts is not None
        return RestDrafter(texts, **options)

    return make


def draft_model(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.draft_model import draft_model, load_draft

    model = load_draft(options["model"], parts.config, parts.tokenizer)
    lengths = _lengths(parts, options)
    return lambda asked: draft_model(model, lengths)


def auto_and_model(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.draft_length import AdaptiveLength
    from engine.drafting.draft_model import draft_model, load_draft
    from engine.drafting.hybrid import HybridDrafter

    model = load_draft(options["model"], parts.config, parts.tokenizer)
    copied, lengths = auto(parts, {}), AdaptiveLength(options["most"])
    parts.lengths.append(lengths)
    return lambda asked: HybridDrafter(
        copied(asked), draft_model(model, lengths), lengths, parts.cost
    )


def self_draft(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.draft_model import self_draft

    layers = options["layers"] or parts.target.model.layers // 2
    lengths = _lengths(parts, options)
    return lambda asked: self_draft(layers, lengths)


def _lengths(parts: EngineParts, options: Mapping[str, Any]) -> ConstantLength:
    """How long drafts are; learnt over all answers, until the engine forgets."""
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

    model = load_draft(options["model"], parts.config, parts.tokenizer)
    head = AcceptanceHead.load(Path(options["head"]), model.folder, model.model.width)
    bounds = (options["least"], options["most"])
    specdec(model, head, options["threshold"], bounds)  # refuses what cannot be
    return lambda asked: specdec(model, head, options["threshold"], bounds)


def eagle(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.methods.eagle import auto_total, eagle
    from engine.drafting.methods.eagle_head import EagleHead

    target = parts.target
    head = EagleHead.load(Path(options["head"]), target.folder, target.settings)
    total = options["total"] or auto_total(lambda rows: parts.cost(rows, TYPICAL_CONTEXT_TOKENS))
    sizes = (total, options["depth"], options["width"])
    eagle(target, head, *sizes)  # refuses what cannot be
    return lambda asked: eagle(target, head, *sizes)


def sdsat(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.methods.sdsat import SdsatDrafter, install_embeddings, load

    target = parts.target
    learnt = load(Path(options["tokens"]), target.folder, target.model.width)
    slots, tree = options["slots"], options["tree"]
    SdsatDrafter([0], slots, tree)  # refuses what cannot be
    ids = install_embeddings(target, learnt)
    return lambda asked: SdsatDrafter(ids, slots, tree)


def _static(parts: EngineParts) -> Callable[[RequestParts], Datastore | None]:
    """What is copied from beside prompt and answer: the corpus, else the workspace, if any."""
    from engine.drafting.methods.datastore import WorkspaceDatastore, load

    if parts.config.corpus is not None:
        file, made_for = parts.config.corpus, parts.tokenizer.fingerprint
        corpus = load(file, made_for, parts.target.vocab, parts.config.model)
        return lambda asked: corpus
    return lambda asked: (
        WorkspaceDatastore(asked.workspace) if asked.workspace is not None else None
    )
