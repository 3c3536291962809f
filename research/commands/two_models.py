"""`draftline two-models`: speculative decoding with a draft model, its methods side by side.

The command line of LLMSpeculativeSampling. Texts and tables go to stdout, the rest to stderr. The
methods are in `research.comparison`, the output in `two_models_view.py`.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from research.commands.train_heads import DRAFT_MODEL, TARGET_MODEL
from ui.cli.options import add_command, checked_text, finite, positive, sampling, text_argument
from ui.common.consent import agreed
from ui.common.errors import FAILED, NO_MODEL, OK, USAGE, Failure, reason, say
from ui.common.terminal import write_json

if TYPE_CHECKING:
    from research.comparison import TimedRun
    from research.model_pair import ModelPair

DEFAULT_RUNS = 10  # runs of each method in a benchmark
DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
DEVICE_MEMORY = re.compile(r"(cpu|[0-9]{1,3})=([0-9]+(?:\.[0-9]+)?[KMG]i?B)")


def add_parser(commands: Any) -> None:
    """Add the `two-models` command."""
    parser = add_command(
        commands,
        "two-models",
        run,
        "compare methods of speculative decoding with a draft model",
        "Continue a text with two models of one tokenizer, by several methods side by side:\n"
        "each model alone, Leviathan's, Chen's and Draftline's own.",
    )
    add = parser.add_argument
    add("--model", metavar="M", default=TARGET_MODEL, help=f"the target (default: {TARGET_MODEL})")
    add(
        "--draft-model",
        metavar="M",
        default=DRAFT_MODEL,
        help=f"the draft model (default: {DRAFT_MODEL})",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-i", "--input", metavar="TEXT", help="text to continue; -: from stdin")
    what.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help="many texts, one per line; a .jsonl file holds strings, or records with a prompt",
    )
    add("--processes", type=positive, default=1, metavar="N", help="processes that share --prompts")
    add(
        "--ways", type=_methods, metavar="A,B", help="methods: target, draft, leviathan, chen, ours"
    )
    add("-M", "--max-tokens", type=positive, default=20, metavar="N", help="default: 20")
    add("-g", "--gamma", type=positive, default=4, metavar="N", help="draft length (default: 4)")
    add("--temperature", type=finite, default=1.0, metavar="T", help="default: 1; 0 is greedy")
    add("--top-k", type=int, default=20, metavar="K", help="default: 20; 0: all")
    add("--top-p", type=finite, default=0.9, metavar="P", help="default: 0.9")
    add("-s", "--seed", type=int, default=0, metavar="S", help="the same seed gives the same texts")
    add("--device", choices=["auto", "cpu", "cuda", "mps"], default="auto", help="of both models")
    add("--dtype", choices=[*DTYPES], default="f32", help="of both models' weights (default: f32)")
    for name, whose in (("--max-memory", "--model"), ("--draft-max-memory", "--draft-model")):
        add(
            name,
            type=_memory,
            metavar="0=9GB,cpu=20GB",
            help=f"split {whose} across these devices, with accelerate",
        )
    add(
        "-b",
        "--benchmark",
        type=positive,
        nargs="?",
        const=DEFAULT_RUNS,
        metavar="RUNS",
        help=f"compare tokens/s: the median of RUNS interleaved runs (default: {DEFAULT_RUNS})",
    )
    add("-p", "--profile", type=Path, metavar="FOLDER", help="write a torch profile of each method")
    add("--json", action="store_true", help="one JSON object instead of texts and tables")
    add("-v", "--verbose", action="store_true", help="show each token's origin, rounds, counters")


def run(args: argparse.Namespace) -> int:
    """Continue one text by several methods, or many texts by one."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    choices = sampling(args)
    if args.prompts is not None:
        return _continue_prompts(args, choices)
    if args.processes > 1:
        raise Failure(USAGE, f"--processes {args.processes}: is for --prompts: name a file")
    prompt = text_argument(args.input, "-i")
    return _compare(args, _load(args), prompt, choices)


