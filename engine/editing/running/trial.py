"""Trying an edit: the user's command is run on it, and the linters look for what it breaks.

The command comes from the user alone, as words for no shell: an argument, or a setting of a trusted
workspace. Nothing that a model, a tool's caller or a repository says becomes one.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.editing.edits import EditRefused
from engine.editing.outcome import BROKEN, Outcome
from engine.editing.running import sandbox
from engine.editing.running.linters import Linter, linters_for, new_errors
from engine.editing.running.sandbox import Finished
from engine.editing.side import FailedCheck
from engine.editing.text_file import FileError, read_text
from engine.records import Request

ROOT = Path("/")
AUTO = "auto"  # instead of a command: the linters of the workspace
SHELL = {"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1"}  # words for a shell alone
CANDIDATES = 4  # answers of the model that are tried, at most
MAX_CANDIDATES = 16
SECONDS = 60.0  # of one run
MAX_LINES = 3  # failing lines in a message
MAX_LINE_CHARS = 160
MAX_NAME_CHARS = 60
TELLING = re.compile(  # a line that says what failed, by pytest, unittest, compilers and others
    r"^E  |^FAILED |^ERROR |^\s*(\w+\.)*\w*(Error|Exception)\b|\berror\b.*:|^--- FAIL|panicked at"
    r"|^not ok |^\s*\u2717|AssertionError"
)
ESCAPES = re.compile(
    r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]"
)


class BadCommand(EditRefused):
    """Why a command cannot be run, in one line with the remedy."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How edits of a file are tried: a command, run in the folder of its workspace, and linters.

    `texts`: other files of the workspace as an editor has them. The number of candidates is set,
    not found by a clock, so that speculation does not change which one is chosen.
    """

    words: tuple[str, ...]
    file: Path
    folder: Path
    candidates: int = CANDIDATES
    seconds: float = SECONDS
    texts: Mapping[Path, str] = field(default_factory=dict)
    linters: tuple[Linter, ...] = ()
    safe_only: bool = True  # linters that run no code of the workspace

    @property
    def name(self) -> str:
        """The command as it is shown."""
        shown = shlex.join(self.words)
        return shown if len(shown) <= MAX_NAME_CHARS else f"{shown[:MAX_NAME_CHARS]}\u2026"

    @property
    def needs_sandbox(self) -> bool:
        return bool(self.words) or any(not one.is_safe for one in self.linters)

    def lint(self, request: Request, outcome: Outcome) -> Outcome:
        """Return the outcome with what the linters say of it that they did not say before.

        Broken code is not linted. Raises SandboxError.
        """
        kinds = {one.kind for one in outcome.failed}
        if outcome.text == request.text or not kinds.isdisjoint(BROKEN):
            return outcome
        found = new_errors(
            self.linters, self.file, self.folder, request.text, outcome.text, self.safe_only
        )
        says = f"{', '.join(one.name for one in self.linters)}: nothing new" * bool(self.linters)
        if not self.linters and not self.safe_only:
            says = f"no linter for {self.file.name} is installed"
        looked_at = f"{outcome.looked_at}; {says}" if says else outcome.looked_at
        return replace(outcome, failed=(*outcome.failed, *found), looked_at=looked_at)

    def try_outcome(self, request: Request, outcome: Outcome) -> Outcome:
        """Run the command on an edited text: return the outcome as checked, or with what fails.

        Raises SandboxError.
        """
        if outcome.text == request.text:
            return outcome
        finished = self._run(outcome.text)
        if finished.code == 0:
            return replace(outcome, checked=self.name)
        failed = FailedCheck("command", f"`{self.name}` {self._why(finished)}", "")
        return replace(outcome, failed=(*outcome.failed, failed))

    def with_cause(self, request: Request, outcome: Outcome) -> Outcome:
        """Say of an outcome on which the command fails whether it does so without the edit, too.

        Raises SandboxError.
        """
        if all(one.kind != "command" for one in outcome.failed):
            return outcome
        if self._run(request.text).code == 0:
            return outcome
        failed = [
            replace(one, warning=f"{one.warning} (it fails without the edit, too)")
            if one.kind == "command"
            else one
            for one in outcome.failed
        ]
        return replace(outcome, failed=tuple(failed))

    def _run(self, text: str) -> Finished:
        unsaved = {file: new for file, new in self.texts.items() if _is_unsaved(file, new)}
        files = {**unsaved, self.file: text}
        return sandbox.run(self.words, self.folder, files, self.seconds)

    def _why(self, finished: Finished) -> str:
        """Say how the command failed, with the lines of its output that tell most."""
        if finished.ended == "time":
            return f"has not ended after {self.seconds:g} s"
        if finished.ended == "output":
            return f"printed more than {sandbox.MAX_OUTPUT_BYTES >> 20} MiB and was ended"
        if finished.code < 0:
            return f"was ended by signal {-finished.code}"
        lines = telling_lines(finished.output)
        return f"fails: {'; '.join(lines)}" if lines else f"fails with exit code {finished.code}"


def _is_unsaved(file: Path, text: str) -> bool:
    """Return whether an editor's text of a file differs from the one on disk."""
    try:
        return read_text(file) != text
    except FileError:  # of another encoding, or not there: nothing that an edit may write
        return False


