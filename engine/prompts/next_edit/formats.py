"""The formats of models made for next edits, and which one a model has."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.prompts.control_marks import marked_ids
from engine.prompts.next_edit import sweep, zeta
from engine.prompts.next_edit.context import Count, EditContext, NextEditPrompt
from engine.prompts.prompt_encoder import PromptEncoder
from engine.prompts.tokenizer import Tokenizer
from engine.weights.errors import WeightsError


@dataclass(frozen=True, slots=True)
class NextEditFormat:
    """The way in which a family of models is prompted for the next edit."""

    name: str
    models: re.Pattern[str]  # matches their names
    marks: tuple[str, ...]  # their tokenizers must have these
    max_tokens: int  # tokens of prompt and answer
    build: Callable[[EditContext, int, Count], NextEditPrompt]  # at most so many tokens
    read: Callable[[str, str], str]  # (region, answer) -> new region; both may raise NoEdit
    is_region: bool  # the answer is the whole region, without marks


FORMATS = {
    format.name: format
    for format in (
        NextEditFormat(
            "sweep",
            re.compile(r"sweep[-_]?next[-_]?edit", re.IGNORECASE),
            (sweep.FILE,),
            8192,
            sweep.build,
            sweep.read,
            True,
        ),
        NextEditFormat(
            "zeta2.1",
            re.compile(r"zeta[-_]?2[._-]1", re.IGNORECASE),
            (zeta.SUFFIX, zeta.PREFIX, zeta.MIDDLE),
            4096,
            zeta.build,
            zeta.read,
            False,
        ),
    )
}


def format_of(model: str, name: str = "") -> NextEditFormat:
    """Return a model's format: the one with this name or, without, by the model's.

    WeightsError for an unknown one.
    """
    if name:
        if name not in FORMATS:
            raise WeightsError(f"next-edit format {name}: choose {' or '.join(FORMATS)}")
        return FORMATS[name]
    found = next((format for format in FORMATS.values() if format.models.search(model)), None)
    if found is None:
        raise WeightsError(
            f"{model}: its name tells no format of next-edit models: set the next-edit format to "
            f"{' or '.join(FORMATS)}, or choose another model"
        )
    return found


def check_marks(known: NextEditFormat, model: str, tokenizer: Tokenizer) -> None:
    """WeightsError where a model lacks a format's marks: it is made for another one."""
    if missing := [mark for mark in known.marks if mark not in tokenizer.control]:
        own = [
            format.name
            for format in FORMATS.values()
            if all(mark in tokenizer.control for mark in format.marks)
        ]
        remedy = f"set the next-edit format to {own[0]}" if own else "choose another model"
        raise WeightsError(
            f"{Path(model).name}: has no mark {missing[0]}, so it does not know the next-edit "
            f"format {known.name}: {remedy}"
        )


def counter(tokenizer: Tokenizer) -> Count:
    """Make a function that counts the tokens of prompts as the model reads them."""
    return lambda text: len(marked_ids(text, PromptEncoder(tokenizer)))
