"""Text recognition (OCR) of scanned pages by rapidocr, whose models are in its wheel.

It needs the extras `draftline[page,ocr]`, and reads the Latin alphabet, Chinese and Japanese.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # (height, width, 3): blue, green and red
SAME_LINE = 0.5  # share of a line's height; the middles of its parts may differ by it
DARK = 128  # brightness, up to 255; a dark pixel's darkest color is below it
MARGIN_PIXELS = 40
THREADS = 4  # threads at most; each needs address space


def is_installed() -> bool:
    """Return whether text can be recognized."""
    return all(map(find_spec, ("rapidocr", "onnxruntime")))


def threads() -> int:
    """Return the number of threads that recognize text at once."""
    return min(THREADS, os.cpu_count() or 1)


def load() -> Callable[[Pixels], str]:
    """Load the models; return a function that reads the text of a picture, line by line."""
    from rapidocr import RapidOCR

    options = {
        "Global.use_cls": False,  # it turns upright lines of plain scans upside down
        "Global.log_level": "critical",
        "EngineConfig.onnxruntime.intra_op_num_threads": threads(),
        "EngineConfig.onnxruntime.inter_op_num_threads": 1,
    }
    engine = RapidOCR(params=options)

    def read(pixels: Pixels) -> str:
        found = engine(_content(pixels))
        return _join(found.boxes, found.txts) if found.txts else ""

    return read


def _content(pixels: Pixels) -> Pixels:
    """Return the part of a page that is not blank.

    A few words on an empty page would not be found.
    """
    dark = pixels.min(axis=2) < DARK
    rows, columns = (np.flatnonzero(dark.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return pixels
    top, left = max(0, rows[0] - MARGIN_PIXELS), max(0, columns[0] - MARGIN_PIXELS)
    part = pixels[top : rows[-1] + MARGIN_PIXELS, left : columns[-1] + MARGIN_PIXELS]
    return np.ascontiguousarray(part)


def _join(boxes: Any, texts: tuple[str, ...]) -> str:
    """Texts at boxes [texts, 4 corners, (x, y)] in reading order; those side by side are a line."""
    tops, bottoms = boxes[..., 1].min(axis=1), boxes[..., 1].max(axis=1)
    lefts, middles = boxes[..., 0].min(axis=1), (tops + bottoms) / 2
    lines: list[list[int]] = []
    for number in np.argsort(middles, kind="stable"):
        first = lines[-1][0] if lines else -1
        height = bottoms[first] - tops[first] if lines else 0
        if lines and middles[number] - middles[first] < SAME_LINE * height:
            lines[-1].append(int(number))
        else:
            lines.append([int(number)])
    return "\n".join(
        " ".join(texts[number] for number in sorted(line, key=lambda number: lefts[number]))
        for line in lines
    )
