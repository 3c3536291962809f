"""One answer of a server of OpenAI's protocol, in one piece or as a stream of events.

What a server sends is untrusted: whatever is not of the expected form is left out, or an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.remote.engine_url import EngineUrl
from engine.remote.link import LinkError
from engine.remote.openai_engine import DATA, LAST, delta_of, error_text

MAX_TOKENS_READ = 4096  # tokens of an answer whose probabilities are read
MAX_ALTERNATIVES = 32  # likeliest tokens of a place that are read
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
    ended: str | None = None  # OpenAI's finish reason
    prompt_tokens: int | None = None
    cached_tokens: int | None = None  # of the prompt, those that the server had read before
    drafted: int | None = None  # tokens that were guessed
    accepted: int | None = None  # those of them that were right
    odds: tuple[TokenOdds, ...] = ()  # where they were asked for


def read_reply(url: EngineUrl, body: bytes) -> Reply:
    """Read an answer.

    Raises LinkError for a body that is none.
    """
    is_whole = body.lstrip()[:1] == b"{"
    reply, odds = Reply(), list[TokenOdds]()
    thoughts, texts = list[str](), list[str]()
    chosen = False
    for message in [_object(url, body)] if is_whole else _events(url, body):
        if message.get("error"):
            raise LinkError(f"{url}: {error_text(message['error'])}")
        text, thought, ended = delta_of(message)
        texts.append(text)
        thoughts.append(thought)
        reply.ended = ended or reply.ended
        choice = _first(message.get("choices"))
        chosen = chosen or isinstance(choice, dict)
        odds += _odds(choice.get("logprobs") if isinstance(choice, dict) else None)
        _count(reply, message)
    if not chosen:
        raise LinkError(f"{url}: an answer without a choice: check the address")
    if not is_whole and reply.ended is None:
        raise LinkError(f"{url}: the answer ended too soon: ask again")
    reply.text = "".join(thoughts) + "".join(texts)
    reply.odds = tuple(odds[:MAX_TOKENS_READ])
    return reply


def _events(url: EngineUrl, body: bytes) -> Iterator[dict[str, Any]]:
    """Yield the server-sent events of a stream."""
    lines = [line.strip() for line in body.split(b"\n")]
    data = [line.removeprefix(DATA).strip() for line in lines if line.startswith(DATA)]
    if not data:
        why = "it answers no JSON: check the address, and that of a proxy before it"
        raise LinkError(f"{url}: {why}")
    for each in data:
        if each == LAST:
            return
        yield _object(url, each)


def _object(url: EngineUrl, text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LinkError(f"{url}: a wrong answer: not JSON: check the address") from error
    if not isinstance(value, dict):
        raise LinkError(f"{url}: a wrong answer: not an object: check the address")
    return value


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else None


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


def _odds(logprobs: Any) -> Iterator[TokenOdds]:
    """Read the probabilities of a choice, in the form of chats or of completions."""
    if not isinstance(logprobs, dict):
        return
    content = logprobs.get("content")
    if isinstance(content, list):
        for entry in (each for each in content if isinstance(each, dict)):
            token, logprob = entry.get("token"), _number(entry.get("logprob"))
            likeliest = entry.get("top_logprobs")
            if isinstance(token, str) and logprob is not None:
                yield TokenOdds(token, logprob, _alternatives(likeliest))
        return
    names = ("tokens", "token_logprobs", "top_logprobs")
    columns = [logprobs.get(name) for name in names]
    if all(isinstance(column, list) for column in columns):
        for token, chance, likeliest in zip(*columns, strict=False):
            logprob = _number(chance)
            if isinstance(token, str) and logprob is not None:
                yield TokenOdds(token, logprob, _alternatives(likeliest))


def _alternatives(given: Any) -> dict[str, float]:
    """Read the likeliest tokens of a place: a list of objects, or an object of numbers."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(given, list):
        given = [each for each in given[:MAX_ALTERNATIVES] if isinstance(each, dict)]
        pairs = [(each.get("token"), each.get("logprob")) for each in given]
    elif isinstance(given, dict):
        pairs = list(given.items())[:MAX_ALTERNATIVES]
    numbers = [(token, _number(value)) for token, value in pairs if isinstance(token, str)]
    return {token: number for token, number in numbers if number is not None}


def _number(value: Any) -> float | None:
    """Return a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
