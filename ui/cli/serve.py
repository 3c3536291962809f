"""`draftline serve`: the page (ui/web/app.py) and the API (ui/api/app.py) on a port, until Ctrl-C.

The address is taken before the model is loaded, so that a port in use is told at once. Imports are
lazy. Who may ask is decided in guard.py; here only that other machines never may without a key, and
that nobody gets round a key by the page.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import threading
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.api.addresses import is_loopback
from ui.cli import drafters
from ui.cli.index import Failure, say
from ui.cli.options import DEVICE, DTYPES, EXACT, add_embed, device, embedding

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI, Response

    from engine.engine import Engine
    from index.documents.embeddings import Embed

OK, USAGE, NO_MODEL = 0, 2, 3
EXIT_CODES = """exit codes:
  0    ended by Ctrl-C or SIGTERM
  2    usage, or an address that cannot be had
  3    the model could not be had
"""
KEY = "DRAFTLINE_API_KEY"
AUTH = "DRAFTLINE_AUTH"
SHORTEST = 16  # characters of a key
SHORTEST_PASSWORD = 8
ICON = "/favicon.ico"  # browsers ask for it
PAGES = ("/ui", ICON)
PLACES = 32
MOST_PLACES = 1000  # each may take a thread
ENDING = 2  # seconds that open connections get at the end
KEPT = 30  # seconds that an idle connection stays: longer than clients keep theirs


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `serve` command. Its `run` default is this file's `run`."""
    parser = subparsers.add_parser(
        "serve",
        help="the page for documents, and OpenAI's protocol for programs",
        description="Serve a web page, and OpenAI's protocol, to this machine alone unless --host\n"
        "says otherwise. Clients: base URL http://127.0.0.1:8000/v1, any key where none is set.\n"
        "Where a key is set, people log in at the page: --auth.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", metavar="H", help="listen there; default: 127.0.0.1")
    add("--port", type=_port, default=8000, metavar="P", help="default: 8000; 0: any, as told")
    add("--api-key", metavar="KEY", help=f"that clients must send; {KEY} shows it to nobody")
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that clients reach this machine by (again for more)",
    )
    add(
        "--auth",
        action="append",
        default=[],
        metavar="NAME:PASSWORD",
        help=f"who may log in at the page (again for more); {AUTH} shows one to nobody",
    )
    add("--no-page", action="store_true", help="the API alone")
    add("--model", metavar="M", help="a built-in name, a folder, a GGUF file or a hub id")
    add(
        "--alias",
        action="append",
        default=[],
        metavar="NAME",
        help="another name that clients may call the model by (again for more); *: any",
    )
    add(
        "--queue",
        type=_places,
        default=PLACES,
        metavar="N",
        help=f"requests that run or wait; more are told to come again; default: {PLACES}",
    )
    add("--device", type=device, metavar="D", help=DEVICE)
    add("--dtype", choices=DTYPES, help="of the model's weights")
    add("--exact", action="store_true", help=EXACT)
    add("--workspace", type=Path, metavar="DIR", help="draft from the files of this folder too")
    add_embed(parser)
    drafters.add_options(parser)
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Access:
    """Who may ask. `users`: names and passwords of those who may log in at the page."""

    key: str | None = field(repr=False)
    users: list[tuple[str, str]] = field(repr=False)
    page: bool


def run(args: argparse.Namespace) -> int:
    """Serve as the parsed arguments say; the exit code."""
    try:
        if args.workspace and not args.workspace.is_dir():
            raise Failure(USAGE, f"{args.workspace}: not a folder: name the workspace's folder")
        family, address = _resolved(args.host)
        access = _access(args, address)
        with _listening(family, address, args.port) as listening:
            if not access.page and not args.no_page:
                say(f"no page: a key is set: set --auth NAME:PASSWORD or {AUTH} to log in there")
            _load_and_serve(args, access, listening, embedding(args.embed))
    except Failure as failure:
        say(str(failure))
        return failure.code
    return OK


