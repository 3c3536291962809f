"""The decoding loop: draft, verify, accept, keep, stream.

It knows neither torch nor any drafter: a target (engine/model/target.py) runs the model, a drafter
(engine/drafting) proposes trees, and `Generation` is the one object that travels between them.

Where a pass is launched and computes by itself, as on a card, the next one is launched as soon as
the committed tokens are known; their text is decoded and yielded meanwhile. If the answer turns out
to end there, or another request runs before the pass was waited for, that pass is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.config import Verification
from engine.drafting import DraftContext, Drafter, chain
from engine.prompts.builder import Prompt
from engine.prompts.control_marks import region_marks
from engine.prompts.prompt_encoder import too_long
from engine.prompts.reasoning import ReasoningFilter
from engine.prompts.tokenizer import Tokenizer
from engine.records import (
    Done,
    Draft,
    Event,
    Piece,
    Reason,
    Request,
    Scores,
    Step,
    Usage,
)
from engine.sampling.choices import Chances, Choices, needs_choices
from engine.sampling.grammar import GrammarState
from engine.sampling.rejection_sampling import rejecting
from engine.sampling.verify import Verdict, agreed, cut, matching, values_of
from engine.text_stream import Origin, TextStream

if TYPE_CHECKING:
    from engine.model.target import Target

MIN_FORCED_TOKENS = 16  # tokens; shorter runs are left to the drafter
SPARE_ROWS = 128  # cache rows beyond prompt and answer, for drafts that reach past its end
RESERVED_TOKENS = 4096  # tokens of an answer for which the cache takes memory at a time


def generate(
    answer: Generation,
    target: Target,
    drafter: Drafter,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[Event]:
    """Yield the steps of an answer, then exactly one Done.

    Between two events another request may use the target.
    """
    yield from prefill(answer, target, drafter, cancelled)
    if answer.reason is None:
        answer.usage.decoding_began = perf_counter()
        drafter.begin(answer.context)
    try:
        yield from decode(answer, target, drafter, cancelled)
    except Exception:
        yield from tell(answer, cancelled)  # what was committed counts, whatever failed behind it
        raise
    drafter.meanwhile()
    yield answer.done()


def decode(
    answer: Generation, target: Target, drafter: Drafter, cancelled: Callable[[], bool]
) -> Iterator[Step]:
    """Write the answer, and yield one Step for each pass."""
    while answer.reason is None:
        if drafter.takes_forced and (forced := answer.take_forced()):
            yield from tell(answer, cancelled)
            if answer.reason is None:
                yield from write_forced(answer, target, drafter, forced, cancelled)
            continue
        start = perf_counter()
        answer.resume(target)
        with answer.usage.drafting:
            draft = drafter.propose(answer.context, target).first(answer.context.capacity)
            draft = answer.allowed(draft)
        scores = target.forward(answer.context.last, draft, drafter.needs_states)
        launched = perf_counter()
        yield from tell(answer, cancelled)
        if answer.reason is not None:
            break
        if answer.must_begin(target):
            start += perf_counter() - launched
            answer.resume(target)
            draft = draft.first(answer.context.capacity)
            scores = target.forward(answer.context.last, draft, drafter.needs_states)
        with answer.usage.drafting:
            drafter.meanwhile()
        draft = draft.first(scores.rows - 1)  # a short memory runs fewer nodes
        path, token = answer.verify(draft, scores)
        target.keep(path)
        committed = answer.commit(draft, path, token)
        answer.seconds = perf_counter() - start
        with answer.usage.drafting:
            drafter.observe(draft, path, committed, scores, answer.seconds)
        if not scores.launched:
            yield from tell(answer, cancelled)
    yield from tell(answer, cancelled)


def tell(answer: Generation, cancelled: Callable[[], bool]) -> Iterator[Step]:
    """Yield the Step of the last commit, unless it was yielded."""
    if answer.untold is None:
        return
    answer.write()
    if answer.reason is None and cancelled():
        answer.reason = "cancelled"
    yield answer.step()


def prefill(
    answer: Generation, target: Target, drafter: Drafter, cancelled: Callable[[], bool]
) -> Iterator[Step]:
    """Prefill the prompt in chunks, and yield one Step for each.

    What an earlier request left in the cache is neither read again nor shown to the drafter.
    """
    if answer.reason is not None:
        return
    answer.usage.cached = target.begin(answer.prompt.ids, answer.capacity, answer.owner)
    answer.attach(target)
    sinks = [drafter.observe_prompt] if drafter.needs_prompt_states else []
    if answer.request.prompt_logprobs:
        sinks.append(answer.observe_prompt)

    def on_chunk(tokens: list[int], states: Any) -> None:
        for sink in sinks:
            sink(target, tokens, states)

    yield from read(answer, target, answer.usage.cached, on_chunk if sinks else None, cancelled)


def write_forced(
    answer: Generation,
    target: Target,
    drafter: Drafter,
    tokens: list[int],
    cancelled: Callable[[], bool],
) -> Iterator[Step]:
    """Commit tokens about which the grammar leaves no choice.

    Unless the answer ends with them, the model reads them as it reads a prompt.
    """
    start = perf_counter()
    cached = len(answer.prompt.ids) + len(answer.output) - 1
    draft = chain(tokens[:-1], "grammar")
    path = [*range(len(draft))]
    committed = answer.commit(draft, path, tokens[-1], passes=0)
    with answer.usage.drafting:
        drafter.observe(draft, path, committed, None, 0.0)
    answer.write()
    if answer.reason is None:
        if answer.must_begin(target):
            ids = [*answer.prompt.ids, *answer.output]
            cached = target.begin(ids, answer.capacity, answer.owner)
            answer.attach(target)
        for step in read(answer, target, cached, None, cancelled):
            answer.usage.forwards += 1
            yield step
    answer.seconds = perf_counter() - start
    yield answer.step()


def read(
    answer: Generation,
    target: Target,
    cached: int,
    on_chunk: Callable[[list[int], Any], None] | None,
    cancelled: Callable[[], bool],
) -> Iterator[Step]:
    """Let the model read all committed tokens but the last one.

    `cached`: how many of them the cache has already.
    """
    ids = [*answer.prompt.ids, *answer.output]
    start = perf_counter()
    for done in target.prefill(ids, answer.capacity, on_chunk, answer.owner):
        answer.attach(target)
        answer.chunk_tokens, cached = done - cached, done
        seconds, chances = perf_counter() - start, answer.take_chances()
        yield Step(seconds=seconds, prefill=(done + 1, len(ids)), logprobs=chances)
        if cancelled():
            break
        start = perf_counter()
    if cancelled():
        answer.reason = "cancelled"


class Stopwatch:
    """A sum of the seconds spent inside its `with` blocks."""

    def __init__(self) -> None:
        self.seconds = self._start = 0.0

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, *exception: object) -> None:
        self.seconds += perf_counter() - self._start


@dataclass(slots=True)
class UsageCounter:
    """The counts that `Usage` reports, while they grow."""

    cached: int = 0
    forwards: int = 0
    drafted: int = 0
    accepted: int = 0
    began: float = field(default_factory=perf_counter)
    decoding_began: float = 0.0
    drafting: Stopwatch = field(default_factory=Stopwatch)

    def usage(self, context: DraftContext) -> Usage:
        now = perf_counter()
        return Usage(
            prompt_tokens=len(context.prompt),
            cached_tokens=self.cached,
            completion_tokens=len(context.output),
            forwards=self.forwards,
            drafted=self.drafted,
            accepted=self.accepted,
            prefill_seconds=(self.decoding_began or now) - self.began,
            decode_seconds=now - self.decoding_began if self.decoding_began else 0.0,
            draft_seconds=self.drafting.seconds,
        )


class Committed(NamedTuple):
    """The tokens of one step, and the path of the draft that most of them are on."""

    draft: Draft
    path: list[int]
    tokens: list[int]


class Generation:
    """One answer while it is written: the request, what its drafter sees, what was committed."""

    def __init__(
        self,
        request: Request,
        prompt: Prompt,
        tokenizer: Tokenizer,
        context_tokens: int,
        history: Sequence[list[int]] = (),
        verification: Verification = "match",
        grammar: GrammarState | None = None,
        owner: str = "",
    ) -> None:
        """Begin an answer to a prompt.

        `context_tokens`: tokens of the model's context. `history`: earlier answers that may be
        copied from. With a `grammar`, or where the request changes logits or asks for
        probabilities, drafts are always verified by matching. `owner`: what the
        cache has of other owners is not used. RequestError where the prompt fills the context.
        """
        self.request, self.prompt = request, prompt
        self.owner = token_hex(16) if request.prompt_logprobs else owner  # then nothing is cached
        self.limit = max_new_tokens(prompt, context_tokens)
        self.context = DraftContext(
            prompt.ids,
            prompt.predictions,
            path=request.path,
            whole=prompt.whole,
            span=prompt.span,
            documents=prompt.documents,
            history=list(history),
            request=request,
            verification=verification,
            eos_ids=tokenizer.eos.union(prompt.ends, request.stop_tokens),
        )
        self._choices = None
        if needs_choices(request, grammar):
            ends = tokenizer.eos | prompt.ends
            self._choices = Choices(request, prompt.ids, ends, tokenizer.bytes_of, grammar)
        self.text = TextStream(
            tokenizer,
            prompt.stop,
            reasoning_filter(request, prompt, tokenizer),
            continues=request.kind != "chat" or request.continues,
            marks=marks_in_text(request, tokenizer),
        )
        self.usage = UsageCounter()
        self.reason: Reason | None = "length" if self.limit == 0 else None
        self._epoch = -1  # the target's epoch when this answer last used it
        self._reach = 0  # tokens of the answer for which the target's sequence has rows
        self.chunk_tokens = 0  # tokens that the last prefill step read
        self._grammar = grammar
        self._verdict = verdict(verification, request)
        self.seconds = 0.0  # seconds of the last step
        self.untold: Committed | None = None  # what was committed last, until its Step is made
        self._pieces: list[Piece] = []
        self._chances: list[Chances] = []
        if self._choices and request.prompt_logprobs:
            self._chances.append(self._choices.first_chance(prompt.ids[0]))
        self._told = 1  # tokens of the prompt whose chances were noted
        self._takes_choices = verification == "match" or request.temperature == 0

    @property
    def output(self) -> list[int]:
        """The committed tokens."""
        return self.context.output

    @property
    def finished(self) -> bool:
        """Whether the answer ended by itself, neither cancelled nor failed."""
        return self.reason in ("stop", "length")

    @property
    def capacity(self) -> int:
        """The rows that the sequence takes in the cache beyond what is committed."""
        return min(self.limit - len(self.output), RESERVED_TOKENS) + SPARE_ROWS

    def attach(self, target: Target) -> None:
        """Note that the target's current sequence is this answer's.

        One that was begun since has `capacity` for more.
        """
        if target.epoch != self._epoch:
            self._epoch, self._reach = target.epoch, len(self.output) + self.capacity - SPARE_ROWS

    def must_begin(self, target: Target) -> bool:
        """Return whether another request ran since, or the sequence needs more rows."""
        return target.epoch != self._epoch or self._reach <= len(self.output) < self.limit

    def resume(self, target: Target) -> None:
        """Make this answer the target's current sequence again, if it must begin."""
        if self.must_begin(target):
            target.resume([*self.prompt.ids, *self.output], self.capacity, self.owner)
            self.attach(target)
        self.context.capacity = min(self.limit - len(self.output) - 1, target.capacity())

    def take_forced(self) -> list[int]:
        """Take the next tokens, as far as the answer's grammar leaves no choice.

        Fewer than MIN_FORCED_TOKENS are left to the drafter, which goes on behind them.
        """
        if self._grammar is None or len(self._grammar.forced) < MIN_FORCED_TOKENS:
            return []
        if self._choices is None or self.request.logprobs is not None:  # then every row counts
            return []
        return self._choices.take_forced(self.limit - len(self.output))

    def allowed(self, draft: Draft) -> Draft:
        """Prune what the answer's grammar forbids from the draft."""
        return self._grammar.pruned(draft) if self._grammar else draft

    def verify(self, draft: Draft, scores: Scores) -> tuple[list[int], int]:
        """Find the accepted path of `draft`, as node indices, and the model's token after it."""
        position = len(self.prompt.ids) + len(self.output)
        if self._choices:
            return self._choices.verify(draft, scores.logits, position)
        if self._takes_choices and scores.chosen is not None:
            return agreed(draft, scores.chosen(self.request, position))
        return self._verdict(draft, scores.logits, position)

    def commit(self, draft: Draft, path: list[int], token: int, passes: int = 1) -> list[int]:
        """Append the path's tokens and `token` to the answer, up to an end token or its limit.

        Returns the tokens appended. `passes`: passes of the model that verified the draft.
        """
        left = self.limit - len(self.output)
        ends = self.context.eos_ids
        tokens, ended = cut([*(draft.tokens[node] for node in path), token], ends, left)
        self.output.extend(tokens)
        self.untold = Committed(draft, path, tokens)
        self.usage.forwards += passes + draft.passes
        self.usage.drafted += len(draft)
        if ended is not None:
            self.reason = "stop" if ended == "eos" else "length"
        return tokens

    def write(self) -> None:
        """Decode the text of the last commit; a stop string in it ends the answer there."""
        assert self.untold is not None
        draft, path, tokens = self.untold
        used, self._pieces = self.text.push(tokens, origins(draft, path)[: len(tokens)])
        if self.text.matched is not None:
            self.reason = "stop"
            del self.output[len(self.output) - len(tokens) + used :]
        if self._choices:
            self._chances += self._choices.chances[:used]
        self._accepted = min(len(path), used)
        self.usage.accepted += self._accepted

    def step(self) -> Step:
        """Make the Step of the last commit; an answer's last Step also has the text held back."""
        assert self.untold is not None
        if self.reason is not None:
            self._pieces += self.text.finish()
        drafted, self.untold = len(self.untold.draft), None
        reasoning = self.text.take_reasoning()
        return Step(
            tuple(self._pieces),
            drafted,
            self._accepted,
            self.seconds,
            reasoning=reasoning,
            logprobs=self.take_chances(),
        )

    def observe_prompt(self, target: Target, tokens: list[int], states: Any) -> None:
        """Note the chances of the prompt's tokens behind these, which were just read."""
        assert self._choices
        first = len(target.tokens) - len(tokens) + 1
        for place, row in enumerate(target.logits(states), first):
            if place == self._told:  # else it was read again after another request
                token = self.prompt.ids[place]
                self._chances.append(self._choices.chances_of(values_of(row), token))
                self._told += 1

    def take_chances(self) -> tuple[Chances, ...]:
        """Return the chances of tokens that no Step has told yet."""
        found, self._chances = tuple(self._chances), []
        return found

    def done(self) -> Done:
        """Make the event that ends the stream."""
        assert self.reason is not None
        usage = self.usage.usage(self.context)
        text = self.text
        return Done(self.reason, text.text, text.matched, usage, reasoning=text.reasoning)


