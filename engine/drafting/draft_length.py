"""How many tokens a smaller model drafts before they are verified, and what that is worth.

Constant, heuristic and oracle are SpecDec++'s names for the usual schedules; SpecDec++'s own rule,
which stops where a refusal has become likely, is `Likely`, by the draft model's own confidence or
by an acceptance head (`specdec.py`). `Adaptive` weighs that confidence against time as measured.
Nothing here can change the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

INITIAL_TOKENS = 5  # tokens of a first draft
STEP_UP, STEP_DOWN = 2, 1  # of the heuristic schedule
DECAY_PER_ROUND = 0.98  # of what was measured before, at each round
PRIOR_TOKENS = 10  # tokens that a guess counts for
RETRY_ROUNDS = 64  # rounds until drafting is tried again where it did not pay
AcceptanceEstimate = Callable[
    [float, Any], float
]  # (draft probability, hidden state) -> P(accepted)


class ConstantLength:
    """Always so many tokens. The other schedules differ where they say so."""

    def __init__(self, count: int = INITIAL_TOKENS) -> None:
        if count < 0:
            raise ValueError(f"draft length {count}: give 0 or more")
        self.count = count

    def begin(self) -> int:
        """A round begins: the tokens that it may draft at most."""
        return self.count

    def should_continue(self, drafted: int, prob: float, hidden: Any) -> bool:
        """Whether to draft another one, after `drafted` (1 or more). The draft model gave the last
        one `prob`, from the hidden state [width] that stands at the one before."""
        return True

    def record(self, drafted: int, accepted: int, drafting: float, verifying: float) -> None:
        """A round has ended: how many tokens, and how many seconds each part took."""

    def forget(self) -> None:
        """Go on as if nothing had been seen."""


class HeuristicLength(ConstantLength):
    """Two more after a round in which all were accepted, else one less. Shared by requests."""

    def __init__(self, count: int = INITIAL_TOKENS) -> None:
        super().__init__(count)
        self.first = count

    def forget(self) -> None:
        self.count = self.first

    def record(self, drafted: int, accepted: int, drafting: float, verifying: float) -> None:
        if drafted:
            up = accepted == drafted
            self.count = self.count + STEP_UP if up else max(1, self.count - STEP_DOWN)


class OracleLength(ConstantLength):
    """The lengths of one answer's rounds, known before; plain decoding behind the last one."""

    def __init__(self, lengths: list[int]) -> None:
        super().__init__(0)
        self.lengths, self.round = list(lengths), 0

    def begin(self) -> int:
        self.round += 1
        return self.lengths[self.round - 1] if self.round <= len(self.lengths) else 0


class ConfidenceStop(ConstantLength):
    """SpecDec++'s stop: once P(some token was refused) is above `threshold`, within `bounds`.

    With `lag`, as published, a belief is about the token before the one just drafted, on whose
    hidden state it rests, and the first one counts as accepted."""

    def __init__(
        self,
        belief: AcceptanceEstimate = lambda prob, hidden: prob,
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

    def should_continue(self, drafted: int, prob: float, hidden: Any) -> bool:
        if drafted > 1 or not self.lag:
            self.all_accepted *= self.belief(prob, hidden)
        return drafted < self.least or 1 - self.all_accepted <= self.threshold


class AdaptiveLength(ConstantLength):
    """Drafts on while the next token is likely to bring more than its time would bring elsewhere:
    by the draft model's own probabilities, as far as they came true, and by what was measured so
    far. None where drafting does not pay, and a try again now and then. Shared by requests."""

    def __init__(self, most: int = 12) -> None:
        super().__init__(most)
        self.forget()

    def forget(self) -> None:
        # tokens accepted, tested, accepted by the draft model's word; so it begins with drafting
        self.tests = (1.0, 1.0, 1.0)
        # tokens written, seconds of drafting, tokens drafted, seconds of verifying, rounds: like
        # `tests` replaced together, for an engine may be told to forget while it drafts
        self.times = (0.0, 0.0, 0.0, 0.0, 0.0)
        self.probs: list[float] = []  # of this round
        self.reach = 1.0  # P(all of this round's tokens are accepted)
        self.idle = 0

    @property
    def alpha(self) -> float:
        """Share of the tested tokens that were accepted."""
        accepted, tested, _ = self.tests
        return accepted / tested

    @property
    def cost(self) -> float:
        """A drafted token's time, beside a verification's."""
        _, drafting, drafted, verifying, rounds = self.times
        return (drafting / drafted) / (verifying / rounds) if drafting and verifying else 0.0

    @property
    def pace(self) -> float:
        """Seconds a token took; 0 while that is not known."""
        written, drafting, _, verifying, _ = self.times
        return (drafting + verifying) / written if written else 0.0

    def expected_pace(self, guess: float) -> float:
        """The same, where `guess` is what GUESSED more tokens would have taken."""
        written, drafting, _, verifying, _ = self.times
        return (drafting + verifying + PRIOR_TOKENS * guess) / (written + PRIOR_TOKENS)

    def skip_round(self) -> None:
        """Something else drafted this round: what was measured is a round older."""
        self.times = _decayed(self.times, (0.0,) * len(self.times))

    def begin(self) -> int:
        self.probs, self.reach = [], 1.0
        if best_length(self.alpha, self.cost, self.count):
            self.idle = 0
            return self.count
        self.idle += 1
        if self.idle < RETRY_ROUNDS:
            return 0
        self.idle = 0
        return min(2, self.count)

    def should_continue(self, drafted: int, prob: float, hidden: Any) -> bool:
        """The marginal value: one more token is accepted with P(all before) * alpha; the time that
        it takes to draft must not write more than that otherwise."""
        accepted, _, claimed = self.tests
        self.probs.append(prob)
        self.reach *= min(1.0, prob * accepted / claimed)
        _, drafting, tokens, _, _ = self.times
        if not tokens:
            return drafted < INITIAL_TOKENS
        return self.reach * self.alpha * self.pace >= drafting / tokens

    def record(self, drafted: int, accepted: int, drafting: float, verifying: float) -> None:
        if not drafted:
            return
        tested = min(accepted + 1, drafted)
        found = (accepted, tested, sum(self.probs[:tested]) or tested)
        self.tests = _decayed(self.tests, found)
        self.times = _decayed(self.times, (accepted + 1, drafting, drafted, verifying, 1))


def _decayed(known: tuple[float, ...], found: tuple[float, ...]) -> Any:
    """What is known, with what was found now."""
    return tuple(DECAY_PER_ROUND * one + other for one, other in zip(known, found, strict=True))


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
