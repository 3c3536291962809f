"""Control marks in the text of a prompt: templates that an editor has filled in.

Editors that know a model's format send whole prompts, with marks for fill in the middle, files,
repositories and regions in them. Only these count: chat marks and end marks are text, so that no
prompt begins or ends a turn. A mark cannot be told from a quotation of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from engine.editing.edits import plain
from engine.prompts.fim import FILE_MARKS, FIM_MARKS, FORMATS, FimFormat, fim_format
from engine.prompts.prompt_encoder import PromptEncoder
from engine.prompts.tokenizer import Tokenizer
from engine.records import RequestError

BLANK = "▁"  # begins the names of CodeLlama's marks; clients write a space or nothing
REGION_MARK = re.compile(r"<\|(?:marker_\d+|user_cursor|editable_region_(?:start|end))\|>")
CURSOR = re.compile(r"<\|user_cursor(?:_is_here)?\|>")
# Sweep: the file as it is; the next mark ends it.
SWEEP_FILE, SWEEP_CURRENT = "<|file_sep|>", "<|file_sep|>current/"
# Around the text that the answer rewrites, marks included: Zeta 2, Zeta 1.
REGIONS = (("<|marker_1|>", "<|marker_"), ("<|editable_region_start|>", "<|editable_region_end|>"))


def bare(name: str) -> str:
    """Return a mark as clients write it."""
    return name.removeprefix(BLANK)


MARKS = frozenset(map(bare, FIM_MARKS | FILE_MARKS))
PREFIX_MARKS = frozenset(bare(format.prefix) for format in FORMATS)


def is_template(text: str) -> bool:
    """Return whether a text has marks of any model."""
    return any(mark in text for mark in MARKS) or any(start in text for start, _ in REGIONS)


def marked_ids(text: str, encoder: PromptEncoder) -> list[int]:
    """Ids of a text in which the model's marks count. Raises what `encoder` raises."""
    ids: list[int] = []
    marks = _marks(encoder.tokenizer)
    parts = _pattern(marks).split(plain(text)) if marks else [plain(text)]
    encoder.expect(len(parts) // 2)
    encode: Callable[[str], list[int]] = encoder.encode
    for number, part in enumerate(parts):
        if number % 2:
            name = part.strip(" ")
            ids.append(marks[name])
            encode = encoder.encode if name in PREFIX_MARKS else encoder.encode_inside
        elif part:
            ids += encode(part)
    return ids


def check_format(text: str, tokenizer: Tokenizer) -> None:
    """RequestError for a filled-in template of another model's format."""
    text = plain(text).strip()
    known = _marks(tokenizer)
    for other in FORMATS:
        if all(bare(mark) in known for mark in other.marks) or not _is_filled_in(text, other):
            continue
        own = fim_format(tokenizer)
        marks = " ".join(map(bare, own.marks)) if own else "none"
        raise RequestError(
            f"the prompt has marks of another model's format ({' '.join(map(bare, other.marks))}), "
            f"this model's are: {marks}: choose this model's format in the client, or send "
            "parse_special false where they are text"
        )


def rewritten_region(text: str) -> str:
    """Return the part of a prompt that its answer rewrites.

    Formats of models made for next edits have one; it is "" in others.
    """
    if (at := text.rfind(SWEEP_CURRENT)) >= 0:
        start = text.find("\n", at) + 1
        stop = text.find(SWEEP_FILE, start)
        return text[start:stop] if 0 < start < stop else ""
    for first, last in REGIONS:
        start, stop = text.find(first), text.rfind(last)
        if 0 <= start < stop:
            return CURSOR.sub("", text[start : text.find("|>", stop) + 2])
    return ""


def region_marks(tokenizer: Tokenizer) -> dict[int, str]:
    """Return the model's marks of regions, which are text in its answers."""
    return {token: name for name, token in tokenizer.control.items() if REGION_MARK.fullmatch(name)}


def _marks(tokenizer: Tokenizer) -> dict[str, int]:
    """Ids of the model's marks, by the names that clients write."""
    return {
        bare(name): token
        for name, token in tokenizer.control.items()
        if name in FIM_MARKS or name in FILE_MARKS or REGION_MARK.fullmatch(name)
    }


def _pattern(marks: Iterable[str]) -> re.Pattern[str]:
    """Make a pattern that matches the marks in a text, as one group.

    CodeLlama's prompts are written as `<PRE> prefix <SUF>suffix <MID>`: these spaces are parts of
    its marks.
    """
    patterns = []
    for mark in sorted(marks, key=len, reverse=True):
        pattern = re.escape(mark)
        if BLANK + mark in FIM_MARKS:
            pattern = f" ?{pattern} ?" if mark in PREFIX_MARKS else f" ?{pattern}"
        patterns.append(pattern)
    return re.compile(f"({'|'.join(patterns)})")


def _is_filled_in(text: str, one: FimFormat) -> bool:
    """Return whether a text is a whole prompt of a format."""
    prefix, suffix, middle = map(bare, (one.prefix, one.suffix, one.middle))
    if not (prefix in text and suffix in text):
        return False
    return text.endswith(middle) if middle else text.startswith(suffix)
