"""Edits of a text by rule: "replace `a` by `b` everywhere", "add the line `a` as the first line".

The texts are in marks of quotes or code, and the instruction asks for nothing else.
"""

from __future__ import annotations

import re

from engine.editing.edits import BOM, EditRefused, commonest_end
from engine.editing.scopes.names import Unsure, whole_word

MARKED = (
    r"(?:`(?P<%s>[^`\n]+)`"
    r"|(?P<%s_mark>[\"'])(?P<%s_quoted>(?:(?!(?P=%s_mark))[^\n`])+)(?P=%s_mark))"
)
OLD, NEW, LINE = (MARKED.replace("%s", name) for name in ("old", "new", "line"))
PLEASE = r"\s*(?:please )?"
REPLACE = re.compile(
    rf"{PLEASE}replace (?:(?P<every>all occurrences of|every) )?{OLD} (?:by|with) {NEW}"
    r"(?P<everywhere> everywhere| throughout| in the (?:whole|entire) file)?[.!]?\s*",
    re.I,
)
FIRST_LINE = re.compile(
    rf"{PLEASE}(?:add|insert) (?:the )?line {LINE} as (?:the )?(?:very )?first line"
    r"(?: of the file)?[.!]?\s*",
    re.I,
)


def edit_text(
    text: str, selection: tuple[int, int] | None, instruction: str
) -> tuple[str, str] | None:
    """Make an edit of this form, and say what was done; return None for another instruction.

    Raises EditRefused for a text that is not there, and Unsure.
    """
    if found := REPLACE.fullmatch(instruction):
        if not (found["every"] or found["everywhere"]):
            return None
        return _replaced(text, selection, found)
    if found := FIRST_LINE.fullmatch(instruction):
        if selection is not None and selection != (0, len(text)):
            raise Unsure("it is not known whether the file's first line is meant")
        mark = len(text) - len(text.lstrip(BOM))
        line = found["line"] or found["line_quoted"]
        return text[:mark] + line + commonest_end(text, "\n") + text[mark:], "first line added"
    return None


def _replaced(
    text: str, selection: tuple[int, int] | None, found: re.Match[str]
) -> tuple[str, str]:
    """Replace all occurrences in a text, or in a selection of it. Raises EditRefused and Unsure."""
    start, stop = selection or (0, len(text))
    old, new = (found[name] or found[f"{name}_quoted"] for name in ("old", "new"))
    part = text[start:stop]
    count = part.count(old)
    if not count:
        where = "the selection" if selection else "the file"
        raise EditRefused(f"`{old}` is not in {where}: check the text, or select other lines")
    if old == new:
        raise EditRefused(f"`{old}` and `{new}` are equal: say what to write in its place")
    if re.fullmatch(r"\w+", old) and len(re.findall(whole_word(old), part)) < count:
        raise Unsure(f"`{old}` is a part of longer words, too")
    mark = found["old_mark"]
    if mark and 0 < part.count(f"{mark}{old}{mark}") < count:
        raise Unsure("it is not known whether the text with its quotes is meant")
    places = f"{count} place{'s' * (count != 1)}"
    title = f"`{old}` replaced by `{new}` in {places}"
    return text[:start] + part.replace(old, new) + text[stop:], title
