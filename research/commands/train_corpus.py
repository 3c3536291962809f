"""`draftline train corpus`: a corpus to draft from, of files or of the model's own answers.

The result goes to stdout, progress and problems to stderr. The corpus is written last, atomically;
answers are saved next to it one by one, and the same command resumes from them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.cli.options import MODEL_HELP, add_command, unwritable
from ui.common.errors import FAILED, OK, USAGE, Failure, reason, say
from ui.common.loading import load_target, load_tokenizer
from ui.common.terminal import format_bytes, plural, write_line

if TYPE_CHECKING:
    from engine.prompts.tokenizer import Tokenizer
    from research.train.datastore import Ids

EXIT_CODES = """exit codes:
  0    done
  1    failed; the corpus is unchanged
  2    usage or bad input; nothing was made
  3    the model is not available
  130  interrupted; the corpus is unchanged, finished answers are saved
"""


def add_parser(kinds: Any) -> None:
    """Add `corpus` to the `train` command."""
    parser = add_command(
        kinds,
        "corpus",
        run,
        "texts that sam, rest and others draft from",
        "Make a corpus for --corpus from folders, from the model's answers to prompts, or from\n"
        "both. It serves all models with the same tokenizer.",
        EXIT_CODES,
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="FILE", help="the corpus")
    add(
        "--files",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a folder of texts; can be repeated",
    )
    add(
        "--prompts",
        type=Path,
        metavar="FILE",
        help="JSONL or a JSON list: turns, prompt, question or instruction in each record. The "
        "model answers them, which takes seconds to minutes each",
    )
    add("--max-tokens", type=int, default=1024, metavar="N", help="of an answer; default: 1024")
    add("--seed", type=int, default=0, metavar="S", help="the same seed gives the same answers")
    add("--model", metavar="M", help=MODEL_HELP)


def run(args: argparse.Namespace) -> int:
    """Make the corpus and write it."""
    from engine.config import DEFAULT_MODEL
    from research.methods import datastore
    from research.train.sample_file import SampleError, read_questions

    model = args.model or DEFAULT_MODEL
    if not args.files and args.prompts is None:
        raise Failure(USAGE, "no texts: give --files DIR or --prompts FILE")
    if args.max_tokens < 1:
        raise Failure(USAGE, f"--max-tokens {args.max_tokens}: no answers: give 1 or more")
    if why := unwritable(args.out):
        raise Failure(USAGE, f"{args.out}: {why}")
    for folder in args.files:
        if not folder.is_dir():
            raise Failure(USAGE, f"{folder}: not a folder: name the folder of the texts")
    try:
        questions = read_questions(args.prompts) if args.prompts else []
    except SampleError as error:
        raise Failure(USAGE, str(error)) from error
    tokenizer = load_tokenizer(model)
    documents = [*_texts(args, tokenizer), *_answers(args, questions, model, tokenizer)]
    if not documents:
        given = args.files[0] if args.files else args.prompts
        raise Failure(USAGE, f"{given}: no usable text in it: name another")
    corpus = datastore.build(documents)
    args.interrupt.commit()
    try:
        datastore.save(corpus, args.out, tokenizer.fingerprint, {"model": model})
    except OSError as error:
        why = f"{args.out}: not written ({reason(error)}): check the disk"
        raise Failure(FAILED, why) from error
    texts, tokens = plural(len(documents), "text"), plural(sum(map(len, documents)), "token")
    write_line(f"{args.out}: {texts}, {tokens}, {format_bytes(args.out.stat().st_size)}")
    return OK


def _texts(args: argparse.Namespace, tokenizer: Tokenizer) -> list[Ids]:
    from research.train.datastore import from_files

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
    from research.train.datastore import from_answers

    target = load_target(model)
    saved = args.out.with_name(f"{args.out.name}.answers.jsonl")
    say(f"{plural(len(questions), 'prompt')}; answers are saved in {saved}")
    try:
        return from_answers(
            questions, model, target, tokenizer, saved, args.max_tokens, args.seed, say
        )
    except OSError as error:
        why = f"{saved}: not written ({reason(error)}): check the disk"
        raise Failure(FAILED, why) from error
