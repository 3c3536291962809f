"""The report of a run, for people who know neither Draftline nor the method, and as JSON."""

from __future__ import annotations

import json
import math
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Any

from engine.remote.link import printable
from ui.common.terminal import plural, visible
from ui.verify.compare import AGAIN, BATCHED, WARMED, Comparison, TextPlace
from ui.verify.run import SAMPLED, VerifyRun
from ui.verify.tasks import KINDS
from ui.verify.verdict import CHANGED, Verdict, span

TITLE = "Does speculative decoding change this server's answers?"
WIDTH = 80  # characters of a line
LABEL, CELL = 30, 11  # characters of a row's name, and of a count
MAX_SHOWN = 10  # differences
NEAR_TIE = 0.1  # natural logarithm of how many times as likely: rounding may decide
HEADS = {
    "with": "with speculation",
    "without": "without speculation",
    "both": "with against without speculation",
}
WAYS = {
    AGAIN: ("once", "again"),
    WARMED: ("first", "second"),
    BATCHED: ("alone", "four at once"),
}
LEGEND = {
    AGAIN: "The same request at once again: what differs is the server's own noise.",
    WARMED: "The first time a prompt is new; later the server may have kept what it computed of it "
    "(its prompt cache), and what differs comes from that.",
    BATCHED: "Servers compute requests of the same time together: what differs comes from that.",
}


def report(
    run: VerifyRun,
    table: list[Comparison],
    margins: dict[TextPlace, float],
    verdict: Verdict,
) -> str:
    """Write the report."""
    paragraphs = [TITLE, _filled(verdict.text), _about(run)]
    paragraphs += ["\n".join(lines) for lines in (_servers(run), _table(table))]
    paragraphs.append("\n".join(_differences(table, margins)))
    notes = [*notes_of(run, table, margins)]
    if verdict.code == CHANGED:
        notes.append(
            f"Next: `--run {run.number} --json` has both texts of every difference. A wide margin "
            "points at a wrong acceptance, near ties at sums in another order."
        )
    paragraphs.append("\n".join(_filled(f"- {note}", "  ") for note in notes))
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text,
        WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _about(run: VerifyRun) -> str:
    counts = Counter(task.kind for task in run.tasks)
    lengths = {task.kind: task.max_tokens for task in run.tasks}
    return _filled(
        "With speculative decoding a server guesses the next tokens, and its model checks many "
        "guesses at once. Answers should come sooner, and be the same. Here requests are sent "
        "several times, and their answers compared character by character: "
        f"{plural(counts['edit'], 'edit')} of code (up to {lengths['edit']} tokens), which repeat "
        "much of the request, so that guesses succeed, and "
        f"{plural(counts['question'], 'question')} (up to "
        f"{lengths['question']} tokens), which do not. The temperature is 0, except where answers "
        f"are sampled. This is run {run.number}: --run {run.number} repeats its requests."
    )


def _servers(run: VerifyRun) -> Iterator[str]:
    """Write what each mode is, and how much was guessed there."""
    for mode, asked in run.modes.items():
        where = f"{asked.server.url}, model {printable(asked.server.model)}"
        if asked.plain:
            where = "the same server, switched off in each request"
        guessed = run.drafted.get(mode)
        count = "it does not say how many" if guessed is None else f"{guessed:,}"
        right = run.accepted.get(mode)
        count += " tokens guessed" + (f", {right:,} of them right" if guessed and right else "")
        yield _filled(f"{HEADS[mode] + ':':<21}{where}; {count}", " " * 21)


def _table(table: list[Comparison]) -> Iterator[str]:
    heads = "".join(f"{kind + 's':<{CELL}}" for kind in KINDS)
    yield f"{'answers that differ':<{LABEL}}{heads}both, with 95 % interval"
    mode = ""
    for row in table:
        if row.mode != mode:
            mode = row.mode
            yield HEADS[mode]
        counts = ("{} of {}".format(*row.count(kind)) for kind in KINDS)
        cells = "".join(f"{count:<{CELL}}" for count in counts)
        share = f"{100 * len(row.differing) / row.of:.0f} %"
        yield f"{'  ' + row.name:<{LABEL}}{cells}{share} ({span(row)})"
    if table:
        yield ""
    for name in LEGEND:
        if any(row.name == name for row in table):
            yield _filled(f"{name}: {LEGEND[name]}", "  ")


# -- differences -------------------------------------------------------------------------------


