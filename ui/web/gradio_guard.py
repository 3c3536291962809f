"""What of Gradio's routes is there, for whom, and how much they take: what the page needs, no more.

Gradio can also fetch addresses for its readers, read files elsewhere, keep a history at a hub and
edit itself; here none of it can be reached, whatever a version adds. Hosts and origins are
guard.py's business.
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
    MAX_BODY,
    App,
    Message,
    Receive,
    Scope,
    Send,
    digest,
    header,
    limited,
    too_large,
)

if TYPE_CHECKING:
    from fastapi import FastAPI
    from gradio.routes import App as Gradio

API = "/gradio_api"
UPLOAD, FILE, JOIN = f"{API}/upload", f"{API}/file=", f"{API}/queue/join"
FREE = {  # what the page that asks for a password is made of: Gradio's own, the same everywhere
    "GET": ("/", "/theme.css", "/manifest.json", "/assets/", "/static/"),
    "POST": ("/login",),
}
KNOWN = {  # what ends with / or = stands for all that begins so
    "GET": (
        *("/config", "/logout", f"{API}/info", f"{API}/startup-events", f"{API}/heartbeat/"),
        *(f"{API}/queue/data", f"{API}/upload_progress", FILE),
    ),
    "POST": (JOIN, f"{API}/cancel", f"{API}/reset", UPLOAD),
}
MOST_UPLOADED = 16 * MAX_FILE_BYTES  # bytes at once
DOWNLOAD = [  # a file is never a page of ours
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"content-disposition", b"attachment"),
]


def put(app: FastAPI, at: str) -> None:
    """Put a door before the Gradio application that is mounted at a path."""
    [mounted] = [one for one in app.routes if isinstance(one, Mount) and one.path == at]
    mounted.app = Door(mounted.app)  # type: ignore[arg-type]


def right(users: Sequence[tuple[str, str]]) -> Callable[[str, str], bool]:
    """Whether a name and a password are one of these. The time tells nothing of them."""
    known = [(digest(name), digest(password)) for name, password in users]

    def compared(name: str, password: str) -> bool:
        given = digest(name), digest(password)
        same = [
            hmac.compare_digest(given[0], one) & hmac.compare_digest(given[1], other)
            for one, other in known
        ]
        return any(same)

    return compared


class Door:
    """Before a mounted Gradio application."""

    def __init__(self, app: Gradio) -> None:
        self.app: App = app
        self.files = Path(app.uploaded_file_dir).resolve()
        self.locked = app.auth is not None
        self.users: Mapping[str, str] = app.tokens  # by what their cookies hold
        self.cookie = f"access-token-unsecure-{app.cookie_id}"
        self.clicks = app.get_blocks().fns
        self.owners: dict[Path, set[str | None]] = {}  # users, by what they uploaded
        self.uploading = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path == UPLOAD or (scope.get("client") and is_loopback(scope["client"][0])):
            kept = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
            scope = {**scope, "headers": kept}  # packing takes longer than sending
        try:
            self.check(scope, path)
            if path == UPLOAD:
                await self.upload(scope, limited(receive, MOST_UPLOADED), send)
            elif path == JOIN:
                body = await self.joining(scope, limited(receive, MAX_BODY))
                await self.app(scope, told(body, receive), send)
            else:
                sent = downloaded(send) if path.startswith(FILE) else send
                await self.app(scope, limited(receive, MAX_BODY), sent)
        except ApiError as error:  # before anything was answered
            await error.response()(scope, receive, send)

    def check(self, scope: Scope, path: str) -> None:
        """ApiError where something is wrong with a request, before its body is read."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        free = listed(path, FREE.get(method, ()))
        if not free and not listed(path, KNOWN.get(method, ())):
            raise ApiError(404, "the page has nothing here")
        if not free and self.locked and self.user(scope) is None:
            raise ApiError(401, "log in first: open the page")
        if path.startswith(FILE) and not self.holds(path.removeprefix(FILE), self.user(scope)):
            raise ApiError(404, "no such file here")
        most = MOST_UPLOADED if path == UPLOAD else MAX_BODY
        sizes = header(scope, b"content-length")
        if sizes and sizes[0].isdecimal() and int(sizes[0][:20]) > most:
            raise ApiError(413, too_large(most))

    def user(self, scope: Scope) -> str | None:
        """Who logged in."""
        return self.users.get(HTTPConnection(scope).cookies.get(self.cookie, ""))

    def holds(self, name: str, user: str | None) -> bool:
        """Whether a path is a file below the folder of uploads, wherever its links lead, and no
        other user's."""
        path = Path(name)
        if "\0" in name or not path.is_absolute() or ".." in path.parts:
            return False
        try:
            real = path.resolve()
            found = real.is_relative_to(self.files) and real.is_file()
        except (OSError, RuntimeError):  # too long, or a circle of links
            return False
        return found and user in self.owners.get(real, {user})

    async def joining(self, scope: Scope, receive: Receive) -> bytes:
        """The body of a click: files that it names must have been uploaded. A mounted Gradio would
        read any, and fetch addresses."""
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
        for named in paths(body):
            if not isinstance(named, str) or not self.holds(named, user):
                raise ApiError(403, "a file that is not here: upload it first")
        if not self.knows(body):
            raise ApiError(400, "the page knows no such click: load it again")
        return json.dumps(body).encode()  # what was looked at, however else it may be read

    def knows(self, body: Any) -> bool:
        """Whether something happens on this click, with so many inputs. Gradio would log others."""
        click = body.get("fn_index") if isinstance(body, dict) else None
        if not isinstance(click, int) or click not in self.clicks:
            return False
        data = body.get("data")
        return isinstance(data, list) and len(data) == len(self.clicks[click].inputs)

    async def upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take files, and note whose they are. What is broken off is not kept. Both before anything
        is answered."""
        answer: list[Message] = []

        async def heard(message: Message) -> None:
            answer.append(message)

        self.uploading += 1
        try:
            await self.app(scope, receive, heard)
        finally:
            self.uploading -= 1
            if not self.uploading:
                self.sweep()
        said = b"".join(message.get("body", b"") for message in answer)
        if said.startswith(b"["):
            user = self.user(scope)
            for name in json.loads(said):
                self.owners.setdefault(Path(name).resolve(), set()).add(user)
        for message in answer:
            await send(message)

    def sweep(self) -> None:
        """Remove what Gradio leaves of uploads that were broken off: files beside its folders."""
        if not self.files.is_dir():
            return
        for one in self.files.iterdir():
            if not one.is_dir():
                one.unlink()


def listed(path: str, known: Sequence[str]) -> bool:
    if ".." in path.split("/") or "\\" in path:
        return False
    return any(
        path == one or (len(one) > 1 and one.endswith(("/", "=")) and path.startswith(one))
        for one in known
    )


def paths(value: Any) -> Iterator[Any]:
    """What stands under `path` anywhere in a JSON value: how Gradio names files."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if one.get("path") is not None:
                yield one["path"]
            left += one.values()
        elif isinstance(one, list):
            left += one


def told(body: bytes, receive: Receive) -> Receive:
    """`receive`, after a body that was received already."""
    rest = [body]

    async def again() -> Message:
        if rest:
            return {"type": "http.request", "body": rest.pop(), "more_body": False}
        return await receive()

    return again


def downloaded(send: Send) -> Send:
    """`send`, for a file that a browser saves."""

    async def as_file(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [pair for pair in message["headers"] if pair[0].lower() != DOWNLOAD[1][0]]
            message = {**message, "headers": [*kept, *DOWNLOAD]}
        await send(message)

    return as_file
