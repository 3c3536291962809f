"""The shape of a completion: how many lines, where it ends, what of it stands there already.

Pure functions over text; no document, no model, no parser. Where a growing answer ends depends on
its text alone, not on the steps that it came in: what was decided once is never taken back.
"""

from __future__ import annotations

import re
from itertools import islice, pairwise

from lsp_server.completion.brackets import PAIRS, scan
from lsp_server.completion.indentation import (
    OPENS,
    around,
    deepest,
    indented,
    line_after,
    line_before,
    lines_below,
    width,
)

PUNCTUATION = ")]}>\"'`;,: \t"  # may follow the cursor where several lines are asked for
WORDS = ("end", "fi", "done", "esac")  # close a block as brackets do
LABELS = ("case", "default")  # stand as far left as the line that opened their block
MOST_BLANK = 2  # empty lines in a row end every completion
NEAR = 8  # lines in which two together are looked for


def wants_lines(before: str, after: str, setting: str) -> bool:
    """Whether several lines are asked for: on an empty line and after what opens a block; between
    two brackets that an editor made, too."""
    line, rest = line_before(before), line_after(after)
    if setting != "auto":
        return setting == "always"
    if rest.strip():
        return line.rstrip()[-1:] in ("(", "[", "{") and not rest.strip(PUNCTUATION)
    return not line.strip() or OPENS.search(line) is not None


def end_of(answer: str, before: str, after: str, lines: bool) -> int | None:
    """Where the answer is complete, whatever may follow; None while that is open. One line: at its
    end. Several: before the first line that belongs to what is around, or behind the one that
    closes the block. Both: behind a bracket too many."""
    surplus = _surplus(answer, before, after, whole=False)
    latest = len(answer) + 1 if surplus is None else surplus + 1
    if lines:
        end, sure = _block(answer, before, after)
    else:
        end, sure = answer.find("\n"), len(answer)
        end = None if end < 0 else end
    if end is not None:
        return min(end, latest)
    return latest if latest <= sure else None


def cut(answer: str, before: str, after: str, lines: bool, ended: bool) -> str:
    """The complete part of an answer that the model ended by itself or that was cut off: there only
    what is whole, if anything is."""
    stop = end_of(answer, before, after, lines)
    if stop is None and ended:
        stop = end_of(answer + "\n", before, after, lines)
    if stop is not None or ended:
        return answer[:stop]
    if not lines:
        head = re.sub(r"\w+$", "", answer).rstrip()
        return head if head.strip() else answer
    ends = [
        at for at in range(len(answer) - 1, 0, -1) if answer[at] == "\n" and answer[:at].strip()
    ]
    heads = [answer[:at] for at in ends]
    closed = [one for one in heads if not OPENS.search(one) and not scan(one).open]
    begun = [one for one in heads if all(one[at] == "{" for at in scan(one).open)]
    return next(iter([*closed, *begun, *heads, answer]))


def fitted(answer: str, before: str, after: str, lines: bool) -> str:
    """What is to be inserted of a complete answer: indented as the line is, without what stands
    behind the cursor already, without white space at its end. "" where nothing is left."""
    line, rest = line_before(before), line_after(after)
    last = None
    while answer != last:
        last = answer
        answer = answer.replace("\r", "").rstrip("\ufffd")
        answer = indented(answer, before)
        answer = _without_next(answer, line, after)
        answer = _without_rest(answer, before, after)
        surplus = _surplus(answer, before, after, whole=True)
        answer = answer[:surplus]
        if not rest.strip():
            answer = answer.rstrip()
            answer = _without_open_end(answer, line, after) if lines else answer
        elif not lines:
            answer = answer.rstrip("\n")
    return answer if answer.strip() else ""


# -- where a block ends ------------------------------------------------------------------------


def _block(answer: str, before: str, after: str) -> tuple[int | None, int]:
    """Where the lines that belong to the cursor's place end, None while that is open; and up to
    where the answer surely belongs to it."""
    line = line_before(before)
    opens, base = OPENS.search(line) is not None, width(line)
    begun = bool(line.strip())
    follow = next(lines_below(after), None)
    start = last = blank = 0
    while start <= len(answer):
        stop = answer.find("\n", start)
        whole = stop >= 0
        text = answer[start : stop if whole else len(answer)]
        shown = text if start else line + text
        wide = width(shown)
        if not shown.strip():
            blank += whole
            if blank >= MOST_BLANK or not whole:
                return last if whole else None, start
        elif start == 0 and begun:
            if whole and opens and not OPENS.search(shown) and not scan(shown).open:
                return stop, stop  # what was opened is closed on the same line
        elif not begun and wide >= base:
            base, begun = min(wide, deepest(before)) if start == 0 else wide, True
        else:
            is_label = opens and wide == base and not blank and _begins(shown, LABELS, whole)
            if is_label is None:
                return None, start
            if not is_label and (wide < base or (wide == base and (opens or blank))):
                return _outside(answer, start, before, after, opens, last)
        if whole and (wide, shown.strip()) == follow and not _closes(shown, whole):
            return last, start  # it stands there already
        if not whole:
            return None, len(answer)
        if shown.strip():
            blank, last = 0, stop
        start = stop + 1
    return None, last


def _outside(
    answer: str, start: int, before: str, after: str, opens: bool, last: int
) -> tuple[int | None, int]:
    """Where an answer ends whose line at `start` is outside the block: behind this line where it
    closes the block and no other does."""
    stop = answer.find("\n", start)
    text = answer[start : stop if stop >= 0 else len(answer)]
    closes = _closes(text, stop >= 0)
    if closes is None:
        return None, start
    wide = width(text)
    own = width(line_before(before)) if opens else around(before)
    if not closes or wide != own or _is_closed(after, wide, text.strip()):
        return last, start
    if scan(text).open:  # "} else {"
        return start + len(text) - len(text.lstrip(" \t)]}")), start
    return stop, start


