"""Who may talk to the server: hosts, origins, keys, and how much they may send. Plain ASGI.

A page on the web can make its reader's browser send requests to loopback, directly or by a name
that it points there (DNS rebinding). So the host that was asked for must be one of ours, and the
page that asks, where a browser says which, must be of this server. No header that would let other
pages read answers (CORS) is ever sent. Our own page is told to load and ask nothing elsewhere. It
knows no route.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from starlette.exceptions import HTTPException

from ui.api.addresses import is_loopback
from ui.api.errors import ApiError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/", "/health")  # need no key: they tell nothing
MAX_BODY = 8 << 20  # bytes of a request
# Gradio makes code of text, and writes scripts and styles into its page; what a document or a model
# could bring in are addresses elsewhere, frames, and attributes that are scripts: none of these.
POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'unsafe-inline' 'unsafe-eval'",
    "script-src-attr": "'none'",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self'",
    "worker-src": "'self' blob:",
    "object-src": "'none'",
    "frame-src": "'none'",
    "frame-ancestors": "'none'",
    "base-uri": "'self'",
    "form-action": "'self'",
}
PAGE_HEADERS = {
    b"content-security-policy": "; ".join(map(" ".join, POLICY.items())).encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
}
UNKNOWN = "nobody here goes by that name: use localhost, or start with --allow-host NAME"


@dataclass(frozen=True)
class Rules:
    """`hosts`: names that the server is reached by, beside loopback. `any_address`: also by every
    IP address, which no name can be made to stand for. `pages`: paths (with all below them) that
    check keys and sizes by themselves."""

    hosts: Collection[str] = ()
    any_address: bool = False
    key: str | None = field(default=None, repr=False)
    pages: tuple[str, ...] = ()
    max_body: int = MAX_BODY

    def knows(self, host: str) -> bool:
        """Whether a host, without its port, is this server."""
        if host == "localhost" or host in self.hosts:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return self.any_address or address.is_loopback

    def opens(self, given: str | None) -> bool:
        """Whether the header `authorization` holds the key. The time tells nothing of it."""
        if self.key is None:
            return True
        scheme, _, key = (given or "").partition(" ")
        same = hmac.compare_digest(digest(key.strip()), digest(self.key))
        return same and scheme.lower() == "bearer"


def rules_for(host: str, address: str, key: str | None, more: Collection[str] = ()) -> Rules:
    """Rules of a server that was told to listen at `host`, which is `address`. `more`: other names
    that clients reach it by."""
    names = {one.lower() for one in (host, address, *more)}
    if not is_loopback(address):
        names.add(socket.gethostname().lower())
    return Rules(names, ipaddress.ip_address(address).is_unspecified, key)


def digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()


class Guard:
    """Middleware that lets pass what the rules allow."""

    def __init__(self, app: App, rules: Rules) -> None:
        self.app, self.rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        page = any(within(scope["path"], one) for one in self.rules.pages)
        error = self.objection(scope, page)
        if error is not None:
            await refuse(error, scope, receive, send)
        elif scope["type"] != "http":
            await self.app(scope, receive, send)
        elif page:
            await self.app(scope, receive, kept_in(send))
        else:
            await self.app(scope, limited(receive, self.rules.max_body), send)

    def objection(self, scope: Scope, page: bool) -> ApiError | None:
        """What is wrong with a request, before its body is read."""
        hosts, origins = header(scope, b"host"), header(scope, b"origin")
        if len(hosts) != 1 or not self.rules.knows(without_port(hosts[0])):
            return ApiError(400, UNKNOWN)
        if any(not same_place(one, hosts[0]) for one in origins):
            return ApiError(403, "pages of other servers may not ask this one")
        if page:
            return None
        given = header(scope, b"authorization")
        if scope["path"] not in OPEN and not self.rules.opens(given[0] if given else None):
            message = "the key is missing or wrong: send `Authorization: Bearer KEY`"
            headers = {"www-authenticate": "Bearer"}
            return ApiError(401, message, code="invalid_api_key", headers=headers)
        sizes = header(scope, b"content-length")
        if sizes and sizes[0].isdecimal() and int(sizes[0][:20]) > self.rules.max_body:
            return ApiError(413, too_large(self.rules.max_body))
        return None


async def refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """The error as an answer; a WebSocket is closed."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await error.response()(scope, receive, send)


def limited(receive: Receive, most: int) -> Receive:
    """`receive`, for bodies of at most `most` bytes, whatever their header says."""
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > most:
            raise HTTPException(413, too_large(most))
        return message

    return counted


def kept_in(send: Send) -> Send:
    """`send`, for a page that stays among itself. It may be stricter than we are: what two policies
    say holds both."""

    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            theirs = [
                (name, value)
                for name, value in message.get("headers", ())
                if not name.lower().startswith(b"access-control-")
            ]
            message = {**message, "headers": [*theirs, *PAGE_HEADERS.items()]}
        await send(message)

    return told


def too_large(most: int) -> str:
    return f"the body is too large: send at most {most} bytes"


def header(scope: Scope, name: bytes) -> list[str]:
    """All values of a header."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def without_port(host: str) -> str:
    """The host of `host:port` or `[host]:port`, lower case."""
    name, colon, port = host.lower().rpartition(":")
    if not colon or "]" in port:
        name = host.lower()
    elif not port.isdecimal():
        return ""
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name


def same_place(origin: str, host: str) -> bool:
    """Whether a page of `origin` came from `host`."""
    return origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")


def within(path: str, folder: str) -> bool:
    """Whether a path is `folder`, or below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
