"""Scores answers by rules alone: right, partly, wrong, harmful, or none.

An edit is
    right    if it equals a reference answer (free wording and the layout of new lines aside), or
             passes the task's program while everything outside the functions in question is as it
             was;
    harmful  if the file's syntax is worse than before, a definition is there twice, or code or text
             is lost that a reference keeps: a definition, a comment, or a tenth of the words;
    partly   if at least half of what was requested is done, and no more is changed besides;
    wrong    otherwise; and none if nothing was changed, or the edit was refused with a reason.

A completion is
    right    ("useful") if it starts with what follows in the file up to the statement's end, or
             with an equivalent that the task names, or passes the task's program;
    harmful  if the file cannot be parsed with it, if it ends inside a string or is a keyword
             alone, if it repeats itself, a line nearby or the rest of its own line, or if the code
             below is no longer reached;
    partly   if it is a right beginning of the statement, or right up to its last quarter;
    wrong    otherwise; and none if nothing is offered.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import pairwise
from keyword import kwlist
from typing import NamedTuple

from bench.assist.task import CompletionTask, EditTask
from bench.assist.tokens import (
    COMMENT,
    DOCSTRING,
    INDENT,
    LINE,
    Token,
    language_of,
    string_spans,
    tokens,
    words,
)
from bench.quality import run as sandbox
from engine.editing.syntax import parse

RIGHT, PARTLY, WRONG, HARMFUL, NONE = OUTCOMES = ("right", "partly", "wrong", "harmful", "none")
LOST_SHARE, LOST_WORDS = 0.1, 4  # share, words: missing more, and at least so many, is a loss
SMALL_CHANGE_TOKENS = 6  # tokens that may be changed besides, however little was asked
MIN_LINE_CHARS = 8  # characters, without blanks, of a line whose repetition counts
LINES_ABOVE, LINES_BELOW = 2, 3  # lines that a completion must not repeat
MIN_TAIL_CHARS = 4  # characters of the rest of a line that a completion must not repeat
PREFIX_TOKENS, PREFIX_SHARE = 2, 1 / 3  # tokens, share; least of a statement that is right but cut
MOST_SHARE = 3 / 4  # share of a statement's tokens, before it goes on otherwise

DEFINITION = re.compile(
    r"\b(?:class|def|enum|fn|func|function|interface|struct|trait|type)\s+(?:\([^)]*\)\s*)?(\w+)"
)
LEAVES = re.compile(r"(?:break|continue|raise|return|throw)\b")
KEYWORDS = {*kwlist, "await", "const", "fn", "func", "let", "match", "mut", "new", "throw"}
KEYWORDS -= {"break", "continue", "pass", "False", "None", "True"}  # these may be all
BRANCH = re.compile(r"(?:case|default|elif|else|except|finally)\b")
IMPORT = re.compile(r"\s*(?:import |from \S+ import |use |\"[\w./]+\"$)")


Change = tuple[int, int, tuple[Token, ...]]  # which tokens are replaced, and by which


class Score(NamedTuple):
    """An outcome and, unless it is right, the rule that decided."""

    outcome: str
    why: str = ""


# -- edits -------------------------------------------------------------------------------------


def score_edit(task: EditTask, after: str | None) -> Score:
    """Score the file's new text; None if the edit was refused."""
    if after is None:
        return Score(NONE, "refused")
    if after == task.text:
        return Score(NONE, "nothing changed")
    before, new, rights = _scope(task, after)
    passed = passes(f"{after}\n{task.tests}") if task.tests else None
    if any(_is_right(task, before, new, right, passed) for right in rights):
        return Score(RIGHT)
    if why := _damage(task, before, after, new, rights[0]):
        return Score(HARMFUL, why)
    if any(_is_partly_done(task, before, new, right, passed) for right in rights):
        return Score(PARTLY, "tests fail" if passed is False else "something is missing or added")
    return Score(WRONG, "tests fail" if passed is False else "not what was asked")


