"""What `draftline two-models` shows: texts coloured by origin, rounds, counters, tables, JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.prompts.detokenizer import Detokenizer
from engine.prompts.tokenizer import Tokenizer
from engine.research.comparison import WAYS, Timed, Worth, counters, rate, worth
from engine.research.two_models import Round
from ui.cli.answer_view import Writer

COLOURS = {"accepted": "red", "corrected": "blue", "own": "magenta"}  # LLMSpeculativeSampling's
Spoken = list[tuple[str, str]]  # text of each token, and its origin: one of COLOURS


@dataclass(frozen=True, slots=True)
class Side:
    """A text and how it is shown."""

    way: str
    timed: Timed
    prompt: str


def show_text(writer: Writer, side: Side, tokenizer: Tokenizer, verbose: bool) -> None:
    """A way's text under its name; `verbose`: by origin, with rounds and counters."""
    writer.rest()
    writer.write(f"== {side.way}: {WAYS[side.way].line}\n", "bold")
    if not (verbose and WAYS[side.way].speculates):
        writer.write(side.timed.written.texts[0].rstrip("\n") + "\n\n")
        return
    (rounds,) = side.timed.written.rounds
    spoken = by_round(rounds, side.prompt, tokenizer)
    writer.write(side.prompt)
    for text, origin in (piece for one in spoken for piece in one):
        writer.write(text, COLOURS[origin])
    writer.rest()
    place = len(tokenizer.encode(side.prompt))
    for one, said in zip(rounds, spoken, strict=True):
        line = f"  at {place}: {one.accepted} of {one.drafted} accepted"
        if said and said[-1][1] != "accepted":
            line += f", {said[-1][1]} at {place + one.accepted}: {said[-1][0]!r}"
        writer.write(line + "\n", "dim")
        place += len(one.tokens)
    counted = counters(rounds)._asdict()
    writer.write(", ".join(f"{name} {value}" for name, value in counted.items()) + "\n\n")


def by_round(rounds: Sequence[Round], prompt: str, tokenizer: Tokenizer) -> list[Spoken]:
    """The text of each token of each round; a character is with its last token."""
    reader = Detokenizer(tokenizer)
    for token in tokenizer.encode(prompt):
        reader.push(token)
    spoken = [
        [(reader.push(token), origin(one, n)) for n, token in enumerate(one.tokens)]
        for one in rounds
    ]
    rest = reader.flush()
    if rest and spoken and spoken[-1]:
        text, last = spoken[-1][-1]
        spoken[-1][-1] = (text + rest, last)
    return spoken


def origin(one: Round, n: int) -> str:
    """Where a round's token came from."""
    if n < one.accepted:
        return "accepted"
    return "corrected" if one.accepted < one.drafted else "own"


def show_table(writer: Writer, found: Mapping[str, Sequence[Timed]]) -> None:
    """A line a way: the median run."""
    writer.rest()
    base = rate(found["target"]) if "target" in found else 0.0
    writer.write(f"{'':<11}{'tokens/s':>9}{'passes':>8}{'a pass':>8}{'x target':>10}\n")
    for way, runs in found.items():
        times = f"{rate(runs) / base:.2f}" if base else "-"
        one = runs[0].written
        tokens = sum(map(len, one.tokens)) / max(one.passes, 1)
        line = f"{way:<11}{rate(runs):>9.1f}{one.passes:>8}{tokens:>8.2f}{times:>10}"
        writer.write(line + "\n")
    writer.write("\n")


def show_worth(writer: Writer, found: Mapping[str, Sequence[Timed]], gamma: int) -> None:
    """Whether drafting pays, by way, where both models were timed alone."""
    for way, one in worths(found, gamma):
        advice = (
            f"best with --gamma {one.best}: {one.best_gain:.2f}"
            if one.best
            else "no length gains: decode plainly"
        )
        writer.write(
            f"{way}: alpha {one.alpha:.2f}, a drafted token costs {one.cost:.2f} of a pass: "
            f"expected gain {one.gain:.2f} with --gamma {gamma}; {advice}\n"
        )


def worths(found: Mapping[str, Sequence[Timed]], gamma: int) -> Iterator[tuple[str, Worth]]:
    """What drafting is worth, by way; nothing where a model was not timed alone."""
    if not {"target", "draft"} <= set(found):
        return
    for way, runs in found.items():
        if WAYS[way].speculates:
            (rounds,) = runs[0].written.rounds
            yield way, worth(rounds, rate(found["draft"]), rate(found["target"]), gamma)


def record(runs: Sequence[Timed]) -> dict[str, Any]:
    """A text as JSON; the speed is the median run's."""
    written = runs[0].written
    (rounds,) = written.rounds
    return {
        "text": written.texts[0],
        "reason": written.reasons[0],
        "passes": written.passes,
        **counters(rounds)._asdict(),
        "seconds": round(runs[0].seconds, 6),
        "tokens_per_second": round(rate(runs), 3),
    }


def as_json(found: Mapping[str, Sequence[Timed]], gamma: int) -> dict[str, Any]:
    """All ways, and what drafting is worth."""
    worthy = {way: one._asdict() for way, one in worths(found, gamma)}
    return {"gamma": gamma, "ways": {way: record(one) for way, one in found.items()}} | {
        "worth": worthy
    }
