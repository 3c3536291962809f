"""Filling in the middle: what is shown of a text around a place, and the prompt that asks for it.

A keystroke must leave the head of the prompt as it was, since what is cached of it need not be read
again: what is shown begins at a fixed line. Which texts of other files are shown is the caller's
choice, and what is made of the answer, too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING

from engine.edits import plain

if TYPE_CHECKING:
    from engine.prompts import Tokenizer
    from engine.records import Request

# What models of this kind call prefix, suffix and middle; by name, for the vocabulary decides.
MARKS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder2, Granite
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder
)
REPOSITORY, FILE = "<|repo_name|>", "<|file_sep|>"  # Qwen2.5-Coder, between files


def marks(tokenizer: Tokenizer) -> tuple[int, int, int] | None:
    """Ids of prefix, suffix and middle; None where the model knows no filling in."""
    for names in MARKS:
        if all(name in tokenizer.control for name in names):
            prefix, suffix, middle = (tokenizer.control[name] for name in names)
            return prefix, suffix, middle
    return None


def ends(tokenizer: Tokenizer) -> frozenset[int]:
    """Ids that end a continuation of a file beside the model's own end tokens: every mark of
    another part or file."""
    names = {name for each in MARKS for name in each} | {REPOSITORY, FILE, "<|fim_pad|>"}
    return frozenset(tokenizer.control[name] for name in names if name in tokenizer.control)


def infill_ids(request: Request, tokenizer: Tokenizer) -> list[int]:
    """Ids of a `complete` request that has a suffix. A model that knows no filling in continues
    the text before; without marks of files nothing of other files is shown."""
    control, encode = tokenizer.control, tokenizer.encode
    before = encode(plain(request.text))
    known = marks(tokenizer)
    if known is None:
        return before
    prefix, suffix, middle = known
    ids: list[int] = []
    if request.snippets and REPOSITORY in control and FILE in control:
        ids += [control[REPOSITORY], *encode("workspace\n")]
        for path, text in request.snippets:
            ids += [control[FILE], *encode(f"{path}\n{plain(text).rstrip()}\n")]
        ids += [control[FILE], *encode(f"{PurePath(request.path).name}\n")]
    after = encode(plain(request.suffix or ""))
    return [*ids, prefix, *before, suffix, *after, middle]


def window(
    text: str, offset: int, before: int, after: int, encode: Callable[[str], list[int]]
) -> tuple[int, int]:
    """Code points (start, stop) around `offset` to show: at most `before` and `after` tokens.

    `start` is at a line whose number is a multiple of 8 or more, so that it stays where it is while
    lines are written; only lines too long for that are cut, at a multiple of 256 characters."""
    return _start(text, offset, before, encode), _stop(text, offset, after, encode)


def _start(text: str, offset: int, room: int, encode: Callable[[str], list[int]]) -> int:
    step = 8 if room < 512 else 16 if room < 1024 else 32
    lines = text.count("\n", 0, offset)
    start = text.rfind("\n", 0, offset) + 1
    for _ in range(lines % step):
        start = text.rfind("\n", 0, start - 1) + 1
    if start < offset - 16 * room or len(encode(text[start:offset])) > room:
        line = text.rfind("\n", 0, offset) + 1
        if line >= offset - 16 * room and len(encode(text[line:offset])) <= room:
            return line
        start = max(line, -(-(offset - 2 * room) // 256) * 256)
        while start + 256 < offset and len(encode(text[start:offset])) > room:
            start += 256
        if start < offset and len(encode(text[start:offset])) > room:
            start = max(start, offset - room // 4)  # a character has 4 tokens at most
        return start
    room -= len(encode(text[start:offset]))
    while start > 0:
        above = start
        for _ in range(step):
            above = text.rfind("\n", 0, max(above - 1, 0)) + 1
        if start - above > 16 * room or (cost := len(encode(text[above:start]))) > room:
            break
        start, room = above, room - cost
    return start


def _stop(text: str, offset: int, room: int, encode: Callable[[str], list[int]]) -> int:
    """Behind the last whole line that fits, or inside the first one."""
    near = text[offset : offset + 8 * room]
    while len(encode(near)) > room:
        cut = near.rfind("\n", 0, max(len(near) - 1, 0)) + 1
        near = near[:cut] if cut > 1 else near[: len(near) // 2]
    return offset + len(near)
