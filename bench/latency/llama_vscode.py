"""llama.vscode as a typist's program: what it sends to llama-server, and what it would show.

It does as version 0.0.63 does with its default settings: one request at a time, none of which is
cancelled; a cache of its answers, in which it looks for the text typed since; after an answer a
request for what follows once that is accepted; and parts of files that it sends ahead when nothing
was asked for three seconds. The editor around it costs no time here.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunning
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import psutil

from bench.latency.places import SEED
from bench.latency.typist import Answer, Asked

PREFIX_LINES, SUFFIX_LINES = 256, 64  # lines around the cursor's
MAX_BEHIND_CHARS = 8  # characters behind the cursor on its line
CACHED_ANSWERS = 250
POLL_S = 0.15  # seconds between looks whether the request before has ended
ALTERNATIVES = 3  # completions of one request; an editor shows the first
SAMPLING = {"top_k": 40, "top_p": 0.99, "stream": False, "samplers": ["top_k", "top_p", "infill"]}
ALWAYS = {"id_slot": 0, "cache_prompt": True, "t_max_prompt_ms": 500}
WRITES = {"n_predict": 128, "n_cmpl": ALTERNATIVES, "t_max_predict_ms": 500, **SAMPLING}
ONLY_READS = {"n_predict": 0, "t_max_predict_ms": 1, "samplers": []}
CHUNKS, CHUNK_LINES, MIN_CHUNK_LINES = 16, 64, 3  # of the parts of files that go with a request
MOVED_LINES = 32  # lines that the cursor moves before parts are chosen again
SCOPE_LINES = 1024  # lines before the cursor that are looked at
TICK_S, QUIET_S = 1.0, 3.0  # seconds between looks, and since the last request
OPTIONS = (  # llama-server's in its preset for llama.vscode, with a fixed seed
    *("--batch-size", "1024", "--ubatch-size", "1024", "--cache-reuse", "256"),
    *("--parallel", "4", "--kv-unified", "--cache-ram", "8192", "--seed", "1"),
)
TIMEOUT_S = 120.0
Key = tuple[str, str, str]  # prefix, suffix and prompt of a request


@dataclass(frozen=True)
class Place:
    """What is sent of a text around a cursor."""

    lines: list[str]
    line: int
    head: str  # of the cursor's line
    rest: str

    @classmethod
    def of(cls, text: str, offset: int) -> Place:
        lines, line = text.split("\n"), text.count("\n", 0, offset)
        column = offset - (text.rfind("\n", 0, offset) + 1)
        return cls(lines, line, lines[line][:column], lines[line][column:])

    @property
    def key(self) -> Key:
        above = self.lines[max(0, self.line - PREFIX_LINES) : self.line]
        below = self.lines[self.line + 1 : self.line + 1 + SUFFIX_LINES]
        prompt = self.head if self.head.strip(" \t") else ""
        return "\n".join(above) + "\n", "\n".join([self.rest, *below]) + "\n", prompt

    @property
    def indent(self) -> int:
        whole = self.lines[self.line]
        return len(whole) - len(whole.lstrip())

    def offered(self, answer: str) -> str:
        """Return what is left of an answer, without what the text has already; "" for nothing."""
        lines = answer.replace("\r\n", "\n").split("\n")
        while lines and not lines[-1].strip():
            lines.pop()
        if not lines or self._repeats(lines):
            return ""
        if self.rest.strip():
            if lines[0].endswith(self.rest):
                return lines[0][: -len(self.rest)]
            return lines[0]
        return "\n".join(lines)

    def without_indent(self, offer: str) -> str:
        """Drop the indentation that stands before the cursor already, and any tabs."""
        spaces = 0 if self.head.strip(" \t") else len(self.head)
        at = 0
        while at < len(offer) and ((at < spaces and offer[at] == " ") or offer[at] == "\t"):
            at += 1
        return offer[at:]

    def _repeats(self, lines: list[str]) -> bool:
        below = self.lines[self.line + 1 :]
        first, more = lines[0], lines[1:]
        if not below:
            return False
        if more and first.strip() in ("", self.rest.strip()) and more == below[: len(more)]:
            return True
        if not more and first == self.rest:
            return True
        below = below[next((n for n, one in enumerate(below) if one.strip()), len(below)) :]
        if not below or self.head + first != below[0]:
            return False
        if len(more) == 1:
            return "".join(below[1:2]).startswith(more[0])
        return more == below[1 : 1 + len(more)]


class LlamaVscode:
    """The extension with one document, beside a llama-server at `address`."""

    def __init__(self, address: str, process: int) -> None:
        self._server = httpx.Client(base_url=address, timeout=TIMEOUT_S)
        self._usage = psutil.Process(process)
        self._cache: OrderedDict[Key, list[str]] = OrderedDict()
        self._text, self._file, self._last_picked = "", "", -9999
        self._chunks: list[dict[str, Any]] = []
        self._queued: list[dict[str, Any]] = []
        self._chance = random.Random(SEED)
        self._busy, self._began = threading.Lock(), time.monotonic()
        self._threads = ThreadPoolExecutor(32, "llama.vscode")
        self._token, self._over = threading.Event(), threading.Event()
        self._threads.submit(self._send_ahead)

    # -- what the typist does

    def open(self, file: str, text: str) -> None:
        self._text, self._file = text, file
        self._pick(text.split("\n")[: CHUNK_LINES // 2 + 1], is_new=True)

    def move(self, offset: int) -> None:
        self._token.set()

    def press(self, start: int, stop: int, new: str) -> Asked:
        self._token.set()
        self._token = threading.Event()
        self._text = self._text[:start] + new + self._text[stop:]
        place = Place.of(self._text, start + len(new))
        return partial(_answer, self._threads.submit(self._request, place, self._token))

    def leave(self) -> list[float]:
        self._token.set()
        return []

    def cpu_seconds(self) -> float:
        times = self._usage.cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        """Stop its threads."""
        self._token.set()
        self._over.set()
        self._threads.shutdown()
        self._server.close()

    # -- what the extension does

    def _request(self, place: Place, token: threading.Event) -> Answer:
        text = self.complete(place, token.is_set)
        at = time.perf_counter()
        return Answer(text, at, at)

    def complete(self, place: Place, is_cancelled: Callable[[], bool]) -> str:
        """Return what is shown at a place; "" for nothing."""
        while not self._busy.acquire(blocking=False):
            time.sleep(POLL_S)
            if is_cancelled():
                return ""
        try:
            self._began = time.monotonic()
            is_fit = len(place.rest) <= MAX_BEHIND_CHARS
            cached = self._cached(place.key) if is_fit else []
            wants = is_fit and not cached and not is_cancelled()
            asked = self._ask(place.key, place.indent) if wants else []
        finally:
            self._busy.release()
        offers = [one for one in map(place.offered, cached or asked) if one]
        if not offers:
            return ""
        if asked:
            self._remember(place.key, offers)
        self._threads.submit(self._after, place, offers[0], is_cancelled)
        return place.without_indent(offers[0])

    def _cached(self, key: Key) -> list[str]:
        """Find answers to the text before the cursor, or to one whose answer was typed since."""
        prefix, suffix, prompt = key
        for end in range(len(prompt), -1, -1):
            answers, typed = self._cache.get((prefix, suffix, prompt[:end]), []), prompt[end:]
            if found := [one.removeprefix(typed) for one in answers if one.startswith(typed)]:
                return found
        return []

    def _remember(self, key: Key, answers: list[str]) -> None:
        self._cache[key] = answers
        self._cache.move_to_end(key)
        while len(self._cache) > CACHED_ANSWERS:
            self._cache.popitem(last=False)

    def _after(self, place: Place, offer: str, is_cancelled: Callable[[], bool]) -> None:
        """Ask for what follows an accepted offer, and choose parts of the file to send ahead."""
        prefix, suffix, prompt = place.key
        lines = offer.split("\n")
        if not is_cancelled() and not place.rest.strip():
            head, _, last = (prefix + prompt + offer).rpartition("\n")
            above = "\n".join(head.split("\n")[-PREFIX_LINES:]) + "\n"
            key = (above, suffix, last)
            if key not in self._cache:  # version 0.0.63 asks, but drops several answers
                answers = self._ask(key, len(prompt) - len(prompt.lstrip()))
                self._remember(key, [one.rstrip() for one in answers if one.strip()])
            if len(lines) > 1:
                key = (f"{prefix}{prompt}{lines[0]}\n", suffix, "")
                self._cache.setdefault(key, ["\n".join(lines[1:])])
        if not is_cancelled() and abs(place.line - self._last_picked) > MOVED_LINES:
            end = max(0, place.line - PREFIX_LINES) + 1
            self._pick(place.lines[max(0, place.line - SCOPE_LINES) : end])
            start = min(len(place.lines) - 1, place.line + SUFFIX_LINES)
            self._pick(place.lines[start : start + CHUNK_LINES + 1])
            self._last_picked = place.line

    def _pick(self, lines: list[str], is_new: bool = False) -> None:
        """Queue a part of the file; that of a new file only if it is not there yet."""
        if len(lines) < MIN_CHUNK_LINES:
            return
        if len(lines) + 1 >= CHUNK_LINES:
            start = self._chance.randrange(max(1, len(lines) - CHUNK_LINES // 2 + 1))
            lines = lines[start : start + CHUNK_LINES // 2]
        text = "\n".join(lines) + "\n"
        if is_new and any(one["text"] == text for one in self._chunks + self._queued):
            return
        chunk = {"text": text, "time": int(1000 * time.time()), "filename": self._file}
        self._queued = [*self._queued[1 - CHUNKS :], chunk]

    def _send_ahead(self) -> None:
        """Let the server read the queued parts, one at a time, while nobody types."""
        while not self._over.wait(TICK_S):
            if self._queued and time.monotonic() - self._began >= QUIET_S:
                self._chunks = [*self._chunks, self._queued.pop(0)][-CHUNKS:]
                self._post(("", "", ""), ONLY_READS)

    def _ask(self, key: Key, indent: int) -> list[str]:
        return self._post(key, WRITES | ({"n_indent": indent} if indent else {}))

    def _post(self, key: Key, more: dict[str, Any]) -> list[str]:
        names = ("input_prefix", "input_suffix", "prompt")
        body = dict(zip(names, key, strict=True)) | {"input_extra": self._chunks, **ALWAYS, **more}
        found = self._server.post("/infill", json=body).raise_for_status().json()
        every = found if isinstance(found, list) else [found]
        return [*dict.fromkeys(one["content"] for one in every)]


def _answer(asked: Future[Answer], seconds: float) -> Answer | None:
    with suppress(StillRunning):
        return asked.result(seconds)
    return None
