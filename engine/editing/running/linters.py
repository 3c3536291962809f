"""Linters and type checkers that look at an edit: what they say of it that they did not before.

By default only those are run that run no code of the workspace and read none of its settings. The
others are run where the user asks for it (`--check auto`), in the sandbox.
"""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from engine.editing.running import sandbox
from engine.editing.side import FailedCheck, quoted

SECONDS = 60.0  # of one run in the sandbox
SAFE_SECONDS = 5.0
MAX_TEXT_CHARS = 4 << 20  # characters of a text that is given to a linter
MAX_NAMED = 2  # errors in one message
FOLDERS = (".venv/bin", "venv/bin", "node_modules/.bin")  # of a workspace's own programs
PLACE = re.compile(r"^\s*(?:[^\s:(]*[:(])?\d+[:,]\d+\)?:?\s*")  # path:1:2:, path(1,2): or 1:2
PYTHON = (".py", ".pyi")
SCRIPTS = (".ts", ".tsx", ".mts", ".cts")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Linter:
    """A program that finds errors in files of some suffixes.

    `words`: its arguments; FILE stands for the file, FOLDER for the one it is in. `errors`: a
    pattern of the lines that count. `settings`: it is used where the workspace has one of these
    files, with a text in it; a linter without is safe: it reads a text from stdin and nothing else.
    """

    name: str
    suffixes: tuple[str, ...]
    words: tuple[str, ...]
    errors: str
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def is_safe(self) -> bool:
        return not self.settings

    def is_for(self, file: Path, folder: Path) -> bool:
        """Return whether the linter is one for a file of a workspace, with its settings there."""
        return file.suffix in self.suffixes and (
            self.is_safe or any(_has(folder / name, text) for name, text in self.settings)
        )


RUFF = "--isolated --no-cache --quiet --output-format concise --target-version py313"
LINTERS = (
    Linter(
        "ruff",
        PYTHON,
        ("check", *RUFF.split(), "--select=E9,F63,F7,F82,F811", "--stdin-filename", "FILE", "-"),
        r":\d+:\d+: ",
    ),
    Linter("pyflakes", PYTHON, (), r"undefined name|redefinition of|referenced before assignment"),
    Linter(
        "mypy",
        PYTHON,
        ("--no-error-summary", "--hide-error-context", "--no-pretty", "FILE"),
        ": error: ",
        (
            ("mypy.ini", ""),
            (".mypy.ini", ""),
            ("pyproject.toml", "[tool.mypy"),
            ("setup.cfg", "[mypy"),
        ),
    ),
    Linter(
        "pyright",
        PYTHON,
        ("FILE",),
        " - error: ",
        (("pyrightconfig.json", ""), ("pyproject.toml", "[tool.pyright")),
    ),
    Linter("tsc", SCRIPTS, ("--noEmit", "--pretty", "false"), "error TS", (("tsconfig.json", ""),)),
    Linter(
        "eslint",
        (*SCRIPTS, ".js", ".jsx", ".mjs", ".cjs"),
        ("--no-color", "FILE"),
        r"^\s+\d+:\d+\s+error ",
        tuple((f"eslint.config.{end}", "") for end in ("js", "mjs", "cjs", "ts")),
    ),
    Linter("go", (".go",), ("vet", "FOLDER"), r"^\S+\.go:\d+", (("go.mod", ""),)),
    Linter(
        "cargo",
        (".rs",),
        ("check", "--offline", "--quiet", "--message-format", "short"),
        ": error",
        (("Cargo.toml", ""),),
    ),
)


def linters_for(file: Path, folder: Path, safe_only: bool) -> tuple[Linter, ...]:
    """Return the installed linters for a file of a workspace; of ruff and pyflakes only one."""
    found = [
        one
        for one in LINTERS
        if (one.is_safe or not safe_only)
        and one.is_for(file, folder)
        and program(one, folder, safe_only)
    ]
    if any(one.name == "ruff" for one in found):
        found = [one for one in found if one.name != "pyflakes"]
    return tuple(found)


@lru_cache(maxsize=256)
def program(linter: Linter, folder: Path, safe_only: bool) -> str | None:
    """Find a linter's program: the workspace's own, unless only safe ones are wanted, or PATH's.

    It is looked for once a process: one that is installed later counts after the next start.
    """
    own = [] if safe_only else [str(folder / each / linter.name) for each in FOLDERS]
    return next(filter(None, map(shutil.which, [*own, linter.name])), None)


def new_errors(
    linters: Sequence[Linter], file: Path, folder: Path, old: str, new: str, safe_only: bool
) -> list[FailedCheck]:
    """Return a failed check for each linter that finds errors in the new text and not in the old.

    Places do not count. A linter that cannot be run finds nothing, and the log says so. Raises
    SandboxError.
    """
    failed = []
    for linter in linters:
        before, after = (
            Counter(_errors(linter, file, folder, text, safe_only)) for text in (old, new)
        )
        added = [*dict.fromkeys((after - before).elements())][:MAX_NAMED]
        if added:
            says = f"{linter.name} says {', '.join(map(quoted, added))}"
            failed.append(FailedCheck("linter", says, f"Avoid this error: {added[0]}."))
    return failed


def _errors(linter: Linter, file: Path, folder: Path, text: str, safe_only: bool) -> list[str]:
    """Run a linter on a text of a file, and return its errors without their places."""
    found = program(linter, folder, safe_only)
    if found is None or len(text) > MAX_TEXT_CHARS:
        return []
    places = {"FILE": str(file), "FOLDER": str(file.parent)}
    words = [found, *(places.get(word, word) for word in linter.words)]
    if linter.is_safe:
        output = _run_safe(words, text)
    else:
        finished = sandbox.run(words, folder, {file: text}, SECONDS)
        if finished.ended != "exit":
            logger.warning("%s has not ended well: it finds nothing", linter.name)
            return []
        output = finished.output
    lines = [line for line in output.splitlines() if re.search(linter.errors, line)]
    return [" ".join(PLACE.sub("", line).split()) for line in lines]


def _run_safe(words: list[str], text: str) -> str:
    """Run a linter that reads a text from stdin; return its output, "" if it fails to run."""
    try:
        finished = subprocess.run(
            words,
            input=text.encode(),
            capture_output=True,
            timeout=SAFE_SECONDS,
            cwd="/",
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("%s cannot be run: %s", words[0], type(error).__name__)
        return ""
    return finished.stdout[: sandbox.KEPT_BYTES].decode(errors="replace")


def _has(file: Path, text: str) -> bool:
    """Return whether a file has a text in it."""
    try:
        return text in file.read_text("utf-8", "replace")
    except OSError:
        return False