def _is_closed(after: str, wide: int, closer: str) -> bool:
    """Whether a line below closes the block already that `closer` would, `wide` to the left."""
    for below, text in lines_below(after):
        if below <= wide:
            return below == wide and text.startswith(closer[0] if closer[0] in PAIRS else closer)
    return False


def _closes(line: str, whole: bool) -> bool | None:
    """Whether a line begins with what closes a block; None where more of it may change that."""
    text = line.strip()
    if text[:1] in PAIRS:
        return True if whole else None
    bare = text.rstrip(");,]} \t")
    if whole:
        return bare in WORDS
    return None if any(word.startswith(bare) for word in WORDS) else False


def _begins(line: str, words: tuple[str, ...], whole: bool) -> bool | None:
    """Whether a line begins with one of these words; None where more of it may change that."""
    text = line.strip()
    found = re.match(r"\w*", text)
    word = found[0] if found else ""
    if whole or word != text:
        return word in words
    return None if any(one.startswith(word) for one in words) else False


# -- what stands there already -----------------------------------------------------------------


def _surplus(answer: str, before: str, after: str, whole: bool) -> int | None:
    """The first bracket of the answer that closes what is closed behind the cursor already: on the
    rest of the line, or at the start of the line below that ends the block."""
    line, rest = line_before(before), line_after(after)
    opened = len(scan(line).open)
    outer = [
        closer - len(line)
        for closer, opener in scan(line + answer, whole).closed
        if opener < len(line) <= closer
    ]
    if rest.strip():
        closers = [rest[at] for at in scan(rest).outer]
        allowed = max(0, opened - len(closers))
    else:
        own = width(line)
        lines = ((wide, text) for wide, text in lines_below(after) if wide < own + (opened > 0))
        wide, text = next(lines, (0, ""))
        if wide not in (own, around(before)):
            return None  # it ends a block farther out
        closers = list(text[: len(text) - len(text.lstrip(")]}"))])
        allowed = max(0, opened - len(closers)) if wide == own else opened
    if not closers or len(outer) <= allowed:
        return None
    at = outer[allowed]
    return at if rest.strip() or answer[at] == closers[0] else None


def _without_rest(answer: str, before: str, after: str) -> str:
    """Without an end that the rest of the cursor's line repeats; blanks do not count."""
    line, rest = line_before(before), line_after(after).rstrip()
    begin = answer.rfind("\n") + 1
    head = "" if begin else line
    shown = head + answer[begin:]
    own = [(at, char) for at, char in enumerate(shown) if at >= len(head) and not char.isspace()]
    ours, theirs = "".join(char for _, char in own), "".join(rest.split())
    for count in range(min(len(ours), len(theirs)), 0, -1):
        if not ours.endswith(theirs[:count]):
            continue
        start = own[-count][0]
        left = theirs[count:]
        if (
            count < len(ours)
            and left.strip(PUNCTUATION + "{")
            and theirs[:count].strip(PUNCTUATION)
        ):
            continue  # a part of it is chance
        if left and _is_word(left[0]) and _is_word(theirs[count - 1]):
            continue
        if left and start and _is_word(shown[start]) and _is_word(shown[start - 1]):
            continue
        if not _needed(answer, start - len(head) + begin, before, after, shown):
            kept = answer[: start - len(head) + begin]
            return kept.rstrip(" \t") if rest[0].isspace() else kept
    return answer


def _needed(answer: str, start: int, before: str, after: str, shown: str) -> bool:
    """Whether answer[start:] closes a bracket or a string that would stay open without it."""
    surplus = _surplus(answer, before, after, whole=True)
    for closer, opener in scan(answer).closed:
        if closer >= start and 0 <= opener < start:
            return True
        if closer >= start and opener < 0 and (surplus is None or closer < surplus):
            return True
    quotes = {char for char in answer[start:] if char in "\"'`"}
    return any(shown.count(quote) % 2 for quote in quotes)


def _without_next(answer: str, line: str, after: str) -> str:
    """Without its lines from the one on that stands right below the cursor's line already, or from
    two on that stand below it together."""
    below = list(islice(lines_below(after), NEAR))
    pairs = set(pairwise(below))
    own: list[tuple[int, str]] = []
    places: list[int] = []
    start = 0
    for text in answer.split("\n"):
        shown = text if start else line + text
        if shown.strip():
            own.append((width(shown), shown.strip()))
            places.append(start)
        start += len(text) + 1
    closed = scan(answer).closed
    for number, (at, one) in enumerate(zip(places, own, strict=True)):
        again = one in below[:1] and not _closes(one[1], True)
        if not again and (one, *own[number + 1 : number + 2]) in pairs:
            again = not any(opener < at <= closer for closer, opener in closed if opener >= 0)
        if again:
            return answer[: max(at - 1, 0)]
    return answer


def _without_open_end(answer: str, line: str, after: str) -> str:
    """Without a last line that opens a block in which nothing stands."""
    start = answer.rfind("\n") + 1
    if not start and line.strip():
        return answer  # the line was begun by hand
    shown = answer[start:] if start else line + answer
    deep, _ = next(lines_below(after), (0, ""))
    return answer if not OPENS.search(shown) or deep > width(shown) else answer[:start].rstrip()


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"
