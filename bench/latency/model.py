"""Cancelling, the cached prefix and edits: what a client waits for that asks one thing at a time.

Every figure is a list, one number a repeat. Nothing here knows targets or prints.
"""

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

from bench.latency.lsp_client import Asked, Client, Refused, Served
from bench.latency.typist import SEED, chosen, position

EDIT = Path(__file__).parents[1] / "common" / "samples" / "till.py"
SELECTED = (5, 65)  # lines of it, from 0: 60
VARIED = "What all sales brought"  # in their second line
INSTRUCTION = "Rename the parameter `sales` to `receipts`."
QUESTION = "What does this code do?"
ASKED_LINES = 330  # about 3000 tokens
TICK = 0.002  # s between two looks at the processor time
STILL, BUSY = 0.1, 0.02  # it is idle from where it uses less than BUSY s of STILL s
SETTLE = 1.0  # s until a change of a buffer is indexed


# -- idle, as the operating system sees it -----------------------------------------------------


@dataclass
class Watch:
    """Processor time of the server against the clock."""

    at: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)

    def idle_from(self, start: float) -> float | None:
        """When it first computed nothing for a while, at or after `start`."""
        for number in range(bisect_left(self.at, start), len(self.at)):
            end = bisect_left(self.at, self.at[number] + STILL)
            if end == len(self.at):
                return None
            if self.used[end] - self.used[number] < BUSY:
                return self.at[number]
        return None


@contextmanager
def watched(served: Served) -> Iterator[Watch]:
    """The server's processor time, from the start to the end of the block."""
    watch, over = Watch(), threading.Event()

    def look() -> None:
        while not over.wait(TICK):
            watch.used.append(served.computed())
            watch.at.append(time.perf_counter())

    looking = threading.Thread(target=look, name="watch", daemon=True)
    looking.start()
    try:
        yield watch
    finally:
        over.set()
        looking.join()


def settle(served: Served) -> None:
    """Wait until the server computes nothing. Refused where it goes on."""
    time.sleep(SETTLE)
    deadline = time.perf_counter() + 60
    while time.perf_counter() < deadline:
        before = served.computed()
        time.sleep(STILL)
        if served.computed() - before < BUSY:
            return
    raise Refused("the server computes for a minute though nothing is asked of it")


# -- cancelling --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stopped:
    """Seconds from $/cancelRequest until three signs of it."""

    answered: float  # the request's answer says that it is cancelled
    free: float  # nothing runs for this client, by draftline.stats
    idle: float  # both, and the process computes nothing


def cancelled(served: Served, client: Client, asked: Asked) -> Stopped | None:
    """Cancel a request; None where it was answered before."""
    with watched(served) as watch:
        time.sleep(5 * TICK)
        sent = time.perf_counter()
        client.cancel(asked)
        if not asked.wait().cancelled:
            return None
        while client.command("draftline.stats")["running"]:
            time.sleep(0.005)
        free = time.perf_counter()
        idle = None
        while idle is None and time.perf_counter() < sent + 30:
            time.sleep(STILL)
            idle = watch.idle_from(sent)
    if idle is None:
        raise Refused("30 s after it was cancelled the server still computes")
    return Stopped(asked.at - sent, free - sent, max(free, idle) - sent)


def cancel_decoding(served: Served, client: Client, repeats: int, uri: str) -> list[Stopped]:
    """Cancel edits of a long selection while they are written."""
    chance, found = random.Random(SEED), list[Stopped]()
    client.open(uri, EDIT.read_text("utf-8"))
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


def cancel_prefilling(served: Served, client: Client, repeats: int, uri: str) -> list[Stopped]:
    """Cancel questions about a long document while it is read. Its first line is another each
    time, so that nothing of it is cached."""
    lines = (EDIT.read_text("utf-8") * 9).split("\n")[:ASKED_LINES]

    def begin(number: int) -> tuple[Asked, str]:
        text = "\n".join([f"# {number} of the copies", *lines])
        client.open(uri, text, number)
        settle(served)
        token = f"asked-{number}"
        params = {"textDocument": {"uri": uri}, "question": QUESTION, "partialResultToken": token}
        return client.begin("draftline/ask", params), token

    chance, found = random.Random(SEED), list[Stopped]()
    asked, token = begin(1)  # how long the reading takes
    wait_for_text(client, token, asked)
    reading = time.perf_counter() - asked.sent
    client.cancel(asked)
    asked.wait()
    for number in range(2, 2 + 2 * repeats):
        asked, token = begin(number)
        time.sleep(reading * chance.uniform(0.1, 0.8))
        stopped = cancelled(served, client, asked)
        if stopped and not texts(client, token):
            found.append(stopped)
        if len(found) == repeats:
            break
    client.close(uri)
    return found


