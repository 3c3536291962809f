"""What the tabs share: the engine, its queue, each user's documents, and what runs for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from index.documents.documents import Documents
from ui.web.history import Histories

if TYPE_CHECKING:
    from engine.engine import Engine
    from index.documents.embeddings import Embed
    from ui.api.jobs import Jobs

MOST_ROWS = 65  # tokens of a pass whose cost is looked at


class Stoppable(Protocol):
    def cancel(self) -> None: ...


@dataclass
class Page:
    """One page for all its users. `folder`: where their documents are kept; None: in memory."""

    engine: Engine
    jobs: Jobs
    folder: Path | None = None
    embed: Embed | None = None  # searching by meaning, too
    histories: Histories = field(default_factory=Histories)
    running: dict[str, Stoppable] = field(default_factory=dict)  # by the name that it runs under
    _libraries: dict[str, Documents] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def library(self, user: str | None) -> Documents:
        """The documents of a user; of whoever asks where nobody logs in."""
        name = sha256((user or "").encode()).hexdigest()[:16] if user else "local"
        with self._lock:
            if name not in self._libraries:
                folder = self.folder / name if self.folder else None
                self._libraries[name] = Documents(folder, self.embed)
            return self._libraries[name]

    @property
    def model(self) -> str:
        """The model's name, for a person."""
        return Path(self.engine.config.model).name

    def costs(self) -> Sequence[float]:
        """What passes over 1, 2, ... tokens cost here, to compare."""
        return self.engine.pass_seconds(MOST_ROWS)

    def stop(self, running: str) -> None:
        """End what runs under that name; what it has written is kept."""
        one = self.running.get(running)
        if one is not None:
            one.cancel()

    def close(self) -> None:
        """Let go of the documents' files."""
        with self._lock:
            for one in self._libraries.values():
                one.close()
            self._libraries.clear()