def reasoning_filter(
    request: Request, prompt: Prompt, tokenizer: Tokenizer
) -> ReasoningFilter | None:
    """Make the filter that takes the reasoning out of an answer.

    None for a model that writes none. Marks that are text count only in a chat: code may have them.
    """
    if tokenizer.reasoning is None:
        return None
    chat, calls = request.kind == "chat", bool(request.tools)
    return ReasoningFilter(tokenizer.reasoning, prompt.thinks, as_text=chat, calls=calls)


def marks_in_text(request: Request, tokenizer: Tokenizer) -> Mapping[int, str]:
    """Return the control tokens that are text in an answer, each with that text."""
    if request.tools:
        return tokenizer.call_marks
    return region_marks(tokenizer) if request.parse_special else {}


def max_new_tokens(prompt: Prompt, context_tokens: int) -> int:
    """Count the tokens that the answer may have.

    RequestError where the prompt fills the context.
    """
    left = context_tokens - len(prompt.ids)
    if left < 1:
        raise too_long(len(prompt.ids), context_tokens)
    return left if prompt.max_tokens is None else min(prompt.max_tokens, left)


def verdict(verification: Verification, request: Request) -> Verdict:
    """Choose the rule that accepts or rejects the drafts of one answer.

    ValueError for an unknown name.
    """
    known = {"match": matching, "rejection": rejecting}
    if verification not in known:
        raise ValueError(f"verification {verification!r}: choose {' or '.join(known)}")
    return known[verification](request)


def origins(draft: Draft, path: list[int]) -> list[Origin]:
    """List the source of each token of a step; the last one is the model's own."""
    sources, span = draft.sources, draft.span
    return [(sources[node], span(node)) for node in path] + [("model", None)]
