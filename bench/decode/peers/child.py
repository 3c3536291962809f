"""What every peer's process does: read requests on stdin, write answers on stdout, a line each.

It runs in the peers' own environment, so it imports the standard library alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def serve(load: Callable[..., Answer]) -> None:
    """Load a model by the command line's arguments, then answer until stdin ends.

    A request has `prompt` (token ids), `limit` (tokens), `stop` (strings) and `cached`. An answer
    has `text`; `read` tokens of the prompt that took `read_seconds`, until the first token is
    known; and `tokens` after the first, which took `seconds` and `forwards` passes.
    """
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep a library's output off stdout
    answer = load(*sys.argv[1:])
    out.write("{}\n")
    out.flush()
    for line in sys.stdin:
        out.write(json.dumps(answer(json.loads(line))) + "\n")
        out.flush()


def timed(
    tokens: Iterator[int], request: dict[str, Any], text_of: Callable[[list[int]], str]
) -> dict[str, Any]:
    """Answer with a library's generator, which reads the prompt before its first token.

    It ends at a stop string or after `limit` tokens; the generator ends at an end token.
    """
    began = first = last = perf_counter()
    ids: list[int] = []
    for token in tokens:
        last = perf_counter()
        first = last if not ids else first
        ids.append(token)
        tail = text_of(ids[-16:])
        if len(ids) == request["limit"] or any(mark in tail for mark in request["stop"]):
            break
    text = text_of(ids)
    for mark in request["stop"]:
        text = text.split(mark)[0]
    return {
        "text": text,
        "tokens": max(len(ids) - 1, 0),
        "forwards": max(len(ids) - 1, 0),
        "seconds": last - first,
        "read": len(request["prompt"]),
        "read_seconds": first - began,
    }
