"""Post-processing of completions: how many lines, where they end, and what is there already.

Pure functions of text. Where a streamed answer ends depends on its text alone, not on how it was
split into steps: once decided, an end does not change as the answer grows.
"""

from __future__ import annotations

import re
from itertools import islice, pairwise

from engine.editing.brackets import OPENER_OF, scan
from lsp_server.completion.indentation import (
    BLOCK_OPENER,
    enclosing_indent,
    indent_width,
    line_after,
    line_before,
    lines_below,
    max_indent,
    reindent,
)

PUNCTUATION = ")]}>\"'`;,: \t"  # characters that may follow the cursor in a multi-line completion
CLOSING_WORDS = ("end", "fi", "done", "esac")  # words that close a block as brackets do
LABELS = ("case", "default")  # words whose lines are indented like the one that opens their block
MAX_BLANK_LINES = 2  # blank lines in a row; they end a completion
REPEAT_WINDOW_LINES = 8  # lines below the cursor, searched for repeated pairs of them
MIN_REPEATED_CHARS = 6  # letters and digits of a block of lines that must not follow itself
MAX_REPEATED_LINES = 8  # lines of such a block
# A part of a line, from a quote on, that follows itself: a long one once, others twice.
REPEATED_PART = re.compile(
    r"(?=(?P<long>['\"`](?=\W*\w{8})[^\n]{8,60}?)(?P=long)"
    r"|(?P<part>['\"`](?=\W*\w{2})[^\n]{3,60}?)(?P=part){2})"
)


def wants_multiline(before: str, after: str, setting: str) -> bool:
    """Return whether to complete several lines.

    With `setting` "auto" that is on an empty line, after a block opener, and between an opening
    bracket and the closing one that the editor inserted.
    """
    line, rest = line_before(before), line_after(after)
    if setting != "auto":
        return setting == "always"
    if rest.strip():
        return line.rstrip()[-1:] in ("(", "[", "{") and not rest.strip(PUNCTUATION)
    return not line.strip() or BLOCK_OPENER.search(line) is not None


def find_end(answer: str, before: str, after: str, multiline: bool) -> int | None:
    """Find the offset at which the answer ends whatever follows; None while that is undecided.

    A single line ends at its line end; several lines end before the first line outside the cursor's
    block, or behind the line that closes it. Both end behind a surplus closing bracket, and before
    what repeats itself.
    """
    surplus = _surplus(answer, before, after, complete=False)
    latest = len(answer) + 1 if surplus is None else surplus + 1
    if multiline:
        end, sure = _end_of_block(answer, before, after)
    else:
        end, sure = answer.find("\n"), len(answer)
        end = None if end < 0 else end
    if end is not None:
        end = min(end, latest)
    elif latest <= sure:
        end = latest
    again = _repeated_lines(answer[: sure if end is None else end + 1], line_before(before))
    return again if multiline and again is not None else end


def truncate(answer: str, before: str, after: str, multiline: bool, ended: bool) -> str:
    """Cut an answer at its end.

    If the model was cut off (`ended` is False) before that, only complete statements are left, if
    there are any.
    """
    stop = find_end(answer, before, after, multiline)
    if stop is None and ended:
        stop = find_end(answer + "\n", before, after, multiline)
    again = repeated_part(answer[:stop], line_before(before))
    stop = stop if again is None else again
    if stop is not None or ended:
        return answer[:stop]
    if not multiline:
        head = re.sub(r"\w+$", "", answer).rstrip()
        return head if head.strip() else answer
    ends = [
        at for at in range(len(answer) - 1, 0, -1) if answer[at] == "\n" and answer[:at].strip()
    ]
    heads = [answer[:at] for at in ends]
    closed = [
        opener for opener in heads if not BLOCK_OPENER.search(opener) and not scan(opener).open
    ]
    begun = [opener for opener in heads if all(opener[at] == "{" for at in scan(opener).open)]
    return next(iter([*closed, *begun, *heads, answer]))


def fit_to_context(answer: str, before: str, after: str, multiline: bool) -> str:
    """Fit a truncated answer to the text around it; "" if nothing is left to insert.

    The result is indented like the line, without what the text after the cursor repeats, and
    without trailing white space.
    """
    line, rest = line_before(before), line_after(after)
    last = None
    while answer != last:
        last = answer
        answer = answer.replace("\r", "").rstrip("\ufffd")
        answer = reindent(answer, before)
        answer = _without_repeated_lines(answer, line, after)
        answer = _without_repeated_end(answer, before, after)
        surplus = _surplus(answer, before, after, complete=True)
        answer = answer[:surplus]
        if not rest.strip():
            answer = answer.rstrip()
            answer = _without_empty_block(answer, line, after) if multiline else answer
        elif not multiline:
            answer = answer.rstrip("\n")
    return answer if answer.strip() else ""


