"""`draftline lsp` and `python -m lsp_server`: options, logging and exit codes.

Imports are lazy, so that `draftline --help` loads neither pygls nor a model.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import socket
import sys
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn

from engine.remote.address import OWN, SERVER_VARIABLE, AddressError, parse, remove_if_idle
from engine.remote.engine_url import ENGINE_VARIABLE, KEY_VARIABLE, EngineUrl, parse_engine
from index.version import version_and_commit
from lsp_server.settings import NEXT_EDIT_FORMATS

if TYPE_CHECKING:
    from engine.remote.any_engine import EditorEngine

OK, FAILED, USAGE, NO_MODEL = 0, 1, 2, 3
EXIT_CODES = """exit codes:
  0    the client sent `shutdown` before it left; --check: the model works
  1    the client left without `shutdown`; --check: the model failed
  2    usage, or the address is not available
  3    --check: the model is not available
  130, 143  ended by SIGINT, SIGTERM
"""
log = logging.getLogger(__name__)

LEVELS = ("debug", "info", "warning", "error")
IDLE_MINUTES = 5
MAX_IDLE_MINUTES = 7 * 24 * 60
ENGINE_CLOSE_TIMEOUT_S = 0.3
CHECK_TOKENS = 64
CHECK_TEXT = "def fibonacci(n):\n"


class _Failure(Exception):
    """A failure that ends the command with an exit code and one line."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `lsp` command, whose `run` default is `run` below."""
    parser = subparsers.add_parser(
        "lsp", help="serve editors by the language server protocol", **_PARSER_OPTIONS
    )
    _add_options(parser)
    parser.set_defaults(run=run)


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = _Parser(prog="python -m lsp_server", **_PARSER_OPTIONS)
    _add_options(parser)
    try:
        args = parser.parse_args(argv)
    except _Failure as failure:
        _say(str(failure))
        return failure.code
    except SystemExit:  # argparse, after --help
        return OK
    try:
        return run(args)
    except Exception as error:
        if os.environ.get("DRAFTLINE_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {error}"
        _say(f"{what}: a bug in draftline; DRAFTLINE_TRACEBACK=1 shows the traceback")
        return FAILED


def run(args: argparse.Namespace) -> int:
    """Serve or check, and return the exit code. A server ends the process instead."""
    if args.version:
        print("draftline", version_and_commit())
        return OK
    try:
        _set_up_logging(args.log_file, args.log_level)
        if args.check:
            return _check(args)
        code = _serve(args)
    except _Failure as failure:
        _say(str(failure))
        return failure.code
    logging.shutdown()
    os._exit(code)  # does not wait for threads that still compute


def _serve(args: argparse.Namespace) -> int:
    if args.transport == "stdio" and args.listen_fd is None and not (sys.stdin and sys.stdout):
        raise _Failure(USAGE, "lsp: stdin or stdout is closed: an editor starts this with both")
    elsewhere = _elsewhere(args)
    shares = args.server != OWN and elsewhere is None
    notice = ""
    if args.transport == "stdio" and args.listen_fd is None and shares:
        code = _relay(args)
        if isinstance(code, int):
            return code
        notice = code
    from lsp_server.protocol import transport
    from lsp_server.protocol.protocol import Server
    from lsp_server.server import create
    from lsp_server.shared_engine import NextEdits, SharedEngine

    next_edits = NextEdits(args.next_edit_model, args.next_edit_format)
    shared_engine = SharedEngine(args.model, args.yes, next_edits=next_edits, elsewhere=elsewhere)

    def make() -> Server:
        return create(shared_engine, notice)

    try:
        if args.listen_fd is not None:
            listener = socket.socket(fileno=args.listen_fd)
            release = partial(remove_if_idle, listener)
            return transport.serve_socket(make, listener, args.idle_minutes * 60, release)
        if args.transport == "stdio":
            return transport.serve_stdio(make, args.client)
        return transport.serve_tcp(make, args.host, args.port)
    except AddressError as error:
        raise _Failure(USAGE, f"--host {error}") from error
    except OSError as error:
        where = f"{args.host}:{args.port}: {error.strerror or error}"
        raise _Failure(USAGE, f"{where}: choose another --port, or 0 for any") from error
    finally:
        shared_engine.close(ENGINE_CLOSE_TIMEOUT_S)


def _elsewhere(args: argparse.Namespace) -> EngineUrl | None:
    """Return the address of another machine's engine, if the options name one.

    A window has a process of its own then, which needs little memory. Raises _Failure.
    """
    if not args.engine:
        return None
    try:
        url = parse_engine(args.engine)
        url.key()
    except AddressError as error:
        raise _Failure(USAGE, str(error)) from error
    for name in ("server",) if url.is_openai else ("model", "server"):
        if getattr(args, name):
            why = f"--{name}: not with --engine {url}, which has its own model"
            raise _Failure(USAGE, f"{why}: leave one of them out")
    if not url.is_encrypted:
        log.warning("%s: not encrypted, others on the way can read all: use https or ssh -L", url)
    return url


def _relay(args: argparse.Namespace) -> int | str:
    """Relay to a server that others use, too; return the exit code.

    If this process must serve itself, the result is a notice for the user, or "".
    """
    from lsp_server.sharing import relay
    from lsp_server.sharing.refusal import refuse

    options = ["--idle-minutes", f"{args.idle_minutes:g}", "--log-level", args.log_level]
    options += ["--yes"] if args.yes else []
    try:
        address = parse(args.server) if args.server else None
        if address is not None and args.model:
            raise AddressError(f"{address}: has its own model: leave --model out")
        next_edits = _next_edit_options(args)
        if address is not None and next_edits:
            raise AddressError(f"{address}: has its own model: leave {next_edits[0]} out")
        connection = relay.join(address, relay.Start(options, args.model, next_edits))
    except relay.NotAnswering as error:
        log.warning("%s", error)
        return f"{error}. Until then this window has an engine of its own."
    except (AddressError, OSError) as error:
        _say(str(error))
        with contextlib.suppress(OSError):  # the client is gone
            refuse(str(error))
        return USAGE
    if connection is None:
        return ""
    if address is None:
        process, file = connection.server.process, relay.log_file(connection.address)
        log.log(
            logging.WARNING if args.log_file else logging.INFO,
            *("the shared server, process %d, logs to %s", process, file),
        )
    return relay.relay(connection, args.client)


def _next_edit_options(args: argparse.Namespace) -> tuple[str, ...]:
    """Write what the command line says about next edits as options of a shared server."""
    named = {
        "--next-edit-model": args.next_edit_model,
        "--next-edit-format": args.next_edit_format,
    }
    return tuple(part for option, value in named.items() if value for part in (option, value))


def _check(args: argparse.Namespace) -> int:
    """Load the model, or connect to that of --engine, generate some tokens, and print the speed."""
    from engine import Request, RequestError

    with _checked_engine(args) as engine:
        name = engine.info.model
        request = Request("complete", CHECK_TEXT, max_tokens=CHECK_TOKENS)
        began = perf_counter()
        try:
            done = engine.submit(request, speculation=False).result()
        except RequestError as error:
            raise _Failure(FAILED, f"{name}: {error}") from error
        if done.reason == "failed":
            raise _Failure(FAILED, f"{name}: {done.error}: choose another --model")
        usage = done.usage
        # A server of OpenAI's protocol does not say how long it decoded.
        speed = usage.completion_tokens / (usage.decode_seconds or perf_counter() - began)
        device = f"{engine.info.device}, {engine.info.dtype}"
        print(f"{name} on {device}: {speed:.1f} tokens/s without drafts", flush=True)
    return OK


def _checked_engine(args: argparse.Namespace) -> EditorEngine:
    """Open the engine of the options. With --yes a model may be downloaded. Raises _Failure."""
    from engine import Config, Engine
    from engine.model.unsupported import UnsupportedModel
    from engine.remote.http_engine import HttpEngine
    from engine.remote.link import LinkError
    from engine.remote.openai_engine import OpenAiEngine
    from engine.weights import WeightsError
    from engine.weights.fetch.download import downloads, usual_model

    try:
        if elsewhere := _elsewhere(args):
            is_openai, model = elsewhere.is_openai, args.model or ""
            return OpenAiEngine(elsewhere, model) if is_openai else HttpEngine(elsewhere)
        name = args.model or usual_model()
        if (missing := downloads(name)) and not args.yes:
            why = f"{name} is not on this machine ({missing[0].described})"
            raise _Failure(NO_MODEL, f"{why}: fetch it with --yes, or choose another --model")
        return Engine(Config(model=name))
    except (WeightsError, UnsupportedModel, AddressError, LinkError, OSError) as error:
        raise _Failure(NO_MODEL, str(error)) from error


def _set_up_logging(file: Path | None, level: str) -> None:
    """Log to stderr or a file. Only the debug level logs message bodies, the user's text."""
    handler: logging.Handler = logging.StreamHandler()
    if file is not None:
        try:
            handler = logging.FileHandler(file, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            why = error.strerror or str(error)
            raise _Failure(USAGE, f"--log-file {file}: {why}: choose another file") from error
    line_format = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(handlers=[handler], level=level.upper(), format=line_format)
    logging.raiseExceptions = False  # do not report that the log cannot be written
    if level == "debug":
        import lsp_server.protocol.protocol  # noqa: F401  (which sets the level of pygls)

        logging.getLogger("pygls").setLevel(logging.DEBUG)


# -- the command line --------------------------------------------------------------------------

_PARSER_OPTIONS: dict[str, Any] = {
    "description": "Serve an editor by the language server protocol.",
    "epilog": EXIT_CODES,
    "formatter_class": argparse.RawDescriptionHelpFormatter,
    "allow_abbrev": False,
}


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise _Failure(USAGE, f"{message}: see `{self.prog} --help`")


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--server",
        default=os.environ.get(SERVER_VARIABLE, ""),
        metavar="S",
        help="of stdio: the engine that all windows share (default), HOST:PORT or the path of a "
        "socket where a server of this machine runs, or `own`: an engine for this window alone",
    )
    add(
        "--engine",
        default=os.environ.get(ENGINE_VARIABLE, ""),
        metavar="URL",
        help="the engine of another machine: http://HOST:PORT of a `draftline serve`, or "
        "openai:http://HOST:PORT/v1 of any server of OpenAI's protocol, without drafts; its key is "
        f"taken from {KEY_VARIABLE} or the key ring",
    )
    add(
        "--idle-minutes",
        type=_minutes,
        default=IDLE_MINUTES,
        metavar="M",
        help=f"the shared engine ends so long after its last client; default: {IDLE_MINUTES}",
    )
    add("--listen-fd", type=int, help=argparse.SUPPRESS)
    connection = parser.add_argument_group("connection", "how the editor is connected")
    transport = connection.add_mutually_exclusive_group()
    for name, text in {
        "stdio": "one client over stdin and stdout (default)",
        "tcp": "clients over TCP",
    }.items():
        transport.add_argument(
            f"--{name}",
            dest="transport",
            action="store_const",
            const=name,
            default="stdio",
            help=text,
        )
    connection.add_argument(
        "--host", default="127.0.0.1", metavar="H", help="a loopback address, for --tcp"
    )
    connection.add_argument(
        "--port",
        type=_port,
        default=0,
        metavar="P",
        help="0 (default): any free port, printed on stderr",
    )
    add = parser.add_argument_group("model", "which model answers").add_argument
    add(
        "--model", metavar="M", help="a built-in name or a folder; overrides what clients configure"
    )
    add(
        "--next-edit-model",
        default="",
        metavar="M",
        help="a model made for next edits (Sweep, Zeta 2.1), which runs beside the other one; "
        "auto: Sweep's that suits the memory",
    )
    add(
        "--next-edit-format",
        choices=NEXT_EDIT_FORMATS,
        default="",
        help="of its prompts, where its name does not tell",
    )
    add("--yes", action="store_true", help="fetch a missing model without asking")
    add = parser.add_argument_group("checks and the log").add_argument
    add("--check", action="store_true", help="load the model, print its speed, and exit")
    add("--version", action="store_true", help="show the version and exit")
    add("--log-file", type=Path, metavar="FILE", help="log to a file instead of stderr")
    add("--log-level", choices=LEVELS, default="warning", help="debug includes the user's text")
    add("--clientProcessId", dest="client", type=int, metavar="N", help=argparse.SUPPRESS)


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: 0 to 65535")
    return number


def _minutes(text: str) -> float:
    number = float(text)
    if not 0 <= number <= MAX_IDLE_MINUTES:
        raise argparse.ArgumentTypeError(f"{text} is not 0 to {MAX_IDLE_MINUTES}")
    return number


_minutes.__name__ = "number of minutes"
_port.__name__ = "whole number"  # argparse's messages use it


def _say(message: str) -> None:
    """Print one line on stderr, without control characters."""
    if sys.stderr:
        with contextlib.suppress(OSError):
            text = re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", " ".join(message.split()))
            print("draftline:", text, file=sys.stderr, flush=True)