def _compare(
    args: argparse.Namespace, pair: ModelPair, prompt: str, choices: dict[str, Any]
) -> int:
    """Continue one text by several methods."""
    from research.commands.two_models_view import (
        ORIGIN_COLOURS,
        as_json,
        show_gains,
        show_table,
        show_text,
    )
    from research.comparison import METHODS, benchmark, decode, profiled
    from ui.common.answer_view import AnswerView

    methods = args.ways or [*METHODS]

    def run_once(method: str) -> TimedRun:
        return decode(pair, method, [prompt], args.max_tokens, args.gamma, **choices)

    with AnswerView(silent=args.json) as view:
        if args.verbose and not args.json:
            view.legend(ORIGIN_COLOURS)
        timed: dict[str, list[TimedRun]] = {}
        for method in methods:
            view.phase(f"writing: {method}")
            with ExitStack() as stack:
                if args.profile:
                    args.profile.mkdir(parents=True, exist_ok=True)
                    stack.enter_context(profiled(args.profile / f"{method}.pt.trace.json"))
                timed[method] = [_checked(run_once, method)]
            if not args.json:
                show_text(view, method, timed[method][0], prompt, pair.tokenizer, args.verbose)
        if args.benchmark:
            timed = benchmark(run_once, methods, args.benchmark, view.phase)
        if args.json:
            about = {"model": args.model, "draft_model": args.draft_model, "prompt": prompt}
            write_json(about | as_json(timed, args.gamma))
        else:
            if args.benchmark:
                show_table(view, timed)
            show_gains(view, timed, args.gamma)
    if args.profile:
        say(f"{args.profile}: profiles for TensorBoard, Perfetto or chrome://tracing")
    return OK


def _checked(run_once: Callable[[str], TimedRun], method: str) -> TimedRun:
    """Run one method. Raises Failure for a prompt that is too long, or logits that are NaN."""
    try:
        return run_once(method)
    except ValueError as error:
        raise Failure(USAGE, str(error)) from error


# -- many prompts ------------------------------------------------------------------------------


def _continue_prompts(args: argparse.Namespace, choices: dict[str, Any]) -> int:
    """Continue many texts; print each as a JSON line, in the order of the file."""
    from research.distributed_map import distributed_map, is_worker, launch

    for name in ("benchmark", "profile"):
        if getattr(args, name) is not None:
            raise Failure(USAGE, f"--{name}: takes one text: give it with -i, not --prompts")
    methods = args.ways or ["ours"]
    if len(methods) > 1:
        raise Failure(USAGE, f"--ways {','.join(methods)}: --prompts takes one method: choose one")
    items = _items(args.prompts)
    several = is_worker() or args.processes > 1
    if several and not is_worker():
        _locate(args)  # fetch once, and report errors once
        code = launch([sys.executable, "-P", "-m", "ui.cli", *args.argv], args.processes)
        if code < 0:
            why = f"a process was killed (signal {-code})"
            raise Failure(FAILED, f"{why}: try fewer --processes, which need less memory")
        return code

    def make(device: str = "") -> Callable[[dict[str, Any]], dict[str, Any]]:
        pair = _load(args, device)
        return lambda item: _continue_one(pair, item, methods[0], args, choices)

    if several:
        results = distributed_map(items, make, _device(args))
    else:
        work = make()
        results = [work(item) for item in items]
    if results is None:  # the main process prints them all
        return OK
    for result in results:
        write_json(result)
    if bad := sum("error" in result for result in results):
        why = f"{bad} of {len(results)} prompts were not answered: see their errors"
        raise Failure(FAILED, why)
    return OK


def _continue_one(
    pair: ModelPair,
    item: dict[str, Any],
    method: str,
    args: argparse.Namespace,
    choices: dict[str, Any],
) -> dict[str, Any]:
    """Return a prompt with its text, or with an error."""
    from research.commands.two_models_view import record
    from research.comparison import decode

    if "error" in item:
        return item
    try:
        timed = decode(pair, method, [item["prompt"]], args.max_tokens, args.gamma, **choices)
    except ValueError as error:
        return item | {"error": str(error)}
    return item | record([timed])


