"""Turning of the model's answer into the file's new text, or its refusal.

The model reads and writes `plain` text (no BOM, "\\n" line ends) and its tokenizer may compose
characters (NFC). An edit must not change anything else, so the answer is aligned with the original,
and whatever is equal after that normalization keeps the original's exact characters.

Line ends are "\\n", "\\r\\n" and "\\r", as for an editor; U+2028, NEL and form feeds are ordinary
characters. What an edit makes of the code is judged in `engine.editing.checks`.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from engine.records import Done, Request

BOM = "\ufeff"
MAX_EXACT_PIECES = 4000  # pieces; difflib ignores very common ones of longer texts (autojunk)

WEAK_MODELS = ("qwen2.5-coder-0.5b", "smollm2")  # models that drop or change parts of whole files
WHOLE_FILE_LINES = 80  # lines that a weak model may edit at once

LINE_END = re.compile(r"\r\n|\r|\n")
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
COMBINING_MARKS = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a\ufe20-\ufe2f"
WORD = re.compile(rf"\r\n|[\w{COMBINING_MARKS}]+|[^\S\r\n]+|.", re.DOTALL)


class EditRefused(ValueError):
    """An answer that must not reach the file; the message is one line with the remedy."""


class Change(NamedTuple):
    """A replacement of code points `start:stop` of the old text by `text`."""

    start: int
    stop: int
    text: str


# -- alignment ---------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Convert `text` to what the model sees: without a BOM, with "\\n" line ends. Idempotent."""
    return _unix(text.lstrip(BOM))


