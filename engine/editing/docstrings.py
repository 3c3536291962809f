"""Checks that an edit leaves docstrings, and what stands at the top of a file, as they are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from engine.editing.instruction import asks_removal, asks_rewriting, speaks_of_docstrings, words
from engine.editing.side import CODE, FailedCheck, Side, listed, quoted

LANGUAGE = re.compile(r"translat|spell|typo|wording|english|german|french|spanish", re.I)
DOCTEST = re.compile(r"^[ \t]*>>>", re.M)
MIN_DOC_WORDS = 8  # different words of a docstring that is not to be written anew
# What an instruction says where the top of the file may change.
HEADER = re.compile(r"licen[cs]e|copyright|header|shebang|encoding|first line|\btop\b", re.I)
HINT = "Keep every docstring as it is."


def lost(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no definition loses its docstring, nor the file its own."""
    if speaks_of_docstrings(instruction):
        return
    had, has = (
        Counter((each.name, each.documented) for each in side.definitions)
        for side in (before, after)
    )
    missed = {name for (name, documented), _ in (had - has).items() if documented}
    if names := sorted(name for name in missed if has[name, False] > had[name, False]):
        warning = f"the docstring of {listed(names)} would be lost"
        yield FailedCheck("docstrings", warning, HINT)
    elif (text := _of_module(before)) and not _of_module(after):
        yield FailedCheck("docstrings", f"the file's docstring {quoted(text)} would be lost", HINT)


def rewritten(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that docstrings keep their examples and, if they are long, half of their words."""
    if speaks_of_docstrings(instruction) or asks_rewriting(instruction):
        return
    names, kept_names = ({each.name for each in side.definitions} for side in (before, after))
    if LANGUAGE.search(instruction) or not before.tree or names - kept_names:
        return
    old, new = (side.of_kind("docstring") for side in (before, after))
    kept = [words(text) for text in new]
    for text in old if len(old) <= len(new) else ():
        own = words(text)
        if len(own) >= MIN_DOC_WORDS and not any(2 * len(own & each) >= len(own) for each in kept):
            warning = f"the docstring {quoted(text)} would be rewritten"
            yield FailedCheck("docstrings", warning, HINT)
            return
    if len(DOCTEST.findall("\n".join(old))) > len(DOCTEST.findall("\n".join(new))):
        warning = "an example in a docstring would be lost"
        yield FailedCheck("docstrings", warning, "Keep the examples in docstrings.")


def top(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that the first line of a script and the comments above all code stay."""
    if HEADER.search(instruction) or speaks_of_docstrings(instruction):
        return
    if before.text.startswith("#!") and not after.text.startswith("#!"):
        line = before.text.splitlines()[0]
        yield FailedCheck("top", f"the line {quoted(line)} would be lost", f"Begin with {line}")
        return
    comments = {" ".join(text.split()) for text in after.of_kind("comment")}
    for text in _above(before):
        if " ".join(text.split()) not in comments and re.search(r"\w", text):
            warning = f"the comment {quoted(text)} at the top would be lost"
            yield FailedCheck("top", warning, "Keep the comments at the top of the file.")
            return


def exports(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that what stays defined stays in `__all__`."""
    if asks_removal(instruction) or re.search("export|public|private|__all__", instruction):
        return
    gone = [name for name in _exported(before) if name not in _exported(after)]
    if missed := [name for name in gone if name in after.names]:
        warning = f"{listed(missed)} would no longer be in `__all__`"
        yield FailedCheck("exports", warning, "Keep `__all__` as it is.")


def _of_module(side: Side) -> str:
    """Return the docstring at the top of a part of a file; "" if there is none."""
    if not side.tree or side.tree.language != "python" or side.text[: side.span[0]].strip():
        return ""
    first = next((token for token in side.tokens if token.kind != "comment"), None)
    return first.text if first and first.kind == "docstring" else ""


def _above(side: Side) -> list[str]:
    """Return the comments above all code of a file, where the part begins there."""
    if side.text[: side.span[0]].strip():
        return []
    first = next((at for at, each in enumerate(side.tokens) if each.kind in CODE), 0)
    rows = [each.row for each in side.tokens[first : first + 1]]
    comments = [each for each in side.tokens[:first] if each.kind == "comment"]
    # A comment right above code is a comment of that code.
    while comments and rows and comments[-1].row >= rows[-1] - 1:
        rows.append(comments.pop().row)
    return [each.text for each in comments]


def _exported(side: Side) -> list[str]:
    found = re.search(r"^__all__\b[^=\n]*=\s*[\[(]([^\])]*)[\])]", side.part, re.M)
    return re.findall(r"[\"'](\w+)[\"']", found[1]) if found else []
