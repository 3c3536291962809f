"""Rates and their confidence intervals."""

from __future__ import annotations

import math

Z = 1.96  # standard errors on either side of a 95 % interval's middle


def wilson(hits: int, of: int) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of the share `hits` / `of`; `of` is at least 1."""
    share = hits / of
    middle = share + Z * Z / (2 * of)
    half = Z * math.sqrt(share * (1 - share) / of + Z * Z / (4 * of * of))
    scale = 1 + Z * Z / of
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
