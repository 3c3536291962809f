"""`draftline train drafter`: fit the drafter's weights.

They are fitted to recorded edits, and with --questions to a model's own answers. Without
--questions no model is loaded.

The result goes to stdout, progress and problems to stderr. The weights are written last,
atomically: until then, and after Ctrl-C, the old file stays. Training is in `research.train`; it
changes how fast answers are, never what they say.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from research.commands import train_corpus, train_heads
from ui.cli.options import MODEL_HELP, add_command, unwritable
from ui.common.errors import FAILED, OK, USAGE, Failure, reason, say
from ui.common.loading import load_target, load_tokenizer, spinner
from ui.common.terminal import format_bytes, plural, write_line

if TYPE_CHECKING:
    from engine.drafting._drafting import Ngram, Vocabulary, Weights
    from engine.drafting.next_token import WeightKind
    from engine.drafting.stdlib_ngram import StdlibNgram
    from engine.prompts.tokenizer import Tokenizer
    from research.train.drafter import Score
    from research.train.edit_records import RecordedEdit

FALLBACK_FILE = Path("drafter.safetensors")  # if the weights in use cannot be replaced
EXIT_CODES = """exit codes:
  0    done
  1    failed; the weights are unchanged
  2    usage or bad input; nothing was trained
  3    the model or its tokenizer is not available
  130  interrupted; the weights are unchanged
"""


def add_parser(commands: Any) -> None:
    """Add the `train` command."""
    about = "train drafters"
    parser = commands.add_parser("train", help=about, description=f"{about.capitalize()}.")
    kinds = parser.add_subparsers(metavar="WHAT", required=True)
    drafter = add_command(
        kinds,
        "drafter",
        run,
        "the drafter's weights, which predict how likely a guess is accepted",
        "Fit the drafter's weights to recorded edits. The weights serve any model.",
        EXIT_CODES,
    )
    add = drafter.add_argument
    add(
        "--edits",
        type=Path,
        required=True,
        metavar="FILE",
        help="JSONL: before, after, path, package, old_version, new_version in each record",
    )
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"default: the weights in use, or {FALLBACK_FILE} if they cannot be written",
    )
    add(
        "--questions",
        type=Path,
        metavar="FILE",
        help="JSONL: turns or prompt in each record. The model answers them, which takes minutes, "
        "to fit the weight of its token recycling table, which is kept otherwise",
    )
    add("--model", metavar="M", help=f"whose tokenizer: {MODEL_HELP}")
    add("--rounds", type=int, metavar="N", help="epochs")
    add(
        "--test",
        type=packages,
        default=(),
        metavar="PACKAGE,PACKAGE",
        help="hold these out, and compare on their edits with the shipped weights (which may have "
        "seen them)",
    )
    train_heads.add_parsers(kinds)
    train_corpus.add_parser(kinds)


def packages(text: str) -> tuple[str, ...]:
    """Split a comma-separated list into its names."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def run(args: argparse.Namespace) -> int:
    """Train, compare with --test, and write the weights."""
    from engine.config import DEFAULT_MODEL
    from engine.drafting.drafter_weights import save_weights
    from engine.drafting.vocabulary import vocabulary
    from research.train import drafter

    epochs = drafter.EPOCHS if args.rounds is None else args.rounds
    if epochs < 1:
        raise Failure(USAGE, f"--rounds {epochs}: trains nothing: give 1 or more")
    edits, held_out = _edits(args.edits, args.test)
    questions = _questions(args.questions) if args.questions else []
    out = _out(args.out, args.edits)
    model = args.model or DEFAULT_MODEL
    tokenizer = load_tokenizer(model)
    ngram = _stdlib_ngram(tokenizer).ngram
    words = vocabulary(tokenizer)
    say(f"{plural(len(edits), 'edit')} of {_packages(edits)}; the weights go to {out}")
    with spinner("training"):
        trained = drafter.train(edits, tokenizer, words, ngram, say, epochs)
    _fit_recycling(trained, questions, model, tokenizer, words, ngram)
    if held_out:
        rivals = [trained, *_shipped()]
        _print_scores(drafter.score(held_out, tokenizer, words, ngram, rivals), len(rivals))
    args.interrupt.commit()
    try:
        save_weights(trained, out, drafter.notes(edits, args.edits))
    except (OSError, ValueError) as error:
        raise Failure(FAILED, f"{out}: not written ({reason(error)}): check the disk") from error
    count = sum(weights.values.size for weights in trained.values())
    write_line(f"{out}: {format_bytes(out.stat().st_size)}, {plural(count, 'weight')}")
    return OK


