"""The common part of engines of other machines: requests as bodies, answers as lines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from engine.prompts.fim import MAX_TOKEN_CHARS
from engine.records import Request, RequestError
from engine.remote.any_engine import ClientEngine
from engine.remote.engine_url import EngineUrl
from engine.remote.link import Link, LinkError, Refused
from engine.worker import Submitted

if TYPE_CHECKING:
    from index.workspace.workspace import Workspace

MIN_OPEN_TOKENS = 1 << 16  # tokens of an answer without a limit, whatever the context
EVENT_BYTES = 1 << 12  # bytes that a token is wrapped in
SPARE_BYTES = 1 << 20  # bytes of signs of life, and of the whole text at the end
MAX_BYTES = 64 << 20


class LinkEngine(ClientEngine):
    """A model of a server at an address, used by any number of threads at once."""

    failure: str | None = None  # as an `Engine` has it: this one can always be asked again
    workspace: Workspace | None = None  # the workspace for requests that name none

    def __init__(
        self, url: EngineUrl, on_lost: Callable[[str], None], headers: dict[str, str] | None = None
    ) -> None:
        """Open a link to an address.

        `on_lost` is called, in any thread, with one line when the connection fails. AddressError
        for a bad key.
        """
        self.url, self.on_lost = url, on_lost
        self.link = Link(url, url.key(), headers, ours=not url.is_openai)

    def close(self) -> None:
        """Leave the server, which cancels what runs."""
        if self.workspace is not None:
            self.workspace.close()
        self.link.close()


class LinkJob(Submitted):
    """A request that another machine answers."""

    unanswerable: tuple[int, ...] = ()  # statuses of requests that cannot be answered

    def __init__(self, request: Request, context: int) -> None:
        """`context`: the model's, in tokens."""
        self.request = request
        self.chars_left = max_chars(request, context)  # characters that are still to come at most
        self.lines: Iterator[bytes] = iter(())
        self.error: LinkError | None = None  # why the server does not answer

    def start(self, lines: Iterator[bytes]) -> None:
        """Take the lines of the answer, once the server has accepted the request.

        Raises RequestError if it has not.
        """
        self.lines = lines
        try:
            next(lines)
        except LinkError as error:
            if isinstance(error, Refused) and error.status in self.unanswerable:
                raise RequestError(str(error)) from error
            self.fail(error)

    def fail(self, error: LinkError) -> None:
        """Note that the server does not answer, or not any more."""
        self.error = error

    def hang_up(self) -> None:
        """Read no more of the answer."""
        with contextlib.suppress(AttributeError):  # not begun
            self.lines.close()  # type: ignore[attr-defined]


def max_chars(request: Request, context: int) -> int:
    """Return how many characters of text and reasoning are read, whatever a server sends."""
    return MAX_TOKEN_CHARS * _tokens(request, context)


def max_bytes(request: Request, context: int) -> int:
    """Return the bytes of a decompressed body that are read."""
    return min(MAX_BYTES, SPARE_BYTES + EVENT_BYTES * _tokens(request, context))


def _tokens(request: Request, context: int) -> int:
    most = request.max_tokens
    return max(context, MIN_OPEN_TOKENS) if most is None else most
