"""The registry of drafters, which `--drafter`, `draftline drafters` and the tests read.

A drafter is chosen as `name` or `name:option=value,option=value` (`sam:bias=0,factor=2`). Each
name maps to a builder in `builders.py`, which runs once per engine and returns a factory that makes
the drafter of one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.config import Config
from engine.drafting import builders
from engine.drafting.builders import DrafterFactory, EngineParts

MAX_OPTION_NUMBER = 1_000_000
OptionValue = int | float | bool | str


class DrafterSpec(NamedTuple):
    """An entry of the registry."""

    summary: str
    build: Callable[[EngineParts, Mapping[str, Any]], DrafterFactory]  # receives every option
    options: Mapping[str, OptionValue] = {}  # name -> default, which sets the type; "": required
    uses_corpus: bool = False  # can copy from `Config.corpus`
    runs_model: bool = False  # runs a model of its own, or parts of the target
    needs_tensors: bool = False  # reads the target's states, or writes into it, as torch's tensors


@dataclass(frozen=True, slots=True)
class DrafterChoice:
    """A drafter and the options that were given for it."""

    name: str
    options: dict[str, OptionValue] = field(default_factory=dict)

    @property
    def spec(self) -> DrafterSpec:
        """The drafter's entry of the registry."""
        return DRAFTERS[self.name]

    def load(self, parts: EngineParts) -> DrafterFactory:
        """Load what the drafter needs. Raises ValueError or OSError with a one-line message."""
        spec = self.spec
        options = {**spec.options, **self.options}
        for key, value in options.items():
            if value == "":
                usage = f"write {self.name}:{key}=..."
                raise ValueError(f"drafter {self.name}: option {key} is required: {usage}")
        return spec.build(parts, options)


def parse_choice(text: str) -> DrafterChoice:
    """Parse the value of `--drafter`. Raises ValueError for an unknown name, option or value."""
    name, _, rest = text.partition(":")
    if name not in DRAFTERS:
        raise ValueError(f"unknown drafter {name!r}: choose from {', '.join(DRAFTERS)}")
    defaults = DRAFTERS[name].options
    options: dict[str, OptionValue] = {}
    for pair in filter(None, rest.split(",")):
        key, _, value = pair.partition("=")
        if key not in defaults:
            known = f"choose from: {', '.join(defaults)}" if defaults else "it has no options"
            raise ValueError(f"drafter {name}: no option {key!r}: {known}")
        try:
            options[key] = _parse_value(value, defaults[key])
        except ValueError as error:
            raise ValueError(f"drafter {name}: {pair}: {error}") from error
    return DrafterChoice(name, options)


def choice_for(config: Config) -> DrafterChoice:
    """The drafter that `config` names. Raises ValueError if that would ignore its corpus."""
    choice = parse_choice(config.drafter)
    if config.corpus is not None and not DRAFTERS[choice.name].uses_corpus:
        others = ", ".join(name for name, spec in DRAFTERS.items() if spec.uses_corpus)
        raise ValueError(
            f"corpus {config.corpus}: drafter {choice.name} does not use a corpus: try {others}"
        )
    return choice


def _parse_value(text: str, default: OptionValue) -> OptionValue:
    """`text` as the type of `default`. Numbers are between 0 and MAX_OPTION_NUMBER."""
    if isinstance(default, bool):
        if text not in ("yes", "no"):
            raise ValueError("write yes or no")
        return text == "yes"
    if isinstance(default, str):
        if not text:
            raise ValueError("write a name")
        return text
    if not text.isascii() or not text.replace(".", "", isinstance(default, float)).isdigit():
        raise ValueError(f"write a number, such as {default}")
    number = type(default)(text)
    if number > MAX_OPTION_NUMBER:
        raise ValueError(f"write {MAX_OPTION_NUMBER} or less")
    return number


SAM_OPTIONS: dict[str, OptionValue] = {"most": 60, "factor": 4.0, "across": 8, "bias": 5}
RUN_OPTIONS: dict[str, OptionValue] = {"run": 40, "threshold": 5, "bias": 5}
RECYCLING_OPTIONS: dict[str, OptionValue] = {
    "template": "2.2.2",
    "width": 8,
    "cold": False,
    "prompt": False,
}
EAGLE_OPTIONS: dict[str, OptionValue] = {"head": "", "total": 60, "depth": 7, "width": 10}
DRAFTERS: dict[str, DrafterSpec] = {
    "auto": DrafterSpec(
        "one tree from all sources, sized by what a pass costs on this machine; the default",
        builders.auto,
    ),
    "prompt-lookup": DrafterSpec(
        "Prompt lookup: what followed the first occurrence of the last 3, 2 or 1 tokens",
        builders.prompt_lookup,
        {"longest": 3, "tokens": 10, "whole": True},
    ),
    "sam": DrafterSpec(
        "SAM-Decoding: what followed the longest suffix match, 4 nodes per matched token",
        builders.sam,
        SAM_OPTIONS,
        uses_corpus=True,
    ),
    "recycling": DrafterSpec(
        "Token Recycling: the model's own most likely successors of each token",
        builders.recycling,
        RECYCLING_OPTIONS,
    ),
    "sam+recycling": DrafterSpec(
        "SAM-Decoding where 5 tokens match, Token Recycling elsewhere",
        builders.sam_and(builders.recycling, *RECYCLING_OPTIONS),
        {**RUN_OPTIONS, **RECYCLING_OPTIONS, "template": "samd"},
        uses_corpus=True,
    ),
    "draft-model": DrafterSpec(
        "a smaller model with the same tokenizer drafts",
        builders.draft_model,
        {"model": "", "lengths": "adaptive", "most": 12, "threshold": 0.3},
        runs_model=True,
    ),
    "auto+draft-model": DrafterSpec(
        "auto where copying pays more, a smaller model elsewhere",
        builders.auto_and_model,
        {"model": "", "most": 12},
        runs_model=True,
    ),
    "self-draft": DrafterSpec(
        "the model's own first layers draft; layers=0: half of them",
        builders.self_draft,
        {"layers": 0, "lengths": "adaptive", "most": 12, "threshold": 0.3},
        runs_model=True,
    ),
    "specdec++": DrafterSpec(
        "SpecDec++: a draft model with an acceptance head that decides when to stop",
        builders.specdec,
        {"model": "", "head": "", "threshold": 0.7, "least": 2, "most": 20},
        runs_model=True,
    ),
    "eagle2": DrafterSpec(
        "EAGLE-2: a head on the model's hidden states drafts a tree; total=0: sized by cost",
        builders.eagle,
        EAGLE_OPTIONS,
        runs_model=True,
        needs_tensors=True,
    ),
    "sam+eagle2": DrafterSpec(
        "SAM-Decoding where 5 tokens match, EAGLE-2 elsewhere",
        builders.sam_and(builders.eagle, *EAGLE_OPTIONS),
        {**RUN_OPTIONS, **EAGLE_OPTIONS},
        uses_corpus=True,
        runs_model=True,
        needs_tensors=True,
    ),
    "sdsat": DrafterSpec(
        "SDSAT: the model itself predicts several tokens at once behind adaptive tokens",
        builders.sdsat,
        {"tokens": "", "slots": 5, "tree": False},
        runs_model=True,
        needs_tensors=True,
    ),
    "rest": DrafterSpec(
        "REST: the 64 most likely continuations in a corpus or workspace",
        builders.rest,
        {"nodes": 64, "deep": 10, "longest": 16, "least": 2},
        uses_corpus=True,
    ),
}
