"""The tasks of `python -m bench assist`: an instruction or a place to complete, in a sample.

An instruction has reference answers. Most are exact: nothing but layout may differ. Where wording
is free (comments, docstrings) it is not compared, and patterns say what it must contain. Where many
programs are right, a program or patterns decide, and only the blocks in question may differ.

A place to complete is a part of a sample with marks: the cursor is at the first `¦`, what must be
completed ends at the second, and `§` ends what is removed besides: a user has not typed it yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SAMPLES = Path(__file__).with_name("samples")
CURSOR, END = "¦", "§"
# Words of the comments to translate that English does not have.
GERMAN = (
    r"(?i)\b(der|das|den|dem|ein|eine|einen|und|nicht|wird|zuerst|erst|dann|damit|prüft|muss)\b"
)
Rewrite = Callable[[str], str]  # the selected text -> what it should become


@dataclass(frozen=True)
class EditTask:
    """One instruction for some lines of a sample file."""

    name: str
    kind: str  # the kind of instruction, for the results
    file: str
    first: str  # the selection: the first line with this text ...
    last: str  # ... up to the next one with this text
    instruction: str
    references: tuple[Rewrite, ...]  # right answers, the best first
    free: tuple[str, ...] = ()  # kinds of tokens whose wording is free
    needs: tuple[str, ...] = ()  # patterns that the new selection must match
    lacks: tuple[str, ...] = ()  # patterns that the new selection must not match
    tests: str = ""  # a Python program that runs after the new file and fails if it is wrong
    within: tuple[str, ...] = ()  # heads of the blocks that may differ freely, with tests or needs

    @property
    def text(self) -> str:
        return sample(self.file)

    @property
    def selection(self) -> tuple[int, int]:
        """The code points of the selected lines, the last one's end included."""
        text = self.text
        start = text.rfind("\n", 0, text.index(self.first)) + 1
        end = text.index(self.last, text.index(self.first)) + len(self.last)
        stop = text.index("\n", end) + 1
        return start, stop

    @property
    def before(self) -> str:
        start, stop = self.selection
        return self.text[start:stop]

    @property
    def right(self) -> list[str]:
        """The right answers, for the selected lines."""
        return [rewrite(self.before) for rewrite in self.references]

    def file_with(self, new: str) -> str:
        """Return the file with the selected lines replaced."""
        start, stop = self.selection
        return self.text[:start] + new + self.text[stop:]


@dataclass(frozen=True)
class CompletionTask:
    """A place to complete."""

    file: str
    at: str
    also: tuple[str, ...] = ()  # patterns of other right first lines
    tests: str = ""  # a Python program that runs after the completed file and fails if it is wrong

    @property
    def name(self) -> str:
        line, column = self.before.count("\n") + 1, len(self.before.rpartition("\n")[2]) + 1
        return f"{self.file}:{line}:{column}"

    @property
    def offsets(self) -> tuple[int, int]:
        """Return where the removed text starts and ends in the sample."""
        plain = self.at.replace(CURSOR, "").replace(END, "")
        text = sample(self.file)
        if text.count(plain) != 1:
            raise ValueError(f"{self.file}: {plain!r} is there {text.count(plain)} times, not once")
        start = text.index(plain) + self.at.index(CURSOR)
        return start, start + len(self.removed)

    @property
    def required(self) -> str:
        """The text up to the statement's end."""
        return self.at.split(CURSOR)[1]

    @property
    def removed(self) -> str:
        """Return all the text that has not been typed yet."""
        _, required, rest = self.at.split(CURSOR)
        return required + (rest.split(END)[0] if END in rest else "")

    @property
    def before(self) -> str:
        return sample(self.file)[: self.offsets[0]]

    @property
    def after(self) -> str:
        return sample(self.file)[self.offsets[1] :]


@cache
def sample(file: str) -> str:
    return (SAMPLES / file).read_text("utf-8")


def swap(*pairs: str) -> tuple[Rewrite]:
    """Replace, in turn, an old text by a new one; each old text must be there once."""

    def rewrite(text: str) -> str:
        for old, new in zip(pairs[::2], pairs[1::2], strict=True):
            if text.count(old) != 1:
                raise ValueError(f"{old!r}: {text.count(old)} times in the selection, not once")
            text = text.replace(old, new)
        return text

    return (rewrite,)


def every(pattern: str, new: str | Callable[[re.Match[str]], str]) -> tuple[Rewrite]:
    """Replace every match of a pattern."""
    return (lambda text: re.sub(pattern, new, text),)


def renamed(old: str, new: str) -> tuple[Rewrite]:
    return every(rf"\b{old}\b", new)


def place(file: str, at: str, *also: str, tests: str = "") -> CompletionTask:
    return CompletionTask(file, at, also, tests)
