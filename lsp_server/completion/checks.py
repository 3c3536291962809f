"""The part of a fitted completion that is offered: nothing that would have to be undone.

A completion must not leave brackets, quotes or syntax worse than they are without it or with a name
in its place, end inside a string or be a lone keyword because it was cut off, repeat a line that is
nearby or the beginning of its own, leave the block before the code below, be put before code that
continues the line, leave tags unbalanced, or put a comma before JSON's closing bracket. If one
fails, its longest part that passes is offered: without closing characters at its end, then without
its last lines. Pure functions of text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from keyword import kwlist
from pathlib import PurePath

from engine.editing.brackets import TOKEN, scan
from engine.editing.checks import PROSE
from engine.editing.syntax import language_of, parse
from engine.editing.unreached import hides_code_below
from lsp_server.completion.indentation import (
    indent_width,
    line_after,
    line_before,
    lines_above,
    lines_below,
)
from lsp_server.completion.postprocess import fit_to_context

NEARBY_LINES = 3  # lines above and below the cursor, searched for those that an answer repeats
MIN_REPEATED_CHARS = 6  # characters of a line that counts as repeated
NAME = "x"  # stands for a completion
CLOSERS = ")]}>\"'`;,:"
LINE_COMMENT = re.compile(r"(?:^|\s)(?:#|//|--\s).*$")
# What may follow the cursor on its line: white space, a character that ends what is inserted, the
# end of an element, of a tag or of a comment.
ENDS = re.compile(r"[\s)\]}>\"'`;,:]|$|</[\w>]|/>|\*/")
ESCAPE = re.compile(r"\\\S")  # may follow in a string
TAG = re.compile(r"<(/?)(?:([A-Za-z][\w.:-]*)[^<>]*?)?(/?)>")
VOID_TAGS = frozenset((  # HTML's elements without an end
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr",
))  # fmt: skip
ATTRIBUTE_VALUE = re.compile(r"\{(?:[^{}]|\{[^{}]*\})*\}|\"[^\"]*\"|'[^']*'")
JSON_COMMA = re.compile(
    r"\"(?:[^\"\\\n]|\\.)*\"?|(,)\s*[}\]]"
)  # a string, or a comma before an end
# The end of a line that goes on deeper, and the start of a deeper line that goes on with one above
OPEN_END = re.compile(
    r"(?:[\[({:,.+\-*/%|&=<>?\\]|\b(?:and|or|not|in|is|if|else|lambda|then|do))\s*$"
)
GOES_ON = re.compile(
    r"[#.+\-*/%|&=<>?:)\]}\"'`]|[rbfuRBFU]{1,2}[\"']|(?:and|or|in|is|if|else|for)\b"
)
KEYWORDS = {
    *kwlist,
    *("const", "let", "var", "function", "new", "switch", "case", "throw", "do", "then", "local"),
    *("func", "fn", "go", "defer", "select", "match", "mut", "pub", "use", "struct", "enum"),
    *("impl", "static", "public", "private", "void", "auto", "typedef", "namespace", "unless"),
} - {"pass", "break", "continue", "None", "True", "False"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a completion is inserted, with the faults that are there without it."""

    before: str
    after: str
    path: str
    errors: int | None  # None: no grammar
    unmatched: tuple[int, int]  # opening and closing brackets


def checked(
    answer: str, before: str, after: str, path: str, multiline: bool, complete: bool = True
) -> tuple[str, str]:
    """Find the part of a fitted completion that may be offered.

    Returns the part, "" for none, and what is wrong with the rest. `complete`: the answer was not
    cut off.
    """
    if why := unfit_place(before, after):
        return "", why
    text = before + after
    place = _Place(before, after, path, _fewest_errors(path, before, after), _unmatched(text))
    why = ""
    for each in _parts(answer):
        part = each if each == answer else fit_to_context(each, before, after, multiline)
        if not part:
            continue
        wrong = _problem(part, place, complete and part == answer)
        if not wrong:
            return part, why
        why = why or wrong
    return "", why


