"""Cancellation, prefix reuse and edits, with one request at a time."""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.latency.lsp_client import Client, PendingRequest, ServerError, ServerProcess
from bench.latency.places import SEED, position, sample_stretches

EDITED_FILE = Path(__file__).parents[1] / "common" / "samples" / "till.py"
SELECTED_LINES = (5, 65)  # lines from, to, counted from 0
VARIED = "What all sales brought"  # text in the second of these lines
INSTRUCTION = "In this code, rename the parameter `sales` to `receipts`."  # no rule makes it
QUESTION = "What does this code do?"
QUESTION_LINES = 330  # lines, about 3000 tokens
SAMPLE_S = 0.002  # seconds between samples of the processor time
IDLE_WINDOW_S, IDLE_CPU_S = 0.1, 0.02  # idle: less than IDLE_CPU_S used in IDLE_WINDOW_S
SETTLE_S = 1.0  # seconds until a changed buffer is indexed


# -- idle, as the operating system sees it -----------------------------------------------------


@dataclass
class CpuWatch:
    """Samples of the server's processor time."""

    at: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)

    def idle_from(self, start: float) -> float | None:
        """Return when the server first became idle at or after `start`, if it did."""
        for number in range(bisect_left(self.at, start), len(self.at)):
            end = bisect_left(self.at, self.at[number] + IDLE_WINDOW_S)
            if end == len(self.at):
                return None
            if self.used[end] - self.used[number] < IDLE_CPU_S:
                return self.at[number]
        return None


@contextmanager
def watch_cpu(served: ServerProcess) -> Iterator[CpuWatch]:
    """Sample the server's processor time for the duration of the block."""
    watch, over = CpuWatch(), threading.Event()

    def look() -> None:
        while not over.wait(SAMPLE_S):
            watch.used.append(served.cpu_seconds())
            watch.at.append(time.perf_counter())

    looking = threading.Thread(target=look, name="watch", daemon=True)
    looking.start()
    try:
        yield watch
    finally:
        over.set()
        looking.join()


def settle(served: ServerProcess) -> None:
    """Wait until the server is idle. Raises ServerError after a minute."""
    time.sleep(SETTLE_S)
    deadline = time.perf_counter() + 60
    while time.perf_counter() < deadline:
        before = served.cpu_seconds()
        time.sleep(IDLE_WINDOW_S)
        if served.cpu_seconds() - before < IDLE_CPU_S:
            return
    raise ServerError("the server is still busy a minute after the last request")


# -- cancelling --------------------------------------------------------------------------------


@dataclass(frozen=True)
class CancelTimes:
    """Seconds from $/cancelRequest until three signs of cancellation."""

    answered: float  # the response says that the request was cancelled
    free: float  # draftline.stats lists nothing running for the client
    idle: float  # both, and the process uses no processor time


def cancelled(served: ServerProcess, client: Client, asked: PendingRequest) -> CancelTimes | None:
    """Cancel a request; None if its response came first."""
    with watch_cpu(served) as watch:
        time.sleep(5 * SAMPLE_S)
        sent = time.perf_counter()
        client.cancel(asked)
        if not asked.wait().cancelled:
            return None
        while client.command("draftline.stats")["running"]:
            time.sleep(0.005)
        free = time.perf_counter()
        idle = None
        while idle is None and time.perf_counter() < sent + 30:
            time.sleep(IDLE_WINDOW_S)
            idle = watch.idle_from(sent)
    if idle is None:
        raise ServerError("the server is still busy 30 s after the cancellation")
    return CancelTimes(asked.at - sent, free - sent, max(free, idle) - sent)


def cancel_decoding(
    served: ServerProcess, client: Client, repeats: int, uri: str
) -> list[CancelTimes]:
    """Cancel edits of a long selection during decoding."""
    chance, found = random.Random(SEED), list[CancelTimes]()
    client.open(uri, EDITED_FILE.read_text("utf-8"))
    for number in range(2 * repeats):
        settle(served)
        token = f"cancel-{number}"
        asked = client.begin("draftline/edit", edit_params(uri, 1) | {"partialResultToken": token})
        if wait_for_text(client, token, asked):
            time.sleep(chance.uniform(0.0, 0.3))
            if stopped := cancelled(served, client, asked):
                found.append(stopped)
        if len(found) == repeats:
            break
    client.close(uri)
    return found


def cancel_prefilling(
    served: ServerProcess, client: Client, repeats: int, uri: str
) -> list[CancelTimes]:
    """Cancel questions about a long document during prefill.

    Its first line is different each time, so that no prefix is cached.
    """
    lines = (EDITED_FILE.read_text("utf-8") * 9).split("\n")[:QUESTION_LINES]

    def begin(number: int) -> tuple[PendingRequest, str]:
        text = "\n".join([f"# {number} of the copies", *lines])
        client.open(uri, text, number)
        settle(served)
        token = f"asked-{number}"
        params = {"textDocument": {"uri": uri}, "question": QUESTION, "partialResultToken": token}
        return client.begin("draftline/ask", params), token

    chance, found = random.Random(SEED), list[CancelTimes]()
    asked, token = begin(1)  # the time of prefill
    wait_for_text(client, token, asked)
    reading = time.perf_counter() - asked.sent
    client.cancel(asked)
    asked.wait()
    for number in range(2, 2 + 2 * repeats):
        asked, token = begin(number)
        time.sleep(reading * chance.uniform(0.1, 0.8))
        stopped = cancelled(served, client, asked)
        if stopped and not streamed_texts(client, token):
            found.append(stopped)
        if len(found) == repeats:
            break
    client.close(uri)
    return found


