"""Access control as plain ASGI middleware: hosts, origins, API keys and body sizes.

A page on the web can make its reader's browser send requests to loopback, directly or through a
name that resolves to it (DNS rebinding). Therefore the `Host` header must name this server, and the
`Origin` header, where a browser sends one, must be this server's own. No CORS header is ever sent.
Our own page gets a content security policy that forbids requests to other servers.
"""

from __future__ import annotations

import hmac
import ipaddress
import math
import socket
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from starlette.exceptions import HTTPException

from ui.api.addresses import is_loopback
from ui.api.body_budget import BodyBudgets
from ui.api.errors import ApiError
from ui.api.failures import ADDRESS_BURST, ADDRESS_INTERVAL_S, Failures, network_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OWNER = "draftline.owner"  # key of a request's scope: `AccessRules.owner`
IS_LOCAL = "draftline.local"  # key of a request's scope: a program of this user sent it, keyless
PUBLIC_PATHS = ("/", "/health")  # need no key: they reveal nothing
MAX_BODY_BYTES = 8 << 20
# Gradio needs eval and inline scripts. What a document or an answer could inject are requests to
# other servers, frames and event-handler attributes: all of these are forbidden.
CONTENT_SECURITY_POLICY = {
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
    b"content-security-policy": "; ".join(map(" ".join, CONTENT_SECURITY_POLICY.items())).encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
}
UNKNOWN_HOST = "unknown host name: use localhost, or start the server with --allow-host NAME"


@dataclass(frozen=True)
class AccessRules:
    """Who may access the server.

    `key`: one, or several between blanks. `hosts`: its names besides localhost. `any_address`:
    accept every IP address as a host, which DNS rebinding cannot fake. `pages`: path prefixes that
    check keys and sizes themselves."""

    hosts: Collection[str] = ()
    any_address: bool = False
    key: str | None = field(default=None, repr=False)
    pages: tuple[str, ...] = ()
    max_body: int = MAX_BODY_BYTES

    def accepts_host(self, host: str) -> bool:
        """Return whether a host, without its port, is this server."""
        if host == "localhost" or host in self.hosts:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return self.any_address or address.is_loopback

    def owner(self, authorization: str | None, api_key: str | None = None) -> str | None:
        """Return the owner of a request; None for a missing or wrong key.

        It is the digest of the key in the header `authorization` or `x-api-key`, compared in
        constant time; "" where no key is needed.
        """
        if self.key is None:
            return ""
        scheme, _, key = (authorization or "").partition(" ")
        given = [(digest(key.strip()), scheme.lower() == "bearer")]
        given += [(digest(api_key.strip()), True)] if api_key is not None else []
        found = None
        for own in map(digest, self.key.split()):
            for one, counts in given:
                same = hmac.compare_digest(one, own)
                found = own.hex() if same and counts else found
        return found


def rules_for(
    host: str, address: str, key: str | None, aliases: Collection[str] = ()
) -> AccessRules:
    """Return the rules for a server that listens at `host`, which resolves to `address`.

    `aliases`: other host names of it.
    """
    names = {name.lower() for name in (host, address, *aliases)}
    if not is_loopback(address):
        names.add(socket.gethostname().lower())
    return AccessRules(names, ipaddress.ip_address(address).is_unspecified, key)


def digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()


