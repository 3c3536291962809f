"""SDSAT's evaluation (arXiv 2403.18647): how many adaptive tokens per round pay, from 0 to 13.

    python -m bench sdsat --tokens FOLDER --human-eval FILE --share 0.5 --length 512 --out FOLDER
    python -m bench sdsat --tokens FOLDER --infilling FILE --share 0.03 --length 50 --out FOLDER

On each prompt plain decoding (k = 0) comes first, then all other k in a rotating order; the texts
must be equal. --trees (k of 5, 7, 9, 11, 13) and --temperature give the published runs with nucleus
sampling: 0.2 or 1, --top-k 50, --top-p 0.95. --devices cuda:0,cuda:1 runs a process per device,
each on its share of the prompts, and merges their figures.

OUT gets the published files: kN.tsv (time, rounds and text of each prompt), meanvar.tsv with the
best k, raw_data.json, and charts by k with 95 % intervals (1.96 standard errors). The run prints a
table on stderr and one JSON line. Times exclude the prompt. Exit code 1: a text differs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.common import questions
from bench.common.cli import argument_parser, complain
from bench.common.engine_thread import in_engine_thread
from bench.common.environment import ROOT, environment
from bench.common.report import print_json_line
from bench.research.sdsat_figures import AnswersByK, SdsatAnswer, answers_of, results, write
from engine import DEFAULT_MODEL, Config, Done, Engine, Request, Step
from engine.generate import Generation, generate
from engine.prompts.builder import prompt_of
from engine.weights import WeightsError
from research.methods.sdsat import TEMPLATES, SdsatDrafter, install_embeddings, load

CHAINS, WARM_UP = tuple(range(14)), 16


# -- measuring -------------------------------------------------------------------------------------


def answer(engine: Engine, name: str, request: Request, drafter: SdsatDrafter) -> SdsatAnswer:
    """Return one answer, decoded in the model's own thread."""
    prompt = prompt_of(request, engine.parts.tokenizer)

    def work() -> tuple[list[Step], Done]:
        events = list(
            generate(
                Generation(request, prompt, engine.parts.tokenizer, engine.parts.target.context),
                engine.parts.target,
                drafter,
            )
        )
        *steps, done = (one for one in events if isinstance(one, Done) or one.prefill is None)
        return steps, done

    steps, done = in_engine_thread(engine, work)
    rounds = [one for one in steps if one.drafted]
    chain = sum(one.drafted - 1 for one in rounds)
    return SdsatAnswer(
        name,
        done.text,
        len(prompt.ids),
        done.usage.completion_tokens,
        done.usage.decode_seconds,
        [one.seconds for one in steps],
        drafter.slots * sum(one.drafted > 1 for one in rounds) if drafter.tree else chain,
        sum(max(one.accepted - 1, 0) for one in rounds),
        sum(one.accepted + 1 for one in steps),
    )


def sweep(
    engine: Engine, ids: list[int], asked: Sequence[questions.Question], args: argparse.Namespace
) -> AnswersByK:
    """Answer all prompts with all k. Answers without a token are left out."""
    found: AnswersByK = {k: [] for k in args.ks}
    for place, question in enumerate(asked):
        turn = place % max(len(args.ks) - 1, 1)
        rest = args.ks[1:]
        request = with_sampling(question.request_after((), args.length), args, place)
        if place == 0:
            for k in args.ks:
                answer(engine, "", with_sampling(question.request_after((), WARM_UP), args, 0),
                       SdsatDrafter(ids, k, args.trees and k > 0))  # fmt: skip
        for k in [args.ks[0], *rest[turn:], *rest[:turn]]:
            one = answer(
                engine, str(question.id), request, SdsatDrafter(ids, k, args.trees and k > 0)
            )
            if one.tokens:
                found[k].append(one)
        print(f"prompt {place + 1} of {len(asked)}: {question.id}", file=sys.stderr)
    return found


def with_sampling(request: Request, args: argparse.Namespace, seed: int) -> Request:
    if not args.temperature:
        return request
    how = {"top_k": args.top_k, "top_p": args.top_p, "seed": seed}
    return replace(request, temperature=args.temperature, **how)


def run_on_devices(argv: list[str], devices: list[str], out: Path) -> AnswersByK:
    """Run a process per device on its share of the prompts. Raises RuntimeError if one fails."""
    parts = [out / f"part-{n}" for n in range(len(devices))]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "bench", "sdsat", *argv, "--device", device, "--devices", "",
             "--part", f"{n}/{len(devices)}", "--out", str(parts[n])],
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
        )
        for n, device in enumerate(devices)
    ]  # fmt: skip
    ended = [one.wait() for one in running]
    for device, code in zip(devices, ended, strict=True):
        if code not in (0, 1):
            raise RuntimeError(f"--devices: the process on {device} ended with {code}: see above")
    return merged([answers_of(part) for part in parts])