def unfit_place(before: str, after: str) -> str:
    """Say why no completion fits between two texts; "" if one may.

    It depends on nothing that a model writes, so that it can be asked first.
    """
    head, rest = line_before(before), line_after(after)
    is_split = (len(head) - len(head.rstrip("\\"))) % 2 == 1  # the cursor is inside an escape
    in_string = (ESCAPE.match(rest) and not is_split) or (rest[:1] == head[-1:] == "/")
    if ENDS.match(rest) or (in_string and _quote(head)):
        return ""
    return "the text behind the cursor continues the word or expression before it"


def _problem(answer: str, place: _Place, complete: bool) -> str:
    """Say what is wrong with a completion; "" if it may be offered."""
    if not complete and answer.strip() in KEYWORDS:
        return "the answer was cut off behind a keyword"
    if _repeats(answer, place.before, place.after):
        return "the model would repeat a line that is nearby"
    if PurePath(place.path).suffix.lower() in PROSE:
        return "" if _fits_table(answer, place) else "the table's rows have other numbers of cells"
    if _begins_again(answer, place.before):
        return "the model would repeat the beginning of the line"
    if not _keeps_tags(answer, line_after(place.after)):
        return "the answer would leave tags unbalanced"
    if _is_json(place.path) and _puts_comma_before_end(answer, place):
        return "JSON has no comma before a closing bracket"
    text = place.before + answer + place.after
    tree = parse(place.path, text) if place.errors is not None else None
    is_sound = tree is not None and not tree.errors
    if not is_sound and _opens_string(answer, place.before, place.after):
        return "the answer ends inside a string"
    if tree and place.errors is not None and tree.errors > place.errors:
        return "the answer would break the syntax"
    opening, closing = _unmatched(text)
    worse = opening + closing > sum(place.unmatched) or closing > place.unmatched[1]
    if worse and not is_sound:
        return "the answer would leave brackets unbalanced"
    start = len(place.before)
    is_code = tree is None or not tree.in_text([start])
    is_fine = is_sound and language_of(place.path) != "python"  # whose grammar is lenient
    if is_code and not is_fine and _leaves_lines_below(answer, place):
        return "the answer would not open what is closed or indented below"
    if tree and hides_code_below(tree, start, start + len(answer)):
        return "the code below would not be reached"
    return ""


def _parts(answer: str) -> Iterator[str]:
    """Yield the answer, then shorter and shorter parts of it.

    Its closing characters are taken off one after the other, then its last lines.
    """
    yield answer
    for at in range(len(answer) - 1, 0, -1):
        if answer[at] not in CLOSERS:
            break
        if answer[:at].strip():
            yield answer[:at]
    for at in range(len(answer) - 1, 0, -1):
        if answer[at] == "\n" and answer[:at].strip():
            yield answer[:at]


def _repeats(answer: str, before: str, after: str) -> bool:
    """Return whether a whole line of the answer is one of those right below, or the one above."""
    line, rest = line_before(before), line_after(after)
    lines = answer.split("\n")
    lines[0] = line + lines[0]
    lines[-1] += rest
    near = {text for _, text in islice(lines_below(after), NEARBY_LINES)}
    near |= {text.strip() for text in islice(lines_above(before), 1)}
    return any(
        len(other.strip()) >= MIN_REPEATED_CHARS and other.strip() in near for other in lines
    )


def _begins_again(answer: str, before: str) -> bool:
    """Return whether the answer starts with what its line has before the cursor."""
    line = line_before(before).strip()
    return len(line) >= MIN_REPEATED_CHARS and answer.lstrip().startswith(line)


def _fits_table(answer: str, place: _Place) -> bool:
    """Return whether the row of a table in prose has as many cells as the one above or below it.

    The new cells must have something in them.
    """
    head, rest = line_before(place.before), line_after(place.after)
    if not head.lstrip().startswith("|"):
        return True
    near = [*islice(lines_above(place.before), 1)]
    near += [text for _, text in islice(lines_below(place.after), 1)]
    rows = [line.count("|") for line in near if line.strip().startswith("|")]
    first = answer.split("\n")[0]
    whole = f"{head}{first}" + (rest if first == answer else "")
    return bool(re.search(r"[\w-]", answer)) and (not rows or whole.count("|") in rows)


