"""Token Recycling: the model's own most likely successors of each token are drafted again.

Luo et al., "Turning Trash into Treasure: Accelerating Inference of Large Language Models with Token
Recycling" (2024, arXiv 2408.08696). Each row of logits that a verification pass computes, of
accepted and rejected nodes alike, overwrites the table row of its token. The table holds token ids
only. Logits of the prompt are computed only on request, as SAM-Decoding does. `RecyclingDrafter`
drafts a tree of a fixed shape, as published; `next_token` uses the table as one of its sources.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from engine.drafting import DraftContext, NullDrafter
from engine.drafting._drafting import Recycling
from engine.drafting.recycling import update_table
from engine.records import Draft, Scores

MAX_TEMPLATE_NODES = 1024
Template = list[tuple[int, int]]  # per node: (parent or -1 for the root, rank in its row)


class RecyclingDrafter(NullDrafter):
    """A drafter that fills a tree template from the table, for one request. The table is shared."""

    def __init__(self, table: Recycling, template: Template, prompt: bool = False) -> None:
        """Set the table and the shape of drafts.

        `prompt`: learn from the prompt, too, whose logits must then be computed.
        """
        self.table, self.template, self.needs_prompt_states = table, template, prompt
        self.last = -1  # the token before the draft

    def observe_prompt(self, target: Any, tokens: list[int], states: Any) -> None:
        update_table(self.table, tokens, target.logits(states))

    def propose(self, context: DraftContext, target: Any) -> Draft:
        self.last = context.last
        draft, rows = Draft(), self.table.table
        successors = [self._row(rows, self.last)]  # those of the root, then of each drafted node
        placed = {-1: -1}  # node of the template -> node of the draft
        for node, (parent, rank) in enumerate(self.template):
            if parent not in placed or len(draft) >= context.capacity:
                continue
            above = placed[parent]
            row = successors[above + 1]
            if rank < len(row) and row[rank] >= 0:
                placed[node] = draft.add(row[rank], above, 1.0, "recycling")
                successors.append(self._row(rows, row[rank]))
        return draft

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        if scores is not None:
            learn(self.table, [self.last, *draft.tokens], scores)

    def _row(self, rows: np.ndarray[Any, Any], token: int) -> list[int]:
        return rows[token].tolist() if 0 <= token < len(rows) else []


def learn(table: Recycling, tokens: list[int], scores: Scores) -> None:
    """Overwrite the rows of a pass's `tokens` with the most likely ones after each."""
    if scores.likely is not None:
        table.put(np.array(tokens, np.int32), *scores.likely(table.table.shape[1]))
    else:
        update_table(table, tokens, scores.logits)


# -- templates ---------------------------------------------------------------------------------

# Number of children by the path of ranks; other nodes are leaves.
RECYCLING_TEMPLATE = {
    "": 8, "0": 8, "1": 4, "2": 3, "3": 2, "4": 1, "5": 1, "6": 1, "7": 1,
    "00": 8, "01": 3, "02": 2, "03": 1, "04": 1, "05": 1, "06": 1, "07": 1,
    "10": 2, "11": 1, "20": 1, "30": 1, "40": 1, "50": 1,
    "000": 5, "001": 2, "002": 1, "003": 1, "004": 1, "010": 1, "020": 1, "100": 1, "200": 1,
    "300": 1, "0000": 3, "0001": 1, "0002": 1, "0010": 1, "0100": 1, "1000": 1,
    "00000": 2, "00010": 1,
}  # fmt: skip
SAMD_TEMPLATE = {
    "": 7, "0": 6, "1": 5, "2": 3, "3": 2, "4": 2, "5": 1, "6": 1,
    "00": 3, "01": 2, "02": 2, "03": 1, "04": 1, "10": 3, "11": 2, "12": 1, "13": 1,
    "20": 1, "21": 1, "30": 1, "40": 1, "50": 1,
    "000": 2, "001": 1, "010": 1, "100": 2, "110": 1, "200": 1,
    "0000": 2, "0010": 1, "1000": 1,
}  # fmt: skip
TEMPLATES = {
    "2.2.2": RECYCLING_TEMPLATE,
    "samd": SAMD_TEMPLATE,
}  # published by Token Recycling and by SAM-Decoding


def template(name: str) -> Template:
    """Return a published template by name, or one from a JSON file.

    The file holds a list of paths, each a list of ranks. Raises ValueError.
    """
    if name in TEMPLATES:
        counts = TEMPLATES[name]
        paths = [[*map(int, above), rank] for above in counts for rank in range(counts[above])]
        return flatten(paths)
    wanted = f"choose {' or '.join(TEMPLATES)}, or a JSON file of rank paths, such as [[0], [0, 1]]"
    try:
        found = json.loads(Path(name).read_text("utf-8"))
        if not isinstance(found, list) or not 0 < len(found) <= MAX_TEMPLATE_NODES:
            raise ValueError(f"expected a list of 1 to {MAX_TEMPLATE_NODES} paths")
        return flatten(found)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"template {name}: {why}: {wanted}") from error


def flatten(paths: Iterable[list[int]]) -> Template:
    """Convert paths of ranks to a template, sorted by level and rank.

    Raises ValueError unless every path is unique and its parent is present.
    """
    places: dict[tuple[int, ...], int] = {(): -1}
    out: Template = []
    for path in sorted(map(tuple, paths), key=lambda path: (len(path), path)):
        if not path or any(type(rank) is not int or rank < 0 for rank in path):
            raise ValueError(f"{list(path)} is not a path of ranks")
        if path[:-1] not in places or path in places:
            raise ValueError(f"{list(path)} is a duplicate, or its parent path is missing")
        places[path] = len(out)
        out.append((places[path[:-1]], path[-1]))
    return out
