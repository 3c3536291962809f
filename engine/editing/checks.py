"""Checks of an edit before it is shown: pure functions of the request and the new text.

They find what an instruction did not ask for: broken syntax, lost definitions, comments and texts,
code changed where only comments or another definition were to be. Whether an edit does what was
asked is judged only as far as words tell (`engine.editing.undone`). A check that fails is a warning
for the user and a hint for the model, which is asked once more (`engine.editing.outcome`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from engine.editing import added_faults, docstrings, losses, undone
from engine.editing.brackets import scan
from engine.editing.code_parts import (
    Body,
    Token,
    broken_rows,
    definitions,
    idle_rows,
    imported_names,
    loose_statements,
    undefined_names,
)
from engine.editing.edits import LINE_END, common_prefix, line_count
from engine.editing.instruction import (
    asks_example,
    kept_names,
    named_words,
    only_requested,
    speaks_of_imports,
    words,
)
from engine.editing.outcome import Outcome
from engine.editing.side import FailedCheck, Side, kinds_of, listed, quoted
from engine.records import Request

PROSE = frozenset((*losses.MARKDOWN, ".rst", ".txt", ".adoc", ".tex", ""))  # files without brackets


def check_edit(request: Request, new: str) -> Outcome:
    """Check `new`, the whole file after the edit, if anything changed."""
    if new == request.text:
        return Outcome(new)
    start, stop = request.selection or (0, len(request.text))
    before = Side(request.path, request.text, (start, stop))
    after = Side(request.path, new, (start, len(new) - (len(request.text) - stop)))
    broken = [*_brackets(before, after), *_syntax(before, after)]
    checks = CHECKS[: FORM_INDEPENDENT if broken else None]
    found = [failed for check in checks for failed in check(request.instruction, before, after)]
    return Outcome(new, (*broken, *found), looked_at=_looked_at(after))


def _looked_at(side: Side) -> str:
    """Say what the checks of a file can see."""
    if side.tree and side.is_all_code:
        return "syntax, lost definitions and names looked at"
    return "no grammar for this kind of file: only brackets and lost text looked at"


def check_merge(
    request: Request,
    new: str,
    changes: Sequence[losses.Replaced],
    lost: Sequence[str] | None = None,
) -> Outcome:
    """Check `new`, the file with an update merged into it.

    The checks are those of an edit that tell what is broken or lost. `changes`: the lines of the
    file that are replaced, and by which; `lost`: only comments of these lines count, else those of
    all.
    """
    if new == request.text:
        return Outcome(new)
    before = Side(request.path, request.text, (0, len(request.text)))
    after = Side(request.path, new, (0, len(new)))
    found = [
        *_brackets(before, after),
        *_syntax(before, after),
        *losses.vanished(request.instruction, before, after, changes),
    ]
    found += [
        failed for check in MERGE_CHECKS for failed in check(request.instruction, before, after)
    ]
    found += losses.comments(request.instruction, before, after, lost)
    return Outcome(new, tuple(found), looked_at=_looked_at(after))


# -- form --------------------------------------------------------------------------------------


def _brackets(before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that the part has the same unmatched brackets as before.

    Runs only without a grammar: a scanner does not know comments.
    """
    if before.tree or after.tree or before.suffix in PROSE:
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


