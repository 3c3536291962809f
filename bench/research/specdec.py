"""SpecDec++'s evaluation (arXiv 2405.19715): schedules of draft lengths, and their Pareto front.

    python -m bench specdec QUESTIONS.jsonl --model M --draft-model D [--head FOLDER]

Compares constant lengths, stop thresholds of the acceptance head (and of the draft model's own
confidence, which needs no head) and the heuristic schedule, by discarded tokens per token written,
verification passes per token written, and speed. The oracle drafts in each round exactly what will
be accepted, known from an earlier run: a bound that no schedule can beat, left out of the front.
Both models also decode plainly, question by question. The run prints a table on stderr and one
JSON line; --out also gets the published file of each method, results_0toN.json, in a folder per
method. --plot draws passes by discarded tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from bench.common.charts import line_chart, save
from bench.common.cli import argument_parser, complain
from bench.common.engine_thread import in_engine_thread
from bench.common.environment import environment
from bench.common.report import print_json_line
from bench.common.stats import bootstrap
from engine import Config, Done, Engine, Request
from engine.drafting import Drafter, NullDrafter
from engine.drafting.draft_length import (
    ConfidenceStop,
    ConstantLength,
    HeuristicLength,
    OracleLength,
)
from engine.drafting.draft_model import DraftModel, draft_model, load_draft
from engine.generate import Generation, generate
from engine.model.torch.placement import choose_device
from engine.prompts.builder import prompt_of
from engine.weights import WeightsError
from research.methods.specdec import AcceptanceHead, specdec
from research.train.sample_file import read_questions

CONSTANTS = (2, 4, 6, 8, 10, 14)
THRESHOLDS = (0.1, 0.3, 0.5, 0.7, 0.9)
BOUNDS = (2, 20)
ORACLE = "oracle"
DrafterFactory = Callable[[], DraftModel]


@dataclass(frozen=True)
class SpecdecAnswer:
    """One answer under the published names; times are of decoding.

    `target_...` and `draft_...` are of each model alone.
    """

    id: int
    prompt: str
    num_LM_call: int
    num_mismatched_tokens: int  # drafted and rejected, before the answer was truncated
    generated_length: int
    spec_time: float
    target_time: float
    draft_time: float = -1
    generated_length_target: int = -1
    generated_length_draft: int = -1


@dataclass(frozen=True)
class Rates:
    """Over several answers: discarded tokens and passes, both per token written."""

    discard: float
    verification: float
    tokens_a_round: float
    tokens_per_s: float
    speedup: float
    low: float  # its 95 % interval
    high: float


class CountedSchedule(ConstantLength):
    """A schedule that counts accepted and rejected tokens."""

    def __init__(self, lengths: ConstantLength) -> None:
        self.lengths, self.refused = lengths, 0
        self.accepted: list[int] = []  # tokens of each round

    def begin(self) -> int:
        return self.lengths.begin()

    def should_continue(self, drafted: int, prob: float, hidden: Any) -> bool:
        return self.lengths.should_continue(drafted, prob, hidden)

    def record(self, drafted: int, accepted: int, drafting: float, verifying: float) -> None:
        self.refused += drafted - accepted
        self.accepted.append(accepted)
        self.lengths.record(drafted, accepted, drafting, verifying)


def rates(results: list[SpecdecAnswer]) -> Rates:
    """Sum over answers, as published; the speedup is over pairs by question."""
    tokens = sum(one.generated_length for one in results)
    passes = sum(one.num_LM_call for one in results)
    refused = sum(one.num_mismatched_tokens for one in results)
    ratio = bootstrap([[one.target_time / one.spec_time] for one in results], sampled=True)
    seconds = sum(one.spec_time for one in results)
    return Rates(
        refused / tokens, passes / tokens, tokens / passes, tokens / seconds, *ratio
    )  # fmt: skip


def pareto(points: dict[str, tuple[float, float]]) -> list[str]:
    """Return the names that no other dominates; less is better in both coordinates."""

    def beaten(one: tuple[float, float]) -> bool:
        others = points.values()
        return any(a <= one[0] and b <= one[1] and (a, b) != one for a, b in others)

    return sorted(name for name, one in points.items() if not beaten(one))


def pareto_chart(figures: dict[str, Rates]) -> Figure:
    """Draw passes by discarded tokens, both per token written, a line per kind of schedule."""
    kinds: dict[str, list[tuple[float, float]]] = {}
    for name, one in figures.items():
        kinds.setdefault(name.split()[0], []).append((one.discard, one.verification))
    points = {name: sorted(some) for name, some in kinds.items()}
    title = "verification passes by discarded tokens"
    return line_chart(title, points, "discarded per token", "passes per token")


def schedules(draft: Any, head: AcceptanceHead | None) -> dict[str, DrafterFactory]:
    """Factories of each schedule's drafter; heuristic lengths carry over to the next answer."""
    heuristic = HeuristicLength()
    found: dict[str, DrafterFactory] = {
        f"constant {count}": lambda count=count: draft_model(draft, ConstantLength(count))
        for count in CONSTANTS
    }
    found["heuristic"] = lambda: draft_model(draft, heuristic)
    for each in THRESHOLDS:
        found[f"confident {each}"] = lambda each=each: draft_model(
            draft, ConfidenceStop(threshold=each, bounds=BOUNDS)
        )
        if head is not None:
            found[f"specdec++ {each}"] = lambda each=each: specdec(draft, head, each, BOUNDS)
    return found


