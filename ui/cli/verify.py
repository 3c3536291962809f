"""`draftline verify`: find out whether speculative decoding changes a server's answers.

It asks any server of OpenAI's protocol, and needs neither a model nor an engine here.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from engine.remote.address import AddressError
from engine.remote.engine_url import EngineUrl, parse_engine
from ui.cli.options import add_command, finite, positive
from ui.common.errors import USAGE, Failure, say
from ui.common.terminal import write, write_json

if TYPE_CHECKING:
    from ui.verify.run import Progress
    from ui.verify.server import VerifiedServer

EXIT_CODES = """exit codes:
  0    no answer differs with and without speculation
  1    speculation changes answers, and more of them than differ without it
  2    usage, or it could not be measured or told from chance
  130  interrupted
"""
DESCRIPTION = """Ask a server of OpenAI's protocol short requests, with and without speculative
decoding, and compare the answers: asked again, with a warm prompt cache, four at once. The server
without speculation is the one that --against names; a server that takes the option in a request
(Draftline's does) needs no second one.

Up to a thousand requests are sent, of 16 or 32 tokens. A server's key is taken from
DRAFTLINE_ENGINE_KEY, or from the system's key ring. A second server gets the former only if it is
on the same host."""
TIMEOUT_S = 120.0
MAX_RUN = 10**6


def add_parser(commands: Any) -> None:
    """Add the `verify` command."""
    parser = add_command(
        commands,
        "verify",
        run,
        "test whether speculation changes a server's answers",
        DESCRIPTION,
        EXIT_CODES,
    )
    add = parser.add_argument
    add("url", metavar="URL", help="the server, as http://HOST:PORT/v1; speculation is on there")
    add("--against", metavar="URL", help="the same model on a server without speculation")
    add("--model", default="", metavar="M", help="the model's name there; default: the first")
    add("--json", action="store_true", help="print JSON, with every differing answer")
    add(
        "--requests",
        type=positive,
        default=40,
        metavar="N",
        help="requests of each kind, edits and questions; default and most: 40",
    )
    add("--tokens", type=positive, metavar="N", help="tokens of every answer at most")
    add(
        "--timeout",
        type=finite,
        default=TIMEOUT_S,
        metavar="S",
        help=f"seconds for an answer; default: {TIMEOUT_S:g}",
    )
    add(
        "--run",
        dest="number",
        type=int,
        metavar="N",
        help="repeat the run of this number; by default a new one, which no cache knows",
    )


def run(args: argparse.Namespace) -> int:
    """Ask, and print the report."""
    from engine.remote.link import LinkError
    from ui.common.loading import spinner
    from ui.verify.opening import idle, open_modes
    from ui.verify.report import as_json, report
    from ui.verify.run import VerifyRun, comparisons, margins, measure
    from ui.verify.tasks import TASKS, tasks
    from ui.verify.verdict import judge

    if args.timeout <= 0:
        raise Failure(USAGE, f"--timeout {args.timeout:g}: not a time: give seconds above 0")
    if args.requests > TASKS:
        raise Failure(USAGE, f"--requests {args.requests}: there are {TASKS} of each kind")
    number = secrets.randbelow(MAX_RUN) if args.number is None else args.number
    made = VerifyRun(number, tasks(number, args.requests, args.tokens))
    with ExitStack() as stack:
        server = _server(stack, args.url, "URL", args.timeout)
        against = None
        if args.against:
            against = _server(stack, args.against, "--against", args.timeout, server.url)
        try:
            with spinner("looking at the server"):
                missing = open_modes(made, server, against, args.model)
        except LinkError as error:
            raise Failure(USAGE, str(error)) from error
        with _progress() as progress:
            measure(made, progress)
        table = comparisons(made)
        with spinner("asking how near the choices were"):
            found = margins(made, table)
    verdict = judge(table, not made.failed, missing or idle(made))
    if args.json:
        write_json(as_json(made, table, found, verdict))
    else:
        write(report(made, table, found, verdict))
    return verdict.code


def _server(
    stack: ExitStack, text: str, option: str, timeout_s: float, first: EngineUrl | None = None
) -> VerifiedServer:
    """Prepare the server at the address of an option; nothing is sent yet. Raises Failure.

    `first`: the server that the key of the environment is for.
    """
    from ui.verify.server import VerifiedServer

    try:
        url = parse_engine(text, option)
        url = EngineUrl(url.url if urlsplit(url.url).path else f"{url.url}/v1")
        is_there = first is None or urlsplit(first.url).hostname == urlsplit(url.url).hostname
        key = replace(url, is_openai=True).key(from_environment=is_there)
    except AddressError as error:
        raise Failure(USAGE, str(error)) from error
    if key and not url.is_encrypted:
        say(f"{url}: not encrypted, others on the way can read the key: use https or ssh -L")
    server = VerifiedServer(url, key, timeout_s)
    stack.callback(server.close)
    return server


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show on a terminal what is being asked, and how far that is."""
    if not (sys.stderr and sys.stderr.isatty()):
        yield lambda stage, done, total: None
        return
    from rich.console import Console

    with Console(stderr=True).status("asking") as status:
        yield lambda stage, done, total: status.update(f"asking, {stage}: {done} of {total}")
