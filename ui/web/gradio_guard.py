"""Access control for the mounted Gradio application: allowed routes, logins and size limits.

Gradio can also fetch URLs, read other files, store a history on the hub and edit itself. None of it
is reachable here, whatever a future version adds. Hosts and origins are checked by security.py.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import HTTPConnection
from starlette.routing import Mount

from index.documents.formats import MAX_FILE_BYTES
from ui.api.addresses import is_loopback
from ui.api.errors import ApiError
from ui.api.security import (
    MAX_BODY_BYTES,
    App,
    Message,
    Receive,
    Scope,
    Send,
    body_too_large,
    digest,
    header,
    limit_body,
)

if TYPE_CHECKING:
    from fastapi import FastAPI
    from gradio.routes import App as Gradio

API = "/gradio_api"
UPLOAD, FILE, JOIN = f"{API}/upload", f"{API}/file=", f"{API}/queue/join"
PUBLIC_ROUTES = {  # those of the login page: static files of Gradio
    "GET": ("/", "/theme.css", "/manifest.json", "/assets/", "/static/"),
    "POST": ("/login",),
}
ROUTES = {  # an entry that ends with / or = is a prefix
    "GET": (
        *("/config", "/logout", f"{API}/info", f"{API}/startup-events", f"{API}/heartbeat/"),
        *(f"{API}/queue/data", f"{API}/upload_progress", FILE),
    ),
    "POST": (JOIN, f"{API}/cancel", f"{API}/reset", UPLOAD),
}
MAX_UPLOAD_BYTES = 16 * MAX_FILE_BYTES  # of one request
DOWNLOAD_HEADERS = [  # uploaded files are never rendered as pages
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"content-disposition", b"attachment"),
]


def install(app: FastAPI, path: str) -> None:
    """Put a guard before the Gradio application that is mounted at a path."""
    [mount] = [route for route in app.routes if isinstance(route, Mount) and route.path == path]
    mount.app = GradioGuard(mount.app)  # type: ignore[arg-type]


def password_check(users: Sequence[tuple[str, str]]) -> Callable[[str, str], bool]:
    """A check of names and passwords that takes constant time."""
    known = [(digest(name), digest(password)) for name, password in users]

    def check(name: str, password: str) -> bool:
        given_name, given_password = digest(name), digest(password)
        matches = [
            hmac.compare_digest(given_name, known_name)
            & hmac.compare_digest(given_password, known_password)
            for known_name, known_password in known
        ]
        return any(matches)

    return check


class GradioGuard:
    """ASGI middleware before a mounted Gradio application."""

    def __init__(self, app: Gradio) -> None:
        self.app: App = app
        self.files = Path(app.uploaded_file_dir).resolve()
        self.needs_login = app.auth is not None
        self.users: Mapping[str, str] = app.tokens  # by session cookie
        self.cookie = f"access-token-unsecure-{app.cookie_id}"
        self.events = app.get_blocks().fns
        self.owners: dict[Path, set[str | None]] = {}  # uploaded file -> users
        self.active_uploads = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path == UPLOAD or (scope.get("client") and is_loopback(scope["client"][0])):
            headers = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
            scope = {**scope, "headers": headers}  # on loopback compression is a waste of time
        try:
            self.check(scope, path)
            if path == UPLOAD:
                await self.upload(scope, limit_body(receive, MAX_UPLOAD_BYTES), send)
            elif path == JOIN:
                body = await self.event_body(scope, limit_body(receive, MAX_BODY_BYTES))
                await self.app(scope, replay_body(body, receive), send)
            else:
                sender = with_download_headers(send) if path.startswith(FILE) else send
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
        limit = MAX_UPLOAD_BYTES if path == UPLOAD else MAX_BODY_BYTES
        sizes = header(scope, b"content-length")
        if sizes and sizes[0].isdecimal() and int(sizes[0][:20]) > limit:
            raise ApiError(413, body_too_large(limit))

    def user(self, scope: Scope) -> str | None:
        """The user who is logged in."""
        return self.users.get(HTTPConnection(scope).cookies.get(self.cookie, ""))

    def may_read(self, name: str, user: str | None) -> bool:
        """Whether a path, with links resolved, is a file in the upload folder and not another
        user's."""
        path = Path(name)
        if "\0" in name or not path.is_absolute() or ".." in path.parts:
            return False
        try:
            real = path.resolve()
            uploaded = real.is_relative_to(self.files) and real.is_file()
        except (OSError, RuntimeError):  # too long, or a cycle of links
            return False
        return uploaded and user in self.owners.get(real, {user})

    async def event_body(self, scope: Scope, receive: Receive) -> bytes:
        """The checked body of a UI event. Files in it must have been uploaded: a mounted Gradio
        would read any file, and fetch URLs."""
        raw = bytearray()
        while (message := await receive())["type"] == "http.request":
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            raise ApiError(400, "the body could not be read: send JSON") from None
        user = self.user(scope)
        for path in file_paths(body):
            if not isinstance(path, str) or not self.may_read(path, user):
                raise ApiError(403, "not an uploaded file: upload it first")
        if not self.is_event(body):
            raise ApiError(400, "unknown event: reload the page")
        return json.dumps(body).encode()  # exactly what was checked, without duplicate keys

    def is_event(self, body: Any) -> bool:
        """Whether the page has such an event with as many inputs. Gradio would log others."""
        event = body.get("fn_index") if isinstance(body, dict) else None
        if not isinstance(event, int) or event not in self.events:
            return False
        data = body.get("data")
        return isinstance(data, list) and len(data) == len(self.events[event].inputs)

    async def upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Store files and record their owner before the response is sent."""
        response: list[Message] = []

        async def collect(message: Message) -> None:
            response.append(message)

        self.active_uploads += 1
        try:
            await self.app(scope, receive, collect)
        finally:
            self.active_uploads -= 1
            if not self.active_uploads:
                self.delete_partial_uploads()
        body = b"".join(message.get("body", b"") for message in response)
        if body.startswith(b"["):
            user = self.user(scope)
            for name in json.loads(body):
                self.owners.setdefault(Path(name).resolve(), set()).add(user)
        for message in response:
            await send(message)

    def delete_partial_uploads(self) -> None:
        """Delete what Gradio leaves of interrupted uploads: files beside its folders."""
        if not self.files.is_dir():
            return
        for path in self.files.iterdir():
            if not path.is_dir():
                path.unlink()


def is_listed(path: str, routes: Sequence[str]) -> bool:
    if ".." in path.split("/") or "\\" in path:
        return False
    return any(
        path == route or (len(route) > 1 and route.endswith(("/", "=")) and path.startswith(route))
        for route in routes
    )


def file_paths(value: Any) -> Iterator[Any]:
    """The values of all keys `path` in a JSON value, which is how Gradio refers to files."""
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
