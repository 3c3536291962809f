"""The drafter of a host's batch: requests recognised by their tokens, chains as a plain drafter of
each request drafts them, costs that grow with the batch, and what is kept of ended requests."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafting._drafting import Weights
from engine.drafting.hosts import batch_drafter
from engine.drafting.hosts.batch_drafter import BatchDrafter, DraftingLimits
from engine.drafting.hosts.chain_drafter import ChainDrafter
from engine.drafting.hosts.prompt_blocks import TokenTexts
from engine.drafting.hosts.shared_text import SharedText
from engine.drafting.next_token import NextTokenModel
from engine.model.cost_model import GRID, USUAL, CostModel
from index import Frozen
from tests.support.batch_host import BatchHost, HostedRequest
from tests.support.drafters import NoLibrary, edited, ids, made_up, weights_of
from tests.support.encoders import Bytes
from tests.support.python_start.given_costs import Steady

END = 0
LIMITS = DraftingLimits(tokens=12, context=4096, vocabulary=2000, ends=frozenset({END}))
TEXTS = TokenTexts(Bytes.token_bytes)
LINEAR = [1 + 0.02 * (n - 1) for n in GRID]


def next_token(kind: str = "trained") -> NextTokenModel:
    weights: dict[Any, Weights] = {one: weights_of(kind) for one in ("file", "hunk")}
    return NextTokenModel(made_up(), NoLibrary(), weights)  # type: ignore[arg-type]


def batch(
    shared: SharedText | None = None,
    kind: str = "trained",
    learning: float = 0.0,
    limits: DraftingLimits = LIMITS,
) -> BatchDrafter:
    """A drafter of linear costs."""
    texts = shared or SharedText(recent_tokens=0)
    return BatchDrafter(next_token(kind), TEXTS, texts, Steady(LINEAR), limits, learning)


def text_of(chance: random.Random, size: int) -> list[int]:
    return [chance.randrange(1, 300) for _ in range(size)]


def some_requests(chance: random.Random, count: int) -> list[HostedRequest]:
    """Requests that edit their prompts; some are equal, some end with an end token."""
    made: list[HostedRequest] = []
    for n in range(count):
        if made and chance.random() < 0.3:
            made.append(HostedRequest(made[-1].prompt, made[-1].output))
            continue
        old = text_of(chance, chance.randrange(1, 120))
        fenced = list(b"Edit this:\n```\n") + old + list(b"\n```\n")
        output = edited(old, n) + [END] * chance.randrange(2)
        made.append(HostedRequest(chance.choice([old, fenced]), output or [5]))
    return made


# -- the same chains as a plain drafter ------------------------------------------------------------


@settings(max_examples=12)
@given(st.integers(0, 10_000))
def test_each_draft_is_what_a_plain_drafter_of_that_request_makes(seed: int) -> None:
    """However rows move, prompts arrive and requests come and go."""
    chance = random.Random(seed)
    drafter, model, cost = batch(), next_token(), Steady(LINEAR)
    for rows in BatchHost(drafter.propose, chance, context=512).run(some_requests(chance, 10)):
        drafting = [one for one in rows if one.new]
        for one in rows:
            expected: list[int] = []
            if one.new and one.tokens[-1] != END:
                expected = plain_draft(model, one, cost, len(drafting))
            assert one.draft == expected


def plain_draft(
    model: NextTokenModel, one: HostedRequest, cost: CostModel, batch: int
) -> list[int]:
    """The draft of a new drafter that gets all that was written at once."""
    plain = ChainDrafter(model, TEXTS, SharedText(recent_tokens=0), ids(one.prompt))
    plain.commit(one.output[: one.written])
    capacity = min(LIMITS.tokens, LIMITS.context - len(one.tokens) - 1)
    costs = [cost(batch * (n + 1)) / batch for n in range(capacity + 1)]
    return plain.propose(capacity, np.array(costs))


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.sampled_from(["zero", "huge", "patchy"]))
def test_any_weights_and_shared_texts_draft_valid_tokens(seed: int, kind: str) -> None:
    """Nothing raises, drafts keep the limits, and all requests end as they should."""
    chance = random.Random(seed)
    index = [Frozen([ids(text_of(chance, 80)), ids([5, 6, 1_000_000, 7] * 9)])]
    drafter = batch(SharedText(index, 100), kind, 0.2)
    requests = some_requests(chance, 6)
    for rows in BatchHost(drafter.propose, chance, context=512).run(requests):
        for one in rows:
            assert len(one.draft) <= LIMITS.tokens
            assert all(0 <= token < LIMITS.vocabulary for token in one.draft)
    assert all(one.done for one in requests)


def test_drafts_of_an_edit_save_most_passes() -> None:
    """The prompt's block is drafted from the first token of the answer on."""
    chance = random.Random(0)
    old = text_of(chance, 400)
    prompt = [*b"Edit:\n```\n", *old, *b"\n```\n"]
    passes = 0
    host = BatchHost(batch(learning=0.2).propose, chance, preempting=0)
    request = HostedRequest(prompt, edited(old, 3, changes=0.02))
    for (one,) in host.run([request]):
        passes += bool(one.new)
    assert passes < len(request.output) / 4