def telling_lines(output: str) -> list[str]:
    """Find the few lines of a program's output that say what failed; else its last ones."""
    lines = [_shown(line) for line in output.splitlines()]
    found = [
        line
        for line, raw in zip(lines, output.splitlines(), strict=True)
        if line and TELLING.search(ESCAPES.sub("", raw))
    ]
    chosen = [*dict.fromkeys(found)][:MAX_LINES] or [line for line in lines if line][-MAX_LINES:]
    return [
        line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}\u2026" for line in chosen
    ]


def _shown(line: str) -> str:
    """Return a line without escape sequences and what else is not seen or moves what is."""
    plain = ESCAPES.sub("", line)
    return " ".join("".join(c for c in plain if c.isprintable() or c.isspace()).split())


def parse_command(text: str) -> tuple[str, ...]:
    """Split a command into words; no shell sees it. Raises BadCommand."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise BadCommand(f"{text!r}: {error}: correct the quotes") from error
    if not words or "\0" in text:
        raise BadCommand(f"{text!r}: no command: name a program, as in 'pytest -q'")
    if "\n" in text or not SHELL.isdisjoint(words):
        raise BadCommand(f"{text!r}: no shell reads it: write sh -c '...', or a script")
    return words


def make_trial(
    words: Sequence[str],
    file: Path,
    workspace: Path | None = None,
    candidates: int = CANDIDATES,
    seconds: float = SECONDS,
    texts: Mapping[Path, str] | None = None,
) -> Trial:
    """Prepare to try edits of a file: the command runs in the workspace, or the current folder.

    If the file is in neither, it runs in the file's folder. Without words only linters look at the
    edit; the word `auto` stands for all that the workspace has. Raises BadCommand if there is no
    such program.
    """
    file = file.resolve()
    folders = [one.resolve() for one in (workspace, Path.cwd()) if one and one.resolve() != ROOT]
    folder = next((one for one in folders if file.is_relative_to(one)), file.parent)
    is_auto = tuple(words) == (AUTO,)
    linters = linters_for(file, folder, safe_only=not is_auto)
    if is_auto or not words:
        return Trial((), file, folder, 1, seconds, texts or {}, linters, not is_auto)
    program = words[0]
    path = str(folder / program) if os.sep in program else program
    if shutil.which(path) is None:
        why = "not a program that may be run" if Path(path).exists() else "no such program"
        raise BadCommand(f"{program}: {why}: install it, or correct the command")
    return Trial(tuple(words), file, folder, candidates, seconds, texts or {}, linters)
