"""Answers that follow a grammar: which tokens it allows next, by llguidance.

The grammar's mask is applied to the model's logits before a token is chosen, so the answer is the
same with any draft or none. Drafts lose the nodes that it forbids before they are verified. Text
about which the grammar leaves no choice is written in the tokenizer's own tokens, without asking
the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from engine.memory import give_back_memory
from engine.records import Draft, RequestError
from engine.sampling.grammar_depth import TOO_DEEP, check_schema
from engine.sampling.schema_references import refers_to_itself
from engine.sampling.verify import Array, values_of

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from engine.prompts.tokenizer import Tokenizer

MAX_SCHEMA_CHARS = 100_000
BLANK = r"[ \n]"  # at most one between two parts of JSON; a model might write them without end
OTHER_BLANKS = frozenset({"whitespace_pattern", "item_separator", "key_separator"})  # expressions
NEVER = {"const": "\x00"}  # replaces one of several schemas; `{}` would stand for all of them
MAX_ERROR_CHARS = 120  # characters of a schema that an error quotes
MAX_LEXER_STATES = 50_000  # states of a grammar, about 2 kB each
TOO_COMPLEX = "the grammar is too complex: "
UNESCAPED = re.compile(r"\\.|[/\n]", re.DOTALL)  # of a regular expression, for Lark
MAX_TRIALS = 200  # compilations to find the part of a schema that cannot be enforced

Phase = Literal["text", "reasoning", "grammar"]


def json_grammar(schema: dict[str, Any]) -> str:
    """Make the grammar of JSON values that fit a JSON schema.

    It has at most one blank between their parts. RequestError, with the part's path, where the
    schema says something that cannot be enforced.
    """
    from llguidance import LLMatcher

    try:
        text = json.dumps(_with_few_blanks(schema))
    except RecursionError:
        raise RequestError(f"the schema cannot be enforced: {TOO_DEEP}") from None
    if len(text) > MAX_SCHEMA_CHARS:
        raise RequestError(f"the schema has {len(text):,} characters, over {MAX_SCHEMA_CHARS:,}")
    check_schema(schema)
    if refers_to_itself(schema):
        raise RequestError("the schema cannot be enforced: a $ref leads to itself")
    if problem := _problem(schema):
        part = shortened(".".join(_faulty_part(schema, problem)))
        where = f"the schema's {part}" if part else "the schema"
        raise RequestError(f"{where} cannot be enforced: {shortened(problem)}")
    grammar: str = LLMatcher.grammar_from_json_schema(text)  # not `schema`: large integers fail
    return grammar


def choice_grammar(texts: Sequence[str]) -> str:
    """Make the grammar of an answer that is one of some texts."""
    return f"start: {' | '.join(map(literal, texts))}"


def regex_grammar(pattern: str) -> str:
    """Make the grammar of an answer that matches a regular expression. RequestError."""
    from llguidance import LLMatcher

    escaped = {"/": r"\/", "\n": r"\n"}
    grammar = f"start: /{UNESCAPED.sub(lambda found: escaped.get(found[0], found[0]), pattern)}/"
    if problem := LLMatcher.validate_grammar(grammar):
        raise RequestError(f"the expression cannot be enforced: {shortened(problem)}")
    return grammar


def literal(text: str) -> str:
    """Write a string of Lark: JSON's, which leaves one control character as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _with_few_blanks(schema: dict[str, Any]) -> dict[str, Any]:
    """Put llguidance's option for blanks in place of a schema's own, unless it wants none.

    RequestError.
    """
    options = schema.get("x-guidance", {})
    if not isinstance(options, dict):
        raise RequestError("the schema's x-guidance cannot be enforced: it is no object")
    kept = {key: value for key, value in options.items() if key not in OTHER_BLANKS}
    if kept.get("whitespace_flexible") is not False:
        kept["whitespace_pattern"] = BLANK
    return schema | {"x-guidance": kept}


def check_grammar(grammar: str) -> None:
    """RequestError for a schema's grammar that cannot be used."""
    from llguidance import LLMatcher

    if problem := LLMatcher.validate_grammar(grammar):
        raise RequestError(f"the schema cannot be enforced: {shortened(problem)}")


