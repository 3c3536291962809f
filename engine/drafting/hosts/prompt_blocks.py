"""The texts in a prompt that an answer may repeat: fenced code blocks, and documents in tags.

Hosts pass token ids only, so the prompt's bytes are joined from those of its tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]

FENCE = re.compile(rb"^[ \t]{0,3}(`{3,}|~{3,})([^`\n]*)$", re.MULTILINE)
TAG = re.compile(rb"^<(/?)([A-Za-z][\w-]{0,40})(?: [^<>\n]{0,200})?>$", re.MULTILINE)
BREAK = b"\n"  # replaces control tokens and ids without bytes


@dataclass(frozen=True, slots=True)
class PromptBlocks:
    """The texts of a prompt that an answer may repeat.

    `blocks`: their half-open token ranges, the longest first. `open_fence`: the mark of a fence
    that the prompt leaves open, or b""; the answer then begins inside a block.
    """

    blocks: list[tuple[int, int]]
    open_fence: bytes = b""


class TokenTexts:
    """The bytes of each token id."""

    def __init__(self, known: Sequence[bytes | None]) -> None:
        self._texts = [BREAK if text is None else text for text in known] + [BREAK]
        self._lengths = np.array([len(text) for text in self._texts], np.int64)

    def __getitem__(self, token: int) -> bytes:
        return self._texts[token] if 0 <= token < len(self._texts) else BREAK

    def join(self, ids: Ids) -> tuple[bytes, NDArray[np.int64]]:
        """Return the bytes of a text, and the end of each token in them."""
        last = len(self._texts) - 1
        known = np.where((ids < 0) | (ids > last), last, ids)
        return b"".join(map(self._texts.__getitem__, known.tolist())), self._lengths[known].cumsum()


def find_blocks(ids: Ids, texts: TokenTexts) -> PromptBlocks:
    """Find the texts of a prompt that an answer may repeat.

    Takes time linear in the prompt's length.
    """
    text, ends = texts.join(ids)
    ranges, open_fence = _fenced(text)
    fenced = ranges + ([(len(text), len(text))] if open_fence else [])
    ranges = [*ranges, *_tagged(text, fenced)]
    places = np.array(ranges, np.int64).reshape(-1, 2)
    begins = np.append(0, ends)  # begins of each token, and the end
    found = np.searchsorted(begins, places).tolist()  # the first token that begins there or later
    blocks = [(start, stop) for start, stop in found if start < stop]
    return PromptBlocks(sorted(blocks, key=lambda one: one[0] - one[1]), open_fence)


def opens(line: bytes) -> bytes:
    """Return the mark of the fence that a line opens; b"" if it opens none."""
    found = FENCE.fullmatch(line)
    return found[1] if found else b""


def closes(line: bytes, mark: bytes) -> bool:
    """Return whether a line closes the fence that `mark` opened."""
    found = FENCE.fullmatch(line)
    return bool(found and found[1].startswith(mark) and not found[2].strip())


def _fenced(text: bytes) -> tuple[list[tuple[int, int]], bytes]:
    """Return the byte ranges of fenced blocks, and the mark of a fence that is left open."""
    ranges: list[tuple[int, int]] = []
    mark, start = b"", 0
    for found in FENCE.finditer(text):
        line = found[0]
        if not mark:
            mark, start = opens(line), found.end() + 1
        elif closes(line, mark):
            ranges.append((min(start, found.start()), found.start()))
            mark = b""
    return ranges, mark


def _tagged(text: bytes, fenced: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges between tags that have lines of their own, outside of fences."""
    opened: dict[bytes, int] = {}
    inside = iter(fenced)
    start, stop = next(inside, (len(text), len(text)))
    for found in TAG.finditer(text):
        while found.start() >= stop and stop < len(text):
            start, stop = next(inside, (len(text), len(text)))
        if found.start() >= start:
            continue
        closing, name = found[1], found[2]
        if not closing:
            opened[name] = found.end() + 1
        elif name in opened:
            begin = opened.pop(name)
            yield begin, max(begin, found.start())
