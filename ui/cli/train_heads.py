"""`draftline train acceptance-head`, `eagle-head`, `adaptive-tokens`: for models that draft.

Progress goes to stderr, what was made to stdout. Everything is kept as it is made, in the folder
that is named: the same command goes on where a killed one stopped, and ends with the same weights.
How heads are trained is in `engine.research.train`; they decide how fast answers come, never what they say.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.cli.index import FAILED, NO_MODEL, OK, USAGE, Failure, Trouble, say, show

if TYPE_CHECKING:
    from engine.model.torch_target import TorchTarget
    from engine.prompts.tokenizer import Tokenizer
    from engine.research.train.acceptance_data import Sample
    from engine.research.train.loop import Plan
    from engine.research.train.self_distill import TrainingText

TARGET, DRAFT = "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"
EXIT_CODES = """exit codes:
  0    done
  1    failed
  2    usage or bad input; nothing was trained
  3    a model could not be had
  130  interrupted; the same command goes on
"""


def add_parsers(whats: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add what can be trained here beside `draftline train drafter`."""
    head = _parser(
        whats, "acceptance-head", _acceptance,
        "SpecDec++'s head: when a draft model's tokens will be refused",
    )  # fmt: skip
    add = head.add_argument
    add("--model", metavar="M", default=TARGET, help=f"that verifies (default: {TARGET})")
    add("--draft-model", metavar="M", default=DRAFT, help=f"that drafts (default: {DRAFT})")
    _texts(head, "SpecDec++'s own format is read, too; --model is not loaded then")
    add("--layers", type=int, metavar="N", help="blocks of the head (default: 3)")
    add("--tied", action="store_true", help="all blocks share their weights, as published")
    add("--mixing", type=share, metavar="R", help="share of the model's own tokens (default: 0.15)")
    add("--weight", type=above, metavar="W", help="weight of refusals (default: 6)")
    _plan(head)
    eagle = _parser(
        whats, "eagle-head", _eagle, "EAGLE's head, which continues a model's hidden states"
    )
    eagle.add_argument(
        "--model", metavar="M", default=DRAFT, help=f"whose states (default: {DRAFT})"
    )
    _texts(eagle, "ShareGPT's format is read, too")
    _plan(eagle)
    tokens = _parser(
        whats, "adaptive-tokens", _adaptive, "SDSAT's tokens, behind which a model says what comes"
    )
    add = tokens.add_argument
    add("--model", metavar="M", default=DRAFT, help=f"that reads them (default: {DRAFT})")
    _texts(tokens, "ShareGPT's format is read, too")
    add("--slots", type=count, metavar="K", help="tokens to say at once (default: 5)")
    add("--tokens", type=count, metavar="N", help="different ones; the last is repeated for the "
        "rest (default: 5; 1 as published)")  # fmt: skip
    _plan(tokens)


def _parser(
    whats: Any, name: str, make: Callable[[argparse.Namespace], None], about: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = whats.add_parser(
        name, help=about, description=f"Train {about}.", epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER",
        help="for the head, its report and plots, and what is needed to go on",
    )  # fmt: skip
    parser.set_defaults(run=lambda args: run(args, make))
    return parser


def _texts(parser: argparse.ArgumentParser, published: str) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--questions", type=Path, metavar="FILE",
        help="JSONL: turns or prompt in each record; the model's answers are learnt from "
        "(default: 36 questions that come with Draftline)",
    )  # fmt: skip
    group.add_argument(
        "--data", type=Path, metavar="FILE", help=f"samples that were made before; {published}"
    )
    parser.add_argument(
        "--files", type=Path, action="append", default=[], metavar="DIR",
        help="learn from pieces of the texts in a folder, as of an installed library (again for "
        "more); beside --questions, where both are given",
    )  # fmt: skip
    parser.add_argument("--pieces", type=count, metavar="N", help="of --files (default: 100)")
    parser.add_argument(
        "--length", type=count, metavar="N",
        help="tokens of an answer (default: 128) or a piece (default: 256) at most",
    )  # fmt: skip


