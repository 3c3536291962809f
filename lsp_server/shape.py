"""The shape of a completion: how many lines, where it ends, what of it stands there already.

Pure functions over text; no document, no model. Where a growing answer ends depends on its text
alone, not on the steps that it came in.
"""

from __future__ import annotations

import re

CLOSERS = ")]}>\"'`;,: \t"
OPENS = re.compile(r"([\[({:]|\bdo|\bthen|\bbegin|=>|->)[ \t]*$")
PAIRS = {")": "(", "]": "[", "}": "{"}
MOST_BLANK = 2  # empty lines in a row end every completion


def wants_lines(before: str, after: str, setting: str) -> bool:
    """Whether several lines are asked for: on an empty line and after what opens a block, unless
    something follows on the line. `before`, `after`: all text on either side of the cursor."""
    line, rest = _line_before(before), _line_after(after)
    if setting != "auto":
        return setting == "always"
    if rest.strip(CLOSERS):
        return False
    return not line.strip() or OPENS.search(line) is not None


def end_of(answer: str, before: str, lines: bool) -> int | None:
    """Where the answer is complete, whatever may follow; None while that is open. One line: at its
    end. Several: before the first line that belongs to what is around."""
    if not lines:
        at = answer.find("\n")
        return at if at >= 0 else None
    line = _line_before(before)
    base = _width(line)
    opens = bool(line.strip()) and OPENS.search(line) is not None
    start = answer.find("\n") + 1
    if not start:
        return None
    if not answer[: start - 1].strip() and not line.strip() and start > 1 + MOST_BLANK:
        return 0
    blank = 0
    last = start - 1  # the end of the last line that counts
    while start <= len(answer):
        stop = answer.find("\n", start)
        text = answer[start : stop if stop >= 0 else len(answer)]
        if text.strip():
            width = _width(text)
            outside = width <= base if opens else width < base
            if outside or (blank and width == 0 and base == 0):
                if stop < 0 and not _is_closing(text):
                    return last
                if stop < 0:
                    return None
                return stop if _is_closing(text) and width == base and not blank else last
            if stop < 0:
                return None
            blank, last = 0, stop
        elif stop >= 0:
            blank += 1
            if blank >= MOST_BLANK:
                return last
        else:
            return None
        start = stop + 1
    return None


def fitted(answer: str, before: str, after: str, lines: bool) -> str:
    """What is to be inserted of a complete answer: indented as the line is, without what stands
    behind the cursor already, without white space at its end."""
    answer = _dedented(answer, before) if lines or not _line_before(before).strip() else answer
    answer = answer.rstrip() if lines else answer.rstrip("\n")
    if lines:
        answer = _without_next_lines(answer, after)
    answer = _without_rest(answer, _line_after(after))
    return answer if answer.strip() else ""


def whole_lines(answer: str) -> str:
    """What is left of an answer that was cut off: its complete lines; all of a single one."""
    at = answer.rstrip("\n").rfind("\n")
    return answer[:at] if at > 0 and answer[:at].strip() else answer


def _dedented(answer: str, before: str) -> str:
    """The first line without blanks that repeat the cursor's indentation."""
    line = _line_before(before)
    blanks = answer[: len(answer) - len(answer.lstrip(" \t"))]
    if line.strip() or not blanks:
        return answer
    above = [one for one in before.split("\n")[:-1] if one.strip()]
    if not above:
        return answer.lstrip(" \t")
    unit = max(_width(line), 1) if OPENS.search(above[-1]) and not _width(above[-1]) else 8
    most = _width(above[-1]) + (unit if OPENS.search(above[-1]) else 0)
    while blanks and _width(line + blanks) > most:
        blanks, answer = blanks[1:], answer[1:]
    return answer


def _without_rest(answer: str, rest: str) -> str:
    """Without an end that the rest of the cursor's line repeats; a bracket only where the answer
    does not open it."""
    last = answer[answer.rfind("\n") + 1 :]
    rest = rest.rstrip()
    for length in range(min(len(rest), len(last)), 0, -1):
        end = rest[:length]
        if not end.strip() or not last.endswith(end):
            continue
        if length < len(rest) and end.strip(CLOSERS):
            continue  # a part of a word is chance
        if end.strip("".join(PAIRS) + " ;,:") or _closes_more(last, end):
            return answer[: len(answer) - length]
    return answer


def _closes_more(text: str, end: str) -> bool:
    """Whether the brackets of `end`, which ends the text, close what the text did not open."""
    opened: list[str] = []
    for place, char in enumerate(text):
        if char in PAIRS.values():
            opened.append(char)
        elif char in PAIRS and opened and opened[-1] == PAIRS[char]:
            if place >= len(text) - len(end):
                return False
            opened.pop()
    return True


def _without_next_lines(answer: str, after: str) -> str:
    """Without last lines that stand right behind the cursor's line already."""
    own = answer.split("\n")
    follow = [line.strip() for line in after.split("\n", 24)[1:24] if line.strip()]
    places = [n for n, line in enumerate(own) if line.strip()]
    for count in range(min(len(places), len(follow)), 0, -1):
        if [own[n].strip() for n in places[-count:]] == follow[:count]:
            return "\n".join(own[: places[-count]]).rstrip()
    return answer


def _is_closing(line: str) -> bool:
    return line.strip().rstrip(";,)") in ("", "}", "]", "end", "fi", "done", "esac", "})", "])")


def _line_before(before: str) -> str:
    return before[before.rfind("\n") + 1 :]


def _line_after(after: str) -> str:
    at = after.find("\n")
    return after[: at if at >= 0 else len(after)].rstrip("\r")


def _width(line: str) -> int:
    """Columns of the indentation; a tab counts to the next multiple of 4."""
    width = 0
    for char in line:
        if char == "\t":
            width += 4 - width % 4
        elif char == " ":
            width += 1
        else:
            break
    return width
