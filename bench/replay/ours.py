"""Draftline's drafter for `python -m bench replay`, as the engine makes it.

Its weights are the shipped ones, those of a file, or, with folds, those fitted on the other half of
the packages. No model is loaded, and only the library's cache is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.replay.peers import DraftlineRule
from engine.drafting._drafting import Ngram, Vocabulary, Weights
from engine.drafting.drafter_weights import SHIPPED, load_weights
from engine.drafting.next_token import WeightKind
from engine.drafting.stdlib_ngram import StdlibNgram
from engine.drafting.vocabulary import vocabulary
from engine.prompts.tokenizer import Tokenizer
from research.train.drafter import fit, lessons, line_start, token_count
from research.train.edit_records import RecordedEdit, replays

# The packages of the published results; other packages are halved alphabetically.
FOLDS = (
    frozenset({"requests", "flask", "werkzeug", "click"}),
    frozenset({"jinja2", "attrs", "black", "rich"}),
)
PARTS = (
    "near", "zero", "substitutions", "far", "output", "files", "library", "form", "around",
    "siblings", "learning",
)  # fmt: skip
Say = Callable[[str], None]


def halves(packages: list[str]) -> list[set[str]]:
    """Two halves of the packages; each is replayed with weights fitted on the other."""
    known = set(packages)
    if known <= FOLDS[0] | FOLDS[1] and all(known & fold for fold in FOLDS):
        return [known & fold for fold in FOLDS]
    ordered = sorted(known)
    middle = (len(ordered) + 1) // 2
    return [set(ordered[:middle]), set(ordered[middle:])]


def draftline_rule(
    edits: list[RecordedEdit],
    folds: list[set[str]],
    kind: WeightKind,
    tokenizer: Tokenizer,
    library: StdlibNgram,
    weights: Path,
    say: Say,
) -> DraftlineRule:
    """Make the rule with the weights of a file, or with weights fitted on folds.

    Those are fitted on each fold's complement; the file's are for packages that are in no fold.
    """
    for _ in library.build():
        pass
    words = vocabulary(tokenizer)
    found: dict[str, dict[WeightKind, Weights]] = {"": load_weights(weights)}
    for tested in folds:
        some = [edit for edit in edits if edit.package not in tested]
        one = fit_weights(some, kind, tokenizer, words, library.ngram, say)
        found |= {package: {kind: one} for package in tested}
    return DraftlineRule(words, library, found)


def fit_weights(
    edits: list[RecordedEdit],
    kind: WeightKind,
    tokenizer: Tokenizer,
    words: Vocabulary,
    ngram: Ngram,
    say: Say,
) -> Weights:
    """Weights of one kind as `draftline train drafter` fits and saves them, in half precision."""
    names = ", ".join(sorted({edit.package for edit in edits}))
    found = list(lessons(replays(edits, kind, tokenizer), tokenizer))
    say(f"training on {names}: {len(found):,} answers, {token_count(found):,} tokens")
    made = fit(found, words, ngram, line_start(tokenizer), say)
    return Weights(np.asarray(made.values, np.float16).astype(np.float32))


def describe_weights(file: Path, packages: set[str]) -> str:
    """Describe which weights these are, and whether they were fitted on `packages`."""
    from safetensors import safe_open

    with safe_open(str(file), "numpy") as opened:
        about: dict[str, Any] = json.loads((opened.metadata() or {}).get("draftline", "{}"))
    name = "the shipped ones" if file == SHIPPED else file.name
    names = {one.strip() for one in str(about.get("packages", "")).split(",")}
    if names & packages:
        return f"weights: {name}, FITTED ON THESE PACKAGES ({about.get('edits')}); see --folds"
    return f"weights: {name}, fitted on other packages ({about.get('edits')})"