# -- where a block ends ------------------------------------------------------------------------


def _end_of_block(answer: str, before: str, after: str) -> tuple[int | None, int]:
    """Find the end of the lines that belong to the cursor's block, None while undecided.

    Also returns how far the answer certainly belongs to it.
    """
    line = line_before(before)
    opens, base = BLOCK_OPENER.search(line) is not None, indent_width(line)
    begun = bool(line.strip())
    follow = next(lines_below(after), None)
    start = last = blank = 0
    while start <= len(answer):
        stop = answer.find("\n", start)
        complete = stop >= 0
        text = answer[start : stop if complete else len(answer)]
        shown = text if start else line + text
        indent = indent_width(shown)
        if not shown.strip():
            blank += complete
            if blank >= MAX_BLANK_LINES or not complete:
                return last if complete else None, start
        elif start == 0 and begun:
            if complete and opens and not BLOCK_OPENER.search(shown) and not scan(shown).open:
                return stop, stop  # the block is closed on the line that opens it
        elif not begun and indent >= base:
            base, begun = min(indent, max_indent(before)) if start == 0 else indent, True
        else:
            is_label = (
                opens
                and indent == base
                and not blank
                and _starts_with_word(shown, LABELS, complete)
            )
            if is_label is None:
                return None, start
            if not is_label and (indent < base or (indent == base and (opens or blank))):
                return _end_outside_block(answer, start, before, after, opens, last)
        if complete and (indent, shown.strip()) == follow and not _closes(shown, complete):
            return last, start  # a repetition of the line below
        if not complete:
            repeats = follow and indent == follow[0] and follow[1].startswith(shown.strip())
            return None, start if repeats else len(answer)
        if shown.strip():
            blank, last = 0, stop
        start = stop + 1
    return None, last


def _end_outside_block(
    answer: str, start: int, before: str, after: str, opens: bool, last: int
) -> tuple[int | None, int]:
    """Find the end of an answer whose line at `start` is outside the block.

    That is behind that line if it closes the block and no line below does.
    """
    stop = answer.find("\n", start)
    text = answer[start : stop if stop >= 0 else len(answer)]
    closes = _closes(text, stop >= 0)
    if closes is None:
        return None, start
    indent = indent_width(text)
    own = indent_width(line_before(before)) if opens else enclosing_indent(before)
    if not closes or indent != own or _is_closed(after, indent, text.strip()):
        return last, start
    if scan(text).open:  # "} else {"
        return start + len(text) - len(text.lstrip(" \t)]}")), start
    return stop, start


def _is_closed(after: str, indent: int, closer: str) -> bool:
    """Return whether a line below already closes the block that `closer` would.

    `indent`: the columns by which `closer` is indented.
    """
    for below, text in lines_below(after):
        if below <= indent:
            mark = closer[0] if closer[0] in OPENER_OF else closer
            return below == indent and text.startswith(mark)
    return False


def _closes(line: str, complete: bool) -> bool | None:
    """Return whether a line starts by closing a block; None if its rest may change that."""
    text = line.strip()
    if text[:1] in OPENER_OF:
        return True if complete else None
    bare = text.rstrip(");,]} \t")
    if complete:
        return bare in CLOSING_WORDS
    return None if any(word.startswith(bare) for word in CLOSING_WORDS) else False


def _starts_with_word(line: str, words: tuple[str, ...], complete: bool) -> bool | None:
    """Return whether a line starts with one of these words; None if its rest may change that."""
    text = line.strip()
    found = re.match(r"\w*", text)
    word = found[0] if found else ""
    if complete or word != text:
        return word in words
    return None if any(other.startswith(word) for other in words) else False


# -- repetition inside an answer ---------------------------------------------------------------


