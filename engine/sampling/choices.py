"""Choosing an answer's tokens where its request changes logits, has a grammar or asks for chances.

Everything that changes a choice depends on the tokens before it alone, never on the draft: plain
decoding and every draft see the same logits. Chances are those of the model's own logits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.records import NO_LOGPROB, Draft, Request, RequestError, TokenChance
from engine.sampling.grammar import GrammarState
from engine.sampling.verify import Array, accept, choose, largest_values, values_of

Chances = tuple[TokenChance, ...]  # of a token, and of the likeliest ones in its place


def check_tokens(request: Request, size: int) -> None:
    """RequestError for the id of a token that is not in a vocabulary of `size`."""
    for name, ids in (
        ("logit_bias", [token for token, _ in request.logit_bias]),
        ("stop_token_ids", request.stop_tokens),
    ):
        if any(not 0 <= token < size for token in ids):
            raise RequestError(f"{name}: the model has the token ids 0 to {size - 1} only")


def needs_choices(request: Request, grammar: GrammarState | None) -> bool:
    """Return whether `engine.sampling.verify` alone cannot choose the answer's tokens."""
    return bool(grammar or request.changes_logits or request.min_p or request.logprobs is not None)


class Choices:
    """The choices of one answer."""

    def __init__(
        self,
        request: Request,
        prompt: Sequence[int],
        ends: frozenset[int],
        bytes_of: Callable[[int], bytes],
        grammar: GrammarState | None = None,
    ) -> None:
        """Start before the first token. `ends`: the end tokens of the model and the prompt."""
        self.grammar = grammar
        self.chances: list[Chances] = []  # of the tokens of the last pass
        self._request, self._bytes_of = request, bytes_of
        self._ends = [*ends]
        self._all_ends = [*ends.union(request.stop_tokens)]
        repeats = request.repetition_penalty != 1
        self._seen = {*prompt} if repeats else set[int]()  # by the prompt or the answer
        self._counts: Counter[int] = Counter()  # of the answer
        self._length = 0  # tokens of the answer
        self._bias = dict(request.logit_bias)

    def verify(self, draft: Draft, logits: Any, position: int) -> tuple[list[int], int]:
        """Accept a draft as `engine.sampling.verify.matching` does; its tokens become the answer's.

        Returns the accepted path (node indices) and the token after it.
        """
        self.chances = []

        def choice(row: int, depth: int) -> int:
            own = values_of(logits[row])
            token = self._choice(own, position + depth)
            self._take(token)
            if self._request.logprobs is not None:
                self.chances.append(self.chances_of(own, token))
            return token

        return accept(draft, choice)

    def take_forced(self, most: int) -> list[int]:
        """Take the answer's next tokens, `most` at most, as far as the grammar leaves no choice."""
        assert self.grammar is not None
        taken = self.grammar.take_forced(most)
        for token in taken:
            self._take(token)
        return taken

    def _choice(self, own: Array, position: int) -> int:
        request, grammar = self._request, self.grammar
        if grammar is None:
            return choose(self._changed(own), position, request)
        if forced := grammar.take_forced(1):
            return forced[0]
        row = self._changed(own)
        if request.temperature == 0:  # most often the mask leaves it on top
            token = choose(row, position, request)
            if grammar.takes(token):
                return token
        token = choose(grammar.masked(row), position, request)
        grammar.advance(token)
        return token

    def _take(self, token: int) -> None:
        self._length += 1
        self._counts[token] += 1
        if self._request.repetition_penalty != 1:
            self._seen.add(token)

    def _changed(self, own: Array) -> Array:
        """Return the logits from which the next token is chosen."""
        request = self._request
        if not request.changes_logits:
            return own
        row = own.copy()
        if self._seen:
            ids = _known(self._seen, row)
            factor = np.float32(request.repetition_penalty)
            row[ids] = np.where(row[ids] > 0, row[ids] / factor, row[ids] * factor)
        if self._counts and (request.presence_penalty or request.frequency_penalty):
            ids = _known(self._counts, row)
            counts = np.array([self._counts[int(token)] for token in ids], np.float32)
            row[ids] -= np.float32(request.presence_penalty) + counts * np.float32(
                request.frequency_penalty
            )
        for token, bias in self._bias.items():
            row[token] += np.float32(bias)
        if self._length < request.min_tokens:
            row[_known(self._all_ends, row)] = -np.inf
        elif request.ignore_end:
            row[_known(self._ends, row)] = -np.inf
        return row

    def first_chance(self, token: int) -> Chances:
        """Return what is told of a prompt's first token."""
        return (TokenChance(tuple(self._bytes_of(token)), None),)

    def chances_of(self, own: Array, token: int) -> Chances:
        """Return what is told of a token, by the model's own logits in its place."""
        count = self._request.logprobs or 0
        values = own.astype(np.float64)
        best = values.max()
        values -= best + np.log(np.exp(values - best).sum())
        ids = likeliest(values, count) if count else []
        return tuple(
            TokenChance(tuple(self._bytes_of(one)), max(float(values[one]), NO_LOGPROB))
            for one in (token, *ids)
        )


def likeliest(values: Array, count: int) -> list[int]:
    """Return the ids of the `count` largest values, the largest first, the lowest id on ties."""
    count = min(count, len(values))
    ids = np.flatnonzero(values >= largest_values(values, count))
    return [int(one) for one in ids[np.argsort(-values[ids], kind="stable")][:count]]


def _known(tokens: Sequence[int] | set[int] | Counter[int], row: Array) -> Array:
    """Return the ids, ascending, that a row of logits has."""
    return np.array(sorted(token for token in tokens if token < len(row)), np.int64)
