"""The format of Sweep's next-edit models (0.5B, 1.5B, v2-7B).

The prompt has the lines around the cursor before and after the latest edit; the answer writes them
once more as they should be.

Source: the models' cards, and the client of the editor Zed.
"""

from __future__ import annotations

import re

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

FILE = "<|file_sep|>"
STOP = (FILE, "</s>")
RESERVED = re.compile(r"<\|[a-z_]+\|>|</s>")
LINES_AROUND = 10  # lines on either side of the cursor's; the model is trained on just as many
MAX_CHANGES = 3
MAX_CHANGE_LINES = 40


def build(context: EditContext, limit: int, count: Count) -> NextEditPrompt:
    """Build the prompt, of at most `limit` tokens: fewer lines where they are long."""
    path = context.path
    changes = [_change(change) for change in context.changes[-MAX_CHANGES:] if _is_clean(change)]
    related = [_block(*file) for file in context.related if not RESERVED.search("\n".join(file))]
    for lines in range(LINES_AROUND, -1, -1):
        start, stop = lines_around(context.text, context.cursor, lines, lines)
        region, before = context.text[start:stop], without_latest(context, start, stop)
        check_reserved(f"{path}\n{region}\n{before}", RESERVED)
        core = (
            _block(f"original/{path}", before)
            + _block(f"current/{path}", region)
            + f"{FILE}updated/{path}\n"
        )
        if count(core) <= limit or not lines:
            break

    def layout(changes: list[str], related: list[str]) -> str:
        return "".join((*related, *changes, core))

    text = within(limit, count, changes, related, layout)
    return NextEditPrompt(text, start, region, before, STOP)


def read(region: str, answer: str) -> str:
    """Read the region as the answer has it. NoEdit for an empty answer."""
    for mark in STOP:
        answer = answer.split(mark, 1)[0]
    if region.strip() and not answer.strip():
        raise NoEdit("the model answered nothing")
    return answer


def _is_clean(change: RecentChange) -> bool:
    return not RESERVED.search(f"{change.path}\n{change.original}\n{change.updated}")


def _change(change: RecentChange) -> str:
    original, updated = map(_limited, (change.original, change.updated))
    return _block(f"{change.path}.diff", f"original:\n{ended(original)}updated:\n{updated}")


def _limited(text: str) -> str:
    """Limit a text to MAX_CHANGE_LINES lines: the first and the last ones."""
    lines = text.removesuffix("\n").split("\n")
    if len(lines) > MAX_CHANGE_LINES:
        half = MAX_CHANGE_LINES // 2
        lines = [*lines[:half], "...", *lines[half + 1 - MAX_CHANGE_LINES :]]
    return "\n".join(lines)


def _block(path: str, text: str) -> str:
    return f"{FILE}{path}\n{ended(text)}"
