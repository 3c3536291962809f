"""Checks of an edit for what is lost: text, definitions, comments, strings and headings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from engine.editing.code_parts import Token
from engine.editing.edits import line_count
from engine.editing.instruction import (
    asks_change,
    asks_removal,
    asks_rewriting,
    kept_names,
    named_words,
    speaks_of_comments,
    speaks_of_texts,
    wanted_names,
    words,
)
from engine.editing.side import CODE, FailedCheck, Side, listed, quoted

_Row = tuple[str, ...]  # the code of a line
Replaced = tuple[Sequence[str], Sequence[str]]  # lines of the file, and those in their place

# Definitions in languages without a grammar.
DEFINITION = re.compile(
    r"^[ \t]*(?:[\w.]+[ \t]+)*(?:def|class|function|func|fn)[ \t]+(?:\([^)]*\)[ \t]*)?(\w+)", re.M
)
CREATED = re.compile(  # what a statement of SQL defines, with its schema
    r"^[ \t]*create[ \t]+(?:\w+[ \t]+){0,4}?(?:table|view|index|function|procedure|trigger|type"
    r"|sequence|schema|domain)[ \t]+(?:if[ \t]+not[ \t]+exists[ \t]+)?"
    r"(?:[\"`\[]?\w+[\"`\]]?\.)*[\"`\[]?(?!on\b)(\w+)",
    re.I | re.M,
)
HEADING = re.compile(r"^#{1,6}[ \t]+(.+)$", re.M)
TASK = re.compile(  # comments that go when done; "the implementation of" is none
    r"\b(?:todo|fixme|xxx)\b|^\W*(?:please )?implement\b|\bimplement (?:me|this|it|here|later)\b"
    r"|\b(?:not|to be)(?: yet)? implemented\b",
    re.I,
)
MARKDOWN = (".md", ".markdown")
MIN_LINES = 4  # lines of a text of which more than half may be missed
MIN_LETTERS = 8  # letters of a string literal that may be missed


def deleted(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that not more than half of the text is gone, unless asked."""
    old, new = (sum(not char.isspace() for char in side.part) for side in (before, after))
    if 2 * new < old and line_count(before.part) >= MIN_LINES and not asks_rewriting(instruction):
        yield FailedCheck(
            "deleted",
            f"{round(100 * (old - new) / old)} % of the text would be deleted",
            "Repeat every line that does not change.",
        )