class AccessGuard:
    """Middleware that enforces the rules."""

    def __init__(self, app: App, rules: AccessRules) -> None:
        self.app, self.rules, self.budgets = app, rules, BodyBudgets()
        self.failures = Failures(ADDRESS_BURST, ADDRESS_INTERVAL_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        page = any(is_within(scope["path"], prefix) for prefix in self.rules.pages)
        error = self.check(scope, page)
        scope[OWNER] = self._owner(scope) or ""
        if error is not None:
            await reject(error, scope, receive, send)
        elif scope["type"] != "http":
            await self.app(scope, receive, send)
        elif page:
            await self.app(scope, receive, with_page_headers(send))
        else:
            most = self.rules.max_body
            limited = limit_body(receive, most)
            expected = announced_bytes(scope) or most
            async with self.budgets.limited(limited, scope[OWNER], expected) as receive_in_budget:
                await self.app(scope, receive_in_budget, send)

    def check(self, scope: Scope, page: bool) -> ApiError | None:
        """Return the reason to reject a request, found before its body is read."""
        hosts, origins = header(scope, b"host"), header(scope, b"origin")
        if len(hosts) != 1 or not self.rules.accepts_host(without_port(hosts[0])):
            return ApiError(400, UNKNOWN_HOST)
        if any(not same_origin(origin, hosts[0]) for origin in origins):
            return ApiError(403, "cross-origin requests are not allowed: use the server's own page")
        if page:
            return None
        if scope["path"] not in PUBLIC_PATHS and self._owner(scope) is None:
            return self._wrong_key(scope)
        if announced_bytes(scope) > self.rules.max_body:
            return ApiError(413, body_too_large(self.rules.max_body))
        return None

    def _wrong_key(self, scope: Scope) -> ApiError:
        """Return the error of a request without a right key.

        A client that guesses has to wait; right keys from the same address are not kept waiting.
        """
        if header(scope, b"authorization") or header(scope, b"x-api-key"):
            network = network_of((scope.get("client") or ("",))[0])
            if wait_s := self.failures.wait_s(network):
                seconds = math.ceil(wait_s)
                message = f"too many wrong keys: retry in {seconds} s"
                return ApiError(429, message, headers={"retry-after": str(seconds)})
            self.failures.add(network)
        message = "the key is missing or wrong: send `Authorization: Bearer KEY`"
        headers = {"www-authenticate": "Bearer"}
        return ApiError(401, message, code="invalid_api_key", headers=headers)

    def _owner(self, scope: Scope) -> str | None:
        if scope.get(IS_LOCAL):
            return ""
        keys = (header(scope, b"authorization"), header(scope, b"x-api-key"))
        return self.rules.owner(*(key[0] if key else None for key in keys))


async def reject(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the error; a WebSocket is closed."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await error.response(scope["path"])(scope, receive, send)


def limit_body(receive: Receive, limit: int) -> Receive:
    """Wrap `receive` to reject bodies of more than `limit` bytes, whatever their header says."""
    size = 0

    async def receive_counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > limit:
            raise HTTPException(413, body_too_large(limit))
        return message

    return receive_counted


def with_page_headers(send: Send) -> Send:
    """Wrap `send` to add the page's security headers and to drop CORS headers.

    A stricter policy of the page itself stays in force, because browsers apply every policy they
    receive.
    """

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [
                (name, value)
                for name, value in message.get("headers", ())
                if not name.lower().startswith(b"access-control-")
            ]
            message = {**message, "headers": [*headers, *PAGE_HEADERS.items()]}
        await send(message)

    return send_with_headers


def body_too_large(limit: int) -> str:
    return f"the body is too large: send at most {limit} bytes"


def header(scope: Scope, name: bytes) -> list[str]:
    """Return all values of a header."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def announced_bytes(scope: Scope) -> int:
    """Return the request's content-length, 0 without one."""
    sizes = header(scope, b"content-length")
    return int(sizes[0][:20]) if sizes and sizes[0].isdecimal() else 0


def without_port(host: str) -> str:
    """Return the host of `host:port` or `[host]:port`, in lower case."""
    name, colon, port = host.lower().rpartition(":")
    if not colon or "]" in port:
        name = host.lower()
    elif not port.isdecimal():
        return ""
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name


def same_origin(origin: str, host: str) -> bool:
    """Return whether an `origin` header names a page of `host`."""
    return origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")


def is_within(path: str, prefix: str) -> bool:
    """Return whether a path is `prefix` or below it."""
    return path == prefix or path.startswith(prefix.rstrip("/") + "/")
