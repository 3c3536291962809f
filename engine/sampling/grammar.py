"""Answers that follow a grammar: which tokens it allows next, by llguidance.

The grammar's mask is applied to the model's logits before a token is chosen, so the answer is the
same with any draft or none. Drafts lose the nodes that it forbids before they are verified.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.records import Draft, Request, RequestError
from engine.sampling.verify import accept, choose

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from torch import Tensor

    from engine.prompts.tokenizer import Tokenizer

MAX_SCHEMA_CHARS = 100_000


def json_grammar(schema: dict[str, Any]) -> str:
    """The grammar of JSON values that fit a JSON schema. RequestError where it says something that
    cannot be enforced."""
    from llguidance import LLMatcher

    text = json.dumps(schema)
    if len(text) > MAX_SCHEMA_CHARS:
        raise RequestError(f"the schema has {len(text):,} characters, over {MAX_SCHEMA_CHARS:,}")
    grammar: str = LLMatcher.grammar_from_json_schema(schema)
    if problem := LLMatcher.validate_grammar(grammar):
        raise RequestError(f"the schema cannot be enforced: {' '.join(problem.split())}")
    return grammar


def following(
    draft: Draft, logits: Tensor, position: int, request: Request, state: GrammarState
) -> tuple[list[int], int]:
    """`engine.sampling.verify.matching` where the answer follows a grammar, whose state advances by
    the accepted tokens and the one after them."""

    def choice(row: int, depth: int) -> int:
        if request.temperature == 0:  # what the mask would leave on top, most often
            token = choose(logits[row], position + depth, request)
            if state.takes(token):
                return token
        token = choose(state.masked(logits[row]), position + depth, request)
        state.advance(token)
        return token

    return accept(draft, choice)


class Grammars:
    """The grammars of one model's tokens, which are read once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def _tokens(self) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper

        return LLTokenizer(TokenizerWrapper(_Vocabulary(self._tokenizer)))

    def start(self, grammar: str, ends: frozenset[int]) -> GrammarState:
        """The state before the first token of an answer that `ends` end. RequestError for a grammar
        that cannot be used."""
        from llguidance import LLMatcher

        matcher = LLMatcher(self._tokens, grammar, log_level=0)
        if matcher.is_error():
            raise RequestError(
                f"the grammar cannot be used: {' '.join(matcher.get_error().split())}"
            )
        return GrammarState(matcher, ends)


class _Vocabulary:
    """A tokenizer as llguidance reads it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        control = {number: name for name, number in tokenizer.control.items()}
        size = max(len(tokenizer.token_bytes), *(number + 1 for number in control), 0)
        known = [*tokenizer.token_bytes, *([None] * (size - len(tokenizer.token_bytes)))]
        self.tokens = [
            control[number].encode() if number in control else one or b""
            for number, one in enumerate(known)
        ]
        self.special_token_ids = [*control]
        self.eos_token_id, self.bos_token_id = min(tokenizer.eos, default=0), None

    def __call__(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        return self._tokenizer.encode(text)


class GrammarState:
    """How far an answer has come in its grammar."""

    def __init__(self, matcher: LLMatcher, ends: frozenset[int]) -> None:
        self._matcher, self._ends = matcher, [*ends]

    def masked(self, logits: Tensor) -> Tensor:
        """A row of logits [vocabulary] with -inf where the grammar forbids the token."""
        import torch

        forbidden = ~torch.from_numpy(self._allowed(len(logits)))
        return logits.masked_fill(forbidden.to(logits.device), float("-inf"))

    def _allowed(self, size: int) -> np.ndarray[Any, Any]:
        """Whether each id may come next: bool [size]."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        allowed = np.zeros(size, bool)
        known = np.unpackbits(bits, bitorder="little")[:size].astype(bool)
        allowed[: len(known)] = known
        ends = [one for one in self._ends if one < size]
        allowed[ends] = self._matcher.is_accepting()
        return allowed

    def takes(self, token: int) -> bool:
        """Take the answer's next token if the grammar allows it; whether it does."""
        if token in self._ends:
            return bool(self._matcher.is_accepting())
        return bool(self._matcher.try_consume_tokens([token]) == 1)

    def advance(self, token: int) -> None:
        """Take the answer's next token, which the grammar allows."""
        if token not in self._ends:
            self._matcher.consume_token(token)

    def pruned(self, draft: Draft) -> Draft:
        """The draft without the nodes that the grammar forbids, and those below them. An end token
        is kept: the model's choice decides."""
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(draft.parents):
            children.setdefault(parent, []).append(node)
        kept: list[int] = []
        self._keep(draft.tokens, children, -1, kept)
        return draft.only(sorted(kept)) if len(kept) < len(draft) else draft

    def _keep(
        self, tokens: Sequence[int], children: dict[int, list[int]], at: int, kept: list[int]
    ) -> None:
        """Add the nodes below `at` that the grammar allows to `kept`. Depth first, with a stack:
        a draft may be deeper than Python's recursion."""
        stack = [(node, False) for node in reversed(children.get(at, []))]
        while stack:
            node, leave = stack.pop()
            if leave:
                self._matcher.rollback(1)
            elif tokens[node] in self._ends:
                kept.append(node)
            elif self._matcher.try_consume_tokens([tokens[node]]) == 1:
                kept.append(node)
                stack.append((node, True))
                stack += [(child, False) for child in reversed(children.get(node, []))]