def request_of(question: str, length: int, seed: int) -> Request:
    """Return a request with the published sampling, or greedy for seed -1."""
    messages = ({"role": "user", "content": question},)
    temperature = 1.0 if seed >= 0 else 0.0
    return Request(
        "chat", messages=messages, max_tokens=length, temperature=temperature,
        top_k=50 if temperature else 0, seed=max(seed, 0),
    )  # fmt: skip


def run(engine: Engine, model: Any, request: Request, drafter: Drafter) -> tuple[Done, float]:
    """Return one answer of `model` and its decode seconds, in the engine's thread."""
    prompt = prompt_of(request, engine.parts.tokenizer)

    def work() -> tuple[Done, float]:
        start = perf_counter()
        *_, done = generate(
            Generation(request, prompt, engine.parts.tokenizer, model.context), model, drafter
        )
        assert isinstance(done, Done)
        return done, done.usage.decode_seconds or perf_counter() - start

    return in_engine_thread(engine, work)


class DraftAlone(NamedTuple):
    """The draft model's own answer; -1 if the prompt does not fit its context."""

    seconds: float = -1
    tokens: int = -1


def draft_alone(engine: Engine, draft: Any, request: Request) -> DraftAlone:
    if len(prompt_of(request, engine.parts.tokenizer).ids) >= draft.context:
        return DraftAlone()
    done, seconds = run(engine, draft, request, NullDrafter())
    return DraftAlone(seconds, done.usage.completion_tokens)


def compare(
    engine: Engine,
    draft: Any,
    head: AcceptanceHead | None,
    questions: list[str],
    length: int,
    sampled: bool,
) -> dict[str, list[SpecdecAnswer]]:
    """Run every schedule and plain decoding on every question.

    Raises RuntimeError if a text differs.
    """
    makers = schedules(draft, head)
    found: dict[str, list[SpecdecAnswer]] = {name: [] for name in (*makers, ORACLE)}
    for number, question in enumerate(questions):
        request = request_of(question, length, number if sampled else -1)
        plain, plain_time = run(engine, engine.parts.target, request, NullDrafter())
        alone = draft_alone(engine, draft, request)
        drafters = {name: make() for name, make in makers.items()}
        known = draft_model(draft, probe := CountedSchedule(ConstantLength(BOUNDS[1])))
        run(engine, engine.parts.target, request, known)
        drafters[ORACLE] = draft_model(draft, OracleLength(probe.accepted))
        for name, drafter in drafters.items():
            drafter.lengths = counted = CountedSchedule(drafter.lengths)
            done, seconds = run(engine, engine.parts.target, request, drafter)
            if done.text != plain.text:
                raise RuntimeError(
                    f"{name}, question {number}: the text differs from plain decoding"
                )
            if done.usage.completion_tokens:
                found[name].append(
                    SpecdecAnswer(number, question, done.usage.forwards, counted.refused,
                           done.usage.completion_tokens, seconds, plain_time, alone.seconds,
                           plain.usage.completion_tokens, alone.tokens)
                )  # fmt: skip
        print(f"question {number + 1} of {len(questions)}", file=sys.stderr)
    return found


def measured(args: argparse.Namespace, questions: list[str]) -> dict[str, list[SpecdecAnswer]]:
    """Load the models and compare. Raises ValueError, OSError or WeightsError with one line."""
    config = Config(model=args.model, dtype=args.dtype, library=False)
    with Engine(config) as engine:
        draft = load_draft(args.draft_model, config, engine.parts.tokenizer, tensors=True)
        head = None
        if args.head:
            head = AcceptanceHead.load(args.head, draft.folder, draft.model.width)
        return compare(engine, draft, head, questions, args.length, not args.greedy)


def main(argv: list[str] | None = None) -> int:
    parser = argument_parser("specdec", __doc__)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--draft-model", required=True)
    parser.add_argument("--head", type=Path)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--limit", type=int, help="use only the first N questions")
    parser.add_argument(
        "--greedy", action="store_true", help="greedy decoding; default: temperature 1, top-k 50"
    )
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path, help="an SVG file to draw")
    args = parser.parse_args(argv)
    try:
        questions = read_questions(args.questions)[: args.limit]
        found = measured(args, questions)
    except (ValueError, OSError, RuntimeError, WeightsError) as problem:
        complain("specdec", problem)
        return 2
    figures = {name: rates(results) for name, results in found.items() if results}
    front = pareto(
        {name: (one.discard, one.verification) for name, one in figures.items() if name != ORACLE}
    )
    print(f"{'':<16}{'discarded':>10}{'passes':>8}{'a round':>9}{'tok/s':>8}  speed-up",
          file=sys.stderr)  # fmt: skip
    for name, one in figures.items():
        mark = "*" if name in front else " "
        print(
            f"{name:<15}{mark}{one.discard:>10.3f}{one.verification:>8.3f}"
            f"{one.tokens_a_round:>9.2f}{one.tokens_per_s:>8.1f}  "
            f"{one.speedup:.2f} ({one.low:.2f} to {one.high:.2f})",
            file=sys.stderr,
        )
    if args.out:
        for name, results in found.items():
            folder = args.out / name.replace(" ", "-")
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"results_0to{len(questions)}.json"
            file.write_text(json.dumps([asdict(one) for one in results], indent=1))
    if args.plot:
        save(pareto_chart(figures), args.plot)
    models = {"model": Path(args.model).name, "draft_model": Path(args.draft_model).name}
    every = {name: asdict(one) for name, one in figures.items()}
    known = environment(choose_device("auto").type)
    print_json_line({**models, **known, "pareto": front, "rates": every})
    return 0
