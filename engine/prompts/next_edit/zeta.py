"""The format of Zeta 2.1, a fine-tuned Seed-Coder.

The prompt has the lines around the cursor in blocks between numbered marks; the answer writes some
of the blocks again, with the marks around them.

Source: the model's card and the editor Zed (its format V0318, alias Zeta2.1).
"""

from __future__ import annotations

import re
from difflib import unified_diff
from itertools import pairwise

from engine.prompts.next_edit.context import (
    Count,
    EditContext,
    NextEditPrompt,
    NoEdit,
    RecentChange,
    check_reserved,
    ended,
    lines_around,
    within,
    without_latest,
)

SUFFIX, PREFIX, MIDDLE = "<[fim-suffix]>", "<[fim-prefix]>", "<[fim-middle]>"
FILE, CURSOR, END = "<filename>", "<|user_cursor|>", "<[end▁of▁sentence]>"
MARKER = re.compile(r"<\|marker_(\d{1,4})\|>")
RESERVED = re.compile(
    rf"<\[fim-\w+\]>|{re.escape(END)}|{FILE}|<\|marker_\d+\|>|{re.escape(CURSOR)}"
)
TOKEN_BYTES = 3  # bytes per token; the model's data were cut so
REGION_BYTES = 350 * TOKEN_BYTES  # bytes that the answer may rewrite
AROUND_BYTES = 150 * TOKEN_BYTES  # bytes that are shown around them
MIN_BLOCK_LINES, MAX_BLOCK_LINES = 6, 16
MAX_NUDGE_LINES = 5  # lines; a block may begin later, so that its first line says something
MAX_CHANGES = 6
CLOSING = ("}", "]", ")")
LAST_STATEMENTS = frozenset({"break", "continue", "return", "throw", "end"})


def build(context: EditContext, limit: int, count: Count) -> NextEditPrompt:
    """Build the prompt, of at most `limit` tokens: fewer lines where they are long."""
    text, path = context.text, context.path
    changes = [_event(change) for change in context.changes[-MAX_CHANGES:]]
    changes = [change for change in changes if not RESERVED.search(change)]
    related = [
        f"{FILE}{name}\n{ended(part)}...\n"
        for name, part in context.related
        if not RESERVED.search(f"{name}\n{part}")
    ]
    for share in (1, 2, 4, 8, 16):
        start, stop = lines_around(text, context.cursor, 0, 0)
        capacity = REGION_BYTES // share - len(text[start:stop].encode())
        start, stop = _widened(text, start, stop, capacity)
        low, high = _widened(text, start, stop, AROUND_BYTES // share)
        region, before = text[start:stop], without_latest(context, start, stop)
        check_reserved(f"{path}\n{text[low:high]}\n{before}", RESERVED)
        suffix = ended(SUFFIX + text[stop:high])
        place = f"{FILE}{path}\n{text[low:start]}{_marked(region, context.cursor - start)}"
        if count(suffix + PREFIX + ended(place) + MIDDLE) <= limit:
            break

    def layout(changes: list[str], related: list[str]) -> str:
        history = [f"{FILE}edit_history\n", *changes, "\n"] if changes else []
        files = [*related, "\n"] if related else []
        return "".join((suffix, PREFIX, *files, *history, ended(place), MIDDLE))

    prompt = within(limit, count, changes, related, layout)
    return NextEditPrompt(prompt, start, region, before, (END,))


def read(region: str, answer: str) -> str:
    """Read the region, with the blocks that the answer has again.

    NoEdit for "nothing to change", and for an answer that is not between two marks.
    """
    answer = answer.replace(CURSOR, "").split(END, 1)[0]
    marks = [*MARKER.finditer(answer)]
    if len(marks) < 2 or answer[: marks[0].start()].strip() or answer[marks[-1].end() :].strip():
        raise NoEdit("the model's answer is not between two marks")
    bounds = block_bounds(region)
    first, last = int(marks[0][1]) - 1, int(marks[-1][1]) - 1
    if first == last:
        raise NoEdit("the model would change nothing")
    if not 0 <= first < last < len(bounds):
        raise NoEdit("the model's answer has marks that the prompt has not")
    old = region[bounds[first] : bounds[last]]
    new = "".join(answer[one.end() : two.start()] for one, two in pairwise(marks))
    if new[:1] == "\n" != old[:1] and new[1:].split("\n")[0] == old.split("\n")[0]:
        new = new[1:]  # a mark on a line of its own, as the model's card writes it
    if new and old.endswith("\n"):
        new = ended(new)
    return region[: bounds[first]] + new + region[bounds[last] :]


def block_bounds(region: str) -> list[int]:
    """Return the starts of a region's blocks, and its end.

    Blocks have MIN_BLOCK_LINES or more, and end at blank lines where there are some.
    """
    lines = region.removesuffix("\n").split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    bounds, begin, n = [0], 0, 0
    while n < len(lines):
        after_blank = n > 0 and lines[n].strip() and not lines[n - 1].strip()
        target = _good_start(lines, n)
        if (
            n - begin >= MIN_BLOCK_LINES and after_blank and len(lines) - target >= MIN_BLOCK_LINES
        ) or n - begin >= MAX_BLOCK_LINES:
            bounds.append(starts[target])
            begin = n = target
        n += 1
    return [*bounds, len(region)]


def _good_start(lines: list[str], first: int) -> int:
    """Return the first line from `first` on that does not merely end something, or `first`."""
    near = range(first, min(first + MAX_NUDGE_LINES, len(lines)))
    return next((n for n in near if _says_something(lines[n].strip())), first)


def _says_something(line: str) -> bool:
    return line != "" and not line.startswith(CLOSING) and line.rstrip(";") not in LAST_STATEMENTS


def _marked(region: str, cursor: int) -> str:
    """Write the region's blocks between numbered marks, with the cursor."""
    found, is_placed = [], False
    bounds = block_bounds(region)
    for number, (start, stop) in enumerate(pairwise(bounds), 1):
        block = region[start:stop]
        if not is_placed and cursor <= stop:
            block, is_placed = region[start:cursor] + CURSOR + region[cursor:stop], True
        found.append(f"<|marker_{number}|>{block}")
    return "".join((*found, f"<|marker_{len(bounds)}|>"))


def _widened(text: str, start: int, stop: int, capacity: int) -> tuple[int, int]:
    """Widen `start:stop` by further lines of `capacity` bytes, alternately above and below."""
    while True:
        above, below = lines_around(text, start, 1, 0)[0], text.find("\n", stop) + 1 or len(text)
        cost = len(text[above:start].encode())
        if grew := start > 0 and cost <= capacity:
            start, capacity = above, capacity - cost
        cost = len(text[stop:below].encode())
        if below > stop and cost <= capacity:
            stop, capacity, grew = below, capacity - cost, True
        if not grew:
            return start, stop


def _event(change: RecentChange) -> str:
    """Write a recent change as a unified diff."""
    old, new = (
        [f"{line}\n" for line in text.removesuffix("\n").split("\n")] if text else []
        for text in (change.original, change.updated)
    )
    diff = [*unified_diff(old, new)][2:]
    shown = [_moved(line, change.line - 1) if line.startswith("@@") else line for line in diff]
    return f"--- a/{change.path}\n+++ b/{change.path}\n" + "".join(shown)


def _moved(header: str, by: int) -> str:
    return re.sub(r"([-+])(\d+)", lambda at: f"{at[1]}{int(at[2]) + by}", header)
