"""Checks the answer of a next-edit model, and makes the region's new text of it.

Answers that are cut off, have marks in them, change nothing, or take away what was just typed are
no edits (https://github.com/zed-industries/zed/issues/52770).
"""

from __future__ import annotations

import re

from engine.editing.edits import WORD, align, common_prefix
from engine.prompts.next_edit.context import NextEditPrompt, NoEdit
from engine.prompts.next_edit.formats import NextEditFormat
from engine.records import Done

NO_EDITS = ("NO_EDITS", "KEEP_PREVIOUS")  # whole answers of models that would change nothing
CURSOR = re.compile(r"<\|(?:user_)?cursor(?:_is_here)?\|>")
FENCE = re.compile(r"^```", re.MULTILINE)  # models that are not made for this write fences
SAME_LINES = 2  # lines with words, repeated after a change, by which its end is known
MARK = re.compile(r"<\|[a-z]\w*\|>|<\[[^\]\s]{1,40}\]>|</s>|\ufffd|\0")


def new_region(prompt: NextEditPrompt, known: NextEditFormat, done: Done) -> str:
    """Return the region's new text. NoEdit says why there is none."""
    if done.reason != "stop":
        raise NoEdit(done.error or f"the model's answer is incomplete: {done.reason}")
    answer, region = CURSOR.sub("", done.text), prompt.region
    if answer.strip().startswith(NO_EDITS):
        raise NoEdit("the model would change nothing")
    new = known.read(region, answer)
    new = new.rstrip("\n") + region[len(region.rstrip("\n")) :]  # models drop the last line ends
    if new == region:
        raise NoEdit("the model would change nothing")
    if region.strip() and not new.strip():
        raise NoEdit("the model would delete everything")
    if marks := {*MARK.findall(new)} - {*MARK.findall(region)}:
        raise NoEdit(f"the model's answer has the mark {min(marks)}")
    if FENCE.search(new) and not FENCE.search(region):
        raise NoEdit("the model's answer has a code fence")
    if _is_cut_off(region, new):
        raise NoEdit("the model's answer is cut off")
    if _takes_back(prompt, new):
        raise NoEdit("the model would take back what was just typed")
    return new


def first_change(region: str, written: str) -> str | None:
    """Return the region with the first change of an answer that is still being written.

    None until that is known: further lines of the region follow it, and it takes away no more lines
    than it adds. It depends on the text alone, however many tokens a pass of the model adds.
    """
    old, lines = region.split("\n"), CURSOR.sub("", written).split("\n")[:-1]
    same = common_prefix(old, lines)
    for stop in range(same + 1, len(lines) + 1):
        start = stop
        while start > same and sum(map(_has_word, lines[start:stop])) < SAME_LINES:
            start -= 1
        repeated = lines[start:stop]
        places = [n for n in range(same, len(old)) if old[n : n + len(repeated)] == repeated]
        if start > same and len(places) == 1 and places[0] - same <= start - same:
            return "\n".join((*lines[:stop], *old[places[0] + len(repeated) :]))
    return None


def _has_word(line: str) -> bool:
    return re.search(r"\w", line) is not None


def _is_cut_off(region: str, new: str) -> bool:
    """Return whether the last lines are missing."""
    old, lines = region.rstrip("\n").split("\n"), new.rstrip("\n").split("\n")
    runs = [run for run in align(old, lines) if run[1] < run[2] or run[3] < run[4]]
    same, start, stop, first, last = runs[-1]
    return not same and last - first < stop - start


def _takes_back(prompt: NextEditPrompt, new: str) -> bool:
    """Return whether a word that was just typed would go, or a deleted one come back."""
    before, region = prompt.before, prompt.region
    if before == region:
        return False
    if new == before:
        return True
    old, now = WORD.findall(before), WORD.findall(region)
    typed = {
        line.strip()
        for same, _, _, start, stop in align(old, now)
        if not same
        for line in "".join(now[start:stop]).split("\n")
    }
    return any(re.search(r"\w", word) and new.count(word) < region.count(word) for word in typed)