def test_a_row_at_the_end_of_the_context_gets_no_draft() -> None:
    drafter = batch(limits=DraftingLimits(tokens=8, context=20, vocabulary=2000))
    row = ids([*range(1, 10), *range(1, 11)])
    assert drafter.propose([[10]], [19], row[None]) == [[]]
    assert len(drafter.propose([[9]], [18], row[None])[0]) <= 1


def test_rows_that_no_pass_of_vllm_has_are_left_alone() -> None:
    """No sampled tokens, more of them than tokens, or sizes beyond the row."""
    drafter = batch()
    rows = np.full((4, 8), 7, np.int32)
    assert drafter.propose([[], [7], [7, 7, 7], [7]], [5, 1, 2, 9], rows) == [[], [], [], []]
    assert drafter.propose([], [], rows) == []


# -- costs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_larger_batch_gets_shorter_drafts(seed: int) -> None:
    """The beginning of what a smaller one gets, in the end nothing or one sure token."""
    old = text_of(random.Random(seed), 200)
    row = ids([*b"```\n", *old, *b"\n```\n", *old[:60]])
    lengths = []
    longest: list[int] = []
    for count in (1, 2, 8, 32, 128):
        drafter = BatchDrafter(
            next_token(), TEXTS, SharedText(recent_tokens=0), Steady(USUAL), LIMITS, 0.0
        )
        rows = np.tile(row, (count, 1))
        drafts = drafter.propose([old[:60]] * count, [len(row)] * count, rows)
        assert all(draft == drafts[0] for draft in drafts)
        longest = longest or drafts[0]
        assert drafts[0] == longest[: len(drafts[0])]
        lengths.append(len(drafts[0]))
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > 6 and lengths[-1] < lengths[0]


def test_passes_correct_the_costs_only_when_the_same_requests_are_decoded() -> None:
    """A pass that takes as long as ten is learnt; one with a prompt in it is not."""
    times = iter(range(1000))
    cost = CostModel(LINEAR)
    seen: list[tuple[int, float]] = []
    cost.observe = lambda rows, context, seconds: seen.append((rows, seconds))  # type: ignore[method-assign]
    drafter = BatchDrafter(
        next_token(), TEXTS, SharedText(), cost, LIMITS, 0.0, lambda: float(next(times))
    )
    old = text_of(random.Random(1), 100)
    rows = np.tile(ids([*old, *old]), (2, 1))
    drafts = drafter.propose([[old[49]], [old[49]]], [150, 150], rows)
    assert seen == []
    drafter.propose([[old[50]], [old[50]]], [151, 151], rows)
    assert seen == [(2 + sum(map(len, drafts)), 1.0)]
    drafter.propose([[old[51]], []], [152, 40], rows)  # one is read again
    drafter.propose([[old[52]]], [153], rows)
    assert len(seen) == 2 and seen[1][0] < 2 + LIMITS.tokens