def _differences(table: list[Comparison], margins: dict[TextPlace, float]) -> Iterator[str]:
    """Write the first differing places, each request once: with against without come first."""
    rows = sorted(table, key=lambda row: row.mode != "both")
    shown: dict[str, tuple[Comparison, TextPlace]] = {}
    for row in rows:
        for place in row.differing:
            shown.setdefault(place.task, (row, place))
    if not shown:
        return
    yield "where they differ first"
    for row, place in list(shown.values())[:MAX_SHOWN]:
        first, second = _ways(row)
        width = max(len(first), len(second)) + 1
        yield f"  {place.task} ({HEADS[row.mode]}, {row.name})"
        yield f"    after {plural(place.start, 'character')}, behind {quoted(place.before)}"
        for way, then in zip((first, second), place.then, strict=True):
            yield f"    {way + ':':<{width}} {quoted(then) if then else 'the answer ends'}"
        if place in margins:
            yield f"    {margin_text(margins[place])}"
    if len(shown) > MAX_SHOWN:
        yield f"  and in {plural(len(shown) - MAX_SHOWN, 'more request')}: see --json"


def _ways(row: Comparison) -> tuple[str, str]:
    """Name the two texts of a row."""
    if row.mode == "both":
        return "with", "without"
    return WAYS[row.name]


def quoted(text: str) -> str:
    """Write a text in quotation marks on one line, without anything that drives a terminal."""
    return json.dumps(visible(text), ensure_ascii=False)


def margin_text(margin: float) -> str:
    """Say how near a choice was."""
    times = math.exp(min(margin, 20.0))
    tie = "a near tie, which rounding can turn" if margin < NEAR_TIE else "no near tie"
    return f"the likelier token was {times:.3g} times as likely as the other: {tie}"


# -- notes -------------------------------------------------------------------------------------


def notes_of(
    run: VerifyRun, table: list[Comparison], margins: dict[TextPlace, float]
) -> Iterator[str]:
    """Yield one line for each thing that was not as it should be."""
    servers = {id(asked.server): asked.server for asked in run.modes.values()}
    for server in servers.values():
        yield from server.notes
    yield from run.notes
    for mode, lines in run.failed.items():
        yield f"{HEADS[mode]}: {plural(len(lines), 'answer')} missing. The first: {lines[0]}."
    models = {server.model for server in servers.values()}
    if len(models) > 1:
        yield "The two servers name different models: compare one model with itself."
    yield from _caching(run)
    if run.seeded is False:
        yield "Seeds are not honoured: sampled answers were not compared."
    elif run.seeded and "without" in run.modes:
        yield (
            f"Sampled: temperature {SAMPLED.temperature}. Most methods promise the same "
            "probabilities, not the same text, so these answers do not count in the verdict."
        )
    places = {place for row in table if not row.is_sampled for place in row.differing}
    if places and not margins:
        yield "How near the choices were is unknown: the server gives no probabilities of them."


def _caching(run: VerifyRun) -> Iterator[str]:
    """Say how much of the prompts the server had kept, where it says so."""
    shares = []
    for condition in ("cold", "warm"):
        replies = [
            reply
            for (_, each), answers in run.replies.items()
            for reply in answers.values()
            if each == condition and reply.cached_tokens is not None and reply.prompt_tokens
        ]
        read = sum(reply.prompt_tokens or 0 for reply in replies)
        kept = sum(reply.cached_tokens or 0 for reply in replies)
        shares += [kept / read] if read else []
    if len(shares) == 2:
        yield (
            f"Prompt cache: {shares[0]:.0%} of a new prompt came from it (what all requests begin "
            f"with), {shares[1]:.0%} of a cached one."
        )


# -- JSON --------------------------------------------------------------------------------------


def as_json(
    run: VerifyRun,
    table: list[Comparison],
    margins: dict[TextPlace, float],
    verdict: Verdict,
) -> dict[str, Any]:
    """Return the whole report: the table, every difference with both texts, and the notes."""
    texts = {task.name: task.text for task in run.tasks}
    return {
        "run": run.number,
        "verdict": verdict.text,
        "exit_code": verdict.code,
        "modes": {
            mode: {
                "url": str(asked.server.url),
                "model": asked.server.model,
                "by_option": asked.plain,
                "guessed_tokens": run.drafted.get(mode),
                "accepted_tokens": run.accepted.get(mode),
                "missing_answers": len(run.failed.get(mode, ())),
            }
            for mode, asked in run.modes.items()
        },
        "table": [
            {
                "speculation": row.mode,
                "compared": row.name,
                "differing": len(row.differing),
                "of": row.of,
                "by_kind": {kind: row.count(kind) for kind in KINDS},
                "interval": [round(share, 4) for share in row.interval],
            }
            for row in table
        ],
        "differences": [
            {
                "speculation": row.mode,
                "compared": row.name,
                "request": place.task,
                "text": texts[place.task],
                "start": place.start,
                "first": place.first,
                "second": place.second,
                "margin": margins.get(place),
            }
            for row in table
            for place in row.differing
        ],
        "notes": list(notes_of(run, table, margins)),
    }
