"""Lines that may stand for one another: a new one beside an old one may have been meant for it."""

from __future__ import annotations

import re

CLAUSE = re.compile(r"[\s})]*(except|catch|elif|else|case|default|finally)\b")
ASSIGNS = re.compile(r"(?<![=!<>+\-*/%&|^~])=(?![=>])")
NAME = re.compile(r"[\w.]+")
TEXT = re.compile(r"""(["'`])(\w.+?)\1""")
KEYWORDS = {"const", "let", "var", "val", "mut", "auto", "final", "static", "export", "type"}


def resembles(line: str, other: str) -> bool:
    """Return whether two lines give a name a value, or say the same, or are clauses of one kind."""
    (names, value), (other_names, other_value) = _assigned(line), _assigned(other)
    if names & other_names or (value and value == other_value):
        return True
    if {text for _, text in TEXT.findall(line)} & {text for _, text in TEXT.findall(other)}:
        return True
    clause, other_clause = CLAUSE.match(line), CLAUSE.match(other)
    return bool(clause and other_clause and clause[1] == other_clause[1])


def _assigned(line: str) -> tuple[set[str], str]:
    """Find the names that a line gives a value, and that value as it is written."""
    left, *value = ASSIGNS.split(line, 1)
    if not value or "(" in left:  # an argument by name
        return set(), ""
    return {*NAME.findall(left.split(":")[0])} - KEYWORDS, value[0].strip()
