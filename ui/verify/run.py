"""One run: every request asked cold and warm, alone and four at once, with and without speculation.

`cold` is the first time that a request is asked, `warm` the second, when a server may have kept
what it read. Both are alone. On one server with an option the two ways take turns in being first.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from ui.verify.server import Options, VerifiedServer
from ui.verify.tasks import VerifyTask

Mode = Literal["with", "without"]
Condition = Literal["cold", "warm", "again", "four", "sampled", "sampled again", "dropped"]
TWICE: tuple[Condition, Condition] = ("dropped", "again")  # the first only warms the cache
PlannedRequest = tuple[Mode, Condition, VerifyTask]
BOTH: dict[str, Condition] = {
    "alone, new prompt": "cold", "alone, cached prompt": "warm", FOUR: "four", SEEDED: "sampled",
}  # fmt: skip
AT_ONCE = 4  # requests
SAMPLED = Options(temperature=0.8, seed=20)
SAMPLED_TASKS = 5  # of each kind
MAX_FAILURES = 3  # in a row, after which a server is asked no more
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
    accepted: dict[Mode, int | None] = field(default_factory=dict)  # tokens, as above
    failed: dict[Mode, list[str]] = field(default_factory=dict)  # a line for each lost answer
    notes: list[str] = field(default_factory=list)  # lines for the report
    seeded: bool | None = None  # whether a seed gives the same text again; None: not asked

    @property
    def shared(self) -> bool:
        """Whether one server is asked in both modes."""
        return any(asked.plain for asked in self.modes.values())

    def texts(self, mode: Mode, condition: Condition) -> Texts:
        """Return the texts of one mode and condition by the requests' names."""
        replies = self.replies.get((mode, condition), {})
        return {name: reply.text for name, reply in replies.items()}


def measure(run: VerifyRun, progress: Progress = lambda stage, done, total: None) -> None:
    """Ask everything, and note the answers in `run`."""
    before = {mode: asked.server.drafted_so_far() for mode, asked in run.modes.items()}
    ask(run, "alone", _alone(run), 1, progress)
    for mode in run.modes:
        ask(run, FOUR, [(mode, "four", task) for task in run.tasks], AT_ONCE, progress)
    if any(each.differing for each in comparisons(run)):
        for mode in run.modes:
            twice = [(mode, condition, task) for task in run.tasks for condition in TWICE]
            ask(run, "again", twice, 1, progress)
    for mode in run.modes:
        run.drafted[mode] = _drafted(run, mode, before[mode])
        right = _said(run, mode, "accepted")
        run.accepted[mode] = sum(right) if right else None
    _sample(run, progress)


def _alone(run: VerifyRun) -> list[PlannedRequest]:
    """Return who is asked what in which order, one after the other."""
    order: list[PlannedRequest] = []
    for number, task in enumerate(run.tasks):
        modes = list(run.modes)
        if number // 2 % 2:  # edits and questions take turns: every second pair begins without
            modes.reverse()
        for mode in modes:
            if mode == modes[0] or not run.shared:
                order.append((mode, "cold", task))
            order.append((mode, "warm", task))
    return order


def ask(
    run: VerifyRun, stage: str, order: list[PlannedRequest], at_once: int, progress: Progress
) -> None:
    """Ask in this order, and note the answers.

    A server that fails MAX_FAILURES times in a row is asked no more.
    """

    def answer(planned: PlannedRequest, number: int) -> Reply | str:
        mode, condition, task = planned
        server, plain = run.modes[mode]
        if server.failures >= MAX_FAILURES:
            return "not asked any more"
        chosen = SAMPLED if condition.startswith("sampled") else Options()
        options = Options(plain, chosen.temperature, chosen.seed)
        try:
            reply = server.ask(task, options, number % at_once)
        except LinkError as error:
            server.failures += 1
            return f"{error} ({task.name})"
        server.failures = 0
        return reply

    pool = ThreadPoolExecutor(at_once)
    run_all = map if at_once == 1 else pool.map  # in this thread, Ctrl-C ends a request
    replies = iter(run_all(answer, order, range(len(order))))
    try:
        for done, (mode, condition, task) in enumerate(order, 1):
            reply = next(replies)
            progress(stage, done, len(order))
            if isinstance(reply, str):
                run.failed.setdefault(mode, []).append(reply)
            else:
                run.replies.setdefault((mode, condition), {})[task.name] = reply
    finally:
        pool.shutdown(cancel_futures=True)


def _drafted(run: VerifyRun, mode: Mode, before: float | None) -> int | None:
    """Return how many tokens were drafted in a mode, as far as the server says.

    `before`: the server's own count when the run began.
    """
    counts = _said(run, mode, "drafted")
    if counts:
        return sum(counts)
    after = run.modes[mode].server.drafted_so_far()
    if before is None or after is None or run.shared:
        return None
    return round(after - before)


def _said(run: VerifyRun, mode: Mode, name: str) -> list[int]:
    """Return a count that the answers of a mode come with, of those that have it."""
    said = [
        getattr(reply, name)
        for (each, _), replies in run.replies.items()
        for reply in replies.values()
        if each == mode
    ]
    return [count for count in said if count is not None]


def _sample(run: VerifyRun, progress: Progress) -> None:
    """Ask for texts drawn by chance with a seed, where the server honours seeds."""
    tasks = [task for task in run.tasks if task.number <= SAMPLED_TASKS]
    reference: Mode = "without" if "without" in run.modes else "with"
    twice: tuple[Condition, Condition] = ("sampled", "sampled again")
    order: list[PlannedRequest] = [(reference, each, task) for task in tasks for each in twice]
    ask(run, "with a seed", order, 1, progress)
    first, second = (run.texts(reference, each) for each in twice)
    both = first.keys() & second.keys()
    run.seeded = all(first[name] == second[name] for name in both) if both else None
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
            compare(run.tasks, mode, AGAIN, *repeated),
            compare(run.tasks, mode, WARMED, (cold, warm)),
            compare(run.tasks, mode, BATCHED, (warm, four)),
        ]
    for name, condition in BOTH.items():
        pair = (run.texts("with", condition), run.texts("without", condition))
        found.append(compare(run.tasks, "both", name, pair))
    return [each for each in found if each.of]


def margins(run: VerifyRun, table: list[Comparison]) -> dict[TextPlace, float]:
    """Ask for the margins of differing places, of MAX_MARGINS at most.

    They are asked of the server without speculation, where there is one. A margin is the logarithm
    of how many times as likely the model held one token as the other.
    """
    server, plain = run.modes.get("without", run.modes["with"])
    by_name = {task.name: task for task in run.tasks}
    found: dict[TextPlace, float] = {}
    replies: dict[str, Reply] = {}
    places = [place for each in table if not each.is_sampled for place in each.differing]
    for place in list(dict.fromkeys(places))[:MAX_MARGINS]:
        if place.task not in replies:
            try:
                replies[place.task] = server.ask(by_name[place.task], Options(plain, odds=True))
            except LinkError:
                return found
        known = margin(replies[place.task], place)
        if known is not None:
            found[place] = known
    return found