def _unix(text: str) -> str:
    """Convert the line ends of `text` to "\\n"."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def preserve(original: str, answer: str, newline: str = "\n") -> str:
    """Write `answer` with the original's exact characters wherever both are canonically equal.

    New lines end like the lines around them, or with `newline` if there are none. The result ends
    with a line end if the original does.
    """
    body = original.lstrip(BOM)
    answer = _ended_like(plain(answer), body)
    pieces = _preserve(
        body, answer, commonest_end(body, newline), (_lines, WORD.findall, _characters)
    )
    return original[: len(original) - len(body)] + _join(pieces)


def _ended_like(answer: str, body: str) -> str:
    """Give `answer` as many final line ends as `body` has.

    The model usually omits the last one, since the closing fence follows it.
    """
    if not body:
        return answer
    ends, wanted = (len(text) - len(text.rstrip("\n")) for text in (answer, _unix(body)))
    if not wanted:
        return answer.rstrip("\n")
    return answer + "\n" if ends in (0, wanted - 1) else answer


Split = Callable[[str], list[str]]


def _preserve(old: str, new: str, end: str, levels: tuple[Split, ...]) -> Iterator[str]:
    """Yield the pieces of `new`: as `old` has them where both are equal, else with line end `end`.

    `levels`: how to split the texts, coarsest first.
    """
    if not levels or not old or not new or _is_regular(old, new, end):
        yield new.replace("\n", end)
        return
    split, *finer = levels
    ours, theirs = split(old), split(new)
    for same, i, j, k, m in align([_key(p) for p in ours], [_key(p) for p in theirs]):
        if same:
            yield from ours[i:j]
        else:
            near = commonest_end("".join(ours[max(i - 3, 0) : j + 3]), end)
            yield from _preserve("".join(ours[i:j]), "".join(theirs[k:m]), near, tuple(finer))


def _is_regular(old: str, new: str, end: str) -> bool:
    """Return whether `old` has no characters or line ends that `new` could lose."""
    composed = all(unicodedata.is_normalized("NFC", text) for text in (old, new))
    return composed and all(found == end for found in LINE_END.findall(old))


def align(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[bool, int, int, int, int]]:
    """Yield runs (equal?, old start, old stop, new start, new stop) that cover both sequences."""
    head = common_prefix(old, new)
    tail = common_prefix(old[head:][::-1], new[head:][::-1])
    a, b = old[head : len(old) - tail], new[head : len(new) - tail]
    yield True, 0, head, 0, head
    for tag, i, j, k, m in difflib.SequenceMatcher(
        None, a, b, len(b) > MAX_EXACT_PIECES
    ).get_opcodes():
        yield tag == "equal", head + i, head + j, head + k, head + m
    yield True, len(old) - tail, len(old), len(new) - tail, len(new)


def common_prefix(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the common prefix of two texts, lists or tuples, by bisection."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def line_count(text: str) -> int:
    """Count the lines as an editor does, without an empty last one."""
    ends = text.count("\n") + text.count("\r") - text.count("\r\n")
    return ends + (text != "" and text[-1] not in "\r\n")


def line_span(text: str, first: int, last: int) -> tuple[int, int]:
    """Return the code points (start, stop) of the whole lines `first` to `last`, counted from 1."""
    starts = _offsets(_lines(text))
    return starts[first - 1], starts[last]


def _key(piece: str) -> str:
    return unicodedata.normalize("NFC", _unix(piece))


def _lines(text: str) -> list[str]:
    return LINE.findall(text)


def _characters(text: str) -> list[str]:
    """Split a text where NFC composition does not reach across; "\\r\\n" is one piece."""
    pieces: list[str] = []
    for char in text:
        if pieces and (pieces[-1] + char == "\r\n" or _composes(pieces[-1], char)):
            pieces[-1] += char
        else:
            pieces.append(char)
    return pieces


def _composes(before: str, char: str) -> bool:
    return unicodedata.combining(char) != 0 or _key(before + char) != _key(before) + _key(char)


def commonest_end(text: str, default: str) -> str:
    """Return the most frequent line end of `text`; the earlier one of equally frequent ones."""
    ends = Counter(LINE_END.findall(text)).most_common(1)
    return ends[0][0] if ends else default


def _join(pieces: Iterable[str]) -> str:
    """Concatenate pieces without merging "\\r" and "\\n" of two of them into one line end.

    Where they would merge, the "\\n" becomes "\\r".
    """
    out: list[str] = []
    for piece in filter(None, pieces):
        merges = out and out[-1].endswith("\r") and piece.startswith("\n")
        out.append("\r" + piece[1:] if merges else piece)
    return "".join(out)


# -- the edit ----------------------------------------------------------------------------------


def is_weak(model: str) -> bool:
    """Return whether a model is unreliable on whole files."""
    name = model.lower().replace(":", "-")  # ollama:qwen2.5-coder:0.5b
    return any(weak in name for weak in WEAK_MODELS)


def too_long(request: Request, model: str) -> str | None:
    """Say why a model should not edit so much at once; return None if it may."""
    lines = line_count(request.text)
    if request.selection is None and lines > WHOLE_FILE_LINES and is_weak(model):
        return (
            f"{lines} lines, and {model.lower()} is unreliable on whole files of more than "
            f"{WHOLE_FILE_LINES}"
        )
    return None


def strip_blank_lines(text: str, start: int, stop: int) -> tuple[int, int]:
    """Return the span without blank lines around it and without its last line end.

    Models drop those, so they are not part of the prompt. A blank span is returned unchanged.
    """
    if not text[start:stop].replace(BOM, "").strip():
        return start, stop
    head = text[start:stop]
    blank = len(head) - len(head.lstrip(" \t\r\n" + BOM))
    start += 1 + max(head.rfind("\n", 0, blank), head.rfind("\r", 0, blank))
    tail = text[start:stop]
    end = LINE_END.search(tail, len(tail.rstrip(" \t\r\n")))
    return start, start + end.start() if end else stop


def apply(request: Request, done: Done) -> str:
    """Return the file's new text. Raises EditRefused if the answer must not reach the file."""
    text = request.text
    start, stop = strip_blank_lines(text, *(request.selection or (0, len(text))))
    if start > 0 and text[start - 1 : start + 1] == "\r\n":  # never split a line end
        start -= 1
    if stop and text[stop - 1 : stop + 1] == "\r\n":
        stop += 1
    original, answer = text[start:stop], plain(done.text)
    _refuse(request, done, original)
    if original.strip():
        first, last = strip_blank_lines(answer, 0, len(answer))
        answer = answer[first:last]
    if request.selection:
        answer = _reindented(plain(original), answer)
    starts_line = start == 0 or text[start - 1] in "\r\n"
    if not original and starts_line and answer and not answer.endswith("\n"):
        answer += "\n"
    new = preserve(original, answer, commonest_end(text, "\n"))
    return _join((text[:start], new, text[stop:]))


