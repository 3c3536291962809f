"""A place where the next change is due: what to ask the model, and is its answer shown?

No model is run here, and nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from engine.records import Request
from lsp_server.next_edit.edit_history import tokens
from lsp_server.next_edit.signatures import Head, arguments, fits, gone_parameters
from lsp_server.next_edit.source_text import Part, Source


@dataclass(frozen=True, slots=True)
class Place:
    """Where the next change is due: whole lines, and what to ask the model about them."""

    uri: str
    start: int  # code points
    stop: int
    kind: Literal["rename", "signature", "repeat"]
    instruction: str
    reason: str  # for a person
    old: str  # names; heads of a function, such as "f(a, b)"; tokens
    new: str
    expected: str = ""  # the lines as they should become; "": only the model can say
    head: Head | None = None  # of the function whose call must fit
    unknown: frozenset[str] = frozenset()  # new parameters' names that say nothing at the call


def request(place: Place, text: str, path: str, version: int) -> Request:
    """What to ask the model; what it is expected to say is given as a prediction."""
    return Request(
        "edit", text, path, version, (place.start, place.stop), place.instruction,
        predictions=(place.expected,) if place.expected else (),
    )  # fmt: skip


def accept(place: Place, old_text: str, new_text: str) -> str | None:
    """Why the model's new text of the place is not shown; None where it is good."""
    if new_text == old_text:
        return "the model changed nothing"
    if place.head is not None:
        return _accept_call(place, place.head, old_text, new_text)
    if new_text == place.expected:
        return None
    if place.kind == "repeat":
        return "the model made another change than before"
    source = Source(place.uri, old_text)
    ours, wanted, theirs = (tokens(each) for each in (old_text, place.expected, new_text))
    if not len(ours) == len(wanted) == len(theirs):
        return "the model changed more than the name"
    at = 0
    for one, due, said in zip(ours, wanted, theirs, strict=True):
        if said != due:
            if due == place.new and said == place.old:
                return f"{place.old} is still there"
            if one != place.old or said != place.new or not source.is_quiet(at):
                return "the model changed more than the name"
        at += len(one)
    return None


def _accept_call(place: Place, head: Head, old_text: str, new_text: str) -> str | None:
    """Calls must fit now, keep what they were given, and be all that changed."""
    before, after = (_calls(place.uri, text, head.name) for text in (old_text, new_text))
    if len(before) != len(after):
        return "the model added or deleted a call"
    if _between(old_text, before) != _between(new_text, after):
        return "the model changed more than the call"
    gone, fresh = (
        len(gone_parameters(place.uri, *pair))
        for pair in ((place.old, place.new), (place.new, place.old))
    )
    for (ours, *_), (theirs, *_) in zip(before, after, strict=True):
        if not fits(Source(place.uri, new_text), head, theirs):
            return "the call still does not fit"
        old, new = ([part.text for part in parts] for parts in (ours, theirs))
        blocks = SequenceMatcher(None, old, new, False).get_matching_blocks()
        kept = sum(block.size for block in blocks)
        if len(old) - kept > gone or len(new) - kept > fresh:
            return "the model changed the call's other arguments"
        if guessed := place.unknown & {text.split("=")[-1].strip() for text in new}:
            return f"the model passes {min(guessed)}, which is not known there"
    return None


def _calls(uri: str, text: str, name: str) -> list[tuple[list[Part], int, int]]:
    source = Source(uri, text)
    found = (arguments(source, at, name) for at in source.words(name) if not source.is_quiet(at))
    return [call for call in found if call]


def _between(text: str, calls: list[tuple[list[Part], int, int]]) -> list[str]:
    """The text around the calls' brackets."""
    stops = [0, *(closed for _, _, closed in calls)]
    starts = [*(opened for _, opened, _ in calls), len(text)]
    return [text[a:b] for a, b in zip(stops, starts, strict=True)]
