"""What the `draftline` command shows: a diff, progress, pieces by their source, figures.

Progress and figures go to stderr. On a terminal, text from files and models is shown with its
control characters made visible, so that it cannot drive the terminal; elsewhere it is exact.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.status import Status
from rich.style import Style
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from engine.records import Done, Step

SOURCES = {
    "prediction": "green",
    "context": "cyan",
    "documents": "bright_blue",
    "workspace": "magenta",
    "model": "default",
}
NO_NEWLINE = "\n\\ No newline at end of file\n"
OTHER = "yellow"  # sources that have no colour of their own
CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421}
CONTROLS |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def visible(text: str) -> str:
    """`text` with control characters as pictures: a terminal must not obey it."""
    return text.translate(CONTROLS)


# -- the diff ----------------------------------------------------------------------------------


def diff(old: str, new: str, path: Path) -> str:
    """A unified diff that `git apply` and `patch -p1` take, from the folder the command ran in."""
    name = _name_in_diff(path)
    before, after = _header("a/" + name), _header("b/" + name)
    head: list[str] = []
    body: list[str] = []
    for line in difflib.unified_diff(_lines(old), _lines(new), before, after, lineterm=""):
        if line[0] in " +-" and len(head) == 2:
            body.append(line if line.endswith("\n") else line + NO_NEWLINE)
        else:
            (head if len(head) < 2 else body).append(line + "\n")
    return "".join(head + body)


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)  # to git only "\n" ends a line


def _name_in_diff(path: Path) -> str:
    """Relative to the working folder where it lies below it, else from the root (`-d /`)."""
    absolute = Path.cwd() / path
    try:
        return absolute.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return absolute.as_posix().lstrip("/")


def _header(name: str) -> str:
    """As git writes names: odd ones quoted, a tab after one with blanks."""
    if re.search(r'["\\\x00-\x1f\x7f]', name):
        quoted = re.sub(r'(["\\])', r"\\\1", name)
        return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda c: f"\\{ord(c[0]):03o}", quoted) + '"'
    return name + "\t" if " " in name else name


def print_diff(text: str) -> None:
    """To a terminal, coloured unless NO_COLOR is set."""
    lines = _lines(text)
    body = [line for line in lines[2:] if line[0] in " +-"]
    if all(line.endswith("\r\n") for line in body):  # all alike: no news
        lines = [line.replace("\r\n", "\n") for line in lines]
    shown = Text()
    for number, line in enumerate(lines):
        style = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}.get(line[0], "")
        shown.append(visible(line), "bold" if number < 2 else style)
    Console(file=sys.stdout, highlight=False).print(shown, end="", soft_wrap=True)


def summary(old: str, new: str) -> str:
    """How many lines came and went."""
    matcher = difflib.SequenceMatcher(None, _lines(old), _lines(new), autojunk=False)
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    removed, added = sum(c[2] - c[1] for c in codes), sum(c[4] - c[3] for c in codes)
    return f"{added} line{'s' * (added != 1)} added, {removed} removed"


def as_json(path: Path, old: str, new: str, done: Done, refusal: str, tally: Tally) -> str:
    """One object, one line. A refused edit has an `error`, and no text, diff or edits."""
    from engine.editing.edits import changes

    usage = done.usage
    result = {
        "path": str(path),
        "changed": new != old,
        "reason": done.reason,
        "error": refusal or None,
        "text": None if refusal else new,
        "diff": diff(old, new, path),
        "edits": [change._asdict() for change in changes(old, new)],
        "usage": dataclasses.asdict(usage),
        "tokens_per_second": rate(usage.completion_tokens, usage.decode_seconds),
        "tokens_per_forward": rate(usage.completion_tokens, usage.forwards),
        "characters_by_source": dict(tally.sources),
    }
    return json.dumps(result) + "\n"


# -- progress ----------------------------------------------------------------------------------


@dataclasses.dataclass
class Tally:
    """Counts over the steps of one answer: tokens, seconds, and characters by their source."""

    tokens: int = 0
    seconds: float = 0.0
    sources: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, step: Step) -> None:
        if step.prefill is None:
            self.tokens += step.accepted + 1
            self.seconds += step.seconds
        for piece in step.pieces:
            self.sources[piece.source] += len(piece.text)


class View:
    """Progress on stderr while a context: a live line on a terminal, and with `verbose` the text
    as it is written, each piece coloured by its source."""

    def __init__(self, verbose: bool) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.verbose = verbose
        self.tally = Tally()
        self.status: Status | None = None
        self.column = 0  # of the streamed text, to end its last line

    def __enter__(self) -> View:
        if self.console.is_terminal:
            self.status = self.console.status("loading")
            self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_status()
        if self.column:
            self.console.file.write("\n")

    def phase(self, text: str) -> None:
        if self.status:
            self.status.update(Text(visible(text)))

    def progress(self, what: str, done: int, total: int) -> None:
        """An engine's progress while it fetches and loads; safe from any thread."""
        self.phase(f"{what}: {done / total:.0%}" if total else what)

    def step(self, step: Step) -> None:
        """Show one forward pass."""
        self.tally.add(step)
        if step.prefill:
            self.phase("reading {} of {} tokens".format(*step.prefill))
        elif self.verbose:
            self._stream(step)
        elif self.tally.seconds:
            rate = self.tally.tokens / self.tally.seconds
            self.phase(f"writing: {self.tally.tokens} tokens, {rate:.0f} tokens/s")

    def _stream(self, step: Step) -> None:
        if self.status:
            self._stop_status()
            legend = [Text(name, Style(color=colour)) for name, colour in SOURCES.items()]
            self.console.print(Text("text by source: ") + Text(" ").join(legend))
        for piece in step.pieces:
            style = Style(color=SOURCES.get(piece.source, OTHER))
            text = visible(piece.text)
            self.console.print(Text(text, style), end="", soft_wrap=True)
            self.column = len(text) if "\n" not in text else len(text.rpartition("\n")[2])
        self.console.file.flush()

    def _stop_status(self) -> None:
        if self.status:
            self.status.stop()
            self.status = None


