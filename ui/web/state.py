"""The state that the tabs share.

It has the engine, its queue, each user's documents, and the running work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from engine.aio import Cancellation
from index.documents.documents import Documents
from ui.web.history import Histories, folder_of

if TYPE_CHECKING:
    from engine.remote.any_engine import ServedEngine
    from index.documents.embeddings import Embed
    from ui.api.jobs import Jobs

MAX_PASS_TOKENS = 65  # tokens of the passes whose cost is looked up


@dataclass
class PageState:
    """The page, for all its users. `folder`: where documents are kept; None: in memory."""

    engine: ServedEngine
    jobs: Jobs
    folder: Path | None = None
    embed: Embed | None = None  # adds semantic search
    histories: Histories = field(init=False)
    running: dict[str, Cancellation] = field(default_factory=dict)  # indexed by session and tab
    _libraries: dict[str | None, Documents] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.histories = Histories(self.folder)

    def library(self, user: str | None) -> Documents:
        """Return the documents of a user; without users there is one library."""
        with self._lock:
            if user not in self._libraries:
                self._libraries[user] = Documents(folder_of(self.folder, user), self.embed)
            return self._libraries[user]

    @property
    def model_name(self) -> str:
        return Path(self.engine.config.model).name

    def pass_seconds(self) -> Sequence[float]:
        """Return the cost of a forward pass over 1, 2, ... tokens on this machine."""
        return self.engine.pass_seconds(MAX_PASS_TOKENS)

    @contextmanager
    def stoppable(self, name: str) -> Iterator[Cancellation]:
        """Run a block of work that `stop(name)` cancels."""
        cancellation = self.running[name] = Cancellation()
        try:
            yield cancellation
        finally:
            if self.running.get(name) is cancellation:
                del self.running[name]

    def stop(self, name: str) -> None:
        """Cancel the work of that name, if it is running. What it has written is kept."""
        if name in self.running:
            self.running[name].cancel()

    def close(self) -> None:
        """Close the document libraries."""
        with self._lock:
            for library in self._libraries.values():
                library.close()
            self._libraries.clear()
