"""The blocks of a text, told by their first words and their indentation, in any language.

The functions say which lines begin a block, belong to it, and begin the same block in a new
version.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.editing.merge_ways import END, START

SAME_SHARE = 2 / 3  # share of the words of two conditions, one of them a new version of the other
HEAD = re.compile(r"[^(=:{]*\w")  # the part of a line that a change leaves: `def load`, `LIMIT`
KEY = re.compile(  # the name in a line that gives it a value
    r"((?:(?:const|let|var|final|static|public|private|protected|export)\s+)*"
    r"[\"']?[\w.$-]*\w[\"']?)\s*(?::=|=(?![=>])|:(?!:))"
)
LEAVES = re.compile(r"(?:return|raise|throw|break|continue)\b")
SECTION = re.compile(r"\[[^\]=,:\"'(]+\]+$|#{1,6}[ \t]")  # a heading of TOML or Markdown
CLOSER = re.compile(r"(?:end\b|[)}\]])")
CONTINUED = ("(", "[", ",", "\\")  # ends of a line whose statement goes on in the next one
COMMENT = re.compile(r"\s(?:#|//).*")
BRANCH = re.compile(r"(?:el(?:se )?if|case|catch|except|when)\b")  # one of several in a row
CONTROL = re.compile(r"(?:else|for|if|switch|try|while|with)\b")
DEFINES = re.compile(
    r"(?:\w+\s+)*(?:class|def|enum|fn|fun|func|function|impl|interface|struct|trait|type)\b"
)
NAMED = re.compile(r"[^\W_]")


def head_of(line: str) -> str:
    """Return what a line begins with and a change of it leaves; "" for `}`."""
    found = HEAD.match(line.strip())
    return found[0] if found else ""


def indent(line: str) -> int:
    """Count the characters of white space that a line begins with."""
    return len(line) - len(line.lstrip())


def begins_block(lines: list[str], at: int) -> bool:
    """Return whether a line begins a block.

    Its next line is further in, and no part of the same statement; or it is a heading.
    """
    text = lines[at].strip()
    if SECTION.match(text):
        return True
    if CLOSER.match(text) or (text.endswith(CONTINUED) and not DEFINES.match(text)):
        return False
    return at + 1 < len(lines) and indent(lines[at]) < indent(lines[at + 1])


def is_inside(first: str, rest: Sequence[str]) -> bool:
    """Return whether lines belong to the block that a line begins."""
    if SECTION.match(first):
        return not any(line in (START, END) or SECTION.match(line) for line in rest)
    return not any(
        line in (START, END)
        or indent(line) < indent(first)
        or (indent(line) == indent(first) and not CLOSER.match(line.strip()))
        for line in rest
    )


def is_same_block(line: str, other: str) -> bool:
    """Return whether two lines begin the same block, of which one is a new version."""
    one, two = (COMMENT.sub("", text).strip() for text in (line, other))
    if not NAMED.search(one) or one.startswith("[["):  # there may be many of them
        return False
    if one == two or BRANCH.match(one):
        return one == two
    if CONTROL.match(one):
        ours, theirs = (set(re.findall(r"\w+", text)) for text in (one, two))
        return len(ours & theirs) >= SAME_SHARE * max(len(ours), len(theirs))
    if DEFINES.match(one) or re.search(r"\w\(", one):
        return head_of(one) == head_of(two)
    keys = [KEY.match(text) for text in (one, two)]
    return all(keys) and keys[0][1] == keys[1][1]  # type: ignore[index]