def shortened(text: str) -> str:
    """Shorten a text for an error, in one line."""
    text = "".join(char if char.isprintable() else " " for char in text[: 2 * MAX_ERROR_CHARS])
    return " ".join(text.split())[:MAX_ERROR_CHARS]


def _problem(schema: Any) -> str:
    """Return why a schema cannot be enforced; "" where it can."""
    from llguidance import LLMatcher

    grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema))
    return LLMatcher.validate_grammar(grammar)


def _faulty_part(schema: dict[str, Any], problem: str) -> list[str]:
    """Return the path of the innermost part without which the schema has no such problem."""
    part = schema = json.loads(json.dumps(schema))
    path: list[str] = []
    trials = iter(range(MAX_TRIALS))

    def inner() -> tuple[dict[str, Any], list[str]] | None:
        for (inside, key, names), _ in zip(_parts(part), trials, strict=False):
            one, inside[key] = inside[key], {} if inside is part else NEVER
            found = _problem(schema) != problem
            inside[key] = one
            if found:
                return one, names
        return None

    while found := inner():
        part = found[0]
        path += found[1]
    return path


def _parts(part: dict[str, Any]) -> Iterator[tuple[Any, Any, list[str]]]:
    """Yield the objects in a part of a schema: what each is in, its key there, and its path."""
    for name, inner in part.items():
        if isinstance(inner, dict):
            yield part, name, [name]
        elif isinstance(inner, list):
            for number, one in enumerate(inner):
                if isinstance(one, dict):
                    yield inner, number, [name, str(number)]


@dataclass(frozen=True, slots=True)
class Trigger:
    """The token at which a grammar begins that does not hold from the start.

    The model may write `token` or not. Text before it is free. In reasoning, between `opening` and
    `closing` tokens, it is a token as any other.
    """

    token: int
    opening: frozenset[int] = frozenset()
    closing: frozenset[int] = frozenset()
    in_reasoning: bool = False  # whether the answer starts in reasoning

    def phase(self, phase: Phase, token: int) -> Phase:
        """Return the phase after a token."""
        if phase == "text":
            if token == self.token:
                return "grammar"
            return "reasoning" if token in self.opening else "text"
        if phase == "reasoning" and token in self.closing:
            return "text"
        return phase


class Grammars:
    """The grammars of one model's tokens, which are read once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def _tokens(self) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper

        return LLTokenizer(TokenizerWrapper(_Vocabulary(self._tokenizer)))

    def start(
        self, grammar: str, ends: frozenset[int], trigger: Trigger | None = None
    ) -> GrammarState:
        """Return the state before the first token of an answer that `ends` end.

        With a `trigger` the grammar, whose first token that is, holds from there on. RequestError
        for a grammar that cannot be used.
        """
        from llguidance import LLMatcher, LLParserLimits

        give_back_memory()  # earlier grammars may have taken 100 MB each, in small blocks
        limits = LLParserLimits(max_lexer_states=MAX_LEXER_STATES, verbose_errors=False)
        matcher = LLMatcher(self._tokens, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise RequestError(f"the grammar cannot be used: {shortened(matcher.get_error())}")
        if trigger is None:
            _try_beginning(matcher)
        return GrammarState(matcher, self._tokens.vocab_size, ends, trigger)


def _reason(problem: str) -> str:
    """Return why a grammar failed, without llguidance's state."""
    return shortened(problem.partition("<")[0])


