"""`draftline train acceptance-head`, `eagle-head` and `adaptive-tokens`.

Progress goes to stderr, the result to stdout. Everything is saved in the named folder as it is
made: the same command resumes where a killed one stopped, and ends with the same weights. Training
is in `research.train`; it changes how fast answers are, never what they say.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.cli.options import add_command, positive
from ui.common.errors import FAILED, OK, USAGE, Failure, reason, say
from ui.common.loading import load_target, load_tokenizer
from ui.common.terminal import write_line

if TYPE_CHECKING:
    from engine.model.torch.torch_target import TorchTarget
    from engine.prompts.tokenizer import Tokenizer
    from research.train.acceptance_data import Sample
    from research.train.loop import TrainingPlan
    from research.train.self_distill import TrainingText

TARGET_MODEL, DRAFT_MODEL = "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"
EXIT_CODES = """exit codes:
  0    done
  1    failed
  2    usage or bad input; nothing was trained
  3    a model is not available
  130  interrupted; the same command resumes
"""


def add_parsers(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the three commands to `draftline train`."""
    parser = _add_parser(
        kinds,
        "acceptance-head",
        _train_acceptance_head,
        "SpecDec++'s head, which predicts when a draft model's tokens are rejected",
    )
    add = parser.add_argument
    add("--model", metavar="M", default=TARGET_MODEL, help=f"the target (default: {TARGET_MODEL})")
    add(
        "--draft-model",
        metavar="M",
        default=DRAFT_MODEL,
        help=f"the draft model (default: {DRAFT_MODEL})",
    )
    _add_text_options(parser, "SpecDec++'s own format is read too; --model is not loaded then")
    add("--layers", type=int, metavar="N", help="residual blocks of the head (default: 3)")
    add("--tied", action="store_true", help="all blocks share their weights, as published")
    add(
        "--mixing",
        type=fraction,
        metavar="R",
        help="fraction of tokens that are the target's own (default: 0.15)",
    )
    add(
        "--weight",
        type=positive_number,
        metavar="W",
        help="loss weight of rejections (default: 6)",
    )
    _add_plan_options(parser)
    parser = _add_parser(
        kinds,
        "eagle-head",
        _train_eagle_head,
        "EAGLE's head, which extrapolates a model's hidden states",
    )
    parser.add_argument("--model", metavar="M", default=DRAFT_MODEL, help=f"default: {DRAFT_MODEL}")
    _add_text_options(parser, "ShareGPT's format is read too")
    _add_plan_options(parser)
    parser = _add_parser(
        kinds,
        "adaptive-tokens",
        _train_adaptive_tokens,
        "SDSAT's adaptive tokens, after which a model predicts several tokens at once",
    )
    add = parser.add_argument
    add("--model", metavar="M", default=DRAFT_MODEL, help=f"default: {DRAFT_MODEL}")
    _add_text_options(parser, "ShareGPT's format is read too")
    add("--slots", type=positive, metavar="K", help="tokens predicted at once (default: 5)")
    add(
        "--tokens",
        type=positive,
        metavar="N",
        help="different ones; the last fills the other slots (default: 5; 1 as published)",
    )
    _add_plan_options(parser)


def _add_parser(
    kinds: Any, name: str, train: Callable[[argparse.Namespace], None], about: str
) -> argparse.ArgumentParser:
    parser = add_command(
        kinds, name, lambda args: run(args, train), about, f"Train {about}.", EXIT_CODES
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="for the result, its report and plots, and the state to resume from",
    )
    return parser


def _add_text_options(parser: argparse.ArgumentParser, formats: str) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--questions",
        type=Path,
        metavar="FILE",
        help="JSONL: turns or prompt in each record; train on the model's answers "
        "(default: 36 questions that come with Draftline)",
    )
    group.add_argument(
        "--data", type=Path, metavar="FILE", help=f"samples of an earlier run; {formats}"
    )
    parser.add_argument(
        "--files",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="train on chunks of the texts in a folder, such as an installed library (can be "
        "repeated); beside --questions, if both are given",
    )
    parser.add_argument("--pieces", type=positive, metavar="N", help="of --files (default: 100)")
    parser.add_argument(
        "--length",
        type=positive,
        metavar="N",
        help="most tokens of an answer (default: 128) or a chunk (default: 256)",
    )


def _add_plan_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--epochs", type=positive, metavar="N", help="most passes over the samples")
    add("--batch", type=positive, metavar="N", help="samples a step")
    add("--rate", type=positive_number, metavar="R", help="learning rate")
    add("--seed", type=int, metavar="N", default=0, help="the same seed gives the same weights")


def fraction(text: str) -> float:
    """Parse a number from 0 to 1."""
    return _number(text, lambda value: 0 <= value <= 1, "from 0 to 1")


def positive_number(text: str) -> float:
    """Parse a finite number above 0."""
    return _number(text, lambda value: 0 < value < float("inf"), "above 0")


def _number(text: str, valid: Callable[[float], bool], range_: str) -> float:
    try:
        if valid(float(text)):
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text}: give a number {range_}")


def run(args: argparse.Namespace, train: Callable[[argparse.Namespace], None]) -> int:
    """Run one of the trainings."""
    if args.files and args.data is not None:
        raise Failure(USAGE, "--files with --data: leave out one of them")
    with _errors_as_failure():
        train(args)
    return OK


