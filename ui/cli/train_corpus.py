"""`draftline train corpus`: texts to draft from, of files or of the model's own answers.

What was made goes to stdout; progress and trouble to stderr. The corpus is written last, in one
step; answers are kept beside it as they come, and a run that was cut short goes on from them.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.cli.index import FAILED, NO_MODEL, OK, USAGE, Failure, Trouble, count, say, show, size
from ui.cli.index import tokenizer_of as tokenizer_named

if TYPE_CHECKING:
    from engine.prompts.tokenizer import Tokenizer
    from engine.research.train.datastore import Ids

EXIT_CODES = """exit codes:
  0    done
  1    failed; the corpus is as it was
  2    usage or bad input; nothing was made
  3    the model could not be had
  130  interrupted; the corpus is as it was, the answers until then are kept
"""


def add_parser(subparsers: Any) -> None:
    """Add `corpus` to the `train` command. Its `run` default is this file's `run`."""
    parser = subparsers.add_parser(
        "corpus",
        help="texts that sam, rest and others draft from",
        description="Make a corpus for --corpus, of folders, of answers that the model gives to\n"
        "prompts, or of both. It serves the models of one tokenizer.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="FILE", help="the corpus")
    add(
        "--files", type=Path, action="append", default=[], metavar="DIR",
        help="a folder whose texts are in it (again for more)",
    )  # fmt: skip
    add(
        "--prompts", type=Path, metavar="FILE",
        help="JSONL or a JSON list: turns, prompt, question or instruction in each record. The "
        "model's answers are in the corpus; they take seconds to minutes each",
    )  # fmt: skip
    add("--max-tokens", type=int, default=1024, metavar="N", help="of an answer; default: 1024")
    add("--seed", type=int, default=0, metavar="S", help="same seed, same answers")
    add("--model", metavar="M", help="a built-in name, a folder, a GGUF file or a hub id")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what the parsed arguments say; the exit code."""
    trouble = Trouble()
    loggers = [logging.getLogger(name) for name in ("engine", "index")]
    for logger in loggers:
        logger.addHandler(trouble)
    try:
        _make(args)
    except Failure as failure:
        say(str(failure))
        return failure.code
    finally:
        for logger in loggers:
            logger.removeHandler(trouble)
    return OK


def _make(args: argparse.Namespace) -> None:
    from engine.config import DEFAULT_MODEL
    from engine.drafting.methods import datastore
    from engine.research.train.datastore import BadPrompts, prompts
    from ui.cli.train import refused

    model = args.model or DEFAULT_MODEL
    if not args.files and args.prompts is None:
        raise Failure(USAGE, "nothing to make it of: give --files DIR or --prompts FILE")
    if args.max_tokens < 1:
        raise Failure(USAGE, f"--max-tokens {args.max_tokens}: no answer: give 1 or more")
    if why := refused(args.out):
        raise Failure(USAGE, f"{args.out}: {why}")
    for folder in args.files:
        if not folder.is_dir():
            raise Failure(USAGE, f"{folder}: not a folder: name the one that the texts are in")
    try:
        questions = prompts(args.prompts) if args.prompts else []
    except BadPrompts as error:
        raise Failure(USAGE, str(error)) from error
    tokenizer = tokenizer_named(model, fetch=True)
    documents = [*_texts(args, tokenizer), *_answers(args, questions, model, tokenizer)]
    if not documents:
        given = args.files[0] if args.files else args.prompts
        raise Failure(USAGE, f"{given}: no text in it that can be used: name others")
    made = datastore.build(documents)
    args.interrupt.commit()
    try:
        datastore.save(made, args.out, tokenizer.fingerprint, {"model": model})
    except OSError as error:
        why = error.strerror or str(error)
        raise Failure(FAILED, f"{args.out}: not written ({why}): check the disk") from error
    tokens = count(sum(map(len, documents)), "token")
    bytes_ = size(args.out.stat().st_size)
    show(f"{args.out}: {count(len(documents), 'text')}, {tokens}, {bytes_}")


def _texts(args: argparse.Namespace, tokenizer: Tokenizer) -> list[Ids]:
    from engine.research.train.datastore import from_files

    if not args.files:
        return []
    try:
        return from_files([folder.resolve() for folder in args.files], tokenizer)
    except OSError as error:
        raise Failure(USAGE, f"{error}: name a folder that can be read") from error


def _answers(
    args: argparse.Namespace, questions: list[str], model: str, tokenizer: Tokenizer
) -> list[Ids]:
    if not questions:
        return []
    from engine.config import Config
    from engine.model.torch_target import TorchTarget
    from engine.research.train.datastore import from_answers
    from engine.weights import locate

    try:
        target = TorchTarget(locate(model), Config(model=model))
    except (ValueError, OSError) as error:
        raise Failure(NO_MODEL, f"{model}: {error}") from error
    kept = args.out.with_name(f"{args.out.name}.answers.jsonl")
    say(f"{count(len(questions), 'prompt')}; answers are kept in {kept}")
    try:
        return from_answers(
            questions, model, target, tokenizer, kept, args.max_tokens, args.seed, say
        )
    except OSError as error:
        why = error.strerror or str(error)
        raise Failure(FAILED, f"{kept}: not written ({why}): check the disk") from error
