"""One run: every request asked cold and warm, alone and four at once, with and without speculation.

`cold` is the first time that a request is asked, `warm` the second, when a server may have kept
what it read. Both are alone. On one server with an option the two ways take turns in being first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from engine.remote.link import LinkError
from ui.verify.compare import (
    AGAIN,
    BATCHED,
    FOUR,
    SEEDED,
    WARMED,
    Comparison,
    TextPlace,
    Texts,
    compare,
    margin,
)
from ui.verify.reply import Reply
from ui.verify.server import AT_ONCE, Asking, Options, VerifiedServer, ask_all
from ui.verify.tasks import KINDS, VerifyTask

Mode = Literal["with", "without"]
Condition = Literal["cold", "warm", "again", "four", "sampled", "sampled again", "dropped"]
TWICE: tuple[Condition, Condition] = ("dropped", "again")  # the first only warms the cache
PlannedRequest = tuple[Mode, Condition, VerifyTask]
BOTH: dict[str, Condition] = {
    "alone, first time": "cold", "alone, second time": "warm", FOUR: "four",
}  # fmt: skip
SAMPLED = Options(temperature=0.8, seed=20)
SAMPLED_TASKS = 5  # of each kind
MAX_MARGINS = 20  # differences whose margins are asked for
Progress = Callable[[str, int, int], None]  # (what is being asked, how many are done, of how many)


class ModeServer(NamedTuple):
    """The server that is asked in one mode, and whether requests tell it so."""

    server: VerifiedServer
    plain: bool = False


@dataclass(slots=True)
class VerifyRun:
    """What was asked, and what came back."""

    number: int  # repeats it
    tasks: list[VerifyTask]
    modes: dict[Mode, ModeServer] = field(default_factory=dict)
    replies: dict[tuple[Mode, Condition], dict[str, Reply]] = field(default_factory=dict)
    drafted: dict[Mode, int | None] = field(default_factory=dict)  # None: the server does not say
    failed: dict[Mode, list[str]] = field(default_factory=dict)  # a line for each lost answer
    missing: dict[Mode, int] = field(default_factory=dict)  # requests without an answer
    notes: list[str] = field(default_factory=list)  # lines for the report
    seeded: bool | None = None  # whether a seed gives the same text again; None: not asked

    @property
    def complete(self) -> bool:
        """Whether every request was answered."""
        return not any(self.missing.values())

    def texts(self, mode: Mode, condition: Condition) -> Texts:
        """Return the texts of one mode and condition by the requests' names."""
        replies = self.replies.get((mode, condition), {})
        return {name: reply.text for name, reply in replies.items()}


def measure(run: VerifyRun, progress: Progress = lambda stage, done, total: None) -> None:
    """Ask everything, and note the answers in `run`."""
    before = {mode: asked.server.drafted_so_far() for mode, asked in run.modes.items()}
    ask(run, "alone", _alone(run), 1, progress)
    for mode in run.modes:
        order: list[PlannedRequest] = [(mode, "four", task) for task in run.tasks]
        ask(run, "four at once", order, AT_ONCE, progress)
    if any(each.differing for each in comparisons(run)):
        for mode in run.modes:
            order = [(mode, condition, task) for task in run.tasks for condition in TWICE]
            ask(run, "again", order, 1, progress)
    for mode, asked in run.modes.items():
        after = asked.server.drafted_so_far()
        run.drafted[mode] = _drafted(run, mode, before[mode], after)
    _sample(run, progress)


def _alone(run: VerifyRun) -> list[PlannedRequest]:
    """Return who is asked what in which order, one after the other."""
    order: list[PlannedRequest] = []
    shared = len({id(asked.server) for asked in run.modes.values()}) < len(run.modes)
    for number, task in enumerate(run.tasks):
        if shared:  # edits and questions take turns: every second pair begins without
            first: tuple[Mode, Mode] = ("with", "without")
            first = first if number // 2 % 2 == 0 else ("without", "with")
            order += [(first[0], "cold", task), (first[0], "warm", task), (first[1], "warm", task)]
        else:
            for mode in run.modes:
                order += [(mode, "cold", task), (mode, "warm", task)]
    return order