def _scope(task: EditTask, after: str) -> tuple[str, str, list[str]]:
    """Return the texts to compare: the selection before, after, and as it should be.

    If other text has changed as well, they are whole files. Imports added to the file's own do not
    count.
    """
    start, stop = task.selection
    head, tail = task.text[:start], task.text[stop:]

    def fits(text: str) -> bool:
        return text.startswith(head) and text.endswith(tail) and len(text) >= len(head + tail)

    if not fits(after):
        known = set(task.text.split("\n"))
        lines = after.split("\n")
        kept = "\n".join(one for one in lines if one in known or not IMPORT.match(one))
        if not fits(kept):
            return task.text, after, [task.file_with(right) for right in task.right]
        after = kept
    return task.before, after[start : len(after) - len(tail)], task.right


def _is_right(task: EditTask, before: str, new: str, right: str, passed: bool | None) -> bool:
    if passed is False or not all(re.search(one, new) for one in task.needs):
        return False
    if any(re.search(one, new) for one in task.lacks):
        return False
    if task.within:
        before, new = (without_blocks(text, task.within) for text in (before, new))
        right = before
    elif _is_reindented(before, new, right):
        return False
    return _tokens(task, new) == _tokens(task, right)


def _is_reindented(before: str, new: str, right: str) -> bool:
    """Return whether lines that were to stay as they are have another indentation."""
    kept = Counter(before.split("\n")) & Counter(right.split("\n"))
    moved = Counter(new.split("\n")) - kept
    missing = Counter(line.strip() for line in kept - Counter(new.split("\n")))
    return bool(missing & Counter(line.strip() for line in moved if line.strip()))


def passes(program: str) -> bool:
    """Return whether a file with its tests behind it runs to its end, in a sandbox."""
    return sandbox.run(_importable(program)).passed


def _importable(text: str) -> str:
    """Return a Python file as a module that was imported: its main part does not run."""
    return re.sub(r"""__name__ == (["'])__main__\1""", "False", text)


def _damage(task: EditTask, before: str, after: str, new: str, right: str) -> str:
    """Return why an edit is harmful; "" if it is not."""
    if errors(task.file, after) > errors(task.file, task.text):
        return "the syntax is broken"
    kept = set(DEFINITION.findall(before)) & set(DEFINITION.findall(right))
    if lost := sorted(kept - set(DEFINITION.findall(new))):
        return f"{lost[0]} is lost"
    known = Counter(DEFINITION.findall(task.text))
    known |= Counter(DEFINITION.findall(task.file_with(task.right[0])))
    made = Counter(DEFINITION.findall(after))
    if twice := sorted(name for name in made if made[name] > max(1, known[name])):
        return f"{twice[0]} is defined twice"
    for kind in (COMMENT, DOCSTRING):
        old, theirs, ours = (_count(task, text, kind) for text in (before, right, new))
        if ours < min(old, theirs):
            return f"a {kind} is lost"
    must = Counter(words(before)) & Counter(words(right))
    missing = (must - Counter(words(new))).total()
    if missing >= LOST_WORDS and missing > LOST_SHARE * must.total():
        return f"{missing} of {must.total()} words are lost"
    return ""


def _count(task: EditTask, text: str, kind: str) -> int:
    return sum(token.kind == kind for token in _tokens(task, text))


def _is_partly_done(task: EditTask, before: str, new: str, right: str, passed: bool | None) -> bool:
    old, ours, theirs = (_tokens(task, text) for text in (before, new, right))
    made, asked = _changes(old, ours), _changes(old, theirs)
    total = sum(asked.values())
    done = sum(size for change, size in asked.items() if change in made)
    for one in task.needs:
        if not re.search(one, before):
            total, done = total + 1, done + bool(re.search(one, new))
    for one in task.lacks:  # each match was to go
        were, left = len(re.findall(one, before)), len(re.findall(one, new))
        total, done = total + were, done + max(0, were - left)
    if task.tests:  # they count as much as all the rest
        done += total if passed else 0
        total *= 2
    besides = sum(size for change, size in made.items() if change not in asked)
    return done * 2 >= total and besides <= max(SMALL_CHANGE_TOKENS, total)


