"""How the indexes grow, as a picture: panels with logarithmic axes, written by hand as SVG.

    python bench/index/plot.py RECORD.json OUT.svg

draws again what bench/index/index.py --growth has measured. Nothing is measured here.
"""

from __future__ import annotations

import json
import math
import sys
from html import escape
from pathlib import Path
from typing import Any

COLOURS = {
    "draftline": "#0b6e4f",
    "arctic": "#c44536",
    "python": "#3d5a9e",
    "suffix-array": "#8a8a8a",
}
SHADES = ("#9bd1bb", "#5fb394", "#2f9270", "#0b6e4f", "#064530")  # ours by size
WIDTH, HEIGHT = 460, 330  # of a panel, px
LEFT, RIGHT, TOP, BOTTOM = 54, 16, 34, 40  # of it, around the axes
HEAD = 30  # px over the panels

Points = dict[str, list[tuple[float, float]]]


def draw(results: list[dict[str, Any]], title: str) -> str:
    """An SVG: build time and match time by size, a line for each index; and our match time by the
    number of segments, a line for each size."""
    names = list(dict.fromkeys(one["index"] for one in results))
    panels = [
        _panel(
            {
                name: sorted((one["tokens"], one[key]) for one in results if one["index"] == name)
                for name in names
            },
            label,
            "tokens",
            COLOURS,
        )
        for key, label in (
            ("build_s", "build, seconds"),
            ("match_us_p50", "match of 64 tokens, p50, microseconds"),
        )
    ]
    formed = {
        f"{_count(one['tokens'])} tokens": [
            (form["frozen"] + (form["young_tokens"] > 0), form["match_us_p50"])
            for form in one["forms"]
        ]
        for one in results
        if one.get("forms")
    }
    if formed:
        label = "draftline: match, p50, microseconds"
        panels.append(_panel(formed, label, "segments", dict(zip(formed, SHADES, strict=False))))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {len(panels) * WIDTH} '
        f'{HEAD + HEIGHT}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        _text(LEFT, 20, title, size=13),
    ]
    for number, panel in enumerate(panels):
        parts += [f'<g transform="translate({number * WIDTH} {HEAD})">', *panel, "</g>"]
    return "\n".join([*parts, "</svg>\n"])


def decades(values: list[float]) -> tuple[int, int]:
    """The powers of ten around values above 0, at least one apart."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _panel(points: Points, label: str, unit: str, colours: dict[str, str]) -> list[str]:
    every = [point for line in points.values() for point in line]
    xs, ys = (decades([point[axis] for point in every]) for axis in (0, 1))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - xs[0]) / (xs[1] - xs[0])
        up = (math.log10(y) - ys[0]) / (ys[1] - ys[0])
        return (
            round(LEFT + across * (WIDTH - LEFT - RIGHT), 1),
            round(HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM), 1),
        )

    parts = [_text(LEFT, TOP - 12, label)]
    for power in range(xs[0], xs[1] + 1):
        x, y = place(10**power, 10 ** ys[0])
        parts.append(_line([(x, y), place(10**power, 10 ** ys[1])], "#e4e4e4", 1))
        parts.append(_text(x, y + 16, f"{_count(10**power)} {unit}", "middle"))
    for power in range(ys[0], ys[1] + 1):
        x, y = place(10 ** xs[0], 10**power)
        parts.append(_line([(x, y), place(10 ** xs[1], 10**power)], "#e4e4e4", 1))
        parts.append(_text(x - 6, y + 4, f"{10.0**power:g}", "end"))
    for number, (name, line) in enumerate(points.items()):
        colour = colours.get(name, "#000000")
        placed = [place(*point) for point in line]
        parts.append(_line(placed, colour, 2.5 if colour == COLOURS["draftline"] else 1.5))
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in placed]
        below = HEIGHT - BOTTOM - 8 - 15 * (len(points) - 1 - number)
        parts.append(_text(WIDTH - RIGHT - 8, below, name, "end", colour=colour))
    return parts


def _line(points: list[tuple[float, float]], colour: str, width: float) -> str:
    joined = " ".join(f"{x},{y}" for x, y in points)
    return f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _text(
    x: float, y: float, text: str, anchor: str = "start", size: int = 12, colour: str = "#222222"
) -> str:
    style = f'text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'


def _count(number: float) -> str:
    """In short: 300k, 1M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"


def main(argv: list[str] | None = None) -> int:
    record, out = map(Path, sys.argv[1:] if argv is None else argv)
    known = json.loads(record.read_text("utf-8"))
    out.write_text(draw(known["results"], known["title"]), "utf-8")
    print(out)
    return 0
