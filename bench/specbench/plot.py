"""Bars with intervals in groups, written by hand as SVG."""

from __future__ import annotations

from html import escape
from itertools import cycle

OWN = {"plain": "#8a8a8a", "auto": "#064530"}
COLOURS = (
    "#c44536", "#e39c7e", "#3d5a9e", "#7fa1d8", "#8c5a99", "#c39bd3", "#b8860b", "#e3c567",
    "#2f9270", "#9bd1bb", "#5d4037",
)  # fmt: skip
BAR, SPACE, HEIGHT = 11, 18, 240  # px: a bar, between groups, the tallest
WIDEST = 100  # px that a group has at least: its name stands below it
LEFT, TOP, BOTTOM, LEGEND = 50, 40, 36, 170

Value = tuple[float, float, float]  # and its interval


def bars(title: str, values: dict[tuple[str, str], Value], line: float) -> str:
    """An SVG of values by (group, name); a group's bars stand side by side. `line` is drawn over
    all of them."""
    groups = list(dict.fromkeys(group for group, _ in values))
    names = list(dict.fromkeys(name for _, name in values))
    colours = dict(zip((name for name in names if name not in OWN), cycle(COLOURS))) | OWN
    top = 1.05 * max((high for _, _, high in values.values()), default=line)
    step = max(BAR * len(names) + SPACE, WIDEST)
    width = max(LEFT + step * len(groups), 420) + LEGEND
    height = max(TOP + HEIGHT + BOTTOM, TOP + 16 * len(names) + 10)

    def y(value: float) -> float:
        return round(TOP + HEIGHT * (1 - value / top), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        text(LEFT, 20, title, size=13),
    ]
    for value in sorted({*ticks(top), line}):
        across = f'x1="{LEFT}" x2="{width - LEGEND}" y1="{y(value)}" y2="{y(value)}"'
        colour = "#555555" if value == line else "#e4e4e4"
        parts.append(f'<line {across} stroke="{colour}"/>')
        parts.append(text(LEFT - 6, y(value) + 4, f"{value:g}", "end"))
    for place, group in enumerate(groups):
        middle = LEFT + step * (place + 0.5)
        start = middle - BAR * len(names) / 2
        parts.append(text(middle, TOP + HEIGHT + 18, group, "middle"))
        for number, name in enumerate(names):
            if (group, name) in values:
                value, low, high = values[group, name]
                x = start + BAR * number
                tall = round(y(0) - y(value), 1)
                parts.append(
                    f'<rect x="{x}" y="{y(value)}" width="{BAR - 2}" height="{tall}" '
                    f'fill="{colours[name]}"><title>{escape(name)}, {escape(group)}: {value:.2f} '
                    f"[{low:.2f}, {high:.2f}]</title></rect>"
                )
                centre = x + BAR / 2 - 1
                ends = f'x1="{centre}" x2="{centre}" y1="{y(low)}" y2="{y(high)}"'
                parts.append(f'<line {ends} stroke="#222222"/>')
    for number, name in enumerate(names):
        at = TOP + 16 * number
        mark = f'x="{width - LEGEND + 14}" y="{at}" width="10" height="10"'
        parts.append(f'<rect {mark} fill="{colours[name]}"/>')
        parts.append(text(width - LEGEND + 30, at + 9, name))
    return "\n".join([*parts, "</svg>\n"])


def ticks(top: float) -> list[float]:
    """Round numbers from 0 to `top`, six at most."""
    step = next(one for one in (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, top) if top / one < 6)
    return [number * step for number in range(int(top / step) + 1)]


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 12) -> str:
    """One line of text."""
    style = f'text-anchor="{anchor}" font-size="{size}" fill="#222222"'
    return f'<text x="{x}" y="{y}" {style}>{escape(words)}</text>'
