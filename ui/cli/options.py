"""Options that several commands share, and the checks of their values. Imports nothing heavy."""

from __future__ import annotations

import argparse
import math
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import KV_FORMATS, devices
from engine.remote.address import OWN, SERVER_VARIABLE
from engine.remote.engine_url import ENGINE_VARIABLE, KEY_VARIABLE
from ui.common.errors import USAGE, Failure

if TYPE_CHECKING:
    from engine.editing.running.trial import Trial
    from index.documents.embeddings import Embed

EXIT_CODES = """exit codes:
  0    done
  1    nothing found, or failed
  2    usage or bad input
  3    the model is not available
  130  interrupted; what was written until then is shown
"""
DTYPES = ["auto", "f32", "bf16", "q8", "q4", "int8", "fp8", "int4"]
MODEL_HELP = "a name that `draftline models` lists, a folder, a GGUF file or a hub id"
SAMPLING = ("temperature", "top_k", "top_p", "seed")


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    help: str,
    description: str,
    exit_codes: str = EXIT_CODES,
) -> argparse.ArgumentParser:
    """Add a command that calls `run`, with the exit codes below its help."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=exit_codes,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


# -- groups of options -------------------------------------------------------------------------

OUTPUT, MODEL, SAMPLING_GROUP, SPEED = "output", "model", "sampling", "drafting"
ABOUT = {
    MODEL: "which model answers, and where it runs",
    SAMPLING_GROUP: "a text drawn by chance; without these, the likeliest one",
    SPEED: "how soon the answer is there, not what it says",
}


def group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """Return the group of options with this title, which is added if there is none yet."""
    for known in parser._action_groups:
        if known.title == title:
            return known
    return parser.add_argument_group(title, ABOUT.get(title))


def add_options(
    parser: argparse.ArgumentParser, verbose: str = "colour the text by its source"
) -> None:
    """Add the options of a command that answers: model, drafting, sampling and output."""
    output = group(parser, OUTPUT)
    output.add_argument("--stats", action="store_true", help="print figures on stderr")
    output.add_argument("-v", "--verbose", action="store_true", help=verbose)
    add_model(parser)
    add_server(parser)
    add_engine(parser)
    add_yes(parser)
    add = group(parser, SAMPLING_GROUP).add_argument
    add("--temperature", type=finite, default=0.0, metavar="T", help="0 (default) is greedy")
    add("--top-k", type=int, default=0, metavar="K", help="sample from the K likeliest; 0: all")
    add("--top-p", type=finite, default=1.0, metavar="P", help="nucleus sampling; 1 (default): all")
    add("--seed", type=int, default=0, metavar="S", help="the same seed gives the same text")
    add_drafting(parser)
    group(parser, SPEED).add_argument(
        "--no-speculation", action="store_true", help="decode plainly: the same text, slower"
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add --model, and the options of `add_device`."""
    group(parser, MODEL).add_argument("--model", metavar="M", help=MODEL_HELP)
    add_device(parser)


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add --device, --dtype, --kv, --lora and --exact."""
    add = group(parser, MODEL).add_argument
    add(
        "--device",
        type=device,
        metavar="D",
        help="auto, cpu, cuda or mps; cuda:0,cuda:1 splits the layers across these cards",
    )
    add(
        "--dtype",
        choices=DTYPES,
        metavar="T",
        help="of the weights: auto, f32 or bf16; on a CPU also q8 and q4, on a card int8, fp8 and "
        "int4, which take a half and a quarter of bf16's memory",
    )
    add(
        "--kv",
        choices=KV_FORMATS,
        metavar="T",
        help="of the keys and values of what is read: auto, or q8 for a GGUF file on a CPU, which "
        "takes 3.6 times less memory",
    )
    add(
        "--lora",
        action="append",
        metavar="FILE[:SCALE]",
        help="merge a LoRA adapter, a GGUF file, into the GGUF file of its model; may be repeated",
    )
    add(
        "--exact",
        action=argparse.BooleanOptionalAction,
        help="on a card: kernels with which no draft can change a text; where the model has them, "
        "they are the default",
    )


def add_drafting(parser: argparse.ArgumentParser) -> None:
    """Add --drafter, --corpus and --verification."""
    add = group(parser, SPEED).add_argument
    add(
        "--drafter",
        type=_drafter,
        metavar="NAME",
        help="how answers are drafted (default: auto); `draftline drafters` lists the methods",
    )
    add("--corpus", type=Path, metavar="FILE", help="texts that sam, rest and others draft from")
    add(
        "--verification",
        choices=["match", "rejection"],
        help="how drafts of sampled text are verified; match (default): the same text with any "
        "drafter; rejection: rejection sampling, the same distribution of texts",
    )


def add_server(parser: argparse.ArgumentParser) -> None:
    group(parser, MODEL).add_argument(
        "--server",
        default=os.environ.get(SERVER_VARIABLE, ""),
        metavar="S",
        help="the server that answers: one that runs for this user with the same model, else an "
        "engine of this command's own (default); HOST:PORT or the path of a socket of this "
        f"machine; `{OWN}`: always an engine of its own",
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    group(parser, MODEL).add_argument(
        "--engine",
        default=os.environ.get(ENGINE_VARIABLE, ""),
        metavar="URL",
        help="the engine of another machine answers: http://HOST:PORT of a `draftline serve`, or "
        "openai:http://HOST:PORT/v1 of any server of OpenAI's protocol, without drafts; its key is "
        f"taken from {KEY_VARIABLE} or the key ring",
    )


def add_yes(parser: argparse.ArgumentParser) -> None:
    group(parser, MODEL).add_argument(
        "--yes", action="store_true", help="fetch a missing model without asking"
    )


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add --check, --candidates and --check-seconds."""
    from engine.editing.running.trial import CANDIDATES, MAX_CANDIDATES, SECONDS

    add = group(parser, "a check that runs").add_argument
    add(
        "--check",
        metavar="CMD",
        help="run this command on each of the model's answers, beside the workspace and not in it, "
        "and take the first that passes; it has no shell and no network. `auto`: no command, but "
        "the linters and type checkers that the workspace has",
    )
    add(
        "--candidates",
        type=positive,
        default=CANDIDATES,
        metavar="N",
        help=f"answers that --check may try, up to {MAX_CANDIDATES} (default: {CANDIDATES})",
    )
    add(
        "--check-seconds",
        type=positive,
        default=int(SECONDS),
        metavar="S",
        help=f"limit of one run of --check (default: {SECONDS:.0f})",
    )


