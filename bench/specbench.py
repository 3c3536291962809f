"""Spec-Bench's questions as tasks for bench/decode.py: a few of each category, always the same.

Only a conversation's first turn is asked. MT-bench's eight categories are one here: chat.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from bench.tasks import Task
from engine import Request

KINDS = {  # ours -> Spec-Bench's
    "summarization": ("summarization",),
    "chat": (
        "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities",
    ),
    "translation": ("translation",),
    "qa": ("qa",),
    "math": ("math_reasoning",),
    "rag": ("rag",),
}  # fmt: skip


def questions(path: Path, kinds: list[str], count: int, limit: int) -> list[Task]:
    """`count` questions of each of `kinds`, answered in `limit` tokens at most. ValueError with one
    line where the file is of another form or lacks a category."""
    asked: dict[str, list[tuple[str, str]]] = {}  # category -> (id, question)
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            one = (str(record["question_id"]), str(record["turns"][0]))
            asked.setdefault(str(record["category"]), []).append(one)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number}: {error!r}: a record has question_id, category, turns"
            ) from error
    found = []
    for kind in kinds:
        every = [one for name in KINDS[kind] for one in asked.get(name, [])]
        if not every:
            raise ValueError(f"{path}: no question of {', '.join(KINDS[kind])}: leave out {kind}")
        for name, text in random.Random(0).sample(every, min(count, len(every))):
            messages = ({"role": "user", "content": text},)
            request = Request("chat", messages=messages, max_tokens=limit)
            found.append(Task(f"{kind}-{name}", kind, request, sampled=True))
    return found
