"""`draftline train drafter`: fit the drafter's weights on recorded edits, and with --questions on a
model's own answers. Without them no model is loaded.

What was made goes to stdout; rounds, progress and trouble to stderr. The file is written last, in
one step: until then, and after Ctrl-C, what was there stays. How weights are fitted is in
`engine.research.train`; they decide how fast answers come, never what they say.
"""

from __future__ import annotations

import argparse
import logging
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ui.cli import train_corpus, train_heads
from ui.cli.index import (
    FAILED,
    NO_MODEL,
    OK,
    USAGE,
    Failure,
    Trouble,
    count,
    say,
    show,
    size,
    tokenizer_of,
)

if TYPE_CHECKING:
    from engine.drafting._drafting import Ngram, Vocabulary, Weights
    from engine.drafting.next_token import WeightKind
    from engine.drafting.stdlib_ngram import StdlibNgram
    from engine.prompts.tokenizer import Tokenizer
    from engine.research.train.drafter import Score
    from engine.research.train.edit_records import Edit

ELSEWHERE = Path("drafter.safetensors")  # where the shipped place cannot be written
EXIT_CODES = """exit codes:
  0    done
  1    failed; the file of weights is as it was
  2    usage or bad input; nothing was trained
  3    the tokenizer of the model could not be had
  130  interrupted; the file of weights is as it was
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `train` command. Its `run` default is this file's `run`."""
    about = "fit what drafting has to learn"
    parser = subparsers.add_parser("train", help=about, description=f"{about}.")
    whats = parser.add_subparsers(metavar="WHAT", required=True)
    drafter = whats.add_parser(
        "drafter",
        help="the drafter's weights: how likely each guess is",
        description="Fit the drafter's weights on recorded edits. The weights serve any model.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = drafter.add_argument
    add(
        "--edits", type=Path, required=True, metavar="FILE",
        help="JSONL: before, after, path, package, old_version, new_version in each record",
    )  # fmt: skip
    add(
        "--out", type=Path, metavar="FILE",
        help=f"default: the weights in use, or {ELSEWHERE} where they cannot be written",
    )  # fmt: skip
    add(
        "--questions", type=Path, metavar="FILE",
        help="JSONL: turns or prompt in each record. The model answers them, which takes minutes, "
        "and what its own table of successors is worth is learnt, too; else that is kept",
    )  # fmt: skip
    add("--model", metavar="M", help="whose tokenizer: a built-in name, a folder, a GGUF file")
    add("--rounds", type=int, metavar="N", help="times that all edits are gone through")
    add(
        "--test", type=packages, default=(), metavar="PACKAGE,PACKAGE",
        help="train without these, and tell how well their edits are expected, beside the "
        "shipped weights (which may know them)",
    )  # fmt: skip
    drafter.set_defaults(run=run)
    train_heads.add_parsers(whats)
    train_corpus.add_parser(whats)


def packages(text: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def run(args: argparse.Namespace) -> int:
    """Do what the parsed arguments say; the exit code."""
    trouble = Trouble()
    logging.getLogger("engine").addHandler(trouble)
    try:
        _train(args)
    except Failure as failure:
        say(str(failure))
        return failure.code
    finally:
        logging.getLogger("engine").removeHandler(trouble)
    return OK


def _train(args: argparse.Namespace) -> None:
    from engine.config import DEFAULT_MODEL
    from engine.drafting.drafter_weights import save_weights
    from engine.drafting.vocabulary import vocabulary
    from engine.research.train import drafter

    rounds = drafter.EPOCHS if args.rounds is None else args.rounds
    if rounds < 1:
        raise Failure(USAGE, f"--rounds {rounds}: nothing would be learnt: give 1 or more")
    edits, left_out = _edits(args.edits, args.test)
    questions = _questions(args.questions) if args.questions else []
    out = _out(args.out, args.edits)
    tokenizer = tokenizer_of(args.model or DEFAULT_MODEL, fetch=True)
    ngram = _library(tokenizer).ngram
    words = vocabulary(tokenizer)
    say(f"{count(len(edits), 'edit')} of {_names(edits)}; the weights go to {out}")
    with _working("training"):
        made = drafter.train(edits, tokenizer, words, ngram, say, rounds)
    _learn_table(made, questions, args.model or DEFAULT_MODEL, words, ngram)
    if left_out:
        rivals = [made, *_shipped()]
        _table(drafter.score(left_out, tokenizer, words, ngram, rivals), len(rivals))
    args.interrupt.commit()
    try:
        save_weights(made, out, drafter.notes(edits, args.edits))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Failure(FAILED, f"{out}: not written ({why}): check the disk") from error
    weights = sum(one.values.size for one in made.values())
    show(f"{out}: {size(out.stat().st_size)}, {count(weights, 'weight')}")


def _learn_table(
    made: dict[WeightKind, Weights],
    questions: list[str],
    model: str,
    words: Vocabulary,
    ngram: Ngram,
) -> None:
    """What the model's own table is worth: by its answers, or as the weights in use say."""
    from engine.research.train import recycling_weights

    if not questions:
        for known in _shipped():
            recycling_weights.keep(made, known)
        return
    from engine.config import Config
    from engine.model.torch_target import TorchTarget
    from engine.prompts.tokenizer import Tokenizer
    from engine.weights import locate

    with _working("answering"):
        folder = locate(model)
        try:
            target = TorchTarget(folder, Config(model=model))
        except (ValueError, OSError) as error:
            raise Failure(NO_MODEL, f"{model}: {error}") from error
        found = recycling_weights.ask(questions, target, Tokenizer(folder), say)
    recycling_weights.fit(found, words, ngram, made, target.vocab, say)


def _table(scores: Iterator[Score], rivals: int) -> None:
    """Bits a token under each of the weights compared, a line for each package and kind."""
    columns = ("new", "shipped")[:rivals]
    show(f"{'left out':<16}{'kind':<6}{'tokens':>10}  bits a token: {' beside '.join(columns)}")
    with _working("testing"):
        found = list(scores)
    for one in found:
        bits = "".join(f"{each:>9.4f}" for each in one.bits)
        show(f"{one.package:<16}{one.kind:<6}{one.tokens:>10,}{bits}")


# -- what is read ------------------------------------------------------------------------------


def _edits(file: Path, test: tuple[str, ...]) -> tuple[list[Edit], list[Edit]]:
    """To train on, and those of the packages left out. Raises Failure."""
    from engine.research.train.edit_records import EditError, read

    try:
        found = read(file)
    except EditError as error:
        raise Failure(USAGE, str(error)) from error
    except FileNotFoundError as error:
        raise Failure(USAGE, f"{file}: no such file: name a file of recorded edits") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise Failure(USAGE, f"{file}: unreadable: {why}: name a file of recorded edits") from error
    known = {edit.package for edit in found}
    for name in test:
        if name not in known:
            here = ", ".join(sorted(known))
            raise Failure(USAGE, f"--test {name}: no such package in {file}: choose from {here}")
    kept = [edit for edit in found if edit.package not in test]
    if not kept:
        raise Failure(USAGE, f"--test {','.join(test)}: nothing is left to train on: name fewer")
    if all(edit.before == edit.after for edit in kept):
        raise Failure(USAGE, f"{file}: nothing was changed in any edit: record edits that change")
    return kept, [edit for edit in found if edit.package in test]


def _questions(file: Path) -> list[str]:
    """What the model is asked. Raises Failure."""
    from engine.research.train.recycling_weights import QuestionError, read_questions

    try:
        return read_questions(file)
    except QuestionError as error:
        raise Failure(USAGE, str(error)) from error


def _names(edits: list[Edit]) -> str:
    return ", ".join(sorted({edit.package for edit in edits}))


def _library(tokenizer: Tokenizer) -> StdlibNgram:
    """The n-gram of the language's library, counted first where it was not yet. Raises Failure."""
    from engine.drafting.stdlib_ngram import StdlibNgram
    from engine.weights import home

    library = StdlibNgram(home(), tokenizer)
    if library.ready:
        return library
    say("counting the standard library for this tokenizer; about a minute, and only once")
    with _working("counting"):
        for seconds in library.build():
            time.sleep(seconds)
    if not library.ready:
        remedy = "use a Python that has the sources of its library"
        raise Failure(FAILED, f"{library.sources}: weights need its n-gram: {remedy}")
    return library


def _shipped() -> list[dict[WeightKind, Weights]]:
    """The weights in use to compare with; none where they cannot be read, and one line."""
    from engine.drafting.drafter_weights import load_weights

    try:
        return [load_weights()]
    except ValueError as error:
        say(str(error))
        return []


@contextmanager
def _working(what: str) -> Iterator[None]:
    """A moving line on a terminal; nothing elsewhere."""
    from rich.console import Console

    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(what):
        yield


# -- where it goes -----------------------------------------------------------------------------


def _out(given: Path | None, edits: Path) -> Path:
    """The file to write, which can be written. Raises Failure."""
    from engine.drafting.drafter_weights import SHIPPED

    if given is None:
        given = ELSEWHERE if refused(SHIPPED) else SHIPPED
    why = refused(given)
    if not why and given.exists() and given.samefile(edits):
        why = "it holds the edits: name another file"
    if why:
        raise Failure(USAGE, f"{given}: {why}")
    return given


def refused(file: Path) -> str:
    """Why a file cannot be written, and the remedy; "" where it can."""
    try:
        mode = file.stat().st_mode
        if stat.S_ISDIR(mode):
            return "a folder: name a file in it"
        if not stat.S_ISREG(mode):
            return "not a regular file: name another"
        if not os.access(file, os.W_OK):
            return "read-only: make it writable, or name another file"
    except FileNotFoundError:
        pass
    except OSError as error:
        return f"cannot be written ({error.strerror}): name another file"
    try:
        with tempfile.TemporaryFile(dir=file.resolve().parent):
            return ""
    except OSError as error:
        return f"cannot be written ({error.strerror}): check its folder"
