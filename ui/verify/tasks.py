"""The requests that a server is asked: edits, which copy much, and questions, which copy little."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Literal, NamedTuple

TaskKind = Literal["edit", "question"]
KINDS: tuple[TaskKind, ...] = ("edit", "question")
TASKS = 40  # of each kind, all that there are
MAX_TOKENS = {"edit": 32, "question": 16}  # tokens of an answer: few, so that a run is short


class VerifyTask(NamedTuple):
    """One request, and how long its answer may be."""

    kind: TaskKind
    number: int  # from 1, among its kind
    text: str
    max_tokens: int

    @property
    def name(self) -> str:
        """The name in reports: `edit 7`."""
        return f"{self.kind} {self.number}"


def tasks(run: int, count: int = TASKS, max_tokens: int | None = None) -> list[VerifyTask]:
    """Return the first `count` requests of each kind, edits and questions in turn.

    Each begins with the number of the run and its own: no server has its beginning in a cache, not
    even from another request. `max_tokens` is the length of every answer; None: by its kind.
    """
    data = tomllib.loads(files(__package__).joinpath("requests.toml").read_text("utf-8"))
    codes = data["code"]
    edits = [edit_text(code, edit) for edit in range(4) for code in codes]
    found: list[VerifyTask] = []
    for number, texts in enumerate(zip(edits, data["questions"], strict=True), 1):
        for kind, text in zip(KINDS, texts, strict=True):
            tagged = f"[{run}-{len(found) + 1}] {text}"
            found.append(VerifyTask(kind, number, tagged, max_tokens or MAX_TOKENS[kind]))
    return found[: 2 * count]


def edit_text(code: dict[str, str | list[str]], edit: int) -> str:
    """Return the request for one of the edits of a piece of code."""
    asked = f"{code['edits'][edit]} Answer with the whole code and nothing else."
    return f"{asked}\n\n```{code['language']}\n{code['text']}```"