def _plan(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--epochs", type=count, metavar="N", help="times that all is gone through, at most")
    add("--batch", type=count, metavar="N", help="samples of a step")
    add("--rate", type=above, metavar="R", help="learning rate")
    add("--seed", type=int, metavar="N", default=0, help="the same one gives the same weights")


def count(text: str) -> int:
    """A whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a whole number of 1 or more")
    return int(text)


def share(text: str) -> float:
    """A number from 0 to 1."""
    return _number(text, lambda value: 0 <= value <= 1, "from 0 to 1")


def above(text: str) -> float:
    """A number above 0."""
    return _number(text, lambda value: 0 < value < float("inf"), "above 0")


def _number(text: str, good: Callable[[float], bool], what: str) -> float:
    try:
        if good(float(text)):
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text}: give a number {what}")


def run(args: argparse.Namespace, make: Callable[[argparse.Namespace], None]) -> int:
    """Do what the parsed arguments say; the exit code."""
    trouble = Trouble()
    logging.getLogger("engine").addHandler(trouble)
    try:
        if args.files and args.data is not None:
            raise Failure(USAGE, "--files with --data: leave out one of them")
        with _one_line():
            make(args)
    except Failure as failure:
        say(str(failure))
        return failure.code
    finally:
        logging.getLogger("engine").removeHandler(trouble)
    return OK


@contextmanager
def _one_line() -> Iterator[None]:
    """What may go wrong, as Failure."""
    from engine.drafting.draft_model import PairError
    from engine.drafting.methods.head_checkpoint import CheckpointError
    from engine.model.hf_model import UnsupportedModel
    from engine.research.train.loop import StateError
    from engine.research.train.recycling_weights import QuestionError
    from engine.research.train.sample_file import SampleError
    from engine.weights import WeightsError

    try:
        yield
    except (SampleError, QuestionError, StateError, PairError, CheckpointError) as error:
        raise Failure(USAGE, str(error)) from error
    except (UnsupportedModel, WeightsError) as error:
        raise Failure(NO_MODEL, str(error)) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise Failure(FAILED, f"{error.filename or 'the disk'}: {why}: check it") from error


# -- the parts ---------------------------------------------------------------------------------


def _acceptance(args: argparse.Namespace) -> None:
    from engine.research.train import acceptance

    out: Path = args.out
    if args.layers is not None and args.layers < 0:
        raise Failure(USAGE, f"--layers {args.layers}: give 0 or more")
    draft, tokenizer = _model(args.draft_model)
    samples = _samples(args, draft, tokenizer)
    given = {"layers": args.layers, "mixing": args.mixing, "weight": args.weight}
    options = {name: value for name, value in given.items() if value is not None}
    acceptance.train(
        samples, draft, out, _chosen(acceptance.PLAN, args), tied=args.tied, report=say, **options
    )
    show(f"{out}: an acceptance head for {args.draft_model}; report.json says how good it is")


def _eagle(args: argparse.Namespace) -> None:
    from engine.research.train import eagle

    model, tokenizer = _model(args.model)
    found = _answers(args, model, tokenizer, eagle.MAX_TEXT_TOKENS)
    eagle.train(found, model, args.out, _chosen(eagle.PLAN, args), say)
    show(f"{args.out}: an EAGLE head for {args.model}; report.json says how good it is")


def _adaptive(args: argparse.Namespace) -> None:
    from engine.research.train import adaptive_tokens

    model, tokenizer = _model(args.model)
    found = _answers(args, model, tokenizer, adaptive_tokens.MAX_TEXT_TOKENS)
    given = {"slots": args.slots, "tokens": args.tokens}
    options = {name: value for name, value in given.items() if value is not None}
    plan = _chosen(adaptive_tokens.PLAN, args)
    adaptive_tokens.train(found, model, args.out, plan, report=say, **options)
    show(f"{args.out}: adaptive tokens for {args.model}; report.json says how good they are")


def _answers(
    args: argparse.Namespace, model: TorchTarget, tokenizer: Tokenizer, longest: int
) -> list[TrainingText]:
    """Read, or written by the model."""
    from engine.research.train import self_distill

    if args.data is not None:
        return self_distill.load(args.data, tokenizer, min(longest, model.context))
    found = _pieces(args, tokenizer, model.context)
    if found and args.questions is None:
        return found
    length = args.length or self_distill.MAX_ANSWER_TOKENS
    questions, file = _questions(args.questions), args.out / "samples.jsonl"
    return self_distill.ask(questions, model, tokenizer, file, length, args.seed, say) + found


def _pieces(args: argparse.Namespace, tokenizer: Tokenizer, context: int) -> list[TrainingText]:
    """Of what --files names, if anything."""
    from engine.research.train import source_chunks

    if not args.files:
        return []
    length = min(args.length or source_chunks.CHUNK_TOKENS, context - 1)
    how_many = args.pieces or source_chunks.CHUNKS
    return source_chunks.source_chunks(args.files, tokenizer, how_many, length, args.seed, say)


def _samples(args: argparse.Namespace, draft: TorchTarget, tokenizer: Tokenizer) -> list[Sample]:
    """Read, or made with both models."""
    from engine.drafting.draft_model import check_pair
    from engine.research.train import acceptance_data

    if args.data is not None:
        return acceptance_data.load_samples(args.data)
    texts = _pieces(args, tokenizer, draft.context)
    questions = [] if texts and args.questions is None else _questions(args.questions)
    target, reading = _model(args.model)
    check_pair(args.model, reading, args.draft_model, tokenizer)
    length = args.length or acceptance_data.LENGTH
    found: list[Sample] = []
    if questions:
        file = args.out / "samples.jsonl"
        found += acceptance_data.make(
            questions, target, draft, reading, file, length, args.seed, say
        )
    if texts:
        texts = [one for one in texts if len(one.prefix) + len(one.tokens) < target.context]
        file = args.out / "pieces.jsonl"
        found += acceptance_data.along(texts, target, draft, file, args.seed, say)
    return found


def _questions(file: Path | None) -> list[str]:
    import engine.research.train
    from engine.research.train.recycling_weights import read_questions

    return read_questions(file or Path(engine.research.train.__file__).with_name("questions.jsonl"))


def _chosen(plan: Plan, args: argparse.Namespace) -> Plan:
    """`plan`, as far as nothing else is asked."""
    from dataclasses import replace

    given = {name: getattr(args, name) for name in ("epochs", "batch", "rate", "seed")}
    return replace(plan, **{name: value for name, value in given.items() if value is not None})


def _model(name: str) -> tuple[TorchTarget, Tokenizer]:
    """A model and its tokenizer, fetched first where it must be."""
    from engine.config import Config
    from engine.model.torch_target import TorchTarget
    from engine.prompts.tokenizer import Tokenizer
    from engine.weights import locate
    from ui.cli.models import progress_bars

    with progress_bars() as progress:
        folder = locate(name, progress=progress)
    return TorchTarget(folder, Config(model=name)), Tokenizer(folder)
