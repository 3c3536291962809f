"""Oracle of the native drafter's alignment of an answer with the text it repeats: plain Python that
tries every position."""

from __future__ import annotations

from typing import NamedTuple

BACK, AHEAD = 64, 256  # tokens around the pointer that are searched
LOOK_BACK = 12  # matching tokens that are counted
OLD, NEW = 6, 8  # maximum tokens of a substitution


def needed(j: int, gap: int) -> int:
    """Matching tokens required to re-align `j` tokens past the pointer."""
    if 0 < gap <= 3 and j == gap + 1:
        return 1  # as many tokens replaced as were written
    if j >= 0:
        return 2 + 3 * (j > gap + 4) + 2 * (j > 32) + 2 * (j > 128)
    return 12 if j < -32 else 7


class At(NamedTuple):
    """The next expected token is at `pointer`: the last `run` tokens matched, or the last `gap` did
    not. Inside a substitution of the tokens `old`, `stage` new tokens were written."""

    pointer: int
    gap: int = 0
    run: int = 0
    old: tuple[int, ...] = ()
    stage: int = 0


class Aligned:
    """One answer beside the text that it repeats; -1 in it equals nothing."""

    def __init__(self, text: list[int], start: int, before: list[int]) -> None:
        self.text, self.answer = text, list(before)
        self.rules: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.at = At(min(max(start, 0), len(text)))
        self.left = 0  # tokens of the answer before it left the text
        self.jumps = 0

    def write(self, token: int) -> None:
        """The answer goes on so."""
        before = self.at
        self.answer.append(token)
        follows = self._follows(token)
        self.at = follows or self._jump(token) or At(before.pointer, before.gap + 1)
        if before.gap == 0 and self.at.gap:
            self.left = len(self.answer) - 1
        if before.gap and not follows and self.at.gap == 0:
            self.jumps += 1
            self._learn(before.pointer)

    def _follows(self, token: int) -> At | None:
        """It is the text's next token, or one of a substitution's."""
        pointer, gap, run, old, stage = self.at
        if old:
            new = self.rules[old]
            if stage < len(new) and new[stage] == token:
                last = stage + 1 == len(new)
                return (
                    At(pointer + len(old), 0, 1)
                    if last
                    else At(pointer, gap + 1, 0, old, stage + 1)
                )
            return None
        if gap:
            return None
        if self.text[pointer : pointer + 1] == [token]:
            return At(pointer + 1, 0, run + 1)
        old = self.rule(pointer)
        if not old:
            return None
        new, past = self.rules[old], pointer + len(old)
        if not new:
            return At(past + 1, 0, 1) if self.text[past : past + 1] == [token] else None
        if new[0] != token:
            return None
        return At(past, 0, 1) if len(new) == 1 else At(pointer, 1, 0, old, 1)

    def rule(self, pointer: int) -> tuple[int, ...]:
        """The longest tokens at the pointer that were replaced before; () for none."""
        fits = [old for old in self.rules if tuple(self.text[pointer:][: len(old)]) == old]
        return max(fits, key=len, default=())

    def _jump(self, token: int) -> At | None:
        """The place where most tokens agree beyond what is needed there, the nearest one."""
        pointer, gap, *_ = self.at
        best: tuple[int, int, int] | None = None
        for place in range(max(pointer - BACK, 1), min(pointer + AHEAD, len(self.text)) + 1):
            if self.text[place - 1] != token:
                continue
            j, agreeing = place - pointer, self.agree(place)
            need = needed(j, gap)
            found = (agreeing - need, -abs(j), -place)
            if agreeing >= need and (best is None or found > best):
                best = found
        return best and At(-best[2], 0, self.agree(-best[2]))

    def agree(self, place: int) -> int:
        """Tokens before a place of the text that are the answer's last."""
        count = 0
        while (
            count < min(LOOK_BACK, place, len(self.answer))
            and self.text[place - 1 - count] == self.answer[-1 - count] != -1
        ):
            count += 1
        return count

    def _learn(self, pointer: int) -> None:
        """The answer is back: what was written since it left replaces what was left out."""
        size = len(self.answer) - self.at.run - self.left
        old = self.text[pointer : max(self.at.pointer - self.at.run, pointer)]
        if size >= 0 and 1 <= len(old) <= OLD and size <= NEW:
            self.rules[tuple(old)] = tuple(self.answer[self.left : self.left + size])