def _repeated_lines(answer: str, line: str) -> int | None:
    """Find where lines end that follow themselves at once; None if there are none.

    Those count whose repetition is complete first; then no later line changes what is found.
    `line`: the cursor's line up to the cursor.
    """
    lines, starts = (line + answer).split("\n")[:-1], [-len(line)]
    for each in lines:
        starts.append(starts[-1] + len(each) + 1)
    for stop in range(2, len(lines) + 1):
        for size in range(min(stop // 2, MAX_REPEATED_LINES), 0, -1):
            middle = stop - size
            block = lines[middle:stop]
            is_same = block[0].strip() and block == lines[middle - size : middle]
            if is_same and len(re.findall(r"\w", "".join(block))) >= MIN_REPEATED_CHARS:
                return starts[middle] - 1
    return None


def repeated_part(answer: str, line: str) -> int | None:
    """Find where a part of a line ends that follows itself; None if there is none."""
    found = []
    for each in REPEATED_PART.finditer(answer):
        size = len(each["long"] or each["part"])
        found.append((each.start() + size * (2 if each["long"] else 3), each.start() + size))
    if not found:
        return None
    at = min(found)[1]
    head = (line + answer[:at]).rpartition("\n")[2]
    is_open = head.count(answer[at]) % 2  # the string that the quote there ends
    return at + (answer[at] in "\"'`" and is_open)


# -- repetition of the text after the cursor ---------------------------------------------------


def _surplus(answer: str, before: str, after: str, complete: bool) -> int | None:
    """Find the offset of the first closing bracket whose opener is already closed after the cursor.

    It is closed on the rest of the line, or at the start of the line that ends the block.
    """
    line, rest = line_before(before), line_after(after)
    opened = len(scan(line).open)
    outer = [
        closer - len(line)
        for closer, opener in scan(line + answer, complete).closed
        if opener < len(line) <= closer
    ]
    if rest.strip():
        closers = [rest[at] for at in scan(rest).unmatched_closers]
        allowed = max(0, opened - len(closers))
    else:
        own = indent_width(line)
        limit = own + (opened > 0)
        closing = (line for line in lines_below(after) if line[0] < limit)
        indent, text = next(closing, (0, ""))
        if indent not in (own, enclosing_indent(before)):
            return None  # it closes an outer block
        closers = list(text[: len(text) - len(text.lstrip(")]}"))])
        allowed = max(0, opened - len(closers)) if indent == own else opened
    if not closers or len(outer) <= allowed:
        return None
    at = outer[allowed]
    return at if rest.strip() or answer[at] == closers[0] else None


def _without_repeated_end(answer: str, before: str, after: str) -> str:
    """Drop an end of the answer that repeats the rest of the cursor's line; blanks are ignored."""
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
            continue  # a partial match by chance
        if left and _is_word(left[0]) and _is_word(theirs[count - 1]):
            continue
        if left and start and _is_word(shown[start]) and _is_word(shown[start - 1]):
            continue
        if not _is_needed(answer, start - len(head) + begin, before, after, shown):
            kept = answer[: start - len(head) + begin]
            return kept.rstrip(" \t") if rest[0].isspace() else kept
    return answer


def _is_needed(answer: str, start: int, before: str, after: str, shown: str) -> bool:
    """Return whether answer[start:] closes a bracket or string that would stay open without it."""
    rest, stop = line_after(after), len(shown) - (len(answer) - start)
    if _imbalance(shown[:stop] + rest) < _imbalance(shown + rest):
        return False
    surplus = _surplus(answer, before, after, complete=True)
    for closer, opener in scan(answer).closed:
        if closer >= start and 0 <= opener < start:
            return True
        if closer >= start and opener < 0 and (surplus is None or closer < surplus):
            return True
    quotes = {char for char in answer[start:] if char in "\"'`"}
    return any(shown.count(quote) % 2 for quote in quotes)


def _imbalance(line: str) -> int:
    """Count the brackets and quotes without a counterpart, wherever they are.

    A bracket in a string may be code, as in f"{name}".
    """
    brackets = sum(abs(line.count(one) - line.count(other)) for one, other in OPENER_OF.items())
    return brackets + sum(line.count(quote) % 2 for quote in '"`')


def _without_repeated_lines(answer: str, line: str, after: str) -> str:
    """Cut the answer before a line that repeats the line right below the cursor.

    Two lines that occur together below the cursor end it as well.
    """
    below = list(islice(lines_below(after), REPEAT_WINDOW_LINES))
    pairs = set(pairwise(below))
    own: list[tuple[int, str]] = []
    starts: list[int] = []
    start = 0
    for text in answer.split("\n"):
        shown = text if start else line + text
        if shown.strip():
            own.append((indent_width(shown), shown.strip()))
            starts.append(start)
        start += len(text) + 1
    closed = scan(answer).closed
    for number, (at, one) in enumerate(zip(starts, own, strict=True)):
        again = one in below[:1] and not _closes(one[1], True)
        if not again and (one, *own[number + 1 : number + 2]) in pairs:
            again = not any(opener < at <= closer for closer, opener in closed if opener >= 0)
        if again:
            return answer[: max(at - 1, 0)]
    return answer


def _without_empty_block(answer: str, line: str, after: str) -> str:
    """Drop a last line of the answer that opens an empty block."""
    start = answer.rfind("\n") + 1
    if not start and line.strip():
        return answer  # the user began the line
    shown = answer[start:] if start else line + answer
    deep, _ = next(lines_below(after), (0, ""))
    if not BLOCK_OPENER.search(shown) or deep > indent_width(shown):
        return answer
    return answer[:start].rstrip()


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"