def print_stats(done: Done, tally: Tally) -> None:
    """A short table of figures on stderr."""
    usage = done.usage
    rows = {
        "prompt": f"{usage.prompt_tokens} tokens ({usage.cached_tokens} cached), "
        f"{usage.prefill_seconds:.2f} s",
        "answer": f"{usage.completion_tokens} tokens, {usage.decode_seconds:.2f} s, "
        f"{rate(usage.completion_tokens, usage.decode_seconds):.1f} tokens/s",
        "forward passes": f"{usage.forwards}, "
        f"{rate(usage.completion_tokens, usage.forwards):.2f} tokens each",
        "drafted": f"{usage.drafted} tokens in {usage.draft_seconds:.2f} s, "
        f"{usage.accepted} accepted",
        "text by source": ", ".join(
            f"{source} {count / tally.sources.total():.0%}"
            for source, count in tally.sources.most_common()
            if count
        ),
    }
    table = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        table.add_row(name, value)
    Console(stderr=True, highlight=False).print(table)


def print_comparison(plain: Done, drafted: Done, tally: Tally) -> None:
    """Two runs of one request, without and with speculation, side by side on stdout."""
    table = Table("", "tokens/s", "forward passes", "tokens a pass", "seconds", box=None)
    for name, done in (("plain", plain), ("with speculation", drafted)):
        usage = done.usage
        table.add_row(
            name,
            f"{rate(usage.completion_tokens, usage.decode_seconds):.1f}",
            str(usage.forwards),
            f"{rate(usage.completion_tokens, usage.forwards):.2f}",
            f"{usage.decode_seconds:.2f}",
        )
    console = Console(highlight=False)
    console.print(table)
    ratio = rate(plain.usage.decode_seconds, drafted.usage.decode_seconds)
    parts = ", ".join(
        f"{count / tally.sources.total():.0%} {source}"
        for source, count in tally.sources.most_common()
    )
    console.print(f"\n{ratio:.1f} times as fast; the text came from: {parts}")
    same = plain.text == drafted.text
    console.print("both texts are equal" if same else "THE TEXTS DIFFER: a fault of draftline")


def rate(count: float, over: float) -> float:
    """`count / over`, and 0 where nothing happened."""
    return count / over if over else 0.0
