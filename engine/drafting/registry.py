"""The drafters by name, which `--drafter`, `draftline drafters` and the tests read.

A drafter is chosen as `name` or `name:option=value,option=value` (`sam:bias=0,factor=2`). Each
name has a `DrafterSpec`. Its builder runs once per engine and returns a factory that makes the
drafter of one answer. Those in BUILT_IN are here; packages add others as entry points of the group
`draftline.drafters`, and `research` in this repository is the first of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from engine import plugins
from engine.config import Config
from engine.drafting import builders
from engine.drafting.builders import Builder, DrafterFactory, EngineParts
from engine.plugins import PluginError

log = logging.getLogger(__name__)

GROUP = "draftline.drafters"  # the group of entry points
MAX_OPTION_NUMBER = 1_000_000
OptionValue = int | float | bool | str


class DrafterSpec(NamedTuple):
    """The registry's entry for a drafter."""

    summary: str
    build: Builder
    options: Mapping[str, OptionValue] = {}  # name -> default, which sets the type; "": required
    uses_corpus: bool = False  # can copy from `Config.corpus`
    runs_model: bool = False  # runs a model of its own, or parts of the target
    needs_tensors: bool = False  # reads the target's states, or writes into it, as torch's tensors


@dataclass(frozen=True, slots=True)
class DrafterChoice:
    """A drafter and the options that were given for it."""

    name: str
    spec: DrafterSpec
    options: dict[str, OptionValue] = field(default_factory=dict)

    def load(self, parts: EngineParts) -> DrafterFactory:
        """Load what the drafter needs. Raises ValueError or OSError with a one-line message."""
        options = {**self.spec.options, **self.options}
        for key, value in options.items():
            if value == "":
                usage = f"write {self.name}:{key}=..."
                raise ValueError(f"drafter {self.name}: option {key} is required: {usage}")
        if self.spec.needs_tensors and not parts.target.has_tensors:
            remedy = f"start it with --drafter {self.name}:..."
            raise ValueError(f"drafter {self.name}: this engine runs without torch: {remedy}")
        return self.spec.build(parts, options)


BUILT_IN: dict[str, DrafterSpec] = {
    "auto": DrafterSpec(
        "one tree from all sources, sized by what a pass costs on this machine; the default",
        builders.auto,
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
    "mtp": DrafterSpec(
        "MTP: the layer of a GGUF file that predicts the token after the next drafts",
        builders.mtp,
        {"most": 6},
        runs_model=True,
    ),
    "auto+mtp": DrafterSpec(
        "auto where copying pays more, mtp elsewhere",
        builders.auto_and_mtp,
        {"most": 6},
        runs_model=True,
    ),
}


def drafter_names() -> list[str]:
    """Return the names of all drafters, without importing any."""
    return [*BUILT_IN, *(name for name in plugins.offers(GROUP) if name not in BUILT_IN)]


def drafter_spec(name: str) -> DrafterSpec:
    """Look up a drafter by its name, and import it if it is a plug-in. Raises ValueError."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name not in plugins.offers(GROUP):
        raise ValueError(f"unknown drafter {name!r}: choose from {', '.join(drafter_names())}")
    return plugins.load(GROUP, name, _checked)


def usable_drafters(report: Callable[[str], None]) -> dict[str, DrafterSpec]:
    """Return all drafters that can be used.

    `report` receives a line for each plug-in that cannot be used.
    """
    found = dict(BUILT_IN)
    for name in plugins.offers(GROUP):
        try:
            if name in BUILT_IN:
                raise plugins.shadowed(GROUP, name)
            found[name] = drafter_spec(name)
        except PluginError as error:
            report(str(error))
    return found


def _checked(offered: object) -> DrafterSpec:
    """Return what an entry point names if it is a drafter, else raise TypeError."""
    if not isinstance(offered, DrafterSpec):
        raise TypeError(f"a DrafterSpec is expected, not a {type(offered).__name__}")
    return offered


def parse_choice(text: str) -> DrafterChoice:
    """Parse the value of `--drafter`. Raises ValueError for an unknown name, option or value."""
    name, _, rest = text.partition(":")
    spec = drafter_spec(name)
    known = f"choose from: {', '.join(spec.options)}" if spec.options else "it has no options"
    options: dict[str, OptionValue] = {}
    for pair in filter(None, rest.split(",")):
        key, _, value = pair.partition("=")
        if key not in spec.options:
            raise ValueError(f"drafter {name}: no option {key!r}: {known}")
        try:
            options[key] = _parse_value(value, spec.options[key])
        except ValueError as error:
            raise ValueError(f"drafter {name}: {pair}: {error}") from error
    return DrafterChoice(name, spec, options)


def choice_for(config: Config) -> DrafterChoice:
    """Return the drafter that `config` names.

    Raises ValueError if that drafter would ignore the configured corpus.
    """
    choice = parse_choice(config.drafter)
    if config.corpus is not None and not choice.spec.uses_corpus:
        usable = usable_drafters(log.warning)
        others = ", ".join(name for name, spec in usable.items() if spec.uses_corpus)
        raise ValueError(
            f"corpus {config.corpus}: drafter {choice.name} does not use a corpus: try {others}"
        )
    return choice


def _parse_value(text: str, default: OptionValue) -> OptionValue:
    """Parse `text` as a value of the type of `default`.

    Numbers are between 0 and MAX_OPTION_NUMBER. Raises ValueError.
    """
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
