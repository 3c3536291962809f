"""The published methods as drafters by name: the entry points `draftline.drafters` of this package.

Each builder runs once per engine, with the engine's parts and the values of all options. It loads
what the drafter needs, or raises ValueError or OSError with a one-line message, and returns a
factory that makes the drafter of one answer. Modules are imported inside the builders so that
choosing one drafter does not import the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.drafting import Drafter
from engine.drafting.builders import (
    Builder,
    DrafterFactory,
    EngineParts,
    RequestParts,
    warn_if_cut,
)
from engine.drafting.registry import DrafterSpec, OptionValue

if TYPE_CHECKING:
    from research.methods.datastore import Datastore

TYPICAL_CONTEXT_TOKENS = 1024  # tokens at which the costs of passes of different sizes are compared


def prompt_lookup(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from research.methods.prompt_lookup import PromptLookupDrafter

    return lambda request: PromptLookupDrafter(**options)


def sam(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from research.methods.sam import SamDrafter

    warn_if_cut(parts, options["most"] - 1)
    datastore = _datastore(parts)
    return lambda request: SamDrafter(datastore(request), **options)


def recycling(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting._drafting import Recycling
    from research.methods.token_recycling import RecyclingDrafter, template

    shape, width = template(options["template"]), options["width"]
    if not 1 <= width <= 64:
        raise ValueError(f"width {width}: choose 1 to 64 successors per token")
    warn_if_cut(parts, len(shape))
    vocabulary, cold, prompt = parts.target.vocab, options["cold"], options["prompt"]

    def make(request: RequestParts) -> Drafter:
        table = Recycling(vocabulary, width) if cold else request.table(width)
        return RecyclingDrafter(table, shape, prompt)

    return make


def sam_and(other: Builder, *other_options: str) -> Builder:
    """Combine SAM-Decoding with another drafter, which receives `other_options`."""

    def build(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
        from research.methods.sam import SamHybridDrafter

        make_other, datastore = other(parts, options), _datastore(parts)
        own = {name: value for name, value in options.items() if name not in other_options}
        return lambda request: SamHybridDrafter(make_other(request), datastore(request), **own)

    return build


def rest(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from research.methods.rest import RestDrafter

    if parts.config.corpus is None and parts.config.workspace is None:
        raise ValueError(
            "drafter rest: nothing to copy from: give a corpus (`draftline train corpus` makes "
            "one) or a workspace"
        )
    warn_if_cut(parts, options["nodes"])
    datastore = _datastore(parts)

    def make(request: RequestParts) -> Drafter:
        source = datastore(request)
        assert source is not None
        return RestDrafter(source, **options)

    return make


def specdec(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from engine.drafting.draft_model import load_draft
    from research.methods.specdec import AcceptanceHead, specdec

    model = load_draft(options["model"], parts.config, parts.tokenizer, tensors=True)
    head = AcceptanceHead.load(Path(options["head"]), model.folder, model.model.width)
    bounds = (options["least"], options["most"])
    specdec(model, head, options["threshold"], bounds)  # validates the options
    return lambda request: specdec(model, head, options["threshold"], bounds)


def eagle(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from research.methods.eagle import auto_total, eagle
    from research.methods.eagle_head import EagleHead

    target = parts.target
    head = EagleHead.load(Path(options["head"]), target.folder, target.settings)
    total = options["total"] or auto_total(lambda rows: parts.cost(rows, TYPICAL_CONTEXT_TOKENS))
    sizes = (total, options["depth"], options["width"])
    eagle(target, head, *sizes)  # validates the options
    warn_if_cut(parts, total - 1)
    return lambda request: eagle(target, head, *sizes)


def sdsat(parts: EngineParts, options: Mapping[str, Any]) -> DrafterFactory:
    from research.methods.sdsat import SdsatDrafter, install_embeddings, load

    target = parts.target
    embeddings = load(Path(options["tokens"]), target.folder, target.model.width)
    slots, tree = options["slots"], options["tree"]
    SdsatDrafter([0], slots, tree)  # validates the options
    ids = install_embeddings(target, embeddings)
    return lambda request: SdsatDrafter(ids, slots, tree)


def _datastore(parts: EngineParts) -> Callable[[RequestParts], Datastore | None]:
    """Choose what to copy from besides prompt and answer: the corpus, else any workspace."""
    from research.methods.datastore import WorkspaceDatastore, load

    if parts.config.corpus is not None:
        file, made_for = parts.config.corpus, parts.tokenizer.fingerprint
        corpus = load(file, made_for, parts.target.vocab, parts.config.model)
        return lambda request: corpus
    return lambda request: (
        WorkspaceDatastore(request.workspace) if request.workspace is not None else None
    )


# -- the entry points ----------------------------------------------------------------------------

SAM_OPTIONS: dict[str, OptionValue] = {"most": 60, "factor": 4.0, "across": 8, "bias": 5}
RUN_OPTIONS: dict[str, OptionValue] = {"run": 40, "threshold": 5, "bias": 5}
RECYCLING_OPTIONS: dict[str, OptionValue] = {
    "template": "2.2.2",
    "width": 8,
    "cold": False,
    "prompt": False,
}
EAGLE_OPTIONS: dict[str, OptionValue] = {"head": "", "total": 60, "depth": 7, "width": 10}
PROMPT_LOOKUP = DrafterSpec(
    "Prompt lookup: what followed the first occurrence of the last 3, 2 or 1 tokens",
    prompt_lookup,
    {"longest": 3, "tokens": 10, "whole": True},
)
SAM = DrafterSpec(
    "SAM-Decoding: what followed the longest suffix match, 4 nodes per matched token",
    sam,
    SAM_OPTIONS,
    uses_corpus=True,
)
RECYCLING = DrafterSpec(
    "Token Recycling: the model's own most likely successors of each token",
    recycling,
    RECYCLING_OPTIONS,
)
SAM_RECYCLING = DrafterSpec(
    "SAM-Decoding where 5 tokens match, Token Recycling elsewhere",
    sam_and(recycling, *RECYCLING_OPTIONS),
    {**RUN_OPTIONS, **RECYCLING_OPTIONS, "template": "samd"},
    uses_corpus=True,
)
SPECDEC = DrafterSpec(
    "SpecDec++: a draft model with an acceptance head that decides when to stop",
    specdec,
    {"model": "", "head": "", "threshold": 0.7, "least": 2, "most": 20},
    runs_model=True,
)
EAGLE2 = DrafterSpec(
    "EAGLE-2: a head on the model's hidden states drafts a tree; total=0: sized by cost",
    eagle,
    EAGLE_OPTIONS,
    runs_model=True,
    needs_tensors=True,
)
SAM_EAGLE2 = DrafterSpec(
    "SAM-Decoding where 5 tokens match, EAGLE-2 elsewhere",
    sam_and(eagle, *EAGLE_OPTIONS),
    {**RUN_OPTIONS, **EAGLE_OPTIONS},
    uses_corpus=True,
    runs_model=True,
    needs_tensors=True,
)
SDSAT = DrafterSpec(
    "SDSAT: the model itself predicts several tokens at once behind adaptive tokens",
    sdsat,
    {"tokens": "", "slots": 5, "tree": False},
    runs_model=True,
    needs_tensors=True,
)
REST = DrafterSpec(
    "REST: the 64 most likely continuations in a corpus or workspace",
    rest,
    {"nodes": 64, "deep": 10, "longest": 16, "least": 2},
    uses_corpus=True,
)
