"""Edits of a text by rule: "replace `a` by `b` everywhere", "add the line `a` as the first line".

The texts are in marks of quotes or code, and the instruction asks for nothing else. A name is
replaced where it is a whole word.
"""

from __future__ import annotations

import re

from engine.editing.edits import BOM, EditRefused, commonest_end
from engine.editing.scopes.names import Unsure, whole_word
from engine.editing.syntax import language_of

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
    path: str, text: str, selection: tuple[int, int] | None, instruction: str
) -> tuple[str, str] | None:
    """Make an edit of this form, and say what was done; return None for another instruction.

    Raises EditRefused for a text that is not there, and Unsure.
    """
    if found := REPLACE.fullmatch(instruction):
        if not (found["every"] or found["everywhere"]):
            return None
        return _replaced(path, text, selection, found)
    if found := FIRST_LINE.fullmatch(instruction):
        if selection is not None and selection != (0, len(text)):
            raise Unsure("it is not known whether the file's first line is meant")
        mark = len(text) - len(text.lstrip(BOM))
        line = found["line"] or found["line_quoted"]
        return text[:mark] + line + commonest_end(text, "\n") + text[mark:], "first line added"
    return None


def _replaced(
    path: str, text: str, selection: tuple[int, int] | None, found: re.Match[str]
) -> tuple[str, str]:
    """Replace all occurrences in a text, or in a selection of it. Raises EditRefused and Unsure."""
    start, stop = selection or (0, len(text))
    old, new = (found[name] or found[f"{name}_quoted"] for name in ("old", "new"))
    count = text.count(old, start, stop)
    if not count:
        where = "the selection" if selection else "the file"
        raise EditRefused(f"`{old}` is not in {where}: check the text, or select other lines")
    if old == new:
        raise EditRefused(f"`{old}` and `{new}` are equal: say what to write in its place")
    is_name = re.fullmatch(r"\w+", old) is not None
    pattern = whole_word(old) if is_name else re.escape(old)
    spans = [match.span() for match in re.compile(pattern).finditer(text, start)]
    spans = [span for span in spans if span[1] <= stop]
    if not spans:
        raise Unsure(f"`{old}` is only a part of longer words")
    hyphenated = rf"\w-+{pattern}|{pattern}-+\w"
    if is_name and not language_of(path) and re.search(hyphenated, text[start:stop]):
        raise Unsure(f"`{old}` is next to a hyphen, which may belong to a longer name")
    mark = found["old_mark"]
    if mark and 0 < text.count(f"{mark}{old}{mark}", start, stop) < len(spans):
        raise Unsure("it is not known whether the text with its quotes is meant")
    title = f"`{old}` replaced by `{new}` in {len(spans)} place{'s' * (len(spans) != 1)}"
    if count > len(spans):
        title += ", not in longer words"
    ends = [start, *(last for _, last in spans)]
    kept = [text[end:first] for end, (first, _) in zip(ends, spans, strict=False)]
    return text[:start] + new.join([*kept, text[ends[-1] :]]), title