def streamed_texts(client: Client, token: str) -> list[str]:
    """Return the texts streamed under a progress token so far."""
    return [
        message["params"]["value"]["text"]
        for message in [*client.notifications]
        if message["method"] == "$/progress" and message["params"]["token"] == token
    ]


def wait_for_text(client: Client, token: str, asked: PendingRequest) -> bool:
    """Wait for the first streamed text of an answer; False if it ended without one."""
    while not streamed_texts(client, token):
        if asked.done.is_set():
            return False
        time.sleep(0.002)
    return True


# -- the cached prefix -------------------------------------------------------------------------


@dataclass(frozen=True)
class PrefixTimes:
    """Seconds to the first token at a position: uncached, and after one more keystroke."""

    first: float
    second: float


def prefix(
    served: ServerProcess, client: Client, sources: list[Path], root: Path
) -> list[PrefixTimes]:
    """Time to first token where a function's body was removed, twice in each file.

    The second time a letter that does not match the completion has been typed, so that the
    completion cache cannot answer.
    """
    found = []
    for path in sources:
        uri, (stretch,) = _uri(root, path.name), sample_stretches(path.read_text("utf-8"), 1, 60)
        text, offset = stretch.removed, stretch.start
        client.open(uri, text)
        settle(served)
        first, offered = _first_token(client, uri, text, offset)
        letter = "q" if not offered.startswith("q") else "z"
        here = position(text, offset)
        client.change(uri, 2, {"range": {"start": here, "end": here}, "text": letter})
        typed = text[:offset] + letter + text[offset:]
        second, _ = _first_token(client, uri, typed, offset + 1)
        client.close(uri)
        found.append(PrefixTimes(first, second))
    return found


def _first_token(client: Client, uri: str, text: str, offset: int) -> tuple[float, str]:
    before = client.command("draftline.stats")["answers"].get("passes", 0)
    asked = client.complete(uri, position(text, offset)).wait()
    items = asked.result["items"]
    if client.command("draftline.stats")["answers"].get("passes", 0) == before:
        raise ServerError(f"the model was not run: {client.command('draftline.why')['why']}")
    return asked.seconds, items[0]["insertText"] if items else ""


def _uri(root: Path, name: str) -> str:
    return (root / f"bench_{name}").as_uri()


# -- edits -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TimedEdit:
    """One edit: the answer, the server's figures, and the seconds that the client waited."""

    edit: Any
    stats: dict[str, Any]
    seconds: float


def edit_params(uri: str, version: int) -> dict[str, Any]:
    ends = [{"line": line, "character": 0} for line in SELECTED_LINES]
    return {
        "textDocument": {"uri": uri, "version": version},
        "range": {"start": ends[0], "end": ends[1]},
        "instruction": INSTRUCTION,
    }


@dataclass(frozen=True)
class EditTriple:
    """One repeat: with speculation, without, and with it on a cached prompt."""

    on: TimedEdit
    off: TimedEdit
    again: TimedEdit

    @property
    def decoding(self) -> float:
        """The ratio of decode speeds for the same answer to the same prompt."""
        return float(self.off.stats["decodeSeconds"] / self.again.stats["decodeSeconds"])

    @property
    def end_to_end(self) -> float:
        """The ratio of whole times, neither prompt cached."""
        return self.off.seconds / self.on.seconds


def edits(served: ServerProcess, client: Client, repeats: int, root: Path) -> Iterator[EditTriple]:
    """Edits of 60 lines with and without speculation.

    Their second line differs, so that only the head that all prompts share is cached. The answer
    without speculation is compared with one with speculation to the same prompt. Raises ServerError
    if they differ.
    """
    text = EDITED_FILE.read_text("utf-8")

    def run(number: int, speculation: bool) -> TimedEdit:
        uri = _uri(root, f"{number:03}.py")
        client.configure(speculation=speculation)
        client.open(uri, text.replace(VARIED, f"{VARIED} on day {number:03}"))
        settle(served)
        asked = client.begin("draftline/edit", edit_params(uri, 1)).wait()
        answer = asked.result
        client.close(uri)
        edit = answer["edit"] and answer["edit"]["changes"][uri]
        return TimedEdit(edit, answer["stats"], asked.seconds)

    run(0, True)  # to warm up
    for number in range(repeats):
        own = 1 + 2 * number
        if number % 2:
            off, on = run(own + 1, False), run(own, True)
        else:
            on, off = run(own, True), run(own + 1, False)
        pair = EditTriple(on, off, run(own + 1, True))
        if pair.off.edit != pair.again.edit:
            raise ServerError("the answers with and without speculation differ")
        yield pair
