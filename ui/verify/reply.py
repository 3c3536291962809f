"""One answer of a server of OpenAI's protocol.

What a server sends is untrusted: whatever is not of the expected form is left out, or an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.remote.engine_url import EngineUrl
from engine.remote.link import LinkError
from engine.remote.openai_engine import delta_of

MAX_TOKENS_READ = 4096  # tokens of an answer whose probabilities are read
MAX_ALTERNATIVES = 32  # likeliest tokens of a place that are read
LEAST_LOGPROB = -1e9  # below it a server means never
DRAFTED, ACCEPTED = ("drafted", "draft_n"), ("accepted", "draft_n_accepted")  # ours, llama.cpp's


class TokenOdds(NamedTuple):
    """One token of an answer, and the likeliest ones of its place with their log-probabilities."""

    text: str
    logprob: float
    others: dict[str, float]


@dataclass(slots=True)
class Reply:
    """An answer, and what the server says of it; None where it says nothing."""

    text: str = ""  # the reasoning too, where there is some
    prompt_tokens: int | None = None
    cached_tokens: int | None = None  # of the prompt, those that the server had read before
    drafted: int | None = None  # tokens that were guessed
    accepted: int | None = None  # those of them that were right
    odds: tuple[TokenOdds, ...] = ()  # where they were asked for


def read_reply(url: EngineUrl, messages: Iterable[dict[str, Any]]) -> Reply:
    """Read an answer from its events.

    Raises LinkError where they make none.
    """
    reply, texts, odds, reason = Reply(), list[str](), list[TokenOdds](), None
    for message in messages:
        text, thought, ended = delta_of(message)
        texts.append(thought + text)
        reason = ended or reason
        if len(odds) < MAX_TOKENS_READ:
            odds += _odds(message)
        _count(reply, message)
    if not texts:
        why = "it answers no stream of events: check the address, and that of a proxy before it"
        raise LinkError(f"{url}: {why}")
    if reason is None:
        raise LinkError(f"{url}: the answer ended too soon: ask again")
    reply.text, reply.odds = "".join(texts), tuple(odds)
    return reply


def _count(reply: Reply, message: dict[str, Any]) -> None:
    """Note what a message says of tokens."""
    usage = message.get("usage")
    if isinstance(usage, dict):
        details = usage.get("prompt_tokens_details")
        reply.prompt_tokens = _integer(usage, ("prompt_tokens",))
        if isinstance(details, dict):
            reply.cached_tokens = _integer(details, ("cached_tokens",))
    timings = message.get("timings")
    if isinstance(timings, dict):  # llama.cpp's server leaves out what is 0
        reply.drafted = _integer(timings, DRAFTED) or 0
        reply.accepted = _integer(timings, ACCEPTED) or 0


def _integer(values: dict[str, Any], names: Iterable[str]) -> int | None:
    found = [values[name] for name in names if type(values.get(name)) is int and values[name] >= 0]
    return found[0] if found else None


def _odds(message: dict[str, Any]) -> list[TokenOdds]:
    """Read the probabilities of a message's tokens."""
    found = []
    for choice in _objects(message.get("choices"))[:1]:
        logprobs = choice.get("logprobs")
        for entry in _objects(logprobs.get("content") if isinstance(logprobs, dict) else None):
            likeliest = _objects(entry.get("top_logprobs"))[:MAX_ALTERNATIVES]
            others = [pair for each in likeliest for pair in _logprob(each)]
            found += [TokenOdds(*pair, dict(others)) for pair in _logprob(entry)]
    return found


def _logprob(entry: dict[str, Any]) -> list[tuple[str, float]]:
    """Read a token and its log-probability; none where there is something else."""
    token, logprob = entry.get("token"), entry.get("logprob")
    if not (isinstance(token, str) and isinstance(logprob, int | float)):
        return []
    return [(token, float(logprob))] if LEAST_LOGPROB < logprob < 1 else []  # no NaN


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a JSON array; none of anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