def _items(file: Path) -> list[dict[str, Any]]:
    """Read the prompts of a file; a bad one has an `error`. Raises Failure if there are none."""
    try:
        lines = file.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = reason(error) if isinstance(error, OSError) else "not UTF-8"
        raise Failure(USAGE, f"{file}: {why}: name a text file with one prompt per line") from error
    items = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line) if file.suffix == ".jsonl" else line
            text = text["prompt"] if isinstance(text, dict) else text
            if not isinstance(text, str):
                raise TypeError("not a string")
            items.append({"prompt": checked_text(text, f"line {number}")})
        except (ValueError, KeyError, TypeError):
            why = f"line {number}: not a prompt: write a string, or a record with one"
            items.append({"prompt": line, "error": why})
        except Failure as failure:
            items.append({"prompt": line, "error": str(failure)})
    if not items:
        raise Failure(USAGE, f"{file}: no prompt in it: write one per line")
    return items


# -- the models --------------------------------------------------------------------------------


def _load(args: argparse.Namespace, device: str = "") -> ModelPair:
    """Load both models. Raises Failure."""
    from research.model_pair import load

    _agree(args)
    with _errors_as_failure():
        return load(
            args.draft_model,
            args.model,
            device or _device(args),
            DTYPES[args.dtype],
            args.max_memory,
            args.draft_max_memory,
        )


def _locate(args: argparse.Namespace) -> None:
    """Fetch both models if necessary and if the user agrees. Raises Failure."""
    from research.model_pair import locate_pair

    _agree(args)
    with _errors_as_failure():
        locate_pair(args.draft_model, args.model)


def _agree(args: argparse.Namespace) -> None:
    """Ask before either model is fetched. Raises Failure."""
    for model in (args.draft_model, args.model):
        agreed(model)


@contextmanager
def _errors_as_failure() -> Iterator[None]:
    """Raise errors of loading as Failure."""
    from engine.weights import WeightsError

    try:
        yield
    except (WeightsError, OSError) as error:
        raise Failure(NO_MODEL, str(error)) from error
    except ValueError as error:  # different tokenizers, too little memory
        raise Failure(USAGE, str(error)) from error
    except RuntimeError as error:  # torch's messages have several lines
        why = f"the models cannot be loaded ({str(error).strip().splitlines()[0]})"
        raise Failure(FAILED, f"{why}: try another --device or --dtype") from error


def _device(args: argparse.Namespace) -> str:
    """Choose the device that --device names. Raises Failure if it is not available."""
    from engine.model.torch.placement import choose_device

    try:
        return str(choose_device(args.device))
    except ValueError as error:
        raise Failure(USAGE, str(error)) from error


def _methods(text: str) -> list[str]:
    """Parse a list of methods, without duplicates."""
    choices = ("target", "draft", "leviathan", "chen", "ours")  # METHODS, without importing torch
    methods = [*dict.fromkeys(text.split(","))]
    for method in methods:
        if method not in choices:
            raise argparse.ArgumentTypeError(f"{method}: choose from {', '.join(choices)}")
    return methods


def _memory(text: str) -> dict[int | str, str]:
    """Parse the memory limit of each device, as transformers takes it."""
    limits: dict[int | str, str] = {}
    for part in text.split(","):
        match = DEVICE_MEMORY.fullmatch(part)
        if not match:
            raise argparse.ArgumentTypeError(f"{part}: write it like 0=9GB,1=500MiB,cpu=20GB")
        name: int | str = match[1] if match[1] == "cpu" else int(match[1])
        if name in limits:
            raise argparse.ArgumentTypeError(f"{part}: this device is named twice: name it once")
        limits[name] = match[2]
    return limits
