"""How many tokens a smaller model drafts before they are verified, and what that is worth.

Constant, heuristic and oracle are SpecDec++'s names for the usual schedules; SpecDec++'s own rule,
which stops where a refusal has become likely, is `Likely`, by the draft model's own confidence or
by an acceptance head (`specdec.py`). `Adaptive` takes Leviathan's formula with what was measured.
Nothing here can change the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

START, STEP_UP, STEP_DOWN = 5, 2, 1  # of the heuristic schedule
FORGET = 0.98  # of what was measured before, at each round
AGAIN = 64  # rounds until drafting is tried again where it did not pay
Belief = Callable[[float, Any], float]  # (draft probability, hidden state) -> P(accepted)


class Constant:
    """Always so many tokens. The other schedules differ where they say so."""

    def __init__(self, count: int = START) -> None:
        if count < 0:
            raise ValueError(f"draft length {count}: give 0 or more")
        self.count = count

    def begin(self) -> int:
        """A round begins: the tokens that it may draft at most."""
        return self.count

    def goes_on(self, drafted: int, prob: float, hidden: Any) -> bool:
        """Whether to draft another one, after `drafted` (1 or more). The draft model gave the last
        one `prob`, from the hidden state [width] that stands at the one before."""
        return True

    def saw(self, drafted: int, accepted: int, drafting: float, verifying: float) -> None:
        """A round has ended: how many tokens, and how many seconds each part took."""

    def forget(self) -> None:
        """Go on as if nothing had been seen."""


class Heuristic(Constant):
    """Two more after a round in which all were accepted, else one less. Shared by requests."""

    def __init__(self, count: int = START) -> None:
        super().__init__(count)
        self.first = count

    def forget(self) -> None:
        self.count = self.first

    def saw(self, drafted: int, accepted: int, drafting: float, verifying: float) -> None:
        if drafted:
            up = accepted == drafted
            self.count = self.count + STEP_UP if up else max(1, self.count - STEP_DOWN)


class Oracle(Constant):
    """The lengths of one answer's rounds, known before; plain decoding behind the last one."""

    def __init__(self, lengths: list[int]) -> None:
        super().__init__(0)
        self.lengths, self.round = list(lengths), 0

    def begin(self) -> int:
        self.round += 1
        return self.lengths[self.round - 1] if self.round <= len(self.lengths) else 0


class Likely(Constant):
    """SpecDec++'s stop: once P(some token was refused) is above `threshold`, within `bounds`.

    With `lag`, as published, a belief is about the token before the one just drafted, on whose
    hidden state it rests, and the first one counts as accepted."""

    def __init__(
        self,
        belief: Belief = lambda prob, hidden: prob,
        threshold: float = 0.7,
        bounds: tuple[int, int] = (2, 20),
        lag: bool = False,
    ) -> None:
        least, most = bounds
        if not 0 < least <= most:
            raise ValueError(f"bounds {least} {most}: give 1 or more, the smaller one first")
        if not 0 <= threshold <= 1:
            raise ValueError(f"stop threshold {threshold}: give 0 to 1")
        super().__init__(most)
        self.belief, self.threshold, self.least, self.lag = belief, threshold, least, lag
        self.all_accepted = 1.0

    def begin(self) -> int:
        self.all_accepted = 1.0
        return self.count

    def goes_on(self, drafted: int, prob: float, hidden: Any) -> bool:
        if drafted > 1 or not self.lag:
            self.all_accepted *= self.belief(prob, hidden)
        return drafted < self.least or 1 - self.all_accepted <= self.threshold


class Adaptive(Constant):
    """The length of the largest expected gain, by what was measured so far; none where even that
    is below 1, and a try again now and then. Shared by requests."""

    def __init__(self, most: int = 12) -> None:
        super().__init__(most)
        self.forget()

    def forget(self) -> None:
        self.accepted = self.tested = 1.0  # so it begins with drafting
        # seconds of drafting, tokens drafted, seconds of verifying, rounds: replaced together, for
        # an engine may be told to forget while it drafts
        self.times = (0.0, 0.0, 0.0, 0.0)
        self.idle = 0

    @property
    def alpha(self) -> float:
        """Share of the tested tokens that were accepted."""
        return self.accepted / self.tested

    @property
    def cost(self) -> float:
        """A drafted token's time, beside a verification's."""
        drafting, tokens, verifying, rounds = self.times
        return (drafting / tokens) / (verifying / rounds) if drafting and verifying else 0.0

    def begin(self) -> int:
        count = best_length(self.alpha, self.cost, self.count)
        self.idle = 0 if count else self.idle + 1
        if self.idle == AGAIN:
            self.idle = 0
            return min(2, self.count)
        return count

    def saw(self, drafted: int, accepted: int, drafting: float, verifying: float) -> None:
        if not drafted:
            return
        self.accepted = FORGET * self.accepted + accepted
        self.tested = FORGET * self.tested + min(accepted + 1, drafted)
        drafts, tokens, verifications, rounds = (FORGET * each for each in self.times)
        self.times = (drafts + drafting, tokens + drafted, verifications + verifying, rounds + 1)


def expected_tokens(alpha: float, length: int) -> float:
    """Tokens a round, where each of `length` drafted ones is accepted with probability `alpha`
    (Leviathan et al., equation 1)."""
    if alpha >= 1:
        return length + 1.0
    return (1 - alpha ** (length + 1)) / (1 - alpha)


def gain(alpha: float, length: int, cost: float) -> float:
    """How many times as fast that is as plain decoding, where drafting a token takes `cost` times
    a verification's time (Leviathan et al., theorem 3.8)."""
    return expected_tokens(alpha, length) / (length * cost + 1)


def best_length(alpha: float, cost: float, most: int) -> int:
    """The length of the largest gain, the shortest of equal ones; 0 where no length gains."""
    return max(range(most + 1), key=lambda length: (gain(alpha, length, cost), -length))
