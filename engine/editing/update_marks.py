"""The lines of an update that stand for lines of the file."""

from __future__ import annotations

import re

MAX_MARK_CHARS = 200  # characters of a line that is a mark
DOTS = r"(?:\.{3,}|\u2026)"
MARK = re.compile(
    rf"[^\w.\u2026]*{DOTS}[^.\u2026]*\b(?:existing|unchanged|remaining|rest)\b[^.\u2026]*{DOTS}"
    r"[^\w.\u2026]*",
    re.IGNORECASE,
)
# A comment of nothing but such words, with dots before them or with one that is clear without.
PLAIN_MARK = re.compile(
    rf"\W*?(?:{DOTS}\W*(?=(?:\w+\W+)*?(?:existing|other|same|rest|remaining|unchanged|omitted)\b)"
    r"|(?=(?:\w+\W+)*?(?:unchanged|omitted|rest\W+\w|remaining\W+\w)))"
    r"(?:(?:the|all|rest|remains?|remaining|unchanged|omitted|existing|other|of|your|code|file|class"
    r"|module|functions?|methods?|imports?|fields?|is|are|stays?|same|as|before|for|brevity|here"
    r"|implementation|logic|body)\b\W*)+",
    re.IGNORECASE,
)
ONLY_DOTS = re.compile(rf"[^\w.\u2026]*{DOTS}[^\w.\u2026]*")
COMMENTS = ("#", "//", "--", "/*", "*", "<!--", "{/*", "{#", ";", "%")
ELIDED = re.compile(rf"{DOTS}|\b(?:rest of|unchanged|the same|omitted)\b", re.IGNORECASE)


def is_mark(line: str) -> bool:
    """Return whether a line of an update stands for lines of the file."""
    if len(line) > MAX_MARK_CHARS:
        return False
    dots = line.count("...") + line.count("\u2026")  # first, for the pattern is slow
    if dots > 1 and MARK.fullmatch(line):
        return True
    text = line.strip()
    return text.startswith(COMMENTS) and PLAIN_MARK.fullmatch(text) is not None


def is_elision(line: str) -> bool:
    """Return whether a line may stand for others although it is no mark.

    Such lines are `...` alone, `# rest of the class`, and a mark after code.
    """
    text = line.strip()
    return len(text) <= MAX_MARK_CHARS and (
        ONLY_DOTS.fullmatch(text) is not None
        or (text.startswith(COMMENTS) and ELIDED.search(text) is not None)
        or "existing code" in text
    )
