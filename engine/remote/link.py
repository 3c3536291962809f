"""HTTP to an engine of another machine: JSON out, JSON or a stream of lines back.

Nothing is ever sent twice: a request that fails is the caller's to repeat. Proxies of the
environment are not used, redirections not followed: what is sent goes to the address that the user
named, and nowhere else.
"""

from __future__ import annotations

import json
import re
import ssl
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

from engine.remote.engine_url import KEY_VARIABLE, EngineUrl

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 60.0  # seconds without a byte; servers send one every SIGN_OF_LIFE_S
SIGN_OF_LIFE_S = 10.0
IDLE_S = 25.0  # seconds that an idle connection stays open; our servers keep theirs longer
MAX_CONNECTIONS = 32
MIN_COMPRESSED_BYTES = 2048  # bytes; smaller bodies are sent as they are
MAX_LINE_BYTES = 4 << 20  # bytes of a stream's line
MAX_JSON_BYTES = 8 << 20  # bytes of an answer that is no stream; parsed, up to 20 times as much
MAX_JSON_S = 60.0  # seconds for its body; a longer one may take longer, in proportion
MAX_SILENCE_S = 900.0  # seconds of a stream with signs of life, but without events
MAX_PART_BYTES = 1 << 16  # bytes that are decompressed at once
ENCODINGS = ("gzip", "deflate")  # content-encodings of bodies that are decompressed
MAX_REASON_CHARS = 300  # characters of a server's error
DEFLATE = "deflate"  # the content-encoding of compressed bodies


class LinkError(Exception):
    """A failed request to another machine. One line with the problem and a remedy."""


class Lost(LinkError):
    """No connection, or it ended before the answer."""