def _refuse(request: Request, done: Done, original: str) -> None:
    """Raise EditRefused unless the answer is one whole code block of clean text."""
    if done.reason == "failed":
        raise EditRefused(done.error or "the model failed without an error message")
    if done.reason == "cancelled":
        raise EditRefused("the edit was cancelled")
    if done.reason == "length":
        remedy = "select fewer lines or allow more tokens"
        if request.update:
            remedy = "repeat more lines of the file around each change, or try a larger model"
        raise EditRefused(
            f"the answer was cut off after {done.usage.completion_tokens} tokens: {remedy}"
        )
    if done.matched is None or done.matched in request.stop:
        raise EditRefused(
            "the model ended its answer without closing the code block: "
            "describe the change more precisely, or try a larger model"
        )
    if plain(original).strip() and not done.text.strip():
        raise EditRefused(
            "the answer would delete everything: if that is intended, delete the lines yourself"
        )
    for char, what in (("\ufffd", "broken characters (U+FFFD)"), ("\0", "NUL characters")):
        if char in done.text and char not in request.text + request.instruction + request.update:
            raise EditRefused(f"the answer contains {what}: ask again or try another model")


def _reindented(original: str, answer: str) -> str:
    """Restore the common indentation of a selection if the answer's first line lost it.

    Small models often start a method at column 0. Of the two hypotheses (every line lost the
    indentation, or only the first) the one that preserves more of the original's lines, then of
    their indentations, wins. An answer that is exactly the dedented original is intended.
    """
    lines = answer.split("\n")
    indents = [_indent(line) for line in original.split("\n") if line.strip()] or [""]
    margin = min(indents)[: common_prefix(min(indents), max(indents))]
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    left = _indent(lines[first])
    if len(left) >= len(margin) or not margin.startswith(left):
        return answer
    every = [margin + line.removeprefix(left) if line.strip() else line for line in lines]
    only = [*lines[:first], every[first], *lines[first + 1 :]]
    best = "\n".join(max(every, only, key=lambda candidate: _similarity(candidate, original)))
    return answer if best.rstrip("\n") == original.rstrip("\n") else best


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _similarity(lines: Iterable[str], original: str) -> tuple[int, int]:
    """Count the lines, and the indentations, that the original has too."""
    ours, theirs = (Counter(filter(str.strip, each)) for each in (lines, original.split("\n")))
    indents = [Counter(map(_indent, count.elements())) for count in (ours, theirs)]
    return (ours & theirs).total(), (indents[0] & indents[1]).total()


def changes(old: str, new: str) -> list[Change]:
    """Find few and small replacements, ordered and disjoint, that turn `old` into `new`.

    None starts or ends inside a "\\r\\n", where an editor has no position.
    """
    ours, theirs = _lines(old), _lines(new)
    starts = _offsets(ours)
    found = []
    for same, i, j, k, m in align(ours, theirs):
        if not same:
            before, after = "".join(ours[i:j]), "".join(theirs[k:m])
            head = _back_off(before, after, common_prefix(before, after))
            tail = common_prefix(before[head:][::-1], after[head:][::-1])
            cut = [text[head : len(text) - tail] for text in (before, after)]
            if tail and "\r" in (cut[0][-1:], cut[1][-1:]) and before[-tail] == "\n":
                tail -= 1
            start, stop = starts[i] + head, starts[i] + len(before) - tail
            found.append(Change(start, stop, after[head : len(after) - tail]))
    return found


def _back_off(before: str, after: str, head: int) -> int:
    """Return `head`, or one less if it would split a "\\r\\n"."""
    splits = any(text[head - 1 : head + 1] == "\r\n" for text in (before, after)) and head
    return head - 1 if splits else head


def _offsets(pieces: list[str]) -> list[int]:
    offsets = [0]
    for piece in pieces:
        offsets.append(offsets[-1] + len(piece))
    return offsets