def add_max_tokens(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-tokens", type=positive, metavar="N", help="limit of an answer")


def add_workspace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workspace", type=Path, metavar="DIR", help="draft from the files of this folder too"
    )


def add_embed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--embed",
        metavar="DIR",
        help="rank passages by the meaning that the model2vec model in this folder sees (default: "
        "the model that comes with draftline[page]), or by their words only: none",
    )


# -- values ------------------------------------------------------------------------------------


def embedding(chosen: str | None) -> Embed | None:
    """Load the embedding model that --embed names, or without it the installed one.

    Raises Failure if it cannot be loaded.
    """
    from index.documents.embeddings import load_default, load_model2vec

    if chosen == "none":
        return None
    if chosen is None:
        return load_default()
    try:
        return load_model2vec(Path(chosen))
    except (ValueError, OSError) as error:
        raise Failure(USAGE, f"--embed {error}") from error


def embedding_name(chosen: str | None) -> str:
    """Name the model that `embedding` returns, as requests call it."""
    from index.documents.embeddings import DEFAULT_NAME

    return Path(chosen).resolve().name if chosen else DEFAULT_NAME


def sampling(args: argparse.Namespace) -> dict[str, Any]:
    """Collect the sampling parameters as keyword arguments of a Request. Raises Failure."""
    from engine import Request, RequestError

    chosen = {name: getattr(args, name) for name in SAMPLING}
    try:
        Request("chat", **chosen)
    except RequestError as error:
        raise Failure(USAGE, str(error)) from error
    return chosen


def trial(args: argparse.Namespace, file: Path, workspace: Path | None = None) -> Trial:
    """Prepare the trial of edits of a file, with the command of --check. Raises Failure."""
    from engine.editing.running.trial import MAX_CANDIDATES, BadCommand, make_trial, parse_command

    if args.candidates > MAX_CANDIDATES:
        raise Failure(USAGE, f"--candidates {args.candidates}: give at most {MAX_CANDIDATES}")
    try:
        words = () if args.check is None else parse_command(args.check)
        return make_trial(words, file, workspace, args.candidates, args.check_seconds)
    except BadCommand as error:
        raise Failure(USAGE, f"--check {error}") from error


def check_workspace(folder: Path | None) -> None:
    """Raise Failure if --workspace names something other than a folder."""
    if folder and not folder.is_dir():
        raise Failure(USAGE, f"{folder}: not a folder: name the workspace's folder")


def text_argument(text: str, option: str, remedy: str = "write what you want to know") -> str:
    """Read the text of an option, from stdin if it is `-`.

    Raises Failure if it is empty or not text.
    """
    if text == "-":
        if not sys.stdin:
            raise Failure(USAGE, f"{option} -: stdin is closed: pipe the text in")
        try:
            text = sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            why = f"{option} -: not UTF-8 (byte {error.start}): convert it"
            raise Failure(USAGE, why) from error
    return checked_text(text, option, remedy)


def checked_text(text: str, option: str, remedy: str = "write what you want to know") -> str:
    """Return `text`. Raises Failure if it is empty, or not text that a tokenizer can encode."""
    if not text.strip():
        raise Failure(USAGE, f"{option}: empty: {remedy}")
    if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text):
        raise Failure(USAGE, f"{option}: not text (NUL or broken UTF-8): write it again")
    return text


def unwritable(file: Path) -> str:
    """Say why a file cannot be written, with the remedy; "" if it can."""
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


# -- argument types: their ArgumentTypeErrors are usage errors -----------------------------------


def device(text: str) -> str:
    """Check a `Config.device`."""
    try:
        devices(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def finite(text: str) -> float:
    """Parse a finite number."""
    number = float(text)
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number")
    return number


def positive(text: str) -> int:
    """Parse a whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a whole number of 1 or more")
    return int(text)


def _drafter(text: str) -> str:
    """Check the name of a drafter, with its options."""
    from engine.drafting.registry import parse_choice

    try:
        parse_choice(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


finite.__name__ = "number"  # argparse's messages show the name


def port_number(text: str) -> int:
    """Parse a port number."""
    number = int(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: 0 to 65535")
    return number


port_number.__name__ = "whole number"  # argparse's messages use it