def _changes(old: list[Token], new: list[Token]) -> dict[Change, int]:
    """List the changes from one text to another, each with its number of tokens."""
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return {
        (start, stop, tuple(new[first:last])): stop - start + last - first
        for kind, start, stop, first, last in matcher.get_opcodes()
        if kind != "equal"
    }


def _tokens(task: EditTask, text: str) -> list[Token]:
    return tokens(language_of(task.file), text, task.free)


def without_blocks(text: str, heads: Iterable[str]) -> str:
    """Return the text without the blocks whose first line contains one of `heads`.

    A block goes up to the next line that is not indented deeper, or behind it if it closes the
    block. An opening brace on a line of its own belongs to the block.
    """
    kept: list[str] = []
    limit: int | None = None
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip())
        if limit is not None and line.strip() not in ("", "{") and indent <= limit:
            closes = indent == limit and line.strip()[0] in ")]}"
            limit = limit if closes and line.rstrip()[-1] in "({:" else None
            if closes:
                continue
        if limit is None and any(head in line for head in heads):
            limit = indent
        if limit is None:
            kept.append(line)
    return "\n".join(kept)


# -- completions -------------------------------------------------------------------------------


def score_completion(task: CompletionTask, offered: str | None) -> Score:
    """Score the text offered at a place; None or blank if there is none."""
    if offered is None or not offered.strip():
        return Score(NONE, "nothing offered")
    if is_beginning(offered, task.removed):
        if len(squashed(offered)) >= len(squashed(task.required)):
            cut = ends_in_string(task, offered)
            return Score(HARMFUL, "cut in a string") if cut else Score(RIGHT)
        if ends_in_string(task, offered):
            return Score(HARMFUL, "cut in a string")
        if offered.strip() in KEYWORDS:
            return Score(HARMFUL, "a keyword alone")
        if ends_in_word(offered, task.removed):
            return Score(WRONG, "cut in a word")
        ours, theirs = (_fragment(task, text) for text in (offered, task.required))
        enough = max(PREFIX_TOKENS, PREFIX_SHARE * len(theirs))
        return Score(PARTLY, "cut") if len(ours) >= enough else Score(WRONG, "cut too early")
    if why := damage(task, offered):
        return Score(HARMFUL, why)
    if is_useful(task, offered):
        return Score(RIGHT)
    ours, theirs = (_fragment(task, text) for text in (offered, task.required))
    same = next((n for n, two in enumerate(zip(ours, theirs, strict=False)) if two[0] != two[1]),
                min(len(ours), len(theirs)))  # fmt: skip
    most = same >= MOST_SHARE * len(theirs)
    return Score(PARTLY, "ends otherwise") if most else Score(WRONG, "something else follows")


def is_useful(task: CompletionTask, offered: str) -> bool:
    """Return whether a completion starts with the rest of the statement, or an equivalent."""
    first = offered.strip("\n").split("\n")[0].strip().replace("'", '"')
    if any(re.fullmatch(pattern, first) for pattern in task.also):
        return True
    rest = _rest_after(offered, task.required)
    if rest is not None and re.match(r"[ \t]*[;,]?[ \t]*(?:\n|$|#|//)", rest):
        return True
    return bool(task.tests) and passes(f"{task.before}{offered}{task.after}\n{task.tests}")


def ends_in_word(text: str, whole: str) -> bool:
    """Return whether the beginning of a text ends inside a word."""
    rest = _rest_after(whole, text) or ""
    return re.match(r"\w", text.rstrip()[-1]) is not None and re.match(r"\w", rest) is not None


def is_beginning(text: str, whole: str) -> bool:
    """Return whether a text is the beginning of another, or all of it, blanks aside."""
    return squashed(whole).startswith(squashed(text))


def squashed(text: str) -> str:
    """Return a text without blanks, and with one kind of quotes."""
    return "".join(text.split()).replace("'", '"')


def _rest_after(text: str, beginning: str) -> str | None:
    """Return the text after `beginning`, blanks aside; None if it starts otherwise."""
    wanted = squashed(beginning)
    if not squashed(text).startswith(wanted):
        return None
    seen = 0
    for at, char in enumerate(text):
        if seen == len(wanted):
            return text[at:]
        seen += not char.isspace()
    return ""