@contextmanager
def _errors_as_failure() -> Iterator[None]:
    """Raise errors of samples, heads and files as Failure."""
    from engine.drafting.draft_model import PairError
    from research.methods.head_checkpoint import CheckpointError
    from research.train.loop import StateError
    from research.train.sample_file import SampleError

    try:
        yield
    except (SampleError, StateError, PairError, CheckpointError) as error:
        raise Failure(USAGE, str(error)) from error
    except OSError as error:
        why = f"{error.filename or 'the disk'}: {reason(error)}: check it"
        raise Failure(FAILED, why) from error


# -- the trainings -----------------------------------------------------------------------------


def _train_acceptance_head(args: argparse.Namespace) -> None:
    from research.train import acceptance

    out: Path = args.out
    if args.layers is not None and args.layers < 0:
        raise Failure(USAGE, f"--layers {args.layers}: give 0 or more")
    draft, tokenizer = load_target(args.draft_model), load_tokenizer(args.draft_model)
    samples = _samples(args, draft, tokenizer)
    given = {"layers": args.layers, "mixing": args.mixing, "weight": args.weight}
    options = {name: value for name, value in given.items() if value is not None}
    acceptance.train(
        samples, draft, out, _plan(acceptance.PLAN, args), tied=args.tied, report=say, **options
    )
    write_line(f"{out}: an acceptance head for {args.draft_model}; report.json says how good it is")


def _train_eagle_head(args: argparse.Namespace) -> None:
    from research.train import eagle

    model, tokenizer = load_target(args.model), load_tokenizer(args.model)
    found = _answers(args, model, tokenizer, eagle.MAX_TEXT_TOKENS)
    eagle.train(found, model, args.out, _plan(eagle.PLAN, args), say)
    write_line(f"{args.out}: an EAGLE head for {args.model}; report.json says how good it is")


def _train_adaptive_tokens(args: argparse.Namespace) -> None:
    from research.train import adaptive_tokens

    model, tokenizer = load_target(args.model), load_tokenizer(args.model)
    found = _answers(args, model, tokenizer, adaptive_tokens.MAX_TEXT_TOKENS)
    given = {"slots": args.slots, "tokens": args.tokens}
    options = {name: value for name, value in given.items() if value is not None}
    plan = _plan(adaptive_tokens.PLAN, args)
    adaptive_tokens.train(found, model, args.out, plan, report=say, **options)
    write_line(f"{args.out}: adaptive tokens for {args.model}; report.json says how good they are")


def _answers(
    args: argparse.Namespace, model: TorchTarget, tokenizer: Tokenizer, longest: int
) -> list[TrainingText]:
    """Get the texts to train on: read from --data, or chunks and the model's answers."""
    from research.train import self_distill

    if args.data is not None:
        return self_distill.load(args.data, tokenizer, min(longest, model.context))
    found = _chunks(args, tokenizer, model.context)
    if found and args.questions is None:
        return found
    length = args.length or self_distill.MAX_ANSWER_TOKENS
    questions, file = _questions(args.questions), args.out / "samples.jsonl"
    return self_distill.ask(questions, model, tokenizer, file, length, args.seed, say) + found


def _chunks(args: argparse.Namespace, tokenizer: Tokenizer, context: int) -> list[TrainingText]:
    """Draw chunks from the texts in --files."""
    from research.train import source_chunks

    if not args.files:
        return []
    length = min(args.length or source_chunks.CHUNK_TOKENS, context - 1)
    count = args.pieces or source_chunks.CHUNKS
    return source_chunks.source_chunks(args.files, tokenizer, count, length, args.seed, say)


def _samples(args: argparse.Namespace, draft: TorchTarget, tokenizer: Tokenizer) -> list[Sample]:
    """Get the samples to train on: read from --data, or made with both models."""
    from engine.drafting.draft_model import check_pair
    from research.train import acceptance_data

    if args.data is not None:
        return acceptance_data.load_samples(args.data)
    texts = _chunks(args, tokenizer, draft.context)
    questions = [] if texts and args.questions is None else _questions(args.questions)
    target, target_tokenizer = load_target(args.model), load_tokenizer(args.model)
    check_pair(args.model, target_tokenizer, args.draft_model, tokenizer)
    length = args.length or acceptance_data.MAX_ANSWER_TOKENS
    found: list[Sample] = []
    if questions:
        file = args.out / "samples.jsonl"
        found += acceptance_data.make(
            questions, target, draft, target_tokenizer, file, length, args.seed, say
        )
    if texts:
        texts = [text for text in texts if len(text.prefix) + len(text.tokens) < target.context]
        file = args.out / "pieces.jsonl"
        found += acceptance_data.along(texts, target, draft, file, args.seed, say)
    return found


def _questions(file: Path | None) -> list[str]:
    import research.train
    from research.train.sample_file import read_questions

    return read_questions(file or Path(research.train.__file__).with_name("questions.jsonl"))


def _plan(plan: TrainingPlan, args: argparse.Namespace) -> TrainingPlan:
    """Return `plan` with the values of the options that were given."""
    from dataclasses import replace

    given = {name: getattr(args, name) for name in ("epochs", "batch", "rate", "seed")}
    return replace(plan, **{name: value for name, value in given.items() if value is not None})