def _fit_recycling(
    trained: dict[WeightKind, Weights],
    questions: list[str],
    model: str,
    tokenizer: Tokenizer,
    words: Vocabulary,
    ngram: Ngram,
) -> None:
    """Fit the weight of the token recycling table to the model's answers, or keep the old one."""
    from research.train import recycling_weights

    if not questions:
        for shipped in _shipped():
            recycling_weights.keep(trained, shipped)
        return
    with spinner("answering"):
        target = load_target(model)
        found = recycling_weights.ask(questions, target, tokenizer, say)
    recycling_weights.fit(found, words, ngram, trained, target.vocab, say)


def _print_scores(scores: Iterator[Score], rivals: int) -> None:
    """Print the bits per token under each of the rival weights, by package and kind."""
    columns = ("new", "shipped")[:rivals]
    write_line(f"{'held out':<16}{'kind':<6}{'tokens':>10}  bits a token: {' vs '.join(columns)}")
    with spinner("testing"):
        found = list(scores)
    for score in found:
        bits = "".join(f"{value:>9.4f}" for value in score.bits)
        write_line(f"{score.package:<16}{score.kind:<6}{score.tokens:>10,}{bits}")


# -- input -------------------------------------------------------------------------------------


def _edits(file: Path, test: tuple[str, ...]) -> tuple[list[RecordedEdit], list[RecordedEdit]]:
    """Read the edits to train on, and those of the packages held out. Raises Failure."""
    from research.train.edit_records import EditError, read

    try:
        found = read(file)
    except EditError as error:
        raise Failure(USAGE, str(error)) from error
    except FileNotFoundError as error:
        raise Failure(USAGE, f"{file}: no such file: name a file of recorded edits") from error
    except OSError as error:
        why = f"{file}: unreadable: {reason(error)}: name a file of recorded edits"
        raise Failure(USAGE, why) from error
    known = {edit.package for edit in found}
    for name in test:
        if name not in known:
            names = ", ".join(sorted(known))
            raise Failure(USAGE, f"--test {name}: no such package in {file}: choose from {names}")
    kept = [edit for edit in found if edit.package not in test]
    if not kept:
        raise Failure(USAGE, f"--test {','.join(test)}: nothing is left to train on: name fewer")
    if all(edit.before == edit.after for edit in kept):
        raise Failure(
            USAGE, f"{file}: nothing was changed in any edit: record edits that change text"
        )
    return kept, [edit for edit in found if edit.package in test]


def _questions(file: Path) -> list[str]:
    """Read the questions in a file. Raises Failure."""
    from research.train.sample_file import SampleError, read_questions

    try:
        return read_questions(file)
    except SampleError as error:
        raise Failure(USAGE, str(error)) from error


def _packages(edits: list[RecordedEdit]) -> str:
    return ", ".join(sorted({edit.package for edit in edits}))


def _stdlib_ngram(tokenizer: Tokenizer) -> StdlibNgram:
    """Load the n-gram model of the standard library, counted first if necessary. Raises Failure."""
    from engine.drafting.stdlib_ngram import StdlibNgram
    from engine.weights import home

    ngram = StdlibNgram(home(), tokenizer)
    if ngram.ready:
        return ngram
    say("counting the standard library for this tokenizer: about a minute, once")
    with spinner("counting"):
        for seconds in ngram.build():
            time.sleep(seconds)
    if not ngram.ready:
        remedy = "use a Python that has the sources of its library"
        raise Failure(FAILED, f"{ngram.sources}: no n-gram model could be counted: {remedy}")
    return ngram


def _shipped() -> list[dict[WeightKind, Weights]]:
    """Load the weights in use as a list of one; empty, with a line on stderr, if unreadable."""
    from engine.drafting.drafter_weights import load_weights

    try:
        return [load_weights()]
    except ValueError as error:
        say(str(error))
        return []


# -- output ------------------------------------------------------------------------------------


def _out(given: Path | None, edits: Path) -> Path:
    """Choose the file to write, and check that it is writable. Raises Failure."""
    from engine.drafting.drafter_weights import SHIPPED

    if given is None:
        given = FALLBACK_FILE if unwritable(SHIPPED) else SHIPPED
    why = unwritable(given)
    if not why and given.exists() and given.samefile(edits):
        why = "it holds the edits: name another file"
    if why:
        raise Failure(USAGE, f"{given}: {why}")
    return given
