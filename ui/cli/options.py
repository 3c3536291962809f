"""Options that `edit`, `ask`, `summarize` and `chat` share, and the engine that they name.

Nothing heavy is imported before a model is loaded.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import devices
from ui.cli import drafters
from ui.cli.index import Failure, Trouble, say

if TYPE_CHECKING:
    from engine import Engine
    from index.documents.embeddings import Embed

OK, FAILED, USAGE, NO_MODEL = 0, 1, 2, 3
EXIT_CODES = """exit codes:
  0    done
  1    nothing found, or failed
  2    usage or bad input
  3    the model could not be had
  130  interrupted; what was written until then is shown
"""
DEVICE = "auto, cpu, cuda or mps; cuda:0,cuda:1: some of the layers on each of these cards"
DTYPES = ["auto", "f32", "bf16", "q8", "int8"]
EXACT = "on a GPU: the same text, bit for bit, with any draft; slower"
SAMPLING = ("temperature", "top_k", "top_p", "seed")


def add_command(commands: Any, name: str, help: str, description: str) -> argparse.ArgumentParser:
    """A command with the exit codes below its help."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser


def add_options(
    parser: argparse.ArgumentParser, verbose: str = "colour the text by where it comes from"
) -> None:
    """Which model, how it chooses, and what is shown."""
    add = parser.add_argument
    add("--model", metavar="M", help="a built-in name, a folder, a GGUF file or a hub id")
    add("--device", type=device, metavar="D", help=DEVICE)
    add("--dtype", choices=DTYPES, help="of the model's weights")
    add("--exact", action="store_true", help=EXACT)
    drafters.add_options(parser)
    add("--temperature", type=finite, default=0.0, metavar="T", help="0 (default) is greedy")
    add("--top-k", type=int, default=0, metavar="K", help="sample from the K likeliest; 0: all")
    add("--top-p", type=finite, default=1.0, metavar="P", help="sample from this much probability")
    add("--seed", type=int, default=0, metavar="S", help="same seed, same text")
    add("--no-speculation", action="store_true", help="decode plainly: the same text, later")
    add("--stats", action="store_true", help="figures on stderr")
    add("-v", "--verbose", action="store_true", help=verbose)


def add_max_tokens(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-tokens", type=_positive, metavar="N", help="of an answer, at most")


def add_embed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--embed",
        type=Path,
        metavar="DIR",
        help="rank passages by meaning too: a model2vec model's folder; needs draftline[embed]",
    )


def embedding(folder: Path | None) -> Embed | None:
    """The model that --embed names. Raises Failure where it cannot be had."""
    if folder is None:
        return None
    from index.documents.embeddings import local

    try:
        return local(folder)
    except (ValueError, OSError) as error:
        raise Failure(USAGE, f"--embed {error}") from error


def sampling(args: argparse.Namespace) -> dict[str, Any]:
    """How the model chooses, as a Request takes it. Raises Failure."""
    from engine import Request, RequestError

    chosen = {name: getattr(args, name) for name in SAMPLING}
    try:
        Request("chat", **chosen)
    except RequestError as error:
        raise Failure(USAGE, str(error)) from error
    return chosen


def open_engine(args: argparse.Namespace, progress: Callable[[str, int, int], None]) -> Engine:
    """The model, loaded. Raises Failure where there is none."""
    progress("loading", 0, 0)
    from engine import Config, Engine
    from engine.model.hf_model import UnsupportedModel
    from engine.weights import WeightsError

    names = ("model", "device", "dtype", "drafter", "corpus", "verification", "workspace", "exact")
    chosen = {name: getattr(args, name, None) for name in names}
    config = Config(**{name: value for name, value in chosen.items() if value is not None})
    try:
        return Engine(config, progress=progress)
    except (WeightsError, UnsupportedModel, OSError) as error:
        raise Failure(NO_MODEL, str(error)) from error
    except ValueError as error:  # a dtype that the device has not, a corpus of another model
        raise Failure(USAGE, str(error)) from error


def given(text: str, option: str) -> str:
    """A text of the command line, from stdin where it is `-`. Raises Failure where it is none."""
    if text == "-":
        if not sys.stdin:
            raise Failure(USAGE, f"{option} -: stdin is closed: pipe the text in")
        try:
            text = sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            why = f"{option} -: not UTF-8 (byte {error.start}): convert it"
            raise Failure(USAGE, why) from error
    return checked(text, option)


def checked(text: str, option: str) -> str:
    """A text that can be shown to a model. Raises Failure where it is none."""
    if not text.strip():
        raise Failure(USAGE, f"{option}: empty: write what you want to know")
    if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text):
        raise Failure(USAGE, f"{option}: not text (NUL or broken UTF-8): write it again")
    return text


def guarded(run: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Run a command; what fails, or is logged meanwhile, is one line on stderr."""
    with _trouble_told():
        try:
            return run(args)
        except Failure as failure:
            say(str(failure))
            return failure.code


@contextlib.contextmanager
def _trouble_told() -> Iterator[None]:
    trouble = Trouble()
    loggers = [logging.getLogger(name) for name in ("index", "engine")]
    for logger in loggers:
        logger.addHandler(trouble)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(trouble)


def device(text: str) -> str:
    """A Config.device, checked before anything is loaded."""
    try:
        devices(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def finite(text: str) -> float:
    """A number that can be computed with."""
    number = float(text)
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text} is not a number to sample with")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


finite.__name__, _positive.__name__ = "number", "whole number"  # argparse's messages use them
