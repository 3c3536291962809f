"""The disk space of the uploads that have not been read yet, and their owners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette.exceptions import HTTPException

from ui.api.errors import ApiError
from ui.api.security import Message, Receive

MAX_STORED_BYTES = 2 << 30  # bytes of a user's uploads
MAX_STORED_FILES = 10_000  # files of a user's uploads
FULL = "too many uploads have not been read yet: wait until they are, then retry"


class UploadSpace:
    """The files in Gradio's upload folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sizes: dict[Path, int] = {}
        self._users: dict[Path, set[str | None]] = {}
        self._received: Counter[str | None] = Counter()  # bytes of active and interrupted uploads
        self._active = 0

    def may_read(self, path: Path, user: str | None) -> bool:
        """Return whether a file is not only other users'."""
        return user in self._users.get(path, {user})

    def add(self, path: Path, user: str | None) -> None:
        """Record a file that the active upload stored. Several users may upload the same one."""
        self._sizes[path] = path.stat().st_size
        self._users.setdefault(path, set()).add(user)
        self._received[user] -= self._sizes[path]

    @contextmanager
    def receiving(self, user: str | None, receive: Receive) -> Iterator[Receive]:
        """Store an upload, with `receive` wrapped to refuse what does not fit.

        Raises ApiError if nothing does. What an interrupted upload leaves is deleted.
        """
        if self._available(user) <= 0:
            self._forget_deleted()
        capacity = self._available(user)
        if capacity <= 0:
            raise ApiError(413, FULL)

        async def receive_counted() -> Message:
            message = await receive()
            self._received[user] += len(message.get("body", b""))
            if self._received[user] > capacity:
                raise HTTPException(413, FULL)
            return message

        self._active += 1
        try:
            yield receive_counted
        finally:
            self._active -= 1
            if not self._active:
                self._delete_partial()
                self._received.clear()

    def _available(self, user: str | None) -> int:
        """Bytes that a user may still upload, besides those that are being received."""
        sizes = [self._sizes[path] for path, users in self._users.items() if user in users]
        return MAX_STORED_BYTES - sum(sizes) if len(sizes) < MAX_STORED_FILES else 0

    def _forget_deleted(self) -> None:
        """Forget the files that have been read, and then deleted."""
        for path in [path for path in self._sizes if not path.exists()]:
            del self._sizes[path], self._users[path]

    def _delete_partial(self) -> None:
        """Delete what Gradio leaves of interrupted uploads: files next to its folders."""
        if not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            if not path.is_dir():
                path.unlink()
