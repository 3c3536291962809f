"""Consent to a model's download: which model, its size, the free space on the disk.

Nothing is fetched by a command whose user did not agree, with `--yes` or at the terminal.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ui.common.errors import NO_MODEL, Failure, say

if TYPE_CHECKING:
    from engine.weights.fetch.download import Download


def choose_model(args: argparse.Namespace) -> None:
    """Set `args.model` to a model that is on this machine or may be fetched.

    A drafter's own model needs the same consent. Raises Failure without it. Does nothing if a
    server or an engine is named: it has its own model.
    """
    if getattr(args, "engine", "") or getattr(args, "server", "") not in ("", "own"):
        return
    args.model = agreed(args.model, args.yes)
    if args.drafter:  # it may draft with a model of its own
        from engine.drafting.registry import parse_choice

        draft = parse_choice(args.drafter).options.get("model")
        if isinstance(draft, str):
            agreed(draft, args.yes)


def agreed(model: str | None, yes: bool = False) -> str:
    """Ask for consent if a model must be fetched, and return the model to use.

    Without `model` this is the usual one, or the offer that the user chooses. `yes` is consent.
    Raises Failure without it.
    """
    from engine.weights import WeightsError
    from engine.weights.fetch.download import downloads, usual_model

    try:
        offers = downloads(model)
        if not offers:
            return model or usual_model()
    except (WeightsError, OSError) as error:
        raise Failure(NO_MODEL, str(error)) from error
    first = offers[0]
    if yes:
        say(f"fetching {first.model}: {first.described}")
        return first.model
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        why = f"{first.model} is not on this machine ({first.described})"
        raise Failure(NO_MODEL, f"{why}: `draftline models pull {first.model}` fetches it")
    chosen = _ask(offers)
    if chosen is None:
        why = f"{first.model} was not fetched"
        raise Failure(NO_MODEL, f"{why}: `draftline models pull {first.model}` does it later")
    return chosen


def _ask(offers: list[Download]) -> str | None:
    """Ask at the terminal which of the offers the user chooses; None stands for none of them."""
    say(f"a language model is needed on this machine, downloaded once; {offers[0].room}")
    largest = max(offer.size for offer in offers)
    for number, offer in enumerate(offers, 1):
        about = "answers better" if offer.size == largest else "smaller and faster"
        shown = f"{offer.model}: {offer.about}" + (f"; {about}" if len(offers) > 1 else "")
        print(f"  {number}  {shown}", file=sys.stderr)
    numbers = [str(number) for number in range(1, len(offers) + 1)]
    while True:
        print(f"download {' or '.join(numbers)}, or n for none: ", end="", file=sys.stderr)
        sys.stderr.flush()
        answer = sys.stdin.readline()
        if answer.strip() in numbers:
            return offers[int(answer) - 1].model
        if not answer or answer.strip().lower() in ("n", "no", "none"):
            return None