def _load_and_serve(
    args: argparse.Namespace, access: Access, at: socket.socket, embed: Embed | None
) -> None:
    from engine import Config, Engine
    from engine.model.hf_model import UnsupportedModel
    from engine.weights import WeightsError
    from ui.api import app as api
    from ui.api import security
    from ui.cli import models

    logging.basicConfig(level="WARNING", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    names = ("model", "device", "dtype", "drafter", "corpus", "verification", "workspace", "exact")
    chosen = {name: getattr(args, name) for name in names}
    config = Config(**{name: value for name, value in chosen.items() if value is not None})
    if access.page:  # takes seconds, as the model does
        threading.Thread(target=import_module, args=("ui.web.app",), daemon=True).start()
    try:
        with models.progress_bars() as progress:
            engine = Engine(config, progress=progress)
    except (WeightsError, UnsupportedModel, OSError) as error:
        raise Failure(NO_MODEL, str(error)) from error
    except ValueError as error:  # a dtype that the device has not
        raise Failure(USAGE, str(error)) from error
    with engine:
        rules = security.rules_for(args.host, at.getsockname()[0], access.key, args.allow_host)
        rules = replace(rules, pages=PAGES if access.page else ())
        app = api.app(engine, rules, args.alias, args.queue)
        if access.page:
            _add_page(app, engine, access, embed)
        _serve(app, at, access.page)


def _add_page(app: FastAPI, engine: Engine, access: Access, embed: Embed | None) -> None:
    from fastapi.responses import FileResponse, RedirectResponse

    from engine.weights import home
    from ui.web import app as web

    routes: dict[str, Callable[[], Response]]
    routes = {path: lambda: RedirectResponse(f"{web.AT}/") for path in ("/", web.AT)}
    routes[ICON] = lambda: FileResponse(web.HERE / "icon.svg")
    for path, answer in routes.items():
        app.add_api_route(path, answer, include_in_schema=False)
    web.mount(app, engine, app.state.jobs, home() / "documents", access.users, embed)


def _serve(app: FastAPI, at: socket.socket, page: bool) -> None:
    """Until a signal ends it."""
    import uvicorn

    address, port = at.getsockname()[:2]

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            shown = f"[{address}]" if ":" in address else address
            parts = "/ (page) and /v1 (API)" if page else "/v1"
            say(f"{app.state.names[0]} at http://{shown}:{port}{parts}")

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.state.jobs.cancel()  # answers end at once, and say so
            quiet = logging.getLogger("uvicorn.error")
            quiet.setLevel(logging.CRITICAL)  # what does not end by itself is cut: no news
            await super().shutdown(sockets)
            if page:
                app.state.page.close()

    for one in (signal.SIGINT, signal.SIGTERM):  # uvicorn has its own, and raises them again after
        signal.signal(one, signal.SIG_IGN)
    Server(uvicorn.Config(app, **options())).run([at])


def options() -> dict[str, Any]:
    """uvicorn's, which show and believe less than its own."""
    return {
        "http": "h11",
        "ws": "none",
        "loop": "asyncio",
        "log_config": None,
        "access_log": False,  # what is asked for is the user's
        "proxy_headers": False,  # nobody may say that it is somebody else
        "server_header": False,
        "timeout_keep_alive": KEPT,
        "timeout_graceful_shutdown": ENDING,
    }


def _access(args: argparse.Namespace, address: str) -> Access:
    """Who may ask, as the arguments say. The page is no way round the key."""
    key, users = _key(args, address), _users(args)
    return Access(key, users, page=not args.no_page and (key is None or bool(users)))


def _users(args: argparse.Namespace) -> list[tuple[str, str]]:
    """Names and passwords. Failure where one is no good; it is not repeated."""
    given = args.auth or [one for one in (os.environ.get(AUTH),) if one is not None]
    users = [(name, password) for name, _, password in (one.partition(":") for one in given)]
    for name, password in users:
        if not name or name != name.strip() or not name.isprintable():
            raise Failure(USAGE, "--auth: no name: give NAME:PASSWORD")
        if len(password) < SHORTEST_PASSWORD:
            why = (
                f"--auth: the password is no good: it needs {SHORTEST_PASSWORD} or more characters"
            )
            raise Failure(USAGE, f"{why}: try `openssl rand -base64 12`")
    if len({name for name, _ in users}) < len(users):
        raise Failure(USAGE, "--auth: a name twice: give each one password")
    return users


def _key(args: argparse.Namespace, address: str) -> str | None:
    """The key that clients must send. Failure where it is no good, or where one is needed."""
    key: str | None = args.api_key if args.api_key is not None else os.environ.get(KEY)
    if key is None:
        if is_loopback(address):
            return None
        why = f"--host {args.host}: other machines reach it"
        raise Failure(USAGE, f"{why}: set a key in {KEY}, or leave --host out")
    if len(key) < SHORTEST or not key.isascii() or not key.isprintable() or " " in key:
        why = f"the key is no good: it needs {SHORTEST} or more ASCII characters, no blanks"
        raise Failure(USAGE, f"{why}: try `openssl rand -hex 16`")
    return key


def _resolved(host: str) -> tuple[int, str]:
    """Family and address of a host. Failure where it has none."""
    try:
        if not host:
            raise OSError("empty")
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Failure(USAGE, f"--host {host}: {why}: name an address of this machine") from error
    return found[0], str(found[4][0])


def _listening(family: int, address: str, port: int) -> socket.socket:
    """A socket that listens. Failure where the address cannot be had."""
    try:
        made = socket.create_server((address, port), family=family)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # those it accepts inherit it
        return made
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)  # without Python's remark
        where = f"{address}:{port}: {why}"
        raise Failure(USAGE, f"{where}: name another --port, or 0 for any") from error


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: 0 to 65535")
    return number


def _places(text: str) -> int:
    number = int(text)
    if not 1 <= number <= MOST_PLACES:
        raise argparse.ArgumentTypeError(f"{text} is not 1 to {MOST_PLACES}")
    return number


_port.__name__ = _places.__name__ = "whole number"  # argparse's messages use it
