"""The prompts of `python -m bench decode`: edits of shipped files, summaries, edits from a file.

Every edit has a check that its answer does what the instruction says and nothing else. The checks
compare syntax trees, so that line breaks and blanks do not matter.
"""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine import Request

FOLDER = Path(__file__).with_name("samples")
SUMMARY_TOKENS = 128
TASK_TOKENS = 384  # tokens of an edit from a file
SUMMARY_SYSTEM = "You are a helpful assistant. You answer in plain English."
SUMMARIZE = "Summarize this text in your own words. Do not copy sentences from it."

Check = Callable[[str, str], None]  # (before, answer); raises AssertionError for a wrong answer


@dataclass(frozen=True)
class Task:
    """One prompt. `sampled`: it is one of a random sample from a file."""

    name: str
    kind: str  # "file" (edit of a whole file), "edit" (of a selection), "summary", or Spec-Bench's
    request: Request
    check: Check | None = None
    sampled: bool = False

    @property
    def before(self) -> str:
        """The text to edit."""
        start, stop = self.request.selection or (0, len(self.request.text))
        return self.request.text[start:stop]

    def passes(self, answer: str) -> bool | None:
        """Return whether the answer is right; None if there is no check."""
        if self.check is None:
            return None
        try:
            self.check(self.before, answer)
        except (AssertionError, SyntaxError):
            return False
        return True


# -- the edits' checks -------------------------------------------------------------------------


def tree(code: str) -> str:
    return ast.dump(ast.parse(code))


def renamed(old: str, new: str, count: int) -> Check:
    """Make a check that `old` was renamed to `new` in `count` places and nothing else changed."""

    def check(before: str, answer: str) -> None:
        assert not re.search(rf"\b{old}\b", answer), f"{old} is still there"
        found = len(re.findall(rf"\b{new}\b", answer))
        assert found == count, f"{new} is in {found} places, not in {count}"
        assert tree(re.sub(rf"\b{old}\b", new, before)) == tree(answer), "something else changed"

    return check


class _WithoutEncoding(ast.NodeTransformer):
    """Removes `encoding="utf-8"` and a mode of "r" from calls of `.open`, counting encodings."""

    def __init__(self) -> None:
        self.opened = self.encoded = 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "open":
            self.opened += 1
            utf8 = [
                word
                for word in node.keywords
                if word.arg == "encoding" and ast.unparse(word.value) == "'utf-8'"
            ]
            self.encoded += len(utf8)
            node.keywords = [word for word in node.keywords if word not in utf8]
            if node.args and ast.unparse(node.args[0]) == "'r'":
                del node.args[0]
        return node


def encoded(count: int) -> Check:
    """Make a check that all `count` calls of `.open` name UTF-8.

    Nothing else may change but "r".
    """

    def check(before: str, answer: str) -> None:
        without = _WithoutEncoding()
        rest = ast.dump(without.visit(ast.parse(answer)))
        assert without.opened == without.encoded == count, (
            f"{without.encoded} of {without.opened} calls name the encoding, not {count}"
        )
        assert rest == tree(before), "something else changed"

    return check


# -- built-in tasks ----------------------------------------------------------------------------


def lines(text: str, first: int, last: int) -> tuple[int, int]:
    """Return the code point range of lines `first` to `last`, counted from 1, inclusive."""
    ends = [0]
    for line in text.splitlines(keepends=True):
        ends.append(ends[-1] + len(line))
    return ends[first - 1], ends[last]


def edit(file: str, first: int, last: int, instruction: str, check: Check) -> Task:
    """Make an edit of lines of a sample file."""
    text = (FOLDER / file).read_text("utf-8")
    where = lines(text, first, last)
    request = Request("edit", text=text, path=file, selection=where, instruction=instruction)
    return Task(f"edit-{Path(file).stem}", "edit", request, check)


def summary(file: str) -> Task:
    """Make a summary of a sample document."""
    text = (FOLDER / file).read_text("utf-8")
    messages = (
        {"role": "system", "content": SUMMARY_SYSTEM},
        {"role": "user", "content": f"{text}\n{SUMMARIZE}"},
    )
    request = Request("chat", messages=messages, max_tokens=SUMMARY_TOKENS)
    return Task(f"summary-{Path(file).stem}", "summary", request)


USE_VALUE_ERROR = "Raise ValueError instead of RuntimeError."
USE_UTF8 = 'Open every file with encoding="utf-8".'
RENAME = "Rename the parameter `items` to `entries`."


def whole_files() -> list[Task]:
    """Return the same edits of whole files, and one without a check."""
    rename = "Rename the parameter `sales` to `receipts`."
    asked: list[tuple[str, str, Check | None]] = [
        ("basket.py", RENAME, renamed("items", "entries", 13)),
        ("tables.py", USE_UTF8, encoded(5)),
        ("checks.py", USE_VALUE_ERROR, renamed("RuntimeError", "ValueError", 9)),
        ("till.py", rename, None),  # the default model renames other things as well
    ]
    return [
        Task(
            f"file-{Path(file).stem}",
            "file",
            Request("edit", (FOLDER / file).read_text("utf-8"), file, instruction=instruction),
            check,
        )
        for file, instruction, check in asked
    ]


def shipped() -> list[Task]:
    """Return the three edits of selections and the three summaries."""
    return [
        edit("basket.py", 6, 48, RENAME, renamed("items", "entries", 13)),
        edit("tables.py", 6, 47, USE_UTF8, encoded(4)),
        edit("checks.py", 4, 43, USE_VALUE_ERROR, renamed("RuntimeError", "ValueError", 9)),
        summary("outage.md"),
        summary("orchard.md"),
        summary("queue.md"),
    ]


# -- tasks from a file --------------------------------------------------------------------------


def from_file(path: Path, count: int) -> list[Task]:
    """Return a fixed sample of `count` records of a JSONL file: id, instruction, context, before.

    Their answers are not checked. Raises ValueError with one line if a record lacks a field.
    """
    records = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            records.append([str(record[key]) for key in ("id", "instruction", "context", "before")])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number}: {error!r}: a record has id, instruction, context, before"
            ) from error
    chosen = random.Random(0).sample(records, min(count, len(records)))
    return [
        Task(
            name,
            "edit",
            Request(
                "edit",
                text=context + before,
                path="task.py",
                selection=(len(context), len(context) + len(before)) if context else None,
                instruction=instruction,
                max_tokens=TASK_TOKENS,
            ),
            sampled=True,
        )
        for name, instruction, context, before in chosen
    ]
