"""Checks of an edit before it is shown: pure functions of the request and the new text.

They find what an instruction did not ask for: broken syntax, lost definitions, comments and texts,
code changed where only comments were to be. Whether an edit does what was asked is not judged,
except that names which the instruction writes as code should occur in it. A check that fails is a
warning for the user and a hint for the model, which is asked once more (`engine.editing.outcome`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from engine.editing.brackets import scan
from engine.editing.code_parts import (
    Definition,
    Kind,
    Span,
    Token,
    broken_rows,
    definitions,
    imported_names,
    loose_statements,
    tokens,
    undefined_names,
    variables,
)
from engine.editing.edits import line_count
from engine.editing.instruction import (
    Addition,
    asks_change,
    asks_example,
    asks_removal,
    asks_rewriting,
    only_asked,
    renames,
    speaks_of_comments,
    speaks_of_docstrings,
    speaks_of_texts,
    wanted_names,
    words,
)
from engine.editing.syntax import parse
from engine.records import Request

# Of languages without a grammar.
DEFINITION = re.compile(
    r"^[ \t]*(?:[\w.]+[ \t]+)*(?:def|class|function|func|fn)[ \t]+(?:\([^)]*\)[ \t]*)?(\w+)", re.M
)
TASK = re.compile(r"\b(?:todo|fixme|xxx|implement\w*)\b", re.I)  # in a comment that goes when done
PROSE = frozenset((".md", ".markdown", ".rst", ".txt", ".adoc", ".tex", ""))  # have no brackets
CODE: tuple[Kind, ...] = ("code", "string", "import", "annotation")  # kinds of tokens
MIN_LINES = 4  # of a text of which more than half may be missed
MIN_LETTERS = 8  # of a string literal that may be missed
MAX_QUOTED_CHARS = 40
MAX_NAMED = 3  # names or quotations in one message


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """What is wrong with an edit: `warning` for the user, `hint` for the model; one line each."""

    kind: str
    warning: str
    hint: str


class _Side:
    """The edited part, a span, of the old or the new text of a file. Without a grammar it has no
    tokens and no definitions, so that checks of them pass."""

    def __init__(self, path: str, text: str, span: Span) -> None:
        self.text, self.span = text, span
        self.part = text[slice(*span)]
        self.outside = text[: span[0]] + "\n" + text[span[1] :]
        self.tree = parse(path, text)

    @cached_property
    def tokens(self) -> list[Token]:
        return tokens(self.tree, self.span) if self.tree else []

    @cached_property
    def definitions(self) -> list[Definition]:
        """Of the part."""
        return definitions(self.tree, self.span) if self.tree else []

    @cached_property
    def imported(self) -> dict[str, str]:
        """Names that the part imports -> what they stand for."""
        return imported_names(self.tree, self.span) if self.tree else {}

    @cached_property
    def names(self) -> set[str]:
        """The words of its code; without a grammar, all of its words."""
        return words(" ".join(self.of_kind(*CODE)) if self.tree else self.part)

    def of_kind(self, *kinds: Kind) -> list[str]:
        """The texts of its tokens of some kinds."""
        return [token.text for token in self.tokens if token.kind in kinds]


def failed_checks(request: Request, new: str) -> list[FailedCheck]:
    """The checks that `new`, the whole file after the edit, fails; none if nothing changed."""
    if new == request.text:
        return []
    start, stop = request.selection or (0, len(request.text))
    before = _Side(request.path, request.text, (start, stop))
    after = _Side(request.path, new, (start, len(new) - (len(request.text) - stop)))
    broken = [*_brackets(request.path, before, after), *_syntax(before, after)]
    checks = CHECKS[: FORM_INDEPENDENT if broken else None]
    return broken + [one for check in checks for one in check(request.instruction, before, after)]


# -- form --------------------------------------------------------------------------------------


def _brackets(path: str, before: _Side, after: _Side) -> Iterator[FailedCheck]:
    """The part has the same unmatched brackets as before. Only without a grammar: a scanner does
    not know comments."""
    suffix = re.search(r"\.[^./\\]*$|$", path)
    if before.tree or after.tree or (suffix and suffix[0].lower() in PROSE):
        return
    old, new = (scan(side.part) for side in (before, after))
    if len(old.open) + len(old.unmatched_closers) == 0 < len(new.open) + len(new.unmatched_closers):
        at = (new.open or new.unmatched_closers)[0]
        line = line_count(after.text[: after.span[0] + at + 1])
        yield FailedCheck(
            "brackets",
            f"line {line}: the bracket {after.part[at]} has no counterpart",
            "Close every bracket.",
        )


def _syntax(before: _Side, after: _Side) -> Iterator[FailedCheck]:
    """The file has no more syntax errors than before."""
    if not before.tree or not after.tree:
        return
    rows = broken_rows(after.tree, after.span)
    if len(rows) <= len(broken_rows(before.tree, before.span)):
        return
    first, last = (line_count(after.text[:at]) for at in after.span)
    row = 1 + next((row for row in rows if first <= row + 1 <= last + 1), rows[0])
    yield FailedCheck(
        "syntax",
        f"line {row}: a syntax error that was not there before",
        "Write code without syntax errors.",
    )


# -- what is lost ------------------------------------------------------------------------------


def _deleted(instruction: str, before: _Side, after: _Side) -> Iterator[FailedCheck]:
    """Not more than half of the text is gone, unless asked."""
    old, new = (sum(not char.isspace() for char in side.part) for side in (before, after))
    if 2 * new < old and line_count(before.part) >= MIN_LINES and not asks_rewriting(instruction):
        yield FailedCheck(
            "deleted",
            f"{round(100 * (old - new) / old)} % of the text would be deleted",
            "Repeat every line that does not change.",
        )


def _definitions(instruction: str, before: _Side, after: _Side) -> Iterator[FailedCheck]:
    """No definition is lost whose name the instruction does not mention, or that is still used."""
    named, lost = words(instruction), _lost_definitions(before, after)
    missed = [name for name in lost if name not in named]
    added = {each.name for each in after.definitions} - {each.name for each in before.definitions}
    has_successor = added and (asks_change(instruction) or added & {*wanted_names(instruction)})
    if missed and not (len(missed) == 1 and (has_successor or asks_removal(instruction))):
        names = _list(missed)
        yield FailedCheck("definitions", f"{names} would be lost", f"Keep {names}.")
        return
    outer = {each.name for each in before.definitions if each.unique and not each.inside}
    if used := [name for name in lost if name in outer & words(before.outside)]:
        warning = f"{_list(used)} is still used elsewhere in the file"
        yield FailedCheck("uses", warning, f"Keep {_list(used)}.")


def _lost_definitions(before: _Side, after: _Side) -> list[str]:
    """Names that the old part defines and the new one does not, without those inside them."""
    if before.tree and after.tree and after.tree.errors <= before.tree.errors:
        own = before.definitions
        lost = {each.name for each in own} - {each.name for each in after.definitions}
        return [each.name for each in own if each.name in lost and not lost & each.inside]
    kept = DEFINITION.findall(after.part)
    return [name for name in dict.fromkeys(DEFINITION.findall(before.part)) if name not in kept]


def _comments(instruction: str, before: _Side, after: _Side) -> Iterator[FailedCheck]:
    """No comment is lost beside code that stays."""
    if speaks_of_comments(instruction):
        return
    old, new = _commented(before), _commented(after)
    texts = {_bare(text) for text in after.of_kind("comment")}
    code = set(_rows(after))
    lost = [
        text
        for row, text in old
        if not TASK.search(text)
        and _bare(text) not in texts
        and row in code
        and not any(row == each for each, _ in new)
    ]
    if lost:
        yield FailedCheck(
            "comments",
            f"the comment {_quoted(lost[0])} would be lost",
            "Keep every comment as it is.",
        )


def _docstrings(instruction: str, before: _Side, after: _Side) -> Iterator[FailedCheck]:
    """No definition loses its docstring."""
    if speaks_of_docstrings(instruction):
        return
    had = {each.name for each in before.definitions if each.documented}
    has = {each.name: each.documented for each in after.definitions}
    if lost := [name for name in had if has.get(name) is False]:
        yield FailedCheck(
            "docstrings",
            f"the docstring of {_list(sorted(lost))} would be lost",
            "Keep every docstring as it is.",
        )


def _texts(instruction: str, before: _Side, after: _Side) -> Iterator[FailedCheck]:
    """No text in a string literal is changed or lost."""
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
    if lost:
        yield FailedCheck(
            "strings",
            f"the text {_quoted(lost[0])} would be lost",
            "Keep every string as it is.",
        )


# -- what nobody asked for ---------------------------------------------------------------------


def _only_asked(instruction: str, before: _Side, after: _Side) -> Iterator[FailedCheck]:
    """Where only comments or annotations are to be changed, the code stays."""
    asked = only_asked(instruction)
    if not asked:
        return
    skipped = {kind for each in asked for kind in _kinds(each)}
    old, new = ([one for one in side.tokens if one.kind not in skipped] for side in (before, after))
    at = _first_difference(old, new)
    if at is None:
        return
    what = " and ".join(f"{each}s" for each in sorted(asked, reverse=True))
    row = (new[at] if at < len(new) else old[at]).row
    text = (after if at < len(new) else before).text
    line = re.split(r"\r\n|\r|\n", text)[row]
    yield FailedCheck(
        "code",
        f"other code was changed than {what}: {_quoted(line)}",
        f"Change {what} only, and repeat all code exactly as it is.",
    )


def _kinds(asked: Addition) -> tuple[Kind, ...]:
    """The kinds of tokens that may differ where only this is asked for."""
    if asked == "annotation":
        return ("annotation", "import")
    return ("comment", "docstring")


def _first_difference(old: list[Token], new: list[Token]) -> int | None:
    """The index in `new` from which the texts have other tokens."""
    ours, theirs = _without_noise(old), _without_noise(new)
    for (_, one), (at, other) in zip(ours, theirs, strict=False):
        if one != other:
            return at
    if len(ours) == len(theirs):
        return None
    return theirs[len(ours)][0] if len(theirs) > len(ours) else len(new)


def _without_noise(side: list[Token]) -> list[tuple[int, str]]:
    """The (index, text) of all tokens but `pass` and commas before a closing bracket."""
    texts = [token.text for token in side]
    follows = [*texts, ""][1:]
    return [
        (at, text)
        for at, (text, follow) in enumerate(zip(texts, follows, strict=True))
        if text != "pass" and not (text == "," and follow in (")", "]", "}"))
    ]


def _loose(instruction: str, before: _Side, after: _Side) -> Iterator[FailedCheck]:
    """No statement is added outside of definitions where there was none."""
    if asks_example(instruction) or not before.tree or not after.tree or not before.definitions:
        return
    if not loose_statements(before.tree, before.span):
        for text in loose_statements(after.tree, after.span)[:1]:
            warning = f"{_quoted(text)} was added, which nobody asked for"
            yield FailedCheck("statements", warning, "Add nothing else.")


def _duplicates(instruction: str, before: _Side, after: _Side) -> Iterator[FailedCheck]:
    """Nothing is defined twice side by side that was defined once."""
    old, new = (
        Counter(
            (each.scope, each.name)
            for each in (definitions(side.tree, side.span, beside=True) if side.tree else ())
            if each.unique
        )
        for side in (before, after)
    )
    known = {name for (_, name), count in old.items() if count > 1}
    twice = [name for (_, name), count in new.items() if count > 1 and name not in known]
    if twice:
        names = _list(twice)
        yield FailedCheck("duplicates", f"{names} would be defined twice", f"Define {names} once.")


def _undefined(instruction: str, before: _Side, after: _Side) -> Iterator[FailedCheck]:
    """No name is used that nothing defines, or no longer."""
    if not before.tree or not after.tree:
        return
    known = words(before.outside)
    known |= {*undefined_names(before.tree, before.span, known)}
    names = undefined_names(after.tree, after.span, known)
    used = {*after.of_kind("code")} - after.imported.keys()
    names += [name for name in before.imported if name in used and name not in (*known, *names)]
    if names:
        warning = (
            f"{_list(names)} {'is' if len(names) == 1 else 'are'} neither defined nor imported"
        )
        yield FailedCheck("undefined", warning, f"Import or define {_list(names)}.")


def _hidden(instruction: str, before: _Side, after: _Side) -> Iterator[FailedCheck]:
    """No new import hides another name of the file."""
    added = {name: text for name, text in after.imported.items() if name not in before.imported}
    if not added or not before.tree:
        return
    old = imported_names(before.tree, (0, len(before.text)))
    first = before.tree.offset(before.tree.root.start_byte)
    own = {each.name for each in definitions(before.tree, (first, first + 1), beside=True)}
    for name, origin in added.items():
        if old.get(name, origin) != origin or name in own - old.keys():
            warning = f"importing {origin} would hide the `{name}` that the file has"
            yield FailedCheck("hidden", warning, f"Use `{name}` as the file has it.")


def _additions(instruction: str, before: _Side, after: _Side) -> Iterator[FailedCheck]:
    """Of comments, docstrings and annotations, all that were asked for have changed."""
    for kind in sorted(only_asked(instruction)) if before.tree else ():
        if before.of_kind(*_kinds(kind)) == after.of_kind(*_kinds(kind)):
            yield FailedCheck(
                "additions", f"the {kind}s did not change", f"Change the {kind}s, too."
            )


def _renamed(instruction: str, before: _Side, after: _Side) -> Iterator[FailedCheck]:
    """A variable that is to be replaced is gone from the functions that have the new one."""
    for old, new in renames(instruction):
        if after.tree and any({old, new} <= each for each in variables(after.tree, after.span)):
            warning = f"`{old}` still occurs beside `{new}`"
            yield FailedCheck("rename", warning, f"Replace every `{old}`.")


def _missing_names(instruction: str, before: _Side, after: _Side) -> Iterator[FailedCheck]:
    """Names that the instruction writes as code are in the file."""
    known = words(before.outside) | before.names | after.names
    if missing := [name for name in wanted_names(instruction) if name not in known]:
        names = _list(missing)
        warning = f"{names} {'does' if len(missing) == 1 else 'do'} not occur in the new text"
        yield FailedCheck("missing", warning, f"The new code must contain {names}.")


Check = Callable[[str, _Side, _Side], Iterator[FailedCheck]]
CHECKS: tuple[Check, ...] = (
    _deleted, _definitions, _missing_names,
    _only_asked, _comments, _docstrings, _texts, _undefined, _hidden, _duplicates, _loose,
    _additions, _renamed,
)  # fmt: skip
FORM_INDEPENDENT = 3  # of CHECKS, the first ones: run even where the syntax is broken


# -- parts -------------------------------------------------------------------------------------

_Row = tuple[str, ...]


def _by_row(side: _Side) -> Iterator[tuple[int, list[Token]]]:
    for row, group in groupby(side.tokens, key=lambda token: token.row):
        yield row, [*group]


def _rows(side: _Side) -> list[_Row]:
    """The code of each line."""
    rows = (tuple(each.text for each in group if each.kind in CODE) for _, group in _by_row(side))
    return [row for row in rows if row]


def _commented(side: _Side) -> list[tuple[_Row, str]]:
    """Comments with the code that they belong to: that of their line, else the line below."""
    found: list[tuple[_Row, str]] = []
    waiting: list[str] = []
    for _, group in _by_row(side):
        comments = [token.text for token in group if token.kind == "comment"]
        code = tuple(token.text for token in group if token.kind in CODE)
        waiting += comments
        if len(code) > 1:
            found += [(code, text) for text in waiting]
            waiting = []
        elif code:
            waiting = []
    return found


def _bare(comment: str) -> str:
    """A comment's words."""
    return " ".join(re.findall(r"\w+", comment.lower()))


def _inner(literal: str) -> str:
    """A string literal without prefix and quotes."""
    return re.sub(r"^\w*[\"'`]+|[\"'`]+$", "", literal)


def _is_message(text: str) -> bool:
    """Whether a text is for people: several words."""
    return sum(map(str.isalpha, text)) >= MIN_LETTERS and len(text.split()) > 1


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return f"“{line if len(line) <= MAX_QUOTED_CHARS else line[:MAX_QUOTED_CHARS] + '…'}”"


def _list(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:MAX_NAMED])
    return shown if len(names) <= MAX_NAMED else f"{shown} and {len(names) - MAX_NAMED} more"