# -- what is kept ----------------------------------------------------------------------------------


def test_ended_requests_leave_only_tokens_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_drafter, "MAX_PARKED_TOKENS", 400)
    chance, shared = random.Random(2), SharedText(recent_tokens=300)
    drafter = batch(shared)
    made: list[weakref.ref[ChainDrafter]] = []
    begin = drafter._begin

    def watched(answer: batch_drafter.Answer) -> None:
        begin(answer)
        assert answer.drafter is not None
        made.append(weakref.ref(answer.drafter))

    monkeypatch.setattr(drafter, "_begin", watched)
    for _ in BatchHost(drafter.propose, chance, context=512).run(some_requests(chance, 30)):
        assert drafter.live <= 8 * (1 + batch_drafter.MISSING_STEPS)
        assert drafter.parked_tokens <= 400 and shared.recent_tokens <= 300
    for _ in range(batch_drafter.MISSING_STEPS + 1):
        drafter.propose([], [], np.zeros((0, 512), np.int32))
    gc.collect()
    assert drafter.live == 0 and len(made) >= 30
    assert all(one() is None for one in made)
    assert drafter.filed <= 400


def test_an_end_token_releases_a_request_at_once() -> None:
    """Also where more was drafted and accepted after it."""
    drafter = batch()
    row = ids([1, 2, 3, END, 5])
    assert drafter.propose([[END]], [4], row[None]) == [[]]
    assert drafter.live == 0 and drafter.parked_tokens == 4
    assert drafter.propose([[3, END, 5]], [5], row[None]) == [[]]
    assert drafter.live == 0


def test_a_preempted_request_returns_after_any_time() -> None:
    """As long as its tokens are kept, it goes on where it was; else its text is all prompt."""
    old = text_of(random.Random(5), 60)
    text = [*b"```\n", *old, *b"\n```\n", *old]
    start = len(text) - len(old)
    staying, leaving, away = batch(), batch(), np.zeros((0, 200), np.int32)
    for size in range(start + 1, start + 30):
        row = ids(text[:size])[None]
        for drafter in (staying, leaving):
            drafter.propose([[text[size - 1]]], [size], row)
    for _ in range(50):
        leaving.propose([], [], away)
    assert leaving.live == 0
    row = ids(text[: start + 30])[None]
    drafts = [one.propose([row[0, -1:].tolist()], [row.size], row) for one in (staying, leaving)]
    assert drafts[0] == drafts[1] != [[]]


def test_earlier_answers_are_drafted_from_and_kept_up_to_a_limit() -> None:
    """An answer that nothing in the prompt has is drafted once another request got it."""
    chance, passes = random.Random(4), []
    shared = SharedText(recent_tokens=400)
    drafter, answer = batch(shared, learning=0.2), [*text_of(chance, 150), END]
    for n in range(3):
        host = BatchHost(drafter.propose, chance, preempting=0)
        requests = [HostedRequest([n + 1, 5, 6], answer)]
        passes.append(sum(bool(rows[0].new) for rows in host.run(requests)))
    assert passes[1] < passes[0] / 2 and passes[2] < passes[0] / 2
    none = batch(SharedText(recent_tokens=0))
    for n in range(2):
        host = BatchHost(none.propose, chance, preempting=0)
        list(host.run([HostedRequest([n + 1, 5, 6], answer)]))
    assert none.parked_tokens == 2 * (3 + len(answer))


def test_the_index_is_drafted_from() -> None:
    chance = random.Random(6)
    text = text_of(chance, 200)
    index = Frozen([ids(text_of(chance, 50)), ids(text)])
    steps = {}
    for name, shared in (("without", SharedText()), ("with", SharedText([index]))):
        host = BatchHost(batch(shared).propose, chance, preempting=0)
        steps[name] = sum(1 for _ in host.run([HostedRequest([1, 2], text)]))
    assert steps["with"] < steps["without"] / 2
