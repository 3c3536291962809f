"""Draft length schedules: how many tokens a draft model proposes per round.

Constant, heuristic and oracle schedules are named as in SpecDec++ (Huang et al., 2024,
arXiv 2405.19715), whose own rule is `ConfidenceStop`: stop once a rejection has become likely,
judged by the draft model's own probability or by an acceptance head (`methods/specdec.py`).
`AdaptiveLength` weighs that probability against measured times. The formulas are those of
Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2022,
arXiv 2211.17192).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any, TypeVar

INITIAL_TOKENS = 5  # tokens of a first draft
STEP_UP, STEP_DOWN = 2, 1  # tokens; steps of the heuristic schedule
DECAY_PER_ROUND = 0.98  # weight of earlier measurements, per round
PRIOR_TOKENS = 10  # tokens; a guessed speed counts for as many
RETRY_ROUNDS = 64  # rounds without drafting; then it is tried again
AcceptanceEstimate = Callable[[float, Any], float]  # (draft probability, hidden state) -> P(accept)
S = TypeVar("S")


class ConstantLength:
    """Always the same number of tokens. Base class of the other schedules."""

    def __init__(self, count: int = INITIAL_TOKENS) -> None:
        if count < 0:
            raise ValueError(f"draft length {count}: must be 0 or more")
        self.count = count

    def begin(self) -> int:
        """Start a round. Returns the maximum number of tokens to draft."""
        return self.count

    def should_continue(self, drafted: int, prob: float, hidden: Any) -> bool:
        """Return whether to draft another token after `drafted` (1 or more) of them.

        `prob`: the draft model's probability of the last one; `hidden` [width]: the state it was
        predicted from.
        """
        return True

    def record(self, drafted: int, accepted: int, drafting: float, verifying: float) -> None:
        """End a round: token counts, and the seconds that each part took."""

    def forget(self) -> None:
        """Reset everything learned."""


class HeuristicLength(ConstantLength):
    """Two tokens more after a fully accepted round, else one less. Shared by requests."""

    def __init__(self, count: int = INITIAL_TOKENS) -> None:
        super().__init__(count)
        self.initial = count

    def forget(self) -> None:
        self.count = self.initial

    def record(self, drafted: int, accepted: int, drafting: float, verifying: float) -> None:
        if drafted:
            all_accepted = accepted == drafted
            self.count = self.count + STEP_UP if all_accepted else max(1, self.count - STEP_DOWN)


class OracleLength(ConstantLength):
    """Known lengths for the rounds of one answer, then plain decoding."""

    def __init__(self, lengths: list[int]) -> None:
        super().__init__(0)
        self.lengths, self.round = list(lengths), 0

    def begin(self) -> int:
        self.round += 1
        return self.lengths[self.round - 1] if self.round <= len(self.lengths) else 0


class ConfidenceStop(ConstantLength):
    """SpecDec++'s stopping rule: stop once P(some token is rejected) exceeds `threshold`.

    At least bounds[0] and at most bounds[1] tokens are drafted.

    With `lag`, as published, an estimate is about the token before the one just drafted, whose
    hidden state it is computed from, and the first token counts as accepted.
    """

    def __init__(
        self,
        estimate: AcceptanceEstimate = lambda prob, hidden: prob,
        threshold: float = 0.7,
        bounds: tuple[int, int] = (2, 20),
        lag: bool = False,
    ) -> None:
        least, most = bounds
        if not 0 < least <= most:
            raise ValueError(f"bounds {least} {most}: give 1 or more, the smaller one first")
        if not 0 <= threshold <= 1:
            raise ValueError(f"stop threshold {threshold}: must be between 0 and 1")
        super().__init__(most)
        self.estimate, self.threshold, self.least, self.lag = estimate, threshold, least, lag
        self.all_accepted = 1.0

    def begin(self) -> int:
        self.all_accepted = 1.0
        return self.count

    def should_continue(self, drafted: int, prob: float, hidden: Any) -> bool:
        if drafted > 1 or not self.lag:
            self.all_accepted *= self.estimate(prob, hidden)
        return drafted < self.least or 1 - self.all_accepted <= self.threshold


@dataclass(frozen=True, slots=True)
class _Acceptance:
    """Decayed counts of drafted tokens. They start at 1, so that drafting is tried first."""

    accepted: float = 1.0
    tested: float = 1.0
    claimed: float = 1.0  # accepted tokens expected by the draft model's probabilities


@dataclass(frozen=True, slots=True)
class _Timing:
    """Decayed counts of tokens and seconds."""

    written: float = 0.0  # tokens
    drafting: float = 0.0  # seconds
    drafted: float = 0.0  # tokens
    verifying: float = 0.0  # seconds
    rounds: float = 0.0


class AdaptiveLength(ConstantLength):
    """Drafts while the next token is expected to be worth its time.

    The draft model's probabilities, corrected by how often they came true, are weighed against
    measured times. Where drafting does not pay nothing is drafted, except for a retry every
    RETRY_ROUNDS rounds. Shared by requests."""

    def __init__(self, most: int = 12) -> None:
        super().__init__(most)
        self.forget()

    def forget(self) -> None:
        # Immutable and replaced as a whole: another thread may call this while a round is drafted.
        self.acceptance = _Acceptance()
        self.timing = _Timing()
        self.probs: list[float] = []  # draft probabilities of this round
        self.reach = 1.0  # P(all tokens of this round are accepted)
        self.idle = 0  # rounds since the last draft

    @property
    def alpha(self) -> float:
        """Share of the tested tokens that were accepted."""
        return self.acceptance.accepted / self.acceptance.tested

    @property
    def cost(self) -> float:
        """Time to draft a token relative to a verification pass; 0 while unknown."""
        t = self.timing
        if not t.drafting or not t.verifying:
            return 0.0
        return (t.drafting / t.drafted) / (t.verifying / t.rounds)

    @property
    def seconds_per_token(self) -> float:
        """Measured time per written token; 0 while unknown."""
        t = self.timing
        return (t.drafting + t.verifying) / t.written if t.written else 0.0

    def expected_seconds_per_token(self, guess: float) -> float:
        """Estimate the time per token; `guess` counts as PRIOR_TOKENS measured tokens."""
        t = self.timing
        seconds = t.drafting + t.verifying + PRIOR_TOKENS * guess
        return seconds / (t.written + PRIOR_TOKENS)

    def skip_round(self) -> None:
        """Another drafter drafted this round: let the measured times decay."""
        self.timing = _decayed(self.timing, _Timing())

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
        """Compare the marginal values of one more token.

        It is accepted with probability reach * alpha, and the time it takes to draft would write so
        many tokens otherwise.
        """
        acceptance, t = self.acceptance, self.timing
        self.probs.append(prob)
        self.reach *= min(1.0, prob * acceptance.accepted / acceptance.claimed)
        if not t.drafted:
            return drafted < INITIAL_TOKENS
        return self.reach * self.alpha * self.seconds_per_token >= t.drafting / t.drafted

    def record(self, drafted: int, accepted: int, drafting: float, verifying: float) -> None:
        if not drafted:
            return
        tested = min(accepted + 1, drafted)
        claimed = sum(self.probs[:tested]) or tested
        self.acceptance = _decayed(self.acceptance, _Acceptance(accepted, tested, claimed))
        self.timing = _decayed(self.timing, _Timing(accepted + 1, drafting, drafted, verifying, 1))


def _decayed(known: S, new: S) -> S:
    """Field by field: the decayed known value plus the new one."""
    pairs: Any = zip(astuple(known), astuple(new), strict=True)  # type: ignore[call-overload]
    return type(known)(*(DECAY_PER_ROUND * old + value for old, value in pairs))


def expected_tokens(alpha: float, length: int) -> float:
    """Return the expected tokens per round (Leviathan et al., equation 1).

    Each of `length` drafted tokens is accepted with probability `alpha`.
    """
    if alpha >= 1:
        return length + 1.0
    return (1 - alpha ** (length + 1)) / (1 - alpha)


def expected_speedup(alpha: float, length: int, cost: float) -> float:
    """Return the expected speedup over plain decoding (Leviathan et al., theorem 3.8).

    Drafting a token takes `cost` times as long as a verification pass.
    """
    return expected_tokens(alpha, length) / (length * cost + 1)


def best_length(alpha: float, cost: float, most: int) -> int:
    """Return the length up to `most` with the largest expected speedup; the shortest wins ties."""
    return max(range(most + 1), key=lambda length: (expected_speedup(alpha, length, cost), -length))
