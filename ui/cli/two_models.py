"""`draftline two-models`: a small model drafts, a large one verifies; the ways to do it compared.

LLMSpeculativeSampling's command line. Texts and tables go to stdout, the rest to stderr. What a way
does is in `engine.research.comparison`; what is shown of it in `two_models_shown.py`.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ui.cli.index import Failure, say
from ui.cli.options import (
    FAILED,
    NO_MODEL,
    OK,
    USAGE,
    add_command,
    checked,
    finite,
    given,
    guarded,
    sampling,
)
from ui.cli.train_heads import DRAFT, TARGET, count

if TYPE_CHECKING:
    from engine.research.comparison import Timed
    from engine.research.model_pair import ModelPair

T = TypeVar("T")
RUNS = 10  # of a benchmark
DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
SIZE = re.compile(r"(cpu|[0-9]{1,3})=([0-9]+(?:\.[0-9]+)?[KMG]i?B)")


def add_parser(commands: Any) -> None:
    """Add the `two-models` command. Its `run` default is this file's `run`."""
    parser = add_command(
        commands,
        "two-models",
        "a small model drafts for a large one: ways compared",
        "Continue a text with two models of one tokenizer, in several ways side by side:\n"
        "each model alone, Leviathan's, Chen's and Draftline's own.",
    )
    add = parser.add_argument
    add("--model", metavar="M", default=TARGET, help=f"that verifies (default: {TARGET})")
    add("--draft-model", metavar="M", default=DRAFT, help=f"that drafts (default: {DRAFT})")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-i", "--input", metavar="TEXT", help="to be continued; - reads stdin")
    what.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help="many texts, one a line; a .jsonl file holds strings, or records with a prompt",
    )
    add("--processes", type=count, default=1, metavar="N", help="that share --prompts out")
    add("--ways", type=_ways, metavar="A,B", help="some of target, draft, leviathan, chen, ours")
    add("-M", "--max-tokens", type=count, default=20, metavar="N", help="to write (default: 20)")
    add("-g", "--gamma", type=count, default=4, metavar="N", help="drafted a round (default: 4)")
    add("--temperature", type=finite, default=1.0, metavar="T", help="default: 1; 0 is greedy")
    add("--top-k", type=int, default=20, metavar="K", help="default: 20; 0: all")
    add("--top-p", type=finite, default=0.9, metavar="P", help="default: 0.9")
    add("-s", "--seed", type=int, default=0, metavar="S", help="same seed, same texts")
    add("--device", choices=["auto", "cpu", "cuda", "mps"], default="auto", help="for both models")
    add("--dtype", choices=[*DTYPES], default="f32", help="of both models' weights (default: f32)")
    for name, whose in (("--max-memory", "--model"), ("--draft-max-memory", "--draft-model")):
        add(
            name,
            type=_memory,
            metavar="0=9GB,cpu=20GB",
            help=f"spread {whose} over these devices, with accelerate",
        )
    add("-b", "--benchmark", type=count, nargs="?", const=RUNS, metavar="RUNS", help="tokens/s "
        f"of each way: the median of RUNS by turns (default: {RUNS})")  # fmt: skip
    add("-p", "--profile", type=Path, metavar="FOLDER", help="a torch profile of each way")
    add("--json", action="store_true", help="one JSON object in place of texts and tables")
    add("-v", "--verbose", action="store_true", help="colour tokens by origin; counters, rounds")
    parser.set_defaults(run=lambda args: guarded(run, args))