def _try_beginning(matcher: LLMatcher) -> None:
    """Raise RequestError for a grammar that nothing can begin, or that is too complex.

    It is tried at the beginning and where an answer first has a choice.
    """
    matcher = matcher.deep_copy()
    matcher.compute_bitmask()
    if not matcher.is_error():
        matcher.consume_tokens(matcher.compute_ff_tokens())
        if not matcher.is_stopped():
            matcher.compute_bitmask()
    if problem := matcher.get_error() if matcher.is_error() else "":
        if "too many" in problem or "max is" in problem or "limit" in problem:
            raise RequestError(TOO_COMPLEX + _reason(problem))
        raise RequestError("the grammar cannot be used: no text can begin it")


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
    """The place of an answer in its grammar."""

    def __init__(
        self, matcher: LLMatcher, size: int, ends: frozenset[int], trigger: Trigger | None = None
    ) -> None:
        """Start before the first token. `size`: the vocabulary that the matcher knows."""
        self._matcher, self._size, self._ends, self._trigger = matcher, size, [*ends], trigger
        self._phase: Phase = "grammar"
        self.forced: list[int] = []  # tokens that come next, in every answer
        if trigger is not None:
            self._phase = "reasoning" if trigger.in_reasoning else "text"
        self._look_ahead()

    def masked(self, logits: Any) -> Array:
        """Return a row of logits [vocabulary], with -inf where the grammar forbids the token.

        The row is an array or a tensor, the result an array.
        """
        row = values_of(logits)
        if self._phase != "grammar":
            return row
        found: Array = np.where(self._allowed(len(row)), row, np.float32(-np.inf))
        return found

    def _allowed(self, size: int) -> Array:
        """Return whether each id may come next in the grammar: bool [size]."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():  # it is too complex
            raise RequestError(TOO_COMPLEX + _reason(self._matcher.get_error()))
        allowed = np.zeros(size, bool)
        known = np.unpackbits(bits, count=min(size, 8 * len(bits)), bitorder="little")
        allowed[: len(known)] = known
        ends = [token for token in self._ends if token < size]
        allowed[ends] = self._matcher.is_accepting()
        return allowed

    def takes(self, token: int) -> bool:
        """Take the answer's next token if the grammar allows it; whether it does."""
        phase = self._after(self._phase, token)
        if phase == "grammar":
            ends = token in self._ends
            if not (self._matcher.is_accepting() if ends else self._consumed(token)):
                return False
        self._phase = phase
        self._look_ahead()
        return True

    def advance(self, token: int) -> None:
        """Take the answer's next token, which the grammar allows."""
        self._phase = self._after(self._phase, token)
        if self._phase == "grammar" and token not in self._ends:
            self._matcher.consume_token(token)
        self._look_ahead()

    def take_forced(self, most: int) -> list[int]:
        """Take the answer's next tokens, `most` at most, as far as the grammar leaves no choice."""
        taken, self.forced = self.forced[:most], self.forced[most:]
        if taken:
            self._matcher.consume_tokens(taken)
            self._look_ahead()
        return taken

    def _look_ahead(self) -> None:
        if self._phase == "grammar" and not self.forced:
            tokens = self._matcher.compute_ff_tokens()
            self.forced = [*takewhile(lambda token: token not in self._ends, tokens)]

    def _consumed(self, token: int) -> bool:
        """Consume a token that the grammar may forbid, or not know.

        Models have more tokens than their tokenizers.
        """
        return token < self._size and bool(self._matcher.try_consume_tokens([token]) == 1)

    def _after(self, phase: Phase, token: int) -> Phase:
        return phase if self._trigger is None else self._trigger.phase(phase, token)

    def pruned(self, draft: Draft) -> Draft:
        """Return the draft without the nodes that the grammar forbids, and those below them.

        An end token is kept: the model's choice decides.
        """
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(draft.parents):
            children.setdefault(parent, []).append(node)
        allowed: list[int] = []
        # Depth first, with a stack: a draft may be deeper than Python's recursion. None stands for
        # the way back from a node in the grammar.
        stack: list[tuple[int, Phase] | None] = [
            (node, self._phase) for node in reversed(children.get(-1, []))
        ]
        while stack:
            if (entry := stack.pop()) is None:
                self._matcher.rollback(1)
                continue
            node, phase = entry
            token = draft.tokens[node]
            if token not in self._ends:
                phase = self._after(phase, token)
                if phase == "grammar":
                    if not self._consumed(token):
                        continue
                    stack.append(None)
                stack += [(child, phase) for child in reversed(children.get(node, []))]
            allowed.append(node)
        return draft.only(sorted(allowed)) if len(allowed) < len(draft) else draft
