"""The sessions of the page, each bound to its user and browser.

Gradio's page names its session with a hash of its own choice, and Gradio gives a session's stream
to anyone who knows the hash. Therefore Gradio only ever sees a name that is derived from the hash,
the user and the browser: with another's hash, a client reaches a session of its own.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from ui.api.errors import ApiError

if TYPE_CHECKING:
    from gradio import Blocks

MAX_SESSIONS = 64  # sessions of a user; the least recently used one is closed
MAX_UNREAD_MESSAGES = 128  # messages of a session whose client does not read its stream
MAX_HASH_CHARS = 128


class Owner(NamedTuple):
    """Whom a session belongs to: the user who is logged in, and without logins the browser."""

    user: str | None
    browser: str


class Sessions:
    """The sessions of all users."""

    def __init__(self, blocks: Blocks, users: int) -> None:
        """Start without sessions. `users`: how many there are."""
        self._blocks = blocks
        self._secret = secrets.token_bytes(32)
        self._open: dict[str | None, OrderedDict[str, Owner]] = {}  # user -> names of sessions
        # Gradio's limit, which all users share, must not be reached before those of the users.
        blocks._queue.pending_messages_per_session.max_size = 2 * MAX_SESSIONS * max(1, users)

    def name(self, owner: Owner, given: object) -> str:
        """Return Gradio's name for what an owner's page calls `given`.

        That is a session hash or an upload id. Raises ApiError if it is not a text of reasonable
        length.
        """
        if not isinstance(given, str) or not 0 < len(given) <= MAX_HASH_CHARS:
            raise ApiError(400, "the session has no valid hash: reload the page")
        data = json.dumps([*owner, given]).encode("ascii")
        return hmac.digest(self._secret, data, "sha256").hex()

    async def enter(self, owner: Owner, given: object) -> str:
        """Return the name of a session in which an event is about to start.

        Raises ApiError if its client does not read its stream.
        """
        name = self.name(owner, given)
        messages = self._blocks._queue.pending_messages_per_session.get(name)
        if messages is not None and messages.qsize() > MAX_UNREAD_MESSAGES:
            raise ApiError(429, "the session's stream is not being read: reload the page")
        sessions = self._open.setdefault(owner.user, OrderedDict())
        sessions[name] = owner
        sessions.move_to_end(name)
        while len(sessions) > MAX_SESSIONS:
            await self._close(sessions.popitem(last=False)[0])
        return name

    def check_stream(self, name: str) -> None:
        """Raise ApiError if no event was ever started in a session."""
        if name not in self._blocks._queue.pending_messages_per_session:
            raise ApiError(404, "no such session: reload the page")

    def check_event(self, owner: Owner, event: object) -> None:
        """Raise ApiError if an event that is running or waiting belongs to another owner."""
        found = self._blocks._queue.event_ids_to_events.get(str(event))
        sessions = self._open.get(owner.user, OrderedDict())
        if found is not None and sessions.get(found.session_hash) != owner:
            raise ApiError(404, "no such event: reload the page")

    async def _close(self, name: str) -> None:
        """Drop a session's events, messages and state."""
        queue, states = self._blocks._queue, self._blocks.state_holder
        await queue.clean_events(session_hash=name)
        queue.pending_event_ids_session.pop(name, None)
        queue.pending_messages_per_session.pop(name, None)
        states.session_data.pop(name, None)
        states.time_last_used.pop(name, None)
