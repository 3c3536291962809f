"""Output of `draftline two-models`: texts coloured by origin, rounds, counters, tables, JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.prompts.detokenizer import Detokenizer
from engine.prompts.tokenizer import Tokenizer
from research.comparison import (
    METHODS,
    ExpectedGain,
    TimedRun,
    counters,
    expected_gain,
    median_rate,
)
from research.two_models import Round
from ui.common.answer_view import AnswerView

# The colours of LLMSpeculativeSampling.
ORIGIN_COLOURS = {"accepted": "red", "corrected": "blue", "own": "magenta"}
RoundText = list[tuple[str, str]]  # the text and the origin of each token of a round


def show_text(
    view: AnswerView, method: str, timed: TimedRun, prompt: str, tokenizer: Tokenizer, verbose: bool
) -> None:
    """Show a method's text under its name; `verbose`: by origin, with rounds and counters."""
    view.end_line()
    view.write(f"== {method}: {METHODS[method].summary}\n", "bold")
    if not (verbose and METHODS[method].speculates):
        view.write(timed.result.texts[0].rstrip("\n") + "\n\n")
        return
    (rounds,) = timed.result.rounds
    texts = round_texts(rounds, prompt, tokenizer)
    view.write(prompt)
    for text, origin in (piece for pieces in texts for piece in pieces):
        view.write(text, ORIGIN_COLOURS[origin])
    view.end_line()
    position = len(tokenizer.encode(prompt))
    for round_, pieces in zip(rounds, texts, strict=True):
        line = f"  at {position}: {round_.accepted} of {round_.drafted} accepted"
        if pieces and pieces[-1][1] != "accepted":
            text, origin = pieces[-1]
            line += f", {origin} at {position + round_.accepted}: {text!r}"
        view.write(line + "\n", "dim")
        position += len(round_.tokens)
    counts = counters(rounds)._asdict()
    view.write(", ".join(f"{name} {value}" for name, value in counts.items()) + "\n\n")


def round_texts(rounds: Sequence[Round], prompt: str, tokenizer: Tokenizer) -> list[RoundText]:
    """Decode the text of each token of each round; a character belongs to its last token."""
    detokenizer = Detokenizer(tokenizer)
    for token in tokenizer.encode(prompt):
        detokenizer.push(token)
    texts = [
        [(detokenizer.push(token), _origin(round_, n)) for n, token in enumerate(round_.tokens)]
        for round_ in rounds
    ]
    rest = detokenizer.flush()
    if rest and texts and texts[-1]:
        text, last = texts[-1][-1]
        texts[-1][-1] = (text + rest, last)
    return texts


def _origin(round_: Round, n: int) -> str:
    """Name the origin of a round's nth token."""
    if n < round_.accepted:
        return "accepted"
    return "corrected" if round_.accepted < round_.drafted else "own"


def show_table(view: AnswerView, timed: Mapping[str, Sequence[TimedRun]]) -> None:
    """Show a line for each method: its median run."""
    view.end_line()
    base = median_rate(timed["target"]) if "target" in timed else 0.0
    view.write(f"{'':<11}{'tokens/s':>9}{'passes':>8}{'a pass':>8}{'x target':>10}\n")
    for method, runs in timed.items():
        speedup = f"{median_rate(runs) / base:.2f}" if base else "-"
        result = runs[0].result
        tokens = sum(map(len, result.tokens)) / max(result.passes, 1)
        line = f"{method:<11}{median_rate(runs):>9.1f}{result.passes:>8}{tokens:>8.2f}{speedup:>10}"
        view.write(line + "\n")
    view.write("\n")


def show_gains(view: AnswerView, timed: Mapping[str, Sequence[TimedRun]], gamma: int) -> None:
    """Show the expected speedup of each method, if each model was also timed alone."""
    for method, gain in _gains(timed, gamma):
        advice = (
            f"best with --gamma {gain.best}: {gain.best_gain:.2f}"
            if gain.best
            else "no draft length gains: decode plainly"
        )
        view.write(
            f"{method}: alpha {gain.alpha:.2f}, a drafted token costs {gain.cost:.2f} of a pass: "
            f"expected gain {gain.gain:.2f} with --gamma {gamma}; {advice}\n"
        )


def _gains(
    timed: Mapping[str, Sequence[TimedRun]], gamma: int
) -> Iterator[tuple[str, ExpectedGain]]:
    """Yield the expected speedup of each method; nothing unless each model was also timed alone."""
    if not {"target", "draft"} <= set(timed):
        return
    draft_rate, target_rate = median_rate(timed["draft"]), median_rate(timed["target"])
    for method, runs in timed.items():
        if METHODS[method].speculates:
            (rounds,) = runs[0].result.rounds
            yield method, expected_gain(rounds, draft_rate, target_rate, gamma)


def record(runs: Sequence[TimedRun]) -> dict[str, Any]:
    """Make the record of a text with its counters, for JSON; the speed is the median run's."""
    result = runs[0].result
    (rounds,) = result.rounds
    return {
        "text": result.texts[0],
        "reason": result.reasons[0],
        "passes": result.passes,
        **counters(rounds)._asdict(),
        "seconds": round(runs[0].seconds, 6),
        "tokens_per_second": round(median_rate(runs), 3),
    }


def as_json(timed: Mapping[str, Sequence[TimedRun]], gamma: int) -> dict[str, Any]:
    """Make the record of all methods with their expected speedups, for JSON."""
    gains = {method: gain._asdict() for method, gain in _gains(timed, gamma)}
    return {
        "gamma": gamma,
        "ways": {method: record(runs) for method, runs in timed.items()},
        "worth": gains,
    }
