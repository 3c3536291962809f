"""Access control for the mounted Gradio application.

It has allowed routes, logins, sessions and size limits.

Gradio can also fetch URLs, read other files, store a history on the hub and edit itself. None of it
is reachable here, whatever a future version adds. Hosts and origins are checked by security.py.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from gradio import Number, Slider
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import Mount

from index.documents.formats import MAX_FILE_BYTES, DocumentError
from ui.api.addresses import is_loopback
from ui.api.errors import ApiError
from ui.api.security import (
    MAX_BODY_BYTES,
    App,
    Message,
    Receive,
    Scope,
    Send,
    announced_bytes,
    body_too_large,
    limit_body,
)
from ui.web import pictures
from ui.web.login import client_address
from ui.web.sessions import Owner, Sessions
from ui.web.shell import with_shell
from ui.web.upload_space import UploadSpace

if TYPE_CHECKING:
    from fastapi import FastAPI
    from gradio.routes import App as Gradio

Picture = Callable[[str | None, str], bytes]  # (user, query) -> PNG

API = "/gradio_api"
UPLOAD, FILE, JOIN = f"{API}/upload", f"{API}/file=", f"{API}/queue/join"
CANCEL, RESET, HEARTBEAT = f"{API}/cancel", f"{API}/reset", f"{API}/heartbeat/"
STREAM = f"{API}/queue/data"
LOGIN = "/login"
PICTURE = f"/{pictures.PATH}"
PUBLIC_ROUTES = {  # those of the login page: static files of Gradio
    "GET": ("/", "/theme.css", "/manifest.json", "/assets/", "/static/"),
    "POST": (LOGIN,),
}
ROUTES = {  # an entry that ends with / or = is a prefix
    "GET": (
        *("/config", "/logout", f"{API}/info", f"{API}/startup-events", HEARTBEAT),
        *(STREAM, f"{API}/upload_progress", FILE, PICTURE),
    ),
    "POST": (JOIN, CANCEL, RESET, UPLOAD),
}
OWNED = ("session_hash", "upload_id")  # query parameters that Gradio looks up for anyone
MAX_UPLOAD_BYTES = 16 * MAX_FILE_BYTES  # bytes of one request
MAX_LOGIN_BYTES = 64 << 10
BROWSER_COOKIE = "draftline-browser"  # tells browsers apart where there are no logins
MIN_BROWSER_CHARS = 16  # characters; a shorter value could be guessed
MAX_TOKENS = 64  # logins of a user that stay valid
DOWNLOAD_HEADERS = [  # headers by which uploaded files are never rendered as pages
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"content-disposition", b"attachment"),
]


def install(app: FastAPI, path: str, users: int, picture: Picture) -> None:
    """Put a guard before the Gradio application that is mounted at a path.

    `users`: how many can log in. `picture`: see GradioGuard.
    """
    [mount] = [route for route in app.routes if isinstance(route, Mount) and route.path == path]
    mount.app = GradioGuard(mount.app, users, picture)  # type: ignore[arg-type]


class GradioGuard:
    """ASGI middleware before a mounted Gradio application."""

    def __init__(self, app: Gradio, users: int, picture: Picture) -> None:
        """Guard the application.

        `users`: how many can log in; 0 if no login is needed.

        `picture` draws a page of a user's document, from a query as ui/web/pictures.py writes it.
        Raises KeyError if there is none.
        """
        self.app: App = app
        self.picture = picture
        self.files = Path(app.uploaded_file_dir).resolve()
        self.needs_login = app.auth is not None
        self.users: MutableMapping[str, str] = app.tokens  # indexed by login cookie, oldest first
        self.cookie = f"access-token-unsecure-{app.cookie_id}"
        self.events = app.get_blocks().fns
        self.sessions = Sessions(app.get_blocks(), users)
        self.space = UploadSpace(self.files)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        local = scope.get("client") and is_loopback(scope["client"][0])
        if local or path in (UPLOAD, "/"):  # on loopback compression is a waste of time
            headers = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
            scope = {**scope, "headers": headers}
        try:
            self.check(scope, path)
            scope = self.with_own_names(scope, path)
            if path == UPLOAD:
                await self.upload(scope, limit_body(receive, MAX_UPLOAD_BYTES), send)
            elif path in (JOIN, CANCEL, RESET):
                body = await self.event_body(scope, path, limit_body(receive, MAX_BODY_BYTES))
                await self.app(scope, replay_body(body, receive), send)
            elif path == PICTURE:
                await self.send_picture(scope, receive, send)
            elif path == LOGIN:
                await self.login(scope, limit_body(receive, MAX_LOGIN_BYTES), send)
            else:
                sender = with_download_headers(send) if path.startswith(FILE) else send
                if path == "/" and scope["method"] == "GET":
                    sender = with_outline(sender)
                if path == "/" and not self.owner(scope).browser:
                    sender = with_browser_cookie(sender)
                await self.app(scope, limit_body(receive, MAX_BODY_BYTES), sender)
        except ApiError as error:  # raised before the response starts
            await error.response()(scope, receive, send)

    def check(self, scope: Scope, path: str) -> None:
        """Raise ApiError for a request that is not allowed, before its body is read."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        public = is_listed(path, PUBLIC_ROUTES.get(method, ()))
        if not public and not is_listed(path, ROUTES.get(method, ())):
            raise ApiError(404, "no such path of the page")
        if not public and self.needs_login and self.user(scope) is None:
            raise ApiError(401, "not logged in: open the page")
        file = path.removeprefix(FILE)
        if path.startswith(FILE) and not self.may_read(file, self.user(scope)):
            raise ApiError(404, "no such file")
        limit = {UPLOAD: MAX_UPLOAD_BYTES, LOGIN: MAX_LOGIN_BYTES}.get(path, MAX_BODY_BYTES)
        if announced_bytes(scope) > limit:
            raise ApiError(413, body_too_large(limit))

    def user(self, scope: Scope) -> str | None:
        """Return the user who is logged in."""
        return self.users.get(HTTPConnection(scope).cookies.get(self.cookie, ""))

    def owner(self, scope: Scope) -> Owner:
        """Whom the sessions of a request belong to."""
        browser = HTTPConnection(scope).cookies.get(BROWSER_COOKIE, "")
        return Owner(self.user(scope), browser if len(browser) >= MIN_BROWSER_CHARS else "")

    def with_own_names(self, scope: Scope, path: str) -> Scope:
        """Return the scope, with Gradio's names for the owner's sessions and uploads in its URL.

        Raises ApiError for the stream of a session that does not exist.
        """
        owner = self.owner(scope)
        query = [
            (key, self.sessions.name(owner, value) if key in OWNED else value)
            for key, value in parse_qsl(scope["query_string"].decode("latin-1"), True)
        ]
        if path == STREAM:
            self.sessions.check_stream(dict(query).get("session_hash", ""))
        scope = {**scope, "query_string": urlencode(query).encode("ascii")}
        if path.startswith(HEARTBEAT):
            name = self.sessions.name(owner, path.removeprefix(HEARTBEAT))
            scope["path"] = f"{scope.get('root_path', '')}{HEARTBEAT}{name}"
            scope["raw_path"] = scope["path"].encode("utf-8")
        return scope

    async def login(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Log in, and forget the oldest logins of a user who has too many."""
        client_address.set(scope["client"][0] if scope.get("client") else "")
        await self.app(scope, receive, send)
        by_user: dict[str, list[str]] = {}
        for token, user in self.users.items():
            by_user.setdefault(user, []).append(token)
        for tokens in by_user.values():
            for token in tokens[:-MAX_TOKENS]:
                del self.users[token]

    def may_read(self, name: str, user: str | None) -> bool:
        """Return whether a path is a file in the upload folder and not another user's.

        Links in it are resolved first.
        """
        path = Path(name)
        if "\0" in name or not path.is_absolute() or ".." in path.parts:
            return False
        try:
            real = path.resolve()
            uploaded = real.is_relative_to(self.files) and real.is_file()
        except (OSError, RuntimeError):  # too long, or a cycle of links
            return False
        return uploaded and self.space.may_read(real, user)

    async def event_body(self, scope: Scope, path: str, receive: Receive) -> bytes:
        """Check the body of a request that starts or ends a UI event.

        It is returned with Gradio's name for the owner's session. Files in it must have been
        uploaded: a mounted Gradio would read any file, and fetch URLs.
        """
        raw = bytearray()
        while (message := await receive())["type"] == "http.request":
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            raise ApiError(400, "the body could not be read: send JSON") from None
        if not isinstance(body, dict):
            raise ApiError(400, "the body could not be read: send a JSON object")
        owner = self.owner(scope)
        for file in file_paths(body):
            if not isinstance(file, str) or not self.may_read(file, owner.user):
                raise ApiError(403, "not an uploaded file: upload it first")
        if path == JOIN:
            if not self.is_event(body):
                raise ApiError(400, "unknown event: reload the page")
            body["session_hash"] = await self.sessions.enter(owner, body.get("session_hash"))
        else:
            self.sessions.check_event(owner, body.get("event_id"))
            if "session_hash" in body:
                body["session_hash"] = self.sessions.name(owner, body["session_hash"])
        return json.dumps(body).encode()  # exactly what was checked, without duplicate keys

    def is_event(self, body: dict[str, Any]) -> bool:
        """Return whether the page has such an event.

        It must have as many inputs, and numbers where it has some. Gradio would log others with all
        that they contain.
        """
        event = body.get("fn_index")
        if not isinstance(event, int) or event not in self.events:
            return False
        data, inputs = body.get("data"), self.events[event].inputs
        return (
            isinstance(data, list)
            and len(data) == len(inputs)
            and all(
                value is None or isinstance(value, int | float)
                for value, component in zip(data, inputs, strict=True)
                if isinstance(component, Number | Slider)
            )
        )

    async def send_picture(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a page of a document of the user. Raises ApiError if there is none."""
        query = scope["query_string"].decode("latin-1")
        try:
            png = await asyncio.to_thread(self.picture, self.user(scope), query)
        except (KeyError, ValueError):
            raise ApiError(404, "no such page of a document") from None
        except DocumentError as error:
            raise ApiError(404, str(error)) from error
        response = Response(png, 200, {"cache-control": "private, max-age=3600"}, "image/png")
        await response(scope, receive, send)

    async def upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Store files and record their owner before the response is sent."""
        user, response = self.user(scope), list[Message]()

        async def collect(message: Message) -> None:
            response.append(message)

        with self.space.receiving(user, receive) as counted:
            await self.app(scope, counted, collect)
            body = b"".join(message.get("body", b"") for message in response)
            if body.startswith(b"["):
                for name in json.loads(body):
                    self.space.add(Path(name).resolve(), user)
        for message in response:
            await send(message)


def is_listed(path: str, routes: Sequence[str]) -> bool:
    if ".." in path.split("/") or "\\" in path:
        return False
    return any(
        path == route or (len(route) > 1 and route.endswith(("/", "=")) and path.startswith(route))
        for route in routes
    )


def file_paths(value: Any) -> Iterator[Any]:
    """Yield the values of all keys `path` in a JSON value, which is how Gradio refers to files."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if item.get("path") is not None:
                yield item["path"]
            stack += item.values()
        elif isinstance(item, list):
            stack += item


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Wrap `receive` to deliver a body that has been received already."""
    bodies = [body]

    async def receive_again() -> Message:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        return await receive()

    return receive_again


def with_download_headers(send: Send) -> Send:
    """Wrap `send` so that browsers save a file instead of showing it."""
    replaced = {name for name, _ in DOWNLOAD_HEADERS[1:]}

    async def send_file(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [pair for pair in message["headers"] if pair[0].lower() not in replaced]
            message = {**message, "headers": [*headers, *DOWNLOAD_HEADERS]}
        await send(message)

    return send_file


def with_outline(send: Send) -> Send:
    """Wrap `send` so that the page has its outline, which is visible before its scripts run."""
    held: list[Message] = []

    async def send_page(message: Message) -> None:
        held.append(message)
        if message["type"] == "http.response.start" or message.get("more_body"):
            return
        body = with_shell(b"".join(each.get("body", b"") for each in held))
        length = (b"content-length", str(len(body)).encode())
        headers = [pair for pair in held[0]["headers"] if pair[0].lower() != length[0]]
        await send({**held[0], "headers": [*headers, length]})
        await send({"type": "http.response.body", "body": body})

    return send_page


def with_browser_cookie(send: Send) -> Send:
    """Wrap `send` to give the browser a cookie of its own."""
    value = secrets.token_urlsafe(MIN_BROWSER_CHARS)
    cookie = f"{BROWSER_COOKIE}={value}; Path=/; HttpOnly; SameSite=Lax"

    async def send_cookie(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message["headers"], (b"set-cookie", cookie.encode("ascii"))]
            message = {**message, "headers": headers}
        await send(message)

    return send_cookie