def ask(
    run: VerifyRun, stage: str, order: list[PlannedRequest], at_once: int, progress: Progress
) -> None:
    """Ask in this order, and note the answers."""
    askings, done = [], 0
    for mode, condition, task in order:
        server, plain = run.modes[mode]
        chosen = SAMPLED if condition.startswith("sampled") else Options()
        askings.append(Asking(server, task, Options(plain, chosen.temperature, chosen.seed)))

    def note(number: int, reply: Reply | LinkError) -> None:
        nonlocal done
        done += 1
        progress(stage, done, len(order))
        mode, condition, task = order[number]
        if isinstance(reply, LinkError):
            run.failed.setdefault(mode, []).append(f"{reply} ({task.name})")
        else:
            run.replies.setdefault((mode, condition), {})[task.name] = reply

    ask_all(askings, at_once, note)
    for mode, condition, task in order:
        if task.name not in run.replies.get((mode, condition), {}):
            run.missing[mode] = run.missing.get(mode, 0) + 1


def _drafted(run: VerifyRun, mode: Mode, before: float | None, after: float | None) -> int | None:
    """Return how many tokens were drafted in a mode, as far as the server says."""
    counts = [
        reply.drafted
        for (each, _), replies in run.replies.items()
        for reply in replies.values()
        if each == mode
    ]
    known = [count for count in counts if count is not None]
    if known:
        return sum(known)
    alone = [each.server for each in run.modes.values()].count(run.modes[mode].server) == 1
    return round(after - before) if alone and before is not None and after is not None else None


def _sample(run: VerifyRun, progress: Progress) -> None:
    """Ask for texts drawn by chance with a seed, where the server honours seeds."""
    tasks = [
        task
        for kind in KINDS
        for task in [each for each in run.tasks if each.kind == kind][:SAMPLED_TASKS]
    ]
    reference: Mode = "without" if "without" in run.modes else "with"
    order: list[PlannedRequest] = []
    for task in tasks:
        order += [(reference, "sampled", task), (reference, "sampled again", task)]
    ask(run, "with a seed", order, 1, progress)
    pair = run.texts(reference, "sampled"), run.texts(reference, "sampled again")
    both = [name for name in pair[0] if name in pair[1]]
    run.seeded = all(pair[0][name] == pair[1][name] for name in both) if both else None
    if run.seeded and reference == "without":
        ask(run, "with a seed", [("with", "sampled", task) for task in tasks], 1, progress)


# -- comparing ---------------------------------------------------------------------------------


def comparisons(run: VerifyRun) -> list[Comparison]:
    """Return the rows of the table, as far as they were measured."""
    found: list[Comparison] = []
    for mode in run.modes:
        cold, warm = run.texts(mode, "cold"), run.texts(mode, "warm")
        four, again = run.texts(mode, "four"), run.texts(mode, "again")
        # Where nothing differed it was not asked again: any two of its texts are the same
        repeated = [(warm, again)] if again else [(cold, warm), (warm, four)]
        found += [
            compare(run.tasks, mode, AGAIN, repeated),
            compare(run.tasks, mode, WARMED, [(cold, warm)]),
            compare(run.tasks, mode, BATCHED, [(warm, four)]),
        ]
    if "without" in run.modes:
        rows = dict(BOTH)
        if run.seeded:
            rows[SEEDED] = "sampled"
        found += [
            compare(
                run.tasks,
                "both",
                name,
                [(run.texts("with", condition), run.texts("without", condition))],
            )
            for name, condition in rows.items()
        ]
    return [each for each in found if each.of]


def margins(run: VerifyRun, table: list[Comparison]) -> dict[TextPlace, float]:
    """Ask for the margins of differing places, of MAX_MARGINS at most.

    They are asked of the server without speculation, where there is one. A margin is the logarithm
    of how many times as likely the model held one token as the other.
    """
    mode = run.modes.get("without", run.modes["with"])
    by_name = {task.name: task for task in run.tasks}
    found: dict[TextPlace, float] = {}
    replies: dict[str, Reply] = {}
    places = [place for each in table if not each.is_sampled for place in each.differing]
    for place in list(dict.fromkeys(places))[:MAX_MARGINS]:
        if place.task not in replies:
            try:
                options = Options(mode.plain, odds=True)
                replies[place.task] = mode.server.ask(by_name[place.task], options)
            except LinkError:
                return found
        known = margin(replies[place.task], place)
        if known is not None:
            found[place] = known
    return found