class Refused(LinkError):
    """The server answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Link:
    """A client of one address, used by any number of threads at once. A context manager."""

    def __init__(
        self, url: EngineUrl, key: str, headers: dict[str, str] | None = None, ours: bool = True
    ) -> None:
        """Prepare a client, which connects when it is first used.

        `ours`: the server is Draftline's. With another one a connection serves one request, except
        over TLS, where it is slow to make: llama.cpp's server closes connections behind a stream
        without having said so, and what was sent meanwhile is lost.
        """
        import httpx

        sent = {"user-agent": "draftline", "accept-encoding": ", ".join(ENCODINGS)}
        if not ours and not url.url.startswith("https:"):
            sent["connection"] = "close"
        sent |= headers or {}
        if key:
            sent["authorization"] = f"Bearer {key}"
        self.url = url
        limits = httpx.Limits(
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_CONNECTIONS,
            keepalive_expiry=IDLE_S,
        )
        transport = httpx.HTTPTransport(uds=str(url.socket), limits=limits) if url.socket else None
        self._http = httpx.Client(
            base_url=url.url,
            transport=transport,
            headers=sent,
            limits=limits,
            trust_env=False,
            follow_redirects=False,
            verify=ssl.create_default_context() if url.url.startswith("https:") else False,
        )

    def get(self, path: str, silence_s: float = READ_TIMEOUT_S) -> Any:
        """Get the JSON at a path, without a byte for `silence_s` at most.

        Raises LinkError.
        """
        with self._answer("GET", path, silence_s=silence_s) as answer:
            return self._json(self._body(answer, MAX_JSON_BYTES))

    def get_bytes(self, path: str, most: int) -> bytes:
        """Get the body at a path, of at most `most` bytes.

        Raises LinkError.
        """
        with self._answer("GET", path) as answer:
            return self._body(answer, most)

    def post(self, path: str, body: Any, compress: bool = True) -> Any:
        """Post a body, and return the JSON that answers it.

        Raises LinkError.
        """
        with self._answer("POST", path, body, compress) as answer:
            return self._json(self._body(answer, MAX_JSON_BYTES))

    def lines(
        self,
        path: str,
        body: Any,
        compress: bool = True,
        opened: Callable[[httpx.Response | None], None] = lambda answer: None,
        most: int = MAX_JSON_BYTES,
        silence_s: float = READ_TIMEOUT_S,
    ) -> Iterator[bytes]:
        """Post a body, and yield the lines that answer it as they arrive.

        The first is an empty one, once the server has accepted the body; further empty ones are
        signs of life. The lines have at most `most` bytes together. `opened` is called before the
        first one, and with None at the end, before the connection is used again. Raises LinkError,
        also where no byte comes for `silence_s`.
        """
        with self._answer("POST", path, body, compress, silence_s) as answer:
            opened(answer)
            try:
                yield b""
                yield from self._split(self._parts(answer), most)
            finally:
                opened(None)

    def _split(self, parts: Iterator[bytes], most: int) -> Iterator[bytes]:
        """Split a body of at most `most` bytes into its complete lines.

        Raises LinkError.
        """
        rest, size = b"", 0
        for part in parts:
            size += len(part)
            if size > most:
                why = f"the answer does not end: it is over {most >> 20} MiB"
                raise LinkError(f"{self.url}: {why}: ask for less, or use another server")
            *lines, rest = (rest + part).split(b"\n")
            yield from lines
            if len(rest) > MAX_LINE_BYTES:
                why = f"a line over {MAX_LINE_BYTES >> 20} MiB: use another server"
                raise LinkError(f"{self.url}: {why}")

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        body: Any = None,
        compress: bool = True,
        silence_s: float = READ_TIMEOUT_S,
    ) -> Iterator[httpx.Response]:
        import httpx

        content, headers = b"", {}
        if method == "POST":
            content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
            headers["content-type"] = "application/json"
            if compress and len(content) >= MIN_COMPRESSED_BYTES:
                content = zlib.compress(content, 1)
                headers["content-encoding"] = DEFLATE
        try:
            timeout = httpx.Timeout(silence_s, connect=CONNECT_TIMEOUT_S)
            with self._http.stream(
                method, path, content=content, headers=headers, timeout=timeout
            ) as answer:
                if answer.status_code != 200:
                    self._refuse(answer.status_code, self._start_of(answer))
                yield answer
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise Lost(self._reason(error, silence_s)) from error

    def _start_of(self, answer: httpx.Response) -> bytes:
        """Read the first bytes of a body."""
        start = bytearray()
        for part in self._parts(answer):
            start += part
            if len(start) > MAX_REASON_CHARS * 8:
                break
        return bytes(start)

    def _refuse(self, status: int, body: bytes) -> NoReturn:
        if status == 401:
            why = f"the key is missing or wrong: set {KEY_VARIABLE}, or store it in the key ring"
            raise Refused(status, f"{self.url}: {why}")
        try:
            found = json.loads(body)
            found = found.get("error", found)
            message = found if isinstance(found, str) else found["message"]
            if not isinstance(message, str):
                raise TypeError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            message = f"it answers HTTP {status}: check the address, and that of a proxy before it"
        raise Refused(status, f"{self.url}: {printable(message)}")

    def _reason(self, error: Exception, silence_s: float) -> str:
        import httpx

        if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
            return f"{self.url}: no connection ({printable(error)}): is the server running?"
        if isinstance(error, httpx.TimeoutException):
            return f"{self.url}: no sign of life for {silence_s:g} s: ask again"
        return f"{self.url}: the connection was lost ({printable(error)}): ask again"

    def _body(self, answer: httpx.Response, most: int) -> bytes:
        """Read a body of at most `most` bytes.

        Raises LinkError.
        """
        body, began = bytearray(), monotonic()
        seconds = MAX_JSON_S * max(1.0, most / MAX_JSON_BYTES)
        for part in self._parts(answer):
            body += part
            if len(body) > most:
                raise LinkError(f"{self.url}: an answer over {most >> 20} MiB: check the address")
            if monotonic() - began > seconds:
                raise LinkError(f"{self.url}: an answer takes over {seconds:g} s: ask again")
        return bytes(body)

    def _parts(self, answer: httpx.Response) -> Iterator[bytes]:
        """Yield a body as it arrives, decompressed in parts that are small whatever it is.

        Raises LinkError.
        """
        encoding = answer.headers.get("content-encoding", "identity").strip().lower()
        if encoding == "identity":
            yield from answer.iter_raw()
            return
        if encoding not in ENCODINGS:
            raise LinkError(f"{self.url}: answers in {printable(encoding)}: check the address")
        unpacked = zlib.decompressobj(zlib.MAX_WBITS | 32)  # reads both encodings
        try:
            for part in answer.iter_raw():
                while part and not unpacked.eof:
                    yield unpacked.decompress(part, MAX_PART_BYTES)
                    part = unpacked.unconsumed_tail
            yield unpacked.flush()
        except zlib.error as error:
            raise LinkError(f"{self.url}: a body that is not {encoding}: ask again") from error

    def _json(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            why = "it answers no JSON: check the address, and that of a proxy before it"
            raise LinkError(f"{self.url}: {why}") from error


def check_silence(url: EngineUrl, since: float) -> None:
    """Raise LinkError if a stream has had nothing but signs of life for too long.

    `since` is on the clock of `monotonic`.
    """
    if monotonic() - since > MAX_SILENCE_S:
        why = f"shows signs of life, but has not answered for {MAX_SILENCE_S / 60:g} minutes"
        raise LinkError(f"{url}: {why}: ask again")


def printable(text: object) -> str:
    """Make one line of what another machine says, without control characters."""
    line = " ".join(str(text).split())[:MAX_REASON_CHARS]
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", line)
