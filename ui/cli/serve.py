"""`draftline serve`: the web page (ui/web/app.py) and the API (ui/api/app.py) on one port.

The server answers at once, and says how far the model is loaded (ui/api/startup.py). Requests are
authorized in ui/api/security.py; this module ensures that other machines need a key, and that the
page does not bypass it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import threading
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from engine.remote.engine_url import OPENAI
from ui.api.addresses import is_loopback
from ui.cli.options import (
    MODEL,
    add_command,
    add_drafting,
    add_embed,
    add_model,
    add_workspace,
    add_yes,
    check_workspace,
    embedding,
    embedding_name,
    group,
    port_number,
)
from ui.common.consent import choose_model
from ui.common.errors import OK, USAGE, Failure, reason, say
from ui.common.loading import Progress, open_elsewhere, open_engine, progress_bars

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI, Response

    from engine.remote.address import Address
    from engine.remote.any_engine import ServedEngine
    from index.documents.embeddings import Embed
    from ui.api.startup import Startup

log = logging.getLogger(__name__)

EXIT_CODES = """exit codes:
  0    ended by Ctrl-C or SIGTERM
  2    usage, or an address that is not available
  3    the model is not available
"""
API_KEY_VARIABLE = "DRAFTLINE_API_KEY"
AUTH_VARIABLE = "DRAFTLINE_AUTH"
MIN_KEY_CHARS = 16
MIN_PASSWORD_CHARS = 12
ICON_PATH = "/favicon.ico"  # browsers request it
PAGE_PATHS = ("/ui", ICON_PATH)
DEFAULT_QUEUE = 32
MAX_QUEUE = 1000  # requests; each may take a thread
SHUTDOWN_TIMEOUT_S = 2  # seconds that open connections have to end
KEEP_ALIVE_S = 30  # seconds; longer than clients keep theirs
TEXT_OPTIONS = ("dtype", "kv", "lora", "verification", "exact")  # options that may change a text


def add_parser(commands: Any) -> None:
    """Add the `serve` command."""
    parser = add_command(
        commands,
        "serve",
        run,
        "serve a web page, and OpenAI's API to programs",
        "Serve a web page and OpenAI's API, to this machine only unless --host is given.\n"
        "Clients: base URL http://127.0.0.1:8000/v1; any key is accepted if none is set.\n"
        "If a key is set, people log in to the page: --auth.",
        EXIT_CODES,
    )
    add = group(parser, "access").add_argument
    add("--host", default="127.0.0.1", metavar="H", help="address to bind; default: 127.0.0.1")
    add(
        "--port",
        type=port_number,
        default=8000,
        metavar="P",
        help="default: 8000; 0: any free port",
    )
    add(
        "--api-key",
        metavar="KEY",
        help=f"the key clients must send, or several with a blank between them; {API_KEY_VARIABLE} "
        "hides it from other users",
    )
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name by which clients reach this machine; can be repeated",
    )
    add(
        "--auth",
        action="append",
        default=[],
        metavar="NAME:PASSWORD",
        help=f"a login for the page; can be repeated; {AUTH_VARIABLE} hides it from other users",
    )
    add = parser.add_argument
    add("--no-page", action="store_true", help="serve the API only")
    add(
        "--alias",
        action="append",
        default=[],
        metavar="NAME",
        help="another name for the model in requests; can be repeated; *: any name",
    )
    add(
        "--queue",
        type=_queue_size,
        default=DEFAULT_QUEUE,
        metavar="N",
        help=f"running and waiting requests; more are refused (429); default: {DEFAULT_QUEUE}",
    )
    add_model(parser)
    add_yes(parser)
    add_workspace(parser)
    add_embed(parser)
    add_drafting(parser)
    group(parser, MODEL).add_argument(
        "--engine",
        default="",
        metavar="URL",
        help="openai:http://HOST:PORT/v1: a server of OpenAI's protocol answers, without drafts",
    )


@dataclass(frozen=True)
class Access:
    """Who may send requests. `users`: the names and passwords that may log in to the page."""

    key: str | None = field(repr=False)
    users: list[tuple[str, str]] = field(repr=False)
    page: bool


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    check_workspace(args.workspace)
    if args.engine and not args.engine.startswith(OPENAI):
        why = "--engine: a Draftline server already serves all that `serve` does"
        raise Failure(USAGE, f"{why}: use it, or name openai:http://HOST:PORT/v1")
    family, address = _resolve(args.host)
    access = _access(args, address)
    with _listening(family, address, args.port) as listening:
        if access.page and find_spec("gradio") is None:
            say("no page: its packages are not installed: pip install 'draftline[page]'")
            access = replace(access, page=False)
        elif not access.page and not args.no_page:
            say(f"no page: a key is set: add a login with --auth NAME:PASSWORD or {AUTH_VARIABLE}")
        _load_and_serve(args, access, listening, embedding(args.embed))
    return OK


def _load_and_serve(
    args: argparse.Namespace, access: Access, listening: socket.socket, embed: Embed | None
) -> None:
    """Serve, and load the model meanwhile. Raises Failure if it cannot be loaded."""
    from ui.api import app as api
    from ui.api import security, startup
    from ui.api.embeddings import EmbeddingModel
    from ui.web.shell import loading_page

    logging.basicConfig(level="WARNING", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    choose_model(args)
    rules = security.rules_for(args.host, listening.getsockname()[0], access.key, args.allow_host)
    rules = replace(rules, pages=PAGE_PATHS if access.page else ())
    page = (PAGE_PATHS[0], loading_page()) if access.page else ()
    first = startup.Startup(rules, *page)
    with contextlib.ExitStack() as engines:

        def load() -> tuple[FastAPI, Address | None]:
            if access.page:  # imported while the model loads: both take seconds
                # Not a daemon: a thread cut off inside native code aborts the process.
                threading.Thread(target=import_module, args=("ui.web.app",)).start()
            with progress_bars() as show:

                def progress(stage: str, done: int, total: int) -> None:
                    show(stage, done, total)
                    first.progress(stage, done, total)

                engine = _engine(args, progress)
            engines.callback(engine.close)
            vectors = EmbeddingModel(embedding_name(args.embed), embed) if embed else None
            app = api.app(engine, rules, args.alias, args.queue, vectors)
            if access.page:
                _add_page(app, engine, access, embed)
            return app, _address(args, engine)

        _serve(first, load, listening, access.page)


def _address(args: argparse.Namespace, engine: ServedEngine) -> Address | None:
    """Choose where this user's commands join the engine.

    None (nowhere) with options that may change a text.
    """
    from engine.engine import Engine
    from engine.remote.address import serve_address

    chosen = any(getattr(args, name) is not None for name in TEXT_OPTIONS)
    if chosen or not isinstance(engine, Engine):
        return None
    return serve_address(engine.folder)


def _engine(args: argparse.Namespace, progress: Progress) -> ServedEngine:
    """Open the engine that answers. Raises Failure."""
    if not args.engine:
        return open_engine(args, progress, prefixes=False)  # others might learn what is there
    from engine.remote.http_engine import HttpEngine

    engine = open_elsewhere(args, progress)
    assert not isinstance(engine, HttpEngine)
    return engine


def _add_page(app: FastAPI, engine: ServedEngine, access: Access, embed: Embed | None) -> None:
    """Add the page and its routes to the application."""
    from fastapi.responses import FileResponse, RedirectResponse

    from engine.weights import home
    from ui.web import app as web

    routes: dict[str, Callable[[], Response]]
    routes = {path: lambda: RedirectResponse(f"{web.PATH}/") for path in ("/", web.PATH)}
    routes[ICON_PATH] = lambda: FileResponse(web.HERE / "icon.svg")
    for path, respond in routes.items():
        app.add_api_route(path, respond, include_in_schema=False)
    web.mount(app, engine, app.state.jobs, home() / "documents", access.users, embed)


def _serve(
    first: Startup,
    load: Callable[[], tuple[FastAPI, Address | None]],
    listening: socket.socket,
    page: bool,
) -> None:
    """Serve `first` until a signal, and in it the application of `load` once it is there.

    `load` also returns the address where this user's commands join the application. Raises what
    `load` does.
    """
    import uvicorn

    from engine.remote.address import AddressError
    from ui.api.startup import Stopped
    from ui.cli.local_socket import shared

    address, port = listening.getsockname()[:2]
    url = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"

    class ApiServer(uvicorn.Server):
        loading: asyncio.Task[None]

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            say(f"listening on {url} while the model loads")
            self.ended = asyncio.Event()
            self.loading = asyncio.create_task(self.load())

        async def load(self) -> None:
            try:
                app, local = await asyncio.to_thread(load)
                # Nothing that was imported or loaded is garbage. A full collection would look at
                # all of it, and hold up every client for a quarter of a second.
                gc.collect()
                gc.freeze()
                async with app.router.lifespan_context(app), contextlib.AsyncExitStack() as joined:
                    first.app = app
                    if local is not None:
                        sharing = shared(app, local, self.server_state, options())
                        try:
                            self.servers.append(await joined.enter_async_context(sharing))
                        except (AddressError, OSError) as error:  # another server has this model
                            log.info("commands cannot join this server: %s", error)
                    parts = "/ (page) and /v1 (API)" if page else "/v1"
                    for line in app.state.warnings:
                        say(line)
                    say(f"{app.state.names[0]} at {url}{parts}")
                    await self.ended.wait()
            finally:
                self.should_exit = True

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            first.stop()
            if first.app:
                first.app.state.jobs.cancel()  # running answers end at once
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # about cut connections
            await super().shutdown(sockets)
            self.ended.set()
            with contextlib.suppress(Stopped):
                await self.loading
            if first.app and page:
                first.app.state.page.close()

    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn handles and then re-raises them
        signal.signal(number, signal.SIG_IGN)
    ApiServer(uvicorn.Config(first, lifespan="off", **options())).run([listening])


def options() -> dict[str, Any]:
    """Collect uvicorn's options.

    With them it limits the time of slow clients, logs no requests and trusts no headers.
    """
    from ui.cli.connection import HttpConnection

    return {
        "http": HttpConnection,
        "ws": "none",
        "loop": "asyncio",
        "log_config": None,
        "access_log": False,  # requests are private
        "proxy_headers": False,  # a client could forge them
        "server_header": False,
        "timeout_keep_alive": KEEP_ALIVE_S,
        "timeout_graceful_shutdown": SHUTDOWN_TIMEOUT_S,
    }


def _access(args: argparse.Namespace, address: str) -> Access:
    """Decide who may send requests. Without a login there is no page if a key is set."""
    key, users = _key(args, address), _users(args)
    return Access(key, users, page=not args.no_page and (key is None or bool(users)))


def _users(args: argparse.Namespace) -> list[tuple[str, str]]:
    """Parse names and passwords. Raises Failure for bad ones, without repeating them."""
    given = args.auth or [
        variable for variable in (os.environ.get(AUTH_VARIABLE),) if variable is not None
    ]
    users = [(name, password) for name, _, password in (pair.partition(":") for pair in given)]
    for name, password in users:
        if not name or name != name.strip() or not name.isprintable():
            raise Failure(USAGE, "--auth: no name: give NAME:PASSWORD")
        if len(password) < MIN_PASSWORD_CHARS:
            why = f"--auth: the password needs {MIN_PASSWORD_CHARS} or more characters"
            raise Failure(USAGE, f"{why}: try `openssl rand -base64 12`")
    if len({name for name, _ in users}) < len(users):
        raise Failure(USAGE, "--auth: a name is given twice: give each one password")
    return users


def _key(args: argparse.Namespace, address: str) -> str | None:
    """Find the key that clients must send, or several with a blank between them.

    Raises Failure if one is bad, or missing but needed.
    """
    key: str | None = args.api_key
    if key is None:
        key = os.environ.get(API_KEY_VARIABLE)
    if key is None:
        if is_loopback(address):
            return None
        why = f"--host {args.host}: other machines can reach it"
        raise Failure(USAGE, f"{why}: set a key in {API_KEY_VARIABLE}, or leave --host out")
    keys = key.split(" ")
    if any(
        len(text) < MIN_KEY_CHARS or not text.isascii() or not text.isprintable() for text in keys
    ):
        why = f"a key needs {MIN_KEY_CHARS} or more ASCII characters, and several a blank between"
        raise Failure(USAGE, f"{why}: try `openssl rand -hex 16`")
    return key


def _resolve(host: str) -> tuple[int, str]:
    """Find the address family and address of a host. Raises Failure if it has none."""
    try:
        if not host:
            raise OSError("empty")
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        why = f"--host {host}: {reason(error)}: name an address of this machine"
        raise Failure(USAGE, why) from error
    return found[0], str(found[4][0])


def _listening(family: int, address: str, port: int) -> socket.socket:
    """Open a listening socket. Raises Failure if the address is not available."""
    try:
        made = socket.create_server((address, port), family=family)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
        return made
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)  # strerror names the address
        where = f"{address}:{port}: {why}"
        raise Failure(USAGE, f"{where}: name another --port, or 0 for any") from error


def _queue_size(text: str) -> int:
    number = int(text)
    if not 1 <= number <= MAX_QUEUE:
        raise argparse.ArgumentTypeError(f"{text} is not 1 to {MAX_QUEUE}")
    return number


_queue_size.__name__ = "whole number"  # argparse's messages show the name
