"""The grammars of a file with an update merged into it.

Small models copy the update's marks into their answer, skip lines or make some up. Where it is
known how the update's chunks can be placed, they may only choose between those ways; else every
line is one of the file or the update. The grammars are in the Lark syntax of llguidance
(engine.sampling.grammar).
"""

from __future__ import annotations

from collections.abc import Collection

from engine.editing.merge_ways import MergeWays
from engine.editing.update_marks import ONLY_DOTS, is_mark
from engine.sampling.grammar import literal

NEWLINE = "\n"
MAX_CHARS = 200_000  # characters of both texts; beyond them the answer is not limited


def ways_grammar(ways: MergeWays, end: str) -> str:
    """Make the grammar of the texts that an update may stand for, before the line `end`."""
    names: dict[str, str] = {}
    for run in ways.runs():
        for line in run.lines:
            names.setdefault(line, f"L{len(names)}")
    rules = [
        " | ".join(
            " ".join([*(names[line] for line in lines), f"n{after}" if after else "END"])
            for lines, after in node
        )
        for node in ways.nodes
    ]
    return "\n".join(
        [
            f"start: n{ways.start}",
            *(f"n{number}: {rule}" for number, rule in enumerate(rules) if number),
            *(f"{name}: {literal(line + NEWLINE)}" for line, name in names.items()),
            f"END: {literal(end)}",
        ]
    )


def line_grammar(code: str, update: str, end: str) -> str:
    """Make the grammar of an update's merge: lines of `code` and `update`, then the line `end`.

    Lines of `update` have any indentation. Blank lines may be anywhere; marks only where the file
    has them. Where the update begins or ends with a mark, the code's first or last line stays. ""
    for huge texts.
    """
    if len(code) + len(update) > MAX_CHARS:
        return ""
    lines, shown = code.split("\n"), update.split("\n")
    first = literal(f"{lines[0]}\n") if is_mark(shown[0]) else ""
    last = literal(f"{lines[-1]}\n") if is_mark(shown[-1]) and len(lines) > 1 else ""
    old = dict.fromkeys(line for line in lines if line.strip(" \t"))
    stripped = dict.fromkeys(line.strip(" \t") for line in shown)
    new = [line for line in stripped if line and not (is_mark(line) or ONLY_DOTS.fullmatch(line))]
    rules = {"OLD": _any(old), "NEW": f"/[ \\t]*/ {_any(new)}" if new else ""}
    known = {name: rule for name, rule in rules.items() if rule}
    return "\n".join(
        [
            f"start: {first} ({' | '.join([*known, 'BLANK'])})* {last} END",
            *(f'{name}: {rule} "\\n"' for name, rule in known.items()),
            "BLANK: /[ \\t]*\\n/",
            f"END: {literal(end)}",
        ]
    )


def _any(texts: Collection[str]) -> str:
    """Make the rule of one of these texts; "" for none."""
    literals = map(literal, texts)
    return f"({' | '.join(literals)})" if texts else ""
