"""A candidate for the next edit: its new text, or what to ask the model for it.

A model's answer is judged before it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from engine.editing.signatures import (
    CallSite,
    Signature,
    call_fits,
    find_calls,
    missing_parameters,
)
from engine.records import Request
from lsp_server.next_edit.source_text import SourceText


@dataclass(frozen=True, slots=True)
class Candidate:
    """Whole lines of a document that probably need a change."""

    uri: str
    start: int  # code points
    stop: int
    kind: Literal["rename", "signature", "repeat"]
    instruction: str  # for the model; "" for what is certain, which is written as expected
    reason: str  # shown to the user
    old: str  # a name, a signature such as "f(a, b)", or a line
    new: str
    expected: str = ""  # the new lines; "" if only the model can tell
    signatures: tuple[Signature, Signature] | None = None  # the old one, and what calls must fit
    unknown: frozenset[str] = frozenset()  # new parameters whose names are not known at the call
    path: str = ""  # tells the language of the lines

    def overlaps(self, uri: str, start: int, stop: int) -> bool:
        """Return whether the lines overlap or touch a span."""
        return self.uri == uri and self.start <= stop and start <= self.stop

    def request(self, text: str, path: str, version: int) -> Request:
        """Make the request for the model, with the expected lines as a prediction."""
        return Request(
            "edit", text, path, version, (self.start, self.stop), self.instruction,
            predictions=(self.expected,) if self.expected else (),
        )  # fmt: skip


def rejection_reason(candidate: Candidate, old_text: str, new_text: str) -> str | None:
    """Say why the model's new text for the candidate is rejected; None if it may be shown."""
    if new_text == old_text:
        return "the model changed nothing"
    if candidate.signatures:
        return _call_rejection(candidate, *candidate.signatures, old_text, new_text)
    if new_text == candidate.expected:
        return None
    return "the model made another change than before"


def _call_rejection(
    candidate: Candidate, was: Signature, now: Signature, old_text: str, new_text: str
) -> str | None:
    """Say why new text for calls is rejected; None if it may be shown.

    It may if the calls fit now, keep their other arguments, and nothing else changed.
    """
    before, after = (
        _calls(candidate.path or candidate.uri, text, now.name) for text in (old_text, new_text)
    )
    if len(before) != len(after):
        return "the model added or deleted a call"
    if _between(old_text, before) != _between(new_text, after):
        return "the model changed more than the call"
    removed, added = len(missing_parameters(was, now)), len(missing_parameters(now, was))
    for old_call, new_call in zip(before, after, strict=True):
        if not call_fits(now, new_call):
            return "the call still does not fit"
        old, new = ([item.text for item in call.arguments] for call in (old_call, new_call))
        blocks = SequenceMatcher(None, old, new, False).get_matching_blocks()
        kept = sum(block.size for block in blocks)
        if len(old) - kept > removed or len(new) - kept > added:
            return "the model changed the call's other arguments"
        if guessed := candidate.unknown & {text.split("=")[-1].strip() for text in new}:
            return f"the model passes {min(guessed)}, which is not known there"
    return None


def _calls(uri: str, text: str, name: str) -> list[CallSite]:
    source = SourceText(uri, text)
    return find_calls(source.tree, {*source.find_words(name)}) if source.tree else []


def _between(text: str, calls: list[CallSite]) -> list[str]:
    """Return the text outside the calls' brackets."""
    stops = [0, *(call.close_at for call in calls)]
    starts = [*(call.open_at for call in calls), len(text)]
    return [text[a:b] for a, b in zip(stops, starts, strict=True)]
