"""What passes over several rows cost, for `python -m bench replay`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.model.cost_model import GRID, POINTS, USUAL, CostModel, processor_key, remembered
from engine.weights import home

CONTEXT_TOKENS = 1024  # cached tokens of the passes whose measured cost counts


class FixedCost(CostModel):
    """What passes over several rows cost, where one over a single row costs 1."""

    def __init__(self, points: Sequence[float]) -> None:
        """Start from the costs of passes over the first POINTS rows, in any unit."""
        super().__init__([point / points[0] for point in points])

    def table(self, context: int, most: int) -> NDArray[np.float64]:
        return super().table(0, most)

    def observe(self, rows: int, context: int, seconds: float) -> None:
        pass


def pass_costs(given: str | None, model: str) -> tuple[FixedCost, str]:
    """Return the costs that an option names, or this machine's, and a line that describes them.

    `given`: the cost of a node, a file of costs, or None. `model`: the name of the model's folder.
    Raises ValueError or OSError.
    """
    points, name = list(USUAL), "of a usual machine; --costs names this one's"
    key = processor_key(model, "stored", os.cpu_count() or 1)
    if given is None:
        if known := remembered(home() / "costs.json", key):
            points, name = [known(rows, CONTEXT_TOKENS) for rows in POINTS], f"measured: {key}"
    elif given.replace(".", "", 1).isdigit():
        points, name = [1 + float(given) * (rows - 1) for rows in POINTS], f"{given} for a node"
    else:
        points, name = read_costs(Path(given)), Path(given).name
    costs = FixedCost(points)
    shown = ", ".join(f"{rows}: {costs(rows):.2f}" for rows in GRID)
    return costs, f"costs of passes by rows ({name}): {shown}"


def read_costs(path: Path) -> list[float]:
    """Return the costs by POINTS of {rows: cost}, or of what `bench decode --passes` wrote.

    Beyond the last rows of the file, costs grow with the rows. Raises ValueError or OSError.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
        if "passes" in found:
            found = {line["rows"]: line["ms"] for line in found["passes"]}
        rows, costs = zip(*sorted((int(n), float(cost)) for n, cost in found.items()), strict=True)
        if rows[0] != 1 or not all(0 < cost < float("inf") for cost in costs):
            raise ValueError("no cost of one row, or not a cost")
    except (ValueError, KeyError, TypeError, AttributeError):
        remedy = "give {rows: cost} from one row on, or what `bench decode --passes` writes"
        raise ValueError(f"--costs {path}: not costs of passes: {remedy}") from None
    return [float(np.interp(n, rows, costs)) * max(1.0, n / rows[-1]) for n in POINTS]
