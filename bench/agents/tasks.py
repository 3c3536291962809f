"""Plain tasks in a folder with one file, and whether they are done. No answer is executed."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

FILE = "hello.py"
SOURCE = '''"""Greetings."""


def greet(name: str) -> str:
    """Return a greeting for one person."""
    return f"Hello, {name}!"


if __name__ == "__main__":
    print(greet("world"))
'''


class Task(NamedTuple):
    """A task; `done` tells whether a folder is as it shall be.

    OSError and SyntaxError mean that it is not.
    """

    text: str
    done: Callable[[Path], bool]


def functions(folder: Path) -> dict[str, str]:
    """Return the functions of the file: their names and sources."""
    source = (folder / FILE).read_text("utf-8")
    found = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    return {node.name: ast.unparse(node) for node in found}


def renamed(folder: Path) -> bool:
    """Return whether the whole file is as expected: nothing but the name may change."""
    wanted = SOURCE.replace("greet(", "welcome(")
    return (folder / FILE).read_text("utf-8").strip() == wanted.strip()


def added(folder: Path) -> bool:
    """Return whether there is one more function, and the old one is as it was."""
    old = ast.unparse(ast.parse(SOURCE).body[1])
    found = functions(folder)
    return found.get("greet") == old and "Goodbye, " in found.get("farewell", "")


def created(folder: Path) -> bool:
    kept = (folder / FILE).read_text("utf-8") == SOURCE
    return kept and (folder / "notes.txt").read_text("utf-8").strip() == "Nothing to see here."


TASKS = {
    "rename": Task(
        f"Rename the function greet to welcome in {FILE}, where it is defined and where it is "
        "called. Change nothing else.",
        renamed,
    ),
    "add": Task(
        f'Add a function farewell(name) to {FILE} that returns f"Goodbye, {{name}}!". '
        "Keep everything else as it is.",
        added,
    ),
    "create": Task(
        "Create the file notes.txt with one line: Nothing to see here.",
        created,
    ),
}