def _keeps_tags(answer: str, rest: str) -> bool:
    """Return whether the tag or the element that ends behind the cursor still fits."""
    if rest.startswith("/>"):
        return not re.search(r"[<>]", ATTRIBUTE_VALUE.sub("", answer))
    if not rest.startswith("</"):
        return True
    opened: list[str] = []
    closed = 0  # elements that are open at the cursor
    for ends, name, is_whole in TAG.findall(ATTRIBUTE_VALUE.sub("", answer)):
        if not ends and not is_whole and name not in VOID_TAGS:
            opened.append(name)
        elif ends and not opened:
            closed += 1
        elif ends and opened.pop() != name:
            return False
    return len(opened) == closed


def _leaves_lines_below(answer: str, place: _Place) -> bool:
    """Return whether the deeper lines below the cursor's line are left without what opens them.

    That is a bracket where one below closes it, and in Python a colon or an open bracket.
    """
    line, (deep, below) = line_before(place.before), next(lines_below(place.after), (0, ""))
    last = (line + answer).rpartition("\n")[2]
    own = indent_width(last)
    if line_after(place.after).strip() or deep <= own or GOES_ON.match(below):
        return False
    if any(last.count(quote) % 2 for quote in ('"""', "'''")):
        return False
    # What looks like a comment may be none: `//` divides in Python.
    if not OPEN_END.search(last) and not OPEN_END.search(LINE_COMMENT.sub("", last)):
        return language_of(place.path) == "python" or bool(scan(last).open)
    closers = scan(place.before + place.after).unmatched_closers
    at = next((each - len(place.before) for each in closers if each >= len(place.before)), 0)
    head, _, closing = place.after[:at].rpartition("\n")
    if not at or closing.strip() or indent_width(f"{closing}x") != own:
        return False
    if any(each <= own for each, _ in lines_below(head)):
        return False
    text = place.before + answer
    return at + len(text) in scan(text + place.after).unmatched_closers


def _is_json(path: str) -> bool:
    return language_of(path) == "json"


def _puts_comma_before_end(answer: str, place: _Place) -> bool:
    """Return whether the answer has a comma before a closing bracket, or is one of the two."""
    above = next(iter(lines_above(place.before)), "")
    head = f"{above}\n{line_before(place.before)}"  # strings end on their line
    below = place.after[: len(place.after) - len(place.after.lstrip()) + 1]
    stop = len(head) + len(answer)
    return any(
        found[1] and found.start() < stop and found.end() > len(head)
        for found in JSON_COMMA.finditer(head + answer + below)
    )


def _opens_string(answer: str, before: str, after: str) -> bool:
    """Return whether a string that starts in the answer is still open at the end of the line."""
    if '"""' in answer or "'''" in answer:
        return False
    last = answer[answer.rfind("\n") + 1 :]
    shown = last if "\n" in answer else line_before(before) + answer
    alone = "" if "\n" in answer else line_before(before)
    return _quote(shown + line_after(after)) and not _quote(alone + line_after(after))


def _quote(line: str) -> bool:
    """Return whether a line has a quote without a counterpart."""
    tokens = [match[0] for match in TOKEN.finditer(LINE_COMMENT.sub("", line))]
    return any(token[-1] in "\"'`" and len(token.lstrip("rbfuRBFU")) == 1 for token in tokens)


def _unmatched(text: str) -> tuple[int, int]:
    """Count the opening and the closing brackets without a counterpart."""
    found = scan(text)
    return len(found.open), len(found.unmatched_closers)


def _fewest_errors(path: str, before: str, after: str) -> int | None:
    """Count the syntax errors without a completion, or with a name for one if they are fewer.

    None without a grammar.
    """
    trees = [parse(path, before + middle + after) for middle in ("", NAME)]
    return min((tree.errors for tree in trees if tree), default=None)