def _fragment(task: CompletionTask, text: str) -> list[Token]:
    found = tokens(language_of(task.file), text)
    return [one for one in found if one.kind not in (LINE, INDENT)]


def ends_in_string(task: CompletionTask, offered: str) -> bool:
    """Return whether the right beginning of a text ends inside a string of the sample."""
    wanted, seen = len(squashed(offered)), 0
    at = len(task.before)
    whole = task.before + task.removed + task.after
    while seen < wanted:
        seen += not whole[at].isspace()
        at += 1
    return any(start < at < stop for start, stop in string_spans(language_of(task.file), whole))


def damage(task: CompletionTask, offered: str) -> str:
    """Return why a completion is harmful; "" if it is not."""
    if errors(task.file, task.before + offered + task.after) > 0:
        block = offered.rstrip().endswith(":")  # its body is still to be written
        body = " pass" if block else ""
        if not body or errors(task.file, task.before + offered.rstrip() + body + task.after) > 0:
            return "the syntax is broken"
    return repetition(task, offered) or unreached(task, offered)


def repetition(task: CompletionTask, offered: str) -> str:
    """Return the text that a completion repeats; "" if nothing."""
    head, rest = task.before.rpartition("\n")[2], task.after.split("\n")[0]
    lines = [line.strip() for line in f"{head}{offered}{rest}".split("\n")]
    above = [line.strip() for line in task.before.split("\n")[:-1] if line.strip()][-LINES_ABOVE:]
    below = [line.strip() for line in task.after.split("\n")[1:] if line.strip()][:LINES_BELOW]
    right = {line.strip() for line in f"{head}{task.removed}{rest}".split("\n")}
    known = {line for line in above + below if len(squashed(line)) >= MIN_LINE_CHARS} - right
    if again := [line for line in lines if line in known]:
        return f"a line nearby is repeated: {again[0]}"
    long = [line for line in lines if len(squashed(line)) >= MIN_LINE_CHARS]
    if any(one == other for one, other in pairwise(long)):
        return "a line is offered twice"
    tail = squashed(rest)
    if len(tail) >= MIN_TAIL_CHARS and squashed(offered).endswith(tail):
        return "the rest of the line is repeated"
    return ""


def unreached(task: CompletionTask, offered: str) -> str:
    """Return whether a completion leaves the block before the code below it.

    That code is in the same block.
    """
    head, rest = task.before.rpartition("\n")[2], task.after.split("\n")[0]
    last = f"{head}{offered}{rest}".rstrip().rpartition("\n")[2]
    below = next((line for line in task.after.split("\n")[1:] if line.strip()), "")
    same = len(last) - len(last.lstrip()) == len(below) - len(below.lstrip())
    goes_on = re.match(r"\s*\w", below) and not BRANCH.match(below.strip())
    leaves = language_of(task.file) != "markdown" and LEAVES.match(last.strip())
    return "the code below is never reached" if same and goes_on and leaves else ""


# -- syntax ------------------------------------------------------------------------------------


def errors(path: str, text: str) -> int:
    """Count the places where a file breaks its language's syntax.

    Where the parser gives up, as on text that repeats itself without end, each character counts.
    """
    language = language_of(path)
    if language == "markdown":
        return markdown_errors(text)
    tree = parse(path, text)
    if tree is None:
        return len(text)
    if tree.errors or language != "python":
        return tree.errors
    try:
        ast.parse(text)
    except SyntaxError:
        return 1
    return 0


def markdown_errors(text: str) -> int:
    """Count the errors in a Markdown text.

    That is code fences and code spans without an end, brackets that do not match, and table rows
    with another number of cells than the row above.
    """
    count, fenced, cells = 0, False, 0
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if fenced:
            continue
        row = line.strip()
        now = row.count("|") if row.startswith("|") else 0
        count += bool(now and cells and now != cells)
        cells = now
        prose = re.sub(r"`[^`]*`", "", line)
        count += "`" in prose
        count += any(prose.count(one) != prose.count(two) for one, two in ("[]", "()"))
    return count + fenced
