"""The loop: draft, verify, accept, keep, stream. It knows neither torch nor any drafter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

from engine.config import Verification
from engine.drafting import Context, Drafter
from engine.prompts.builder import Prompt, Tokenizer
from engine.records import Done, Draft, Event, Reason, Request, RequestError, Step, Usage
from engine.sampling.rejection_sampling import rejecting
from engine.sampling.verify import Verdict, agreed, cut, matching
from engine.text_stream import Origin, TextStream

MARGIN = 128  # cache rows beside prompt and answer: space for the drafts near its end


@dataclass(slots=True)
class Counts:
    """What `Usage` is made of, while it grows."""

    cached: int = 0
    forwards: int = 0
    drafted: int = 0
    accepted: int = 0
    began: float = field(default_factory=perf_counter)
    decoding: float = 0.0
    drafting: float = 0.0  # seconds

    def usage(self, context: Context) -> Usage:
        now = perf_counter()
        return Usage(
            len(context.prompt),
            self.cached,
            len(context.output),
            self.forwards,
            self.drafted,
            self.accepted,
            (self.decoding or now) - self.began,
            now - self.decoding if self.decoding else 0.0,
            self.drafting,
        )


def room_for(prompt: Prompt, context: int) -> int:
    """Tokens the answer may have. RequestError where the prompt leaves no room for any."""
    left = context - len(prompt.ids)
    if left < 1:
        raise RequestError(
            f"the prompt has {len(prompt.ids)} tokens, the model's context is {context}: "
            "select fewer lines, or choose a model with a longer context"
        )
    return min(prompt.max_tokens, left)


def verdict(verification: Verification, request: Request) -> Verdict:
    """How the drafts of one answer are judged. ValueError for a name that there is not."""
    known = {"match": matching, "rejection": rejecting}
    if verification not in known:
        raise ValueError(f"verification {verification!r}: choose {' or '.join(known)}")
    return known[verification](request)


def generate(
    request: Request,
    prompt: Prompt,
    target: Any,
    tokenizer: Tokenizer,
    drafter: Drafter,
    cancelled: Callable[[], bool] = lambda: False,
    on_read: Callable[[int, float], None] = lambda tokens, seconds: None,
    memory: Sequence[list[int]] = (),
    on_written: Callable[[list[int]], None] = lambda tokens: None,
    verification: Verification = "match",
) -> Iterator[Event]:
    """Steps, then exactly one Done. Between two events another request may use the target.
    `on_read` is told of each pass over the prompt: its tokens and its time. `memory`: what was
    written before, to copy from; `on_written` is told of this answer, if it was not cut short."""
    limit = room_for(prompt, target.context)
    context = Context(
        prompt.ids,
        prompt.predictions,
        path=request.path,
        whole=prompt.whole,
        span=prompt.span,
        documents=prompt.documents,
        memory=list(memory),
        request=request,
        verification=verification,
        ends=tokenizer.eos | prompt.ends,
    )
    judge = verdict(verification, request)
    own = verification == "match" or request.temperature == 0
    text = TextStream(tokenizer, prompt.stop)
    counts = Counts()
    reason: Reason | None = "length" if limit == 0 else None
    seen = partial(drafter.read, target) if drafter.wants_prompt else None
    reading = read(prompt.ids, limit, target, counts, on_read, seen) if reason is None else ()
    for step in reading:
        yield step
        if cancelled():
            break
    if reason is None and cancelled():
        reason = "cancelled"
    if reason is None:
        counts.decoding = perf_counter()
        drafter.begin(context)
    while reason is None:
        start = perf_counter()
        target.resume([*prompt.ids, *context.output], limit - len(context.output) + MARGIN)
        left = limit - len(context.output)
        context.room = min(left - 1, target.room())
        asked = perf_counter()
        draft = drafter.propose(context, target).first(context.room)
        counts.drafting += perf_counter() - asked
        scores = target.forward(context.last, draft)
        draft = draft.first(len(scores.logits) - 1)  # where memory is short, fewer are run
        place = len(prompt.ids) + len(context.output)
        if own and scores.chosen is not None:
            path, token = agreed(draft, scores.chosen(request, place))
        else:
            path, token = judge(draft, scores.logits, place)
        target.keep(path)
        found, ended = cut([*(draft.tokens[node] for node in path), token], context.ends, left)
        used, pieces = text.push(found, origins(draft, path)[: len(found)])
        found = found[:used]
        context.output += found
        kept = min(len(path), used)
        seconds = (done := perf_counter()) - start
        drafter.observe(draft, path, found, scores, seconds)
        counts.drafting += perf_counter() - done
        counts.forwards += 1 + draft.passes
        counts.drafted += len(draft)
        counts.accepted += kept
        if text.matched is not None or ended == "eos":
            reason = "stop"
        elif ended == "length":
            reason = "length"
        elif cancelled():
            reason = "cancelled"
        if reason is not None:
            pieces += text.finish()
        yield Step(tuple(pieces), len(draft), kept, seconds)
    if reason in ("stop", "length"):
        on_written(context.output)
    yield Done(reason, text.text, text.matched, counts.usage(context))


def read(
    ids: list[int],
    limit: int,
    target: Any,
    counts: Counts,
    on_read: Callable[[int, float], None],
    seen: Callable[[list[int], Any], None] | None = None,
) -> Iterator[Step]:
    """Prefill as Steps; what an earlier request left in the cache is not read again, nor `seen`."""
    counts.cached = before = target.begin(ids, limit + MARGIN)
    start = perf_counter()
    for done in target.prefill(ids, limit + MARGIN, seen):
        seconds = perf_counter() - start
        on_read(done - before, seconds)
        yield Step(seconds=seconds, prefill=(done + 1, len(ids)))
        start, before = perf_counter(), done


def origins(draft: Draft, path: list[int]) -> list[Origin]:
    """Where each token of a step came from; the last one is the model's own."""
    return [*((draft.sources[node], draft.span(node)) for node in path), ("model", None)]
