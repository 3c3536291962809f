"""The history of a session's answers, in memory, so that later answers may copy from them.

An answer belongs to a client and to the file it was written for, and is forgotten with either.
Answers for a file that has since been deleted are never offered. The Token Recycling tables
are kept here per client, too. Nothing is written to disk.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from engine.drafting._drafting import Recycling
from engine.drafting.recycling import WIDTH

MAX_HISTORY_TOKENS = 2048  # tokens offered to one client
MAX_ANSWERS = 64  # answers of all clients together
MAX_TABLES = 4  # Token Recycling tables; each takes 40 bytes per token of the vocabulary


@dataclass(frozen=True, slots=True)
class PastAnswer:
    """An answer, and the client and file it was written for."""

    client: str
    path: str
    tokens: list[int]
    file_existed: bool  # whether it did when the answer was written

    @property
    def is_current(self) -> bool:
        return not self.file_existed or Path(self.path).is_file()


class AnswerHistory:
    """The most recent answers of each client. Thread-safe."""

    def __init__(self, vocabulary: int = 0) -> None:
        """Start empty. `vocabulary`: the number of token ids of the model."""
        self._lock = threading.Lock()
        self._answers: deque[PastAnswer] = deque(maxlen=MAX_ANSWERS)
        self._vocabulary = vocabulary
        self._tables: dict[tuple[str, int], Recycling] = {}  # least recently used first

    def add(self, client: str, path: str, tokens: list[int]) -> None:
        """Remember an answer that was written for the file `path` ("" for none)."""
        file_existed = bool(path) and Path(path).is_file()
        if tokens:
            answer = PastAnswer(client, path, tokens[-MAX_HISTORY_TOKENS:], file_existed)
            with self._lock:
                self._answers.append(answer)

    def of(self, client: str) -> list[list[int]]:
        """Return the client's answers, newest last, MAX_HISTORY_TOKENS tokens at most."""
        found: list[list[int]] = []
        capacity = MAX_HISTORY_TOKENS
        with self._lock:
            answers = list(self._answers)
        for answer in reversed(answers):
            if answer.client == client and len(answer.tokens) <= capacity and answer.is_current:
                found.insert(0, answer.tokens)
                capacity -= len(answer.tokens)
        return found

    def recycling(self, client: str, width: int = WIDTH) -> Recycling:
        """Return the client's Token Recycling table with `width` successors per token.

        Beyond MAX_TABLES the least recently used table is dropped.
        """
        key = (client, width)
        with self._lock:
            table = self._tables.pop(key, None) or Recycling(self._vocabulary, width)
            self._tables[key] = table
            if len(self._tables) > MAX_TABLES:
                del self._tables[next(iter(self._tables))]
        return table

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._answers.clear()
            self._tables.clear()

    def forget(self, path: str | None = None, client: str | None = None) -> None:
        """Forget what was written for a file, or for a client."""
        with self._lock:
            rest = [
                answer
                for answer in self._answers
                if answer.path != path and answer.client != client
            ]
            self._answers.clear()
            self._answers.extend(rest)
            if client is not None:
                for key in [key for key in self._tables if key[0] == client]:
                    del self._tables[key]