def merged(parts: Sequence[AnswersByK]) -> AnswersByK:
    """Merge the answers of several processes."""
    ks = list(dict.fromkeys(k for part in parts for k in part))
    return {k: [one for part in parts for one in part.get(k, [])] for k in ks}


# -- the run ---------------------------------------------------------------------------------------


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argument_parser("sdsat", __doc__)
    add = parser.add_argument
    add(
        "--tokens",
        type=Path,
        required=True,
        help="the folder that `draftline train adaptive-tokens` wrote",
    )
    add(
        "--questions",
        type=Path,
        help="JSONL: question_id, category, turns (only the first is used)",
    )
    add("--human-eval", type=Path, help="JSONL: task_id, prompt")
    add("--infilling", type=Path, help="JSONL: name, prompt, suffix; or a folder of *.py files")
    add(
        "--suffix-first",
        action="store_true",
        help="suffix before prefix in --infilling, as published for CodeLlama",
    )
    add("--share", type=float, default=1.0, help="the first share of the prompts")
    add("--length", type=int, default=256, help="token limit of an answer")
    add(
        "--ks", help="adaptive tokens to compare; default: 0 to 13, with --trees the published ones"
    )
    add("--trees", action="store_true", help="the published trees instead of chains")
    add("--temperature", type=float, default=0.0)
    add("--top-k", type=int, default=50)
    add("--top-p", type=float, default=0.95)
    add("--model", default=DEFAULT_MODEL)
    add("--device", default="cpu")
    add("--devices", default="", help="such as cuda:0,cuda:1: a process per device")
    add("--part", default="0/1", help="number/count: the part of the prompts to run")
    add("--dtype", default="auto")
    add("--threads", type=int, default=0, help="0: one per core")
    add("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    known = (0, *TEMPLATES) if args.trees else CHAINS
    try:
        ks = [int(one) for one in args.ks.split(",")] if args.ks else list(known)
        number, of = (int(one) for one in args.part.split("/"))
    except ValueError:
        parser.error(f"--ks {args.ks}, --part {args.part}: write 0,3,5 and 0/2")
    if wrong := [k for k in ks if k not in known]:
        parser.error(f"--ks {wrong[0]}: choose from {','.join(map(str, known))}")
    args.ks = list(dict.fromkeys([0, *ks]))
    readers = (("questions", questions.spec_bench), ("human_eval", questions.human_eval),
               ("infilling", questions.infilling))  # fmt: skip
    try:
        every = [one for name, read in readers if (path := getattr(args, name))
                 for one in leading_share(read(path), args.share)]  # fmt: skip
    except (ValueError, OSError) as problem:
        parser.error(str(problem))
    if not every:
        parser.error("no prompts: name a file with --questions, --human-eval or --infilling")
    if args.suffix_first:
        every = [questions.suffix_first(one) for one in every]
    args.asked = every[number::of]
    return args


def leading_share(every: list[questions.Question], share: float) -> list[questions.Question]:
    """Return the first `share` of the prompts, at least one."""
    return every[: max(1, round(share * len(every)))]


def run_here(args: argparse.Namespace) -> AnswersByK:
    """Answer in this process. Raises ValueError, OSError or WeightsError with one line."""
    config = Config(
        model=args.model, device=args.device, dtype=args.dtype, threads=args.threads, library=False
    )
    with Engine(config, tensors=True) as engine:
        target = engine.parts.target
        ids = install_embeddings(target, load(args.tokens, target.folder, target.model.width))
        return sweep(engine, ids, args.asked, args)


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    try:
        if args.devices:
            given = list(sys.argv[1:] if argv is None else argv)
            found = run_on_devices(given, args.devices.split(","), args.out)
        else:
            found = run_here(args)
    except (ValueError, OSError, RuntimeError, WeightsError) as problem:
        complain("sdsat", problem)
        return 2
    if not found[0]:
        complain("sdsat", "no answer has a token: name other prompts")
        return 2
    best, lines = write(args.out, found, args.length), results(found)
    print(f"{'k':>3}{'tok/s':>9}{'accepted':>10}{'a round':>9}{'ms':>9}  speed-up", file=sys.stderr)
    for one in lines:
        print(
            f"{one['k']:>3}{one['tokens_per_s']:>9}{one['accept_rate']:>10}"
            f"{one['mean_accepted']:>9}{one['loop_ms']:>9}  {one['speedup']} "
            f"({one['speedup_low']} to {one['speedup_high']})"
            f"{'' if one['equal'] else ' DIFFERENT'}",
            file=sys.stderr,
        )
    record = {"model": Path(args.model).name, **environment(args.devices or args.device)}
    print_json_line({**record, "best": best, "results": lines})
    return 0 if all(one["equal"] for one in lines) else 1