def run(args: argparse.Namespace) -> int:
    """Do what the parsed arguments say; the exit code."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    choices = sampling(args)
    if args.prompts is not None:
        return _list(args, choices)
    if args.processes > 1:
        raise Failure(USAGE, f"--processes {args.processes}: shares --prompts out: name a file")
    prompt = given(args.input, "-i")
    pair = _load(args)
    return _compare(args, pair, prompt, choices)


def _compare(
    args: argparse.Namespace, pair: ModelPair, prompt: str, choices: dict[str, Any]
) -> int:
    """One text in several ways."""
    from engine.research.comparison import WAYS, benchmark, profiled, write
    from ui.cli.answer_view import Writer
    from ui.cli.two_models_view import COLOURS, Side, as_json, show_table, show_text, show_worth

    ways = args.ways or [*WAYS]

    def once(way: str) -> Timed:
        return write(pair, way, [prompt], args.max_tokens, args.gamma, **choices)

    with Writer(silent=args.json) as writer:
        if args.verbose and not args.json:
            writer.legend(COLOURS)
        found: dict[str, list[Timed]] = {}
        for way in ways:
            writer.phase(f"writing: {way}")
            with ExitStack() as stack:
                if args.profile:
                    args.profile.mkdir(parents=True, exist_ok=True)
                    stack.enter_context(profiled(args.profile / f"{way}.pt.trace.json"))
                found[way] = [_answered(once, way)]
            if not args.json:
                side = Side(way, found[way][0], prompt)
                show_text(writer, side, pair.tokenizer, args.verbose)
        if args.benchmark:
            found = benchmark(once, ways, args.benchmark, writer.phase)
        if args.json:
            about = {"model": args.model, "draft_model": args.draft_model, "prompt": prompt}
            writer.write(json.dumps(about | as_json(found, args.gamma)) + "\n")
        else:
            if args.benchmark:
                show_table(writer, found)
            show_worth(writer, found, args.gamma)
    if args.profile:
        say(f"{args.profile}: profiles, for TensorBoard, Perfetto or chrome://tracing")
    return OK


def _answered(once: Callable[[str], Timed], way: str) -> Timed:
    """Raises Failure for what the models cannot write."""
    try:
        return once(way)
    except ValueError as error:  # a prompt that is too long, logits that are not numbers
        raise Failure(USAGE, str(error)) from error


# -- a list ------------------------------------------------------------------------------------


def _list(args: argparse.Namespace, choices: dict[str, Any]) -> int:
    """Many texts, each a JSON line, in the order of the file."""
    from engine.research.distributed_map import inside, possible, spread, start

    for name in ("benchmark", "profile"):
        if getattr(args, name) is not None:
            raise Failure(USAGE, f"--{name}: takes one text: give it with -i, without --prompts")
    ways = args.ways or ["ours"]
    if len(ways) > 1:
        raise Failure(USAGE, f"--ways {','.join(ways)}: --prompts takes one way: choose one")
    items = _items(args.prompts)
    several = inside() or args.processes > 1
    if several and not possible():
        why = f"--processes {args.processes}: needs accelerate: `pip install accelerate`"
        raise Failure(USAGE, why)
    if several and not inside():
        _located(args)  # fetched once, and refused once
        code = start([sys.executable, "-P", "-m", "ui.cli", *args.given], args.processes)
        if code < 0:
            why = f"a process was killed (signal {-code})"
            raise Failure(FAILED, f"{why}: try fewer --processes, which need less memory")
        return code

    def make(device: str = "") -> Callable[[dict[str, Any]], dict[str, Any]]:
        pair = _load(args, device)
        return lambda item: _one(pair, item, ways[0], args, choices)

    if several:
        found = spread(items, make, _device(args) == "cpu")
    else:
        work = make()
        found = [work(item) for item in items]
    if found is None:  # another process shows them all
        return OK
    for one in found:
        print(json.dumps(one), flush=True)
    if bad := sum("error" in one for one in found):
        raise Failure(FAILED, f"{bad} of {len(found)} prompts were not answered: see their errors")
    return OK


def _one(
    pair: ModelPair,
    item: dict[str, Any],
    way: str,
    args: argparse.Namespace,
    choices: dict[str, Any],
) -> dict[str, Any]:
    """A prompt with its text, or with what is wrong."""
    from engine.research.comparison import write
    from ui.cli.two_models_view import record

    if "error" in item:
        return item
    try:
        timed = write(pair, way, [item["prompt"]], args.max_tokens, args.gamma, **choices)
    except ValueError as error:
        return item | {"error": str(error)}
    return item | record([timed])


def _items(file: Path) -> list[dict[str, Any]]:
    """The prompts of a file, and in place of what is none its error. Raises Failure."""
    try:
        lines = file.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        raise Failure(USAGE, f"{file}: {why}: name a text file with a prompt a line") from error
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line) if file.suffix == ".jsonl" else line
            text = text["prompt"] if isinstance(text, dict) else text
            if not isinstance(text, str):
                raise TypeError("no text")
            found.append({"prompt": checked(text, f"line {number}")})
        except (ValueError, KeyError, TypeError):
            why = f"line {number}: no prompt: write a string, or a record with one"
            found.append({"prompt": line, "error": why})
        except Failure as failure:
            found.append({"prompt": line, "error": str(failure)})
    if not found:
        raise Failure(USAGE, f"{file}: no prompt in it: write one a line")
    return found


# -- the models --------------------------------------------------------------------------------


def _load(args: argparse.Namespace, device: str = "") -> ModelPair:
    from engine.research.model_pair import load

    return _told(
        lambda: load(
            args.draft_model,
            args.model,
            device or _device(args),
            DTYPES[args.dtype],
            args.max_memory,
            args.draft_max_memory,
        )
    )


def _located(args: argparse.Namespace) -> None:
    from engine.research.model_pair import locate_pair

    _told(lambda: locate_pair(args.draft_model, args.model))


def _told(make: Callable[[], T]) -> T:
    """What it gives. Raises Failure where a model cannot be had, or the pair not be used."""
    from engine.weights import WeightsError

    try:
        return make()
    except (WeightsError, OSError) as error:
        raise Failure(NO_MODEL, str(error)) from error
    except ValueError as error:  # other tokenizers, memory that does not suffice
        raise Failure(USAGE, str(error)) from error
    except RuntimeError as error:  # torch's, of many lines
        why = str(error).strip().split("\n")[0]
        raise Failure(
            FAILED, f"the models cannot be loaded ({why}): try another --device or --dtype"
        ) from error


def _device(args: argparse.Namespace) -> str:
    """The device that is asked for. Raises Failure where there is none."""
    from engine.model.placement import choose_device

    try:
        return str(choose_device(args.device))
    except ValueError as error:
        raise Failure(USAGE, str(error)) from error


def _ways(text: str) -> list[str]:
    known = ("target", "draft", "leviathan", "chen", "ours")
    ways = [*dict.fromkeys(text.split(","))]
    for way in ways:
        if way not in known:
            raise argparse.ArgumentTypeError(f"{way}: choose from {', '.join(known)}")
    return ways


def _memory(text: str) -> dict[int | str, str]:
    """What of each device may be used, as transformers takes it."""
    found: dict[int | str, str] = {}
    for part in text.split(","):
        match = SIZE.fullmatch(part)
        if not match:
            raise argparse.ArgumentTypeError(f"{part}: write it like 0=9GB,1=500MiB,cpu=20GB")
        name: int | str = match[1] if match[1] == "cpu" else int(match[1])
        if name in found:
            raise argparse.ArgumentTypeError(f"{part}: this device was named before: name it once")
        found[name] = match[2]
    return found
