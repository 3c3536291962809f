"""Fill in the middle (FIM): the window of text around the cursor, and the prompt for it.

The window starts at a fixed line, so that a keystroke leaves the head of the prompt unchanged and
its prefix stays in the KV cache. The caller chooses the snippets of other files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING

from engine.editing.edits import plain

if TYPE_CHECKING:
    from engine.prompts.tokenizer import Tokenizer
    from engine.records import Request

# Prefix, suffix and middle marks; the first three that are all in the vocabulary are used.
MARKS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder2, Granite
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
)
MAX_TOKEN_CHARS = 16  # assumed; bounds how much text is tokenised to fill a window
REPOSITORY, FILE = "<|repo_name|>", "<|file_sep|>"  # Qwen2.5-Coder, between files


def marks(tokenizer: Tokenizer) -> tuple[int, int, int] | None:
    """Ids of the prefix, suffix and middle marks; None where the model does not support FIM."""
    for names in MARKS:
        if all(name in tokenizer.control for name in names):
            prefix, suffix, middle = (tokenizer.control[name] for name in names)
            return prefix, suffix, middle
    return None


def ends(tokenizer: Tokenizer) -> frozenset[int]:
    """Ids that end a completion beside the model's own end tokens: every mark of another part or
    file."""
    names = {name for each in MARKS for name in each} | {REPOSITORY, FILE, "<|fim_pad|>", "▁<EOT>"}
    return frozenset(tokenizer.control[name] for name in names if name in tokenizer.control)


def infill_ids(
    request: Request, tokenizer: Tokenizer, encode: Callable[[str], list[int]] | None = None
) -> list[int]:
    """Ids of a `complete` request with a suffix. A model without FIM continues the prefix; one
    without file marks gets no snippets. `encode` replaces the tokenizer's own, to bound the
    prompt."""
    control, encode = tokenizer.control, encode or tokenizer.encode
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
    if request.suffix_first:
        return [*ids, prefix, suffix, *after, middle, *before]
    return [*ids, prefix, *before, suffix, *after, middle]


def window(
    text: str, offset: int, before: int, after: int, encode: Callable[[str], list[int]]
) -> tuple[int, int]:
    """The code points (start, stop) around `offset` to show, at most `before` and `after` tokens.

    `start` is at a line whose number is a multiple of at least 8, so that it stays put while the
    user types; lines too long for that are cut at a multiple of 256 characters."""
    return _start(text, offset, before, encode), _stop(text, offset, after, encode)


def _start(text: str, offset: int, room: int, encode: Callable[[str], list[int]]) -> int:
    step = 8 if room < 512 else 16 if room < 1024 else 32
    line = text.rfind("\n", 0, offset) + 1
    starts = [_above(text, line, text.count("\n", 0, offset) % step)]
    left, below = room, offset
    while True:  # tokenise each part once; the whole may need more tokens than its parts
        start = starts[-1]
        left -= (
            len(encode(text[start:below])) if below - start <= MAX_TOKEN_CHARS * left else left + 1
        )
        if left < 0 or start == 0:
            break
        below = start
        starts.append(_above(text, start, step))
    if left < 0:
        starts.pop()
    while starts:
        if len(encode(text[starts[-1] : offset])) <= room:
            return starts[-1]
        starts.pop()
    return _inside(text, max(line, offset - MAX_TOKEN_CHARS * room), offset, room, encode)


def _above(text: str, start: int, lines: int) -> int:
    """The start of the line `lines` above the one that starts at `start`."""
    for _ in range(lines):
        start = text.rfind("\n", 0, max(start - 1, 0)) + 1
    return start


def _inside(
    text: str, start: int, offset: int, room: int, encode: Callable[[str], list[int]]
) -> int:
    """A start inside a line that is too long to show whole: a multiple of 256, or less where even
    that does not fit."""
    while start < offset and len(encode(text[start:offset])) > room:
        half = (start + offset + 1) // 2
        anchor = -(-half // 256) * 256
        start = anchor if anchor < offset else half
    return start


def _stop(text: str, offset: int, room: int, encode: Callable[[str], list[int]]) -> int:
    """After the last whole line that fits, or inside the first one."""
    stop, left = offset, room
    while stop < len(text):
        end = text.find("\n", stop) + 1 or len(text)
        left -= len(encode(text[stop:end])) if end - stop <= MAX_TOKEN_CHARS * left else left + 1
        if left < 0:
            break
        stop = end
    while stop > offset and len(encode(text[offset:stop])) > room:
        stop = text.rfind("\n", offset, stop - 1) + 1 or offset
    if stop > offset or stop == len(text):
        return stop
    near = text[offset : offset + MAX_TOKEN_CHARS * room].split("\n", 1)[0]
    while len(encode(near)) > room:
        near = near[: len(near) // 2]
    return offset + len(near)