def definitions(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no definition is lost that the instruction does not name or that is in use."""
    lost, own = _lost_definitions(before, after), {each.name for each in before.definitions}
    named = named_words(instruction, own) - {*kept_names(instruction)}
    one_may_go = asks_removal(instruction) and not named & own
    missed = [name for name in lost if name not in named]
    added = {each.name for each in after.definitions} - own
    has_successor = added and (asks_change(instruction) or added & {*wanted_names(instruction)})
    if missed and not (len(missed) == 1 and (has_successor or one_may_go)):
        names = listed(missed)
        yield FailedCheck("definitions", f"{names} would be lost", f"Keep {names}.")
        return
    outer = {each.name for each in before.definitions if each.unique and not each.inside}
    if used := [name for name in lost if name in outer & words(before.outside)]:
        warning = f"{listed(used)} is still used elsewhere in the file"
        yield FailedCheck("uses", warning, f"Keep {listed(used)}.")


def _lost_definitions(before: Side, after: Side) -> list[str]:
    """Find names that the old part defines and the new one does not, without those inside them."""
    if before.tree and after.tree and after.tree.errors <= before.tree.errors:
        own = before.definitions
        lost = {each.name for each in own} - {each.name for each in after.definitions}
        return [each.name for each in own if each.name in lost and not lost & each.inside]
    kept = _written_definitions(after)
    return [name for name in dict.fromkeys(_written_definitions(before)) if name not in kept]


def _written_definitions(side: Side) -> list[str]:
    """List what a part of a text without a grammar defines."""
    pattern = CREATED if side.suffix == ".sql" else DEFINITION
    found: list[str] = pattern.findall(side.part)
    return found


def vanished(
    instruction: str, before: Side, after: Side, changes: Sequence[Replaced]
) -> Iterator[FailedCheck]:
    """Check that no definition is lost, unless the instruction names it.

    One that is replaced by a new definition was renamed; no variable replaces a function.
    """
    old, new = (Counter(_defined(side)) for side in (before, after))
    gone, added, named = old - new, new - old, words(instruction)
    lost: dict[str, None] = {}
    for before_lines, after_lines in changes:
        given, made = words(" ".join(before_lines)), words(" ".join(after_lines))
        for is_variable in (False, True):
            names = [name for name, kind in gone if name in given and kind == is_variable]
            if len(names) > sum(name in made and kind <= is_variable for name, kind in added):
                lost |= dict.fromkeys(name for name in names if name not in named)
    if lost:
        names = [*lost]
        yield FailedCheck("definitions", f"{listed(names)} would be lost", f"Keep {listed(names)}.")


def _defined(side: Side) -> list[tuple[str, bool]]:
    """List the names that a side defines, and whether they are variables."""
    if side.tree:
        return [(each.name, each.is_variable) for each in side.definitions]
    return [(name, False) for name in _written_definitions(side)]


def comments(
    instruction: str, before: Side, after: Side, among: Sequence[str] | None = None
) -> Iterator[FailedCheck]:
    """Check that no comment is lost next to code that stays.

    `among`: only comments of these lines count.
    """
    if speaks_of_comments(instruction):
        return
    old, new = _commented(before), _commented(after)
    lines, left = Counter(_rows(before)), Counter(_rows(after))
    had, has = (Counter(row for row, _ in side) for side in (old, new))
    gone = Counter(_bare(text) for _, group in old for text in group)
    gone -= Counter(map(_bare, after.of_kind("comment")))
    lost = [
        text
        for row, group in old
        if (row in left and not has[row]) or had[row] - has[row] > max(0, lines[row] - left[row])
        for text in group
        if not TASK.search(text)
        and _bare(text) in gone.keys() - {""}
        and (among is None or any(text.split("\n")[0] in line for line in among))
    ]
    if lost:
        yield FailedCheck(
            "comments",
            f"the comment {quoted(lost[0])} would be lost",
            "Keep every comment as it is.",
        )


def texts(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no text in a string literal is changed or lost."""
    if speaks_of_texts(instruction) or asks_rewriting(instruction):
        return
    if before.tree and before.tree.language == "json":
        return
    old, new = ([*map(_inner, side.of_kind("string"))] for side in (before, after))
    parts = words(" ".join(new))
    lost = [
        text
        for text in dict.fromkeys(old)
        if text not in new and _is_message(text) and not words(text) <= parts
    ]
    asked = [text for text in new if text not in old and text in instruction]
    if len(lost) > len(asked):
        yield FailedCheck(
            "strings",
            f"the text {quoted(lost[0])} would be lost",
            "Keep every string as it is.",
        )


def headings(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no heading of a text is lost."""
    if before.suffix not in MARKDOWN or asks_rewriting(instruction) or speaks_of_texts(instruction):
        return
    kept = [words(line) for line in HEADING.findall(after.part)]
    for line in HEADING.findall(before.part):
        own = words(line)
        if own and not any(2 * len(own & each) >= len(own) for each in kept):
            warning = f"the heading {quoted(line)} would be lost"
            yield FailedCheck("headings", warning, "Keep every heading.")
            return


def _by_row(side: Side) -> Iterator[tuple[int, list[Token]]]:
    for row, group in groupby(side.tokens, key=lambda token: token.row):
        yield row, [*group]


def _rows(side: Side) -> list[_Row]:
    """Return the code of each line."""
    rows = (tuple(each.text for each in group if each.kind in CODE) for _, group in _by_row(side))
    return [row for row in rows if row]


def _commented(side: Side) -> list[tuple[_Row, list[str]]]:
    """Pair comments with the code that they belong to: that of their line, else the line below."""
    found: list[tuple[_Row, list[str]]] = []
    waiting: list[str] = []
    for _, group in _by_row(side):
        comments = [token.text for token in group if token.kind == "comment"]
        code = tuple(token.text for token in group if token.kind in CODE)
        waiting += comments
        if len(code) > 1:
            found += [(code, waiting)] * bool(waiting)
            waiting = []
        elif code:
            waiting = []
    return found


def _bare(comment: str) -> str:
    """Return a comment's words."""
    return " ".join(re.findall(r"\w+", comment.lower()))


def _inner(literal: str) -> str:
    """Strip the prefix and the quotes from a string literal."""
    return re.sub(r"^\w*[\"'`]+|[\"'`]+$", "", literal)


def _is_message(text: str) -> bool:
    """Return whether a text is for people: several words."""
    return sum(map(str.isalpha, text)) >= MIN_LETTERS and len(text.split()) > 1
