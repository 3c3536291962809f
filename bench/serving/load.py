"""Clients of the HTTP server that ask at the same time, half of whom hang up midway.

Each answer is compared with what the same request got alone; of one that was abandoned, the part
that arrived. Nothing here starts or measures the server.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import httpx

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
TIMEOUT_S = 900.0  # seconds for any response
MAX_EVENTS = 8  # events of a stream before its client hangs up


@dataclass(frozen=True)
class ExpectedAnswer:
    """A request and the text that it gets on an idle server."""

    route: str
    body: dict[str, Any]
    text: str = ""


@dataclass
class Tally:
    """The outcomes of all requests."""

    whole: Counter[int] = field(default_factory=Counter)  # answers by client
    streamed: int = 0  # answers that were streamed
    left: int = 0  # hung up
    refused: int = 0  # 429
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # seconds of whole answers

    def check(self, right: bool, what: str) -> None:
        if not right:
            self.wrong.append(what)


def plan(tokens: int) -> list[ExpectedAnswer]:
    """Make requests with different texts.

    They are chats that edit code, with and without a prediction and at several temperatures, and
    completions.
    """
    asked = []
    for n in range(8):
        code = f"def area_{n}(width, height):\n    return width * height * {n}\n"
        common: dict[str, Any] = {"max_tokens": tokens, "seed": n}
        if n % 2:
            common["temperature"] = 0.8
        if n % 4 == 3:
            asked.append(ExpectedAnswer(TEXT, common | {"prompt": code + "\n\ndef volume("}))
            continue
        question = f"Rename `width` to `w{n}`:\n```python\n{code}```"
        if n % 4 == 2:
            common["prediction"] = {"type": "content", "content": code}
        asked.append(
            ExpectedAnswer(CHAT, common | {"messages": [{"role": "user", "content": question}]})
        )
    return asked


def alone(url: str, asked: list[ExpectedAnswer]) -> list[ExpectedAnswer]:
    """Return the same requests with their texts. Raises HTTPError if one fails."""
    with httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False) as http:
        found = []
        for one in asked:
            answer = http.post(one.route, json=one.body | {"user": "alone"}).raise_for_status()
            found.append(ExpectedAnswer(one.route, one.body, text_of(answer.json())))
    return found


def text_of(answer: dict[str, Any]) -> str:
    """Return the text of a complete response."""
    (choice,) = answer["choices"]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


async def load(
    url: str, asked: list[ExpectedAnswer], clients: int, seconds: float, seed: int = 0
) -> Tally:
    """Run `clients` clients, each sending one request after another.

    Two of every four stream, and one of either kind always hangs up midway.
    """
    tally = Tally()
    end = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(client(url, number, asked, end, tally, seed))
    return tally


async def client(
    url: str, number: int, asked: list[ExpectedAnswer], end: float, tally: Tally, seed: int
) -> None:
    """Run one client, with at least one request, until `end`."""
    chance = random.Random(f"{seed} {number}")
    use = stream if number % 2 == 0 else post
    leaves = number % 4 >= 2
    given: dict[str, Any] = {"timeout": TIMEOUT_S, "trust_env": False, "verify": False}  # no https
    async with httpx.AsyncClient(base_url=url, **given) as http:
        while True:
            one = chance.choice(asked)
            try:
                await use(http, one, number, chance if leaves else None, tally)
            except httpx.HTTPError as error:
                tally.wrong.append(f"{type(error).__name__}: {error}")
            if time.monotonic() >= end:
                return


async def post(
    http: httpx.AsyncClient,
    one: ExpectedAnswer,
    number: int,
    leaves: random.Random | None,
    tally: Tally,
) -> None:
    """Request a complete response; a client that leaves waits for part of the usual time."""
    usual = median(tally.seconds[-20:] or [1.0])
    patience = leaves.uniform(0, usual) if leaves else None
    began = time.perf_counter()
    try:
        async with asyncio.timeout(patience):
            answer = await http.post(one.route, json=one.body | {"user": f"client {number}"})
    except TimeoutError:
        tally.left += 1
        return
    if answer.status_code == 429:
        await refused(answer, tally)
        return
    tally.check(answer.status_code == 200, f"status {answer.status_code}: {answer.text[:200]}")
    if answer.status_code == 200:
        tally.check(text_of(answer.json()) == one.text, f"client {number}: a different text")
        tally.whole[number] += 1
        tally.seconds.append(time.perf_counter() - began)


async def stream(
    http: httpx.AsyncClient,
    one: ExpectedAnswer,
    number: int,
    leaves: random.Random | None,
    tally: Tally,
) -> None:
    """Request a stream; a client that leaves reads only some events, or none."""
    body = one.body | {"user": f"client {number}", "stream": True}
    most = leaves.randrange(MAX_EVENTS) if leaves else None
    began = time.perf_counter()
    text, reason = "", None
    async with http.stream("POST", one.route, json=body) as answer:
        if answer.status_code != 200:
            await answer.aread()
            tally.check(answer.status_code == 429, f"status {answer.status_code}: {answer.text}")
            await refused(answer, tally)
            return
        count = 0
        async for event in events(answer):
            if count == most:
                break
            count += 1
            if "error" in event:
                tally.wrong.append(f"client {number}: {event['error']}")
                return
            choice = event["choices"][0]
            text += choice["delta"].get("content", "") if "delta" in choice else choice["text"]
            reason = choice["finish_reason"] or reason
    if reason is None:
        tally.check(leaves is not None, f"client {number}: a stream without an end")
        tally.check(
            one.text.startswith(text), f"client {number}: a different text, as far as it came"
        )
        tally.left += 1
    else:
        tally.check(text == one.text, f"client {number}: a different text")
        tally.whole[number] += 1
        tally.streamed += 1
        tally.seconds.append(time.perf_counter() - began)


async def events(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a stream, up to [DONE]."""
    async for line in answer.aiter_lines():
        if line == "data: [DONE]":
            return
        if line:
            yield json.loads(line.removeprefix("data: "))


async def refused(answer: httpx.Response, tally: Tally) -> None:
    """Check a response with status 429, and wait for a part of its Retry-After."""
    error = answer.json().get("error", {})
    delay = answer.headers.get("retry-after", "")
    clear = answer.status_code == 429 and error.get("code") == "rate_limit_exceeded"
    tally.check(clear and delay.isdecimal(), f"an unclear refusal: {answer.text[:200]}")
    tally.refused += 1
    await asyncio.sleep(0.2 * float(delay or 1))