def texts(client: Client, token: str) -> list[str]:
    """What was streamed under a token so far."""
    return [
        told["params"]["value"]["text"]
        for told in [*client.told]
        if told["method"] == "$/progress" and told["params"]["token"] == token
    ]


def wait_for_text(client: Client, token: str, asked: Asked) -> bool:
    """Wait for the first text of an answer; False where it ended without."""
    while not texts(client, token):
        if asked.came.is_set():
            return False
        time.sleep(0.002)
    return True


# -- the cached prefix -------------------------------------------------------------------------


@dataclass(frozen=True)
class Twice:
    """Seconds to the first token in one place: nothing cached, and after one more keystroke."""

    first: float
    second: float


def prefix(served: Served, client: Client, sources: list[Path], root: Path) -> list[Twice]:
    """In each file a function's body is missing, and one token is asked for where it stood. Then
    a letter that does not fit is typed and one is asked for again: so that an answer that is kept
    does not count, and as when one types."""
    found = []
    for path in sources:
        uri, (stretch,) = _uri(root, path.name), chosen(path.read_text("utf-8"), 1, 60)
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
        found.append(Twice(first, second))
    return found


def _first_token(client: Client, uri: str, text: str, offset: int) -> tuple[float, str]:
    before = client.command("draftline.stats")["answers"].get("passes", 0)
    asked = client.complete(uri, position(text, offset)).wait()
    items = asked.result["items"]
    if client.command("draftline.stats")["answers"].get("passes", 0) == before:
        raise Refused(f"nothing was asked of the model: {client.command('draftline.why')['why']}")
    return asked.seconds, items[0]["insertText"] if items else ""


def _uri(root: Path, name: str) -> str:
    return (root / f"bench_{name}").as_uri()


# -- edits -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edited:
    """One edit: the answer, its figures as the server gave them, and seconds as seen from here."""

    edit: Any
    stats: dict[str, Any]
    seconds: float


def edit_params(uri: str, version: int) -> dict[str, Any]:
    ends = [{"line": line, "character": 0} for line in SELECTED]
    return {
        "textDocument": {"uri": uri, "version": version},
        "range": {"start": ends[0], "end": ends[1]},
        "instruction": INSTRUCTION,
    }


@dataclass(frozen=True)
class Pair:
    """One repeat: with speculation, without, and with it where the prompt is cached already."""

    on: Edited
    off: Edited
    again: Edited

    @property
    def decoding(self) -> float:
        """How many times as fast the same answer to the same prompt is written."""
        return float(self.off.stats["decodeSeconds"] / self.again.stats["decodeSeconds"])

    @property
    def end_to_end(self) -> float:
        """The same of the whole, when neither prompt was cached."""
        return self.off.seconds / self.on.seconds


def edits(served: Served, client: Client, repeats: int, root: Path) -> Iterator[Pair]:
    """Edits of 60 lines with speculation and without. Their second line differs, so that of each
    prompt nothing but the head that all share is cached. The answer without is compared with one
    with speculation to the very same prompt. Refused where the two differ."""
    text = EDIT.read_text("utf-8")

    def run(number: int, speculation: bool) -> Edited:
        uri = _uri(root, f"{number:03}.py")
        client.configure(speculation=speculation)
        client.open(uri, text.replace(VARIED, f"{VARIED} on day {number:03}"))
        settle(served)
        asked = client.begin("draftline/edit", edit_params(uri, 1)).wait()
        answer = asked.result
        client.close(uri)
        edit = answer["edit"] and answer["edit"]["changes"][uri]
        return Edited(edit, answer["stats"], asked.seconds)

    run(0, True)  # to warm up
    for number in range(repeats):
        own = 1 + 2 * number
        if number % 2:
            off, on = run(own + 1, False), run(own, True)
        else:
            on, off = run(own, True), run(own + 1, False)
        pair = Pair(on, off, run(own + 1, True))
        if pair.off.edit != pair.again.edit:
            raise Refused("with and without speculation the answers differ: the law is broken")
        yield pair
