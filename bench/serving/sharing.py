"""The share of each of several clients that use one engine at the same time, without pause.

All stream and none hangs up. Nothing here starts the server.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx
import numpy as np

from bench.serving.load import TIMEOUT_S, ExpectedAnswer, events

Row = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """One streamed answer."""

    first_s: float  # seconds until the first text
    seconds: float  # seconds until the end
    tokens: int


async def share(url: str, asked: list[ExpectedAnswer], clients: int, seconds: float) -> Row:
    """Return the figures of so many clients.

    Each starts requests for `seconds`, at least one. Raises HTTPError if a request fails.
    """
    answers: list[Answer] = []
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(_client(url, number, asked, began + seconds, answers))
    return figures(answers, clients, time.perf_counter() - began)


def figures(answers: list[Answer], clients: int, seconds: float) -> Row:
    """Return the figures of these answers, which took `seconds` in all."""
    tokens = sum(one.tokens for one in answers)
    first, whole = [one.first_s for one in answers], [one.seconds for one in answers]
    return {
        "clients": clients,
        "answers": len(answers),
        "tokens_per_s": round(tokens / seconds, 1),
        "tokens_per_s_each": round(tokens / seconds / clients, 1),
        "first_s_p50": round(float(np.percentile(first, 50)), 3),
        "first_s_p95": round(float(np.percentile(first, 95)), 3),
        "answer_s_p50": round(float(np.percentile(whole, 50)), 3),
        "answer_s_p95": round(float(np.percentile(whole, 95)), 3),
    }


async def _client(
    url: str, number: int, asked: list[ExpectedAnswer], end: float, answers: list[Answer]
) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, trust_env=False) as http:
        for turn in count(number):  # clients ask different things at a time
            answers.append(await _answer(http, asked[turn % len(asked)], f"client {number}"))
            if time.perf_counter() >= end:
                return


async def _answer(http: httpx.AsyncClient, one: ExpectedAnswer, user: str) -> Answer:
    body = one.body | {"user": user, "stream": True, "stream_options": {"include_usage": True}}
    began = time.perf_counter()
    first, tokens = 0.0, 0
    async with http.stream("POST", one.route, json=body) as answer:
        answer.raise_for_status()
        async for event in events(answer):
            if "error" in event:
                raise RuntimeError(f"{user}: {event['error']}")
            if not first and any(_text(choice) for choice in event["choices"]):
                first = time.perf_counter() - began
            tokens += (event.get("usage") or {}).get("completion_tokens", 0)
    seconds = time.perf_counter() - began
    return Answer(first or seconds, seconds, tokens)


def _text(choice: Row) -> str:
    return str(choice["delta"].get("content") or "") if "delta" in choice else str(choice["text"])