def _syntax(before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that the file has no more syntax errors than before."""
    if not before.tree or not after.tree:
        return
    rows, known = broken_rows(after.tree, after.span), broken_rows(before.tree, before.span)
    if len(rows) <= len(known):
        return
    rows = _added_rows(before, known, after, rows)
    first, last = (line_count(after.text[:at]) for at in after.span)
    row = 1 + next((row for row in rows if first <= row + 1 <= last + 1), rows[0])
    yield FailedCheck(
        "syntax",
        f"line {row}: a syntax error that was not there before",
        "Write code without syntax errors.",
    )


def _added_rows(before: Side, known: list[int], after: Side, rows: list[int]) -> list[int]:
    """Return the rows of the new text whose lines are not among those known of the old one.

    They are all rows if only equal lines were added.
    """
    old, new = (LINE_END.split(side.text) for side in (before, after))
    lines = {old[row].strip() for row in known}
    return [row for row in rows if new[row].strip() not in lines] or rows


# -- what nobody asked for ---------------------------------------------------------------------


def _only_requested(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that the code stays where only comments or annotations are to be changed."""
    additions = only_requested(instruction)
    if not additions:
        return
    skipped = {kind for each in additions for kind in kinds_of(each)}
    old, new = (
        [token for token in side.tokens if token.kind not in skipped] for side in (before, after)
    )
    changed = _first_difference(old, new)
    if changed is None:
        return
    what = " and ".join(f"{each}s" for each in sorted(additions, reverse=True))
    line = _line_of(after, changed[1]) or _line_of(before, changed[0])
    yield FailedCheck(
        "code",
        f"other code was changed than {what}: {quoted(line)}",
        f"Change {what} only, and repeat all code exactly as it is.",
    )


def _line_of(side: Side, at: Token | None) -> str:
    """Return the line of a token; "" for none."""
    return LINE_END.split(side.text)[at.row] if at else ""


def _first_difference(
    old: list[Token], new: list[Token]
) -> tuple[Token | None, Token | None] | None:
    """Return the first tokens in which texts differ; None for one where only others were added.

    Returns None if all tokens are equal.
    """
    ours, theirs = _without_noise(old), _without_noise(new)
    texts = [text for _, text in ours], [text for _, text in theirs]
    head = common_prefix(*texts)
    if head == len(ours) == len(theirs):
        return None
    tail = common_prefix(texts[0][head:][::-1], texts[1][head:][::-1])
    was = old[ours[head][0]] if head < len(ours) - tail else None
    return was, new[theirs[head][0]] if head < len(theirs) - tail else None


def _without_noise(side: list[Token]) -> list[tuple[int, str]]:
    """Return (index, text) of all tokens but `pass` and commas before a closing bracket."""
    texts = [token.text for token in side]
    follows = [*texts, ""][1:]
    return [
        (at, text)
        for at, (text, follow) in enumerate(zip(texts, follows, strict=True))
        if text != "pass" and not (text == "," and follow in (")", "]", "}"))
    ]


def _loose(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no statement is added outside of definitions where there was none."""
    if asks_example(instruction) or not before.tree or not after.tree or not before.definitions:
        return
    if not loose_statements(before.tree, before.span):
        for text in loose_statements(after.tree, after.span)[:1]:
            warning = f"{quoted(text)} was added, which nobody asked for"
            yield FailedCheck("statements", warning, "Add nothing else.")


def _duplicates(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that nothing is defined twice side by side that was defined once."""
    old, new = (
        Counter(
            (each.scope, each.name)
            for each in (definitions(side.tree, side.span, siblings=True) if side.tree else ())
            if each.unique
        )
        for side in (before, after)
    )
    known = {name for (_, name), count in old.items() if count > 1}
    twice = [name for (_, name), count in new.items() if count > 1 and name not in known]
    if twice:
        names = listed(twice)
        yield FailedCheck("duplicates", f"{names} would be defined twice", f"Define {names} once.")


def _undefined(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no name is used that nothing defines, or no longer."""
    if not before.tree or not after.tree:
        return
    known = words(before.outside)
    known |= {*undefined_names(before.tree, before.span, known)}
    names = undefined_names(after.tree, after.span, known)
    used = {*after.of_kind("code")} - after.imported.keys()
    names += [name for name in before.imported if name in used and name not in (*known, *names)]
    if names:
        warning = (
            f"{listed(names)} {'is' if len(names) == 1 else 'are'} neither defined nor imported"
        )
        yield FailedCheck("undefined", warning, f"Import or define {listed(names)}.")


def _unused_imports(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that nothing is imported that the file does not use."""
    if speaks_of_imports(instruction):
        return
    known = before.imported.keys() | words(after.outside) | words(instruction)
    known |= words(" ".join(after.of_kind("code", "string", "annotation")))
    unused = [name for name in after.imported if name not in known]
    unused = [name for name in unused if not after.imported[name].startswith("__future__.")]
    if unused:
        warning = f"{listed(unused)} would be imported and not used"
        yield FailedCheck("imports", warning, f"Do not import {listed(unused)}.")


def _idle(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no loop or condition is left that does nothing."""
    if before.tree and after.tree:
        rows, known = idle_rows(after.tree, after.span), idle_rows(before.tree, before.span)
        if len(rows) > len(known):
            line = LINE_END.split(after.text)[_added_rows(before, known, after, rows)[0]]
            hint = "Leave out what does nothing."
            yield FailedCheck("idle", f"{quoted(line)} would do nothing", hint)


def _elsewhere(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that only the definitions that the instruction names have changed, if it names any.

    Another one may have changed if it has to do with them.
    """
    old, new = before.bodies, after.bodies
    named = named_words(instruction, old.keys()) & old.keys()
    if not named:
        return
    used = {name for each in named for name in (each, *old[each].inside)}
    used = {
        word for name in used for side in (old, new) if name in side for word in side[name].code
    }
    others = []
    for name in sorted(old.keys() & new.keys()):
        body, now = old[name], new[name]
        near = {name, *body.inside, *body.around, *body.code, *now.code}
        if body.code != now.code and not named & near and not used & {name, *body.around}:
            others.append(name)
    if others:
        warning = f"{listed(others)} was changed, too"
        yield FailedCheck("elsewhere", warning, f"Do not change {listed(others)}.")


def _kept(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that the names that are to be kept stay, and the code of their definitions."""
    if not before.tree or not after.tree or after.tree.errors > before.tree.errors:
        return
    old, new = before.bodies, after.bodies
    lost = [
        name
        for name in kept_names(instruction)
        if (name in before.names and name not in after.names)
        or (name in old and name in new and _code_of(name, old) != _code_of(name, new))
    ]
    if lost:
        warning = f"{listed(lost)} was changed, which was to be kept"
        yield FailedCheck("kept", warning, f"Keep {listed(lost)} as before.")


def _code_of(name: str, every: dict[str, Body]) -> list[tuple[str, ...]]:
    """Return the code of a definition and of those inside it."""
    return [every[each].code for each in (name, *sorted(every[name].inside)) if each in every]


def _hidden(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no new import hides another name of the file."""
    added = {name: text for name, text in after.imported.items() if name not in before.imported}
    if not added or not before.tree:
        return
    old = imported_names(before.tree, (0, len(before.text)))
    first = before.tree.offset(before.tree.root.start_byte)
    own = {each.name for each in definitions(before.tree, (first, first + 1), siblings=True)}
    for name, origin in added.items():
        if old.get(name, origin) != origin or name in own - old.keys():
            warning = f"importing {origin} would hide the `{name}` that the file has"
            yield FailedCheck("hidden", warning, f"Use `{name}` as the file has it.")


Check = Callable[[str, Side, Side], Iterator[FailedCheck]]
CHECKS: tuple[Check, ...] = (
    losses.deleted, losses.definitions, undone.missing_names, undone.blank, undone.remaining,
    _only_requested, losses.comments, docstrings.lost, docstrings.rewritten, docstrings.top,
    docstrings.exports, losses.texts, losses.headings, _elsewhere,
    _kept, _undefined, _hidden, _unused_imports,
    _duplicates, _loose, _idle, *undone.CHECKS, *added_faults.CHECKS,
)  # fmt: skip
MERGE_CHECKS: tuple[Check, ...] = (losses.deleted, _duplicates, docstrings.lost)
FORM_INDEPENDENT = 5  # checks, the first ones of CHECKS, that run even where the syntax is broken
