"""Drafters by name. `NAMES` is the whole list: `--drafter`, `draftline drafters` and the tests of
the law read it.

A name stands for a function of `load.py`, which is called once, when the engine is made, with the
engine's parts and the options given (`sam:bias=0,factor=2`), and returns a function that makes the
drafter of one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.config import Config
from engine.drafting import builders
from engine.drafting.builders import DrafterFactory, EngineParts

MAX_OPTION_NUMBER = 1_000_000  # an option's number
Value = int | float | bool | str


class DrafterSpec(NamedTuple):
    """A drafter as people choose it."""

    line: str  # what it is
    load: Callable[
        [EngineParts, Mapping[str, Any]], DrafterFactory
    ]  # every option is there. ValueError, OSError
    options: Mapping[str, Value] = {}  # by name: the default, whose type it has; "": must be given
    copies: bool = False  # from a corpus
    runs: bool = False  # a model of its own, or parts of the target


@dataclass(frozen=True, slots=True)
class DrafterChoice:
    """A drafter and its options, as read from `name:option=value,option=value`."""

    name: str
    options: dict[str, Value] = field(default_factory=dict)

    def load(self, parts: EngineParts) -> DrafterFactory:
        """What makes its drafters. ValueError with one line where that is impossible."""
        named = DRAFTERS[self.name]
        options = {**named.options, **self.options}
        for key, value in options.items():
            if value == "":
                wanted = f"write {self.name}:{key}=..."
                raise ValueError(f"drafter {self.name}: it needs a {key}: {wanted}")
        return named.load(parts, options)


def parse_choice(text: str) -> DrafterChoice:
    """What `--drafter` names. ValueError with one line for what there is not."""
    name, _, rest = text.partition(":")
    if name not in DRAFTERS:
        raise ValueError(f"drafter {name!r}: there is none: choose from {', '.join(DRAFTERS)}")
    defaults = DRAFTERS[name].options
    options: dict[str, Value] = {}
    for each in filter(None, rest.split(",")):
        key, _, value = each.partition("=")
        if key not in defaults:
            known = ", ".join(defaults) or "it has none"
            raise ValueError(f"drafter {name}: no option {key!r}: choose from: {known}")
        try:
            options[key] = _parse_value(value, defaults[key])
        except ValueError as error:
            raise ValueError(f"drafter {name}: {each}: {error}") from error
    return DrafterChoice(name, options)


def choice_for(config: Config) -> DrafterChoice:
    """The drafter of a Config. ValueError with one line also where its corpus would not be used."""
    choice = parse_choice(config.drafter)
    if config.corpus is not None and not DRAFTERS[choice.name].copies:
        others = ", ".join(name for name, one in DRAFTERS.items() if one.copies)
        raise ValueError(
            f"corpus {config.corpus}: drafter {choice.name} does not copy from one: try {others}"
        )
    return choice


def _parse_value(text: str, default: Value) -> Value:
    """`text` as the default's type; numbers from 0 on."""
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


SAM_OPTIONS: dict[str, Value] = {"most": 60, "factor": 4.0, "across": 8, "bias": 5}
RUN_OPTIONS: dict[str, Value] = {"run": 40, "threshold": 5, "bias": 5}
TABLE_OPTIONS: dict[str, Value] = {"template": "2.2.2", "width": 8, "cold": False, "prompt": False}
EAGLE_OPTIONS: dict[str, Value] = {"head": "", "total": 60, "depth": 7, "width": 10}
DRAFTERS: dict[str, DrafterSpec] = {
    "auto": DrafterSpec(
        "all sources in one tree, as far as it pays on this machine; the default", builders.auto
    ),
    "prompt-lookup": DrafterSpec(
        "what followed the last 3, 2 or 1 tokens where they stood first",
        builders.prompt_lookup,
        {"longest": 3, "tokens": 10, "whole": True},
    ),
    "sam": DrafterSpec(
        "SAM-Decoding: what followed the longest match, 4 nodes for each token of it",
        builders.sam,
        SAM_OPTIONS,
        copies=True,
    ),
    "recycling": DrafterSpec(
        "Token Recycling: what the model itself last held likely after each token",
        builders.recycling,
        TABLE_OPTIONS,
    ),
    "sam+recycling": DrafterSpec(
        "SAM-Decoding where 5 tokens match, Token Recycling elsewhere",
        builders.sam_and(builders.recycling, *TABLE_OPTIONS),
        {**RUN_OPTIONS, **TABLE_OPTIONS, "template": "samd"},
        copies=True,
    ),
    "draft-model": DrafterSpec(
        "a smaller model of the same tokenizer writes ahead",
        builders.draft_model,
        {"model": "", "lengths": "adaptive", "most": 12, "threshold": 0.3},
        runs=True,
    ),
    "auto+draft-model": DrafterSpec(
        "auto where copying pays more, a smaller model writes ahead elsewhere",
        builders.auto_and_model,
        {"model": "", "most": 12},
        runs=True,
    ),
    "self-draft": DrafterSpec(
        "the model's own first layers write ahead; 0: half of them",
        builders.self_draft,
        {"layers": 0, "lengths": "adaptive", "most": 12, "threshold": 0.3},
        runs=True,
    ),
    "specdec++": DrafterSpec(
        "SpecDec++: a draft model whose acceptance head says when to stop",
        builders.specdec,
        {"model": "", "head": "", "threshold": 0.7, "least": 2, "most": 20},
        runs=True,
    ),
    "eagle2": DrafterSpec(
        "EAGLE-2: a head over the model's own states grows a tree; total=0: by this machine",
        builders.eagle,
        EAGLE_OPTIONS,
        runs=True,
    ),
    "sam+eagle2": DrafterSpec(
        "SAM-Decoding where 5 tokens match, EAGLE-2 elsewhere",
        builders.sam_and(builders.eagle, *EAGLE_OPTIONS),
        {**RUN_OPTIONS, **EAGLE_OPTIONS},
        copies=True,
        runs=True,
    ),
    "sdsat": DrafterSpec(
        "SDSAT: behind adaptive tokens the model itself says several tokens at once",
        builders.sdsat,
        {"tokens": "", "slots": 5, "tree": False},
        runs=True,
    ),
    "rest": DrafterSpec(
        "REST: the 64 likeliest continuations in a corpus or workspace",
        builders.rest,
        {"nodes": 64, "deep": 10, "longest": 16, "least": 2},
        copies=True,
    ),
}
