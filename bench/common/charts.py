"""Charts as SVG, the same bytes for the same data: text stays text, and no date is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from bench.common.report import write_text

STYLE = {
    "svg.hashsalt": "draftline",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
COLOURS = (
    "#c44536", "#e39c7e", "#3d5a9e", "#7fa1d8", "#8c5a99", "#c39bd3", "#b8860b", "#e3c567",
    "#2f9270", "#9bd1bb", "#5d4037",
)  # fmt: skip
METHOD_COLOURS = {"plain": "#8a8a8a", "auto": "#064530"}

Points = Sequence[tuple[float, float]]


class Estimate(NamedTuple):
    """A value and its 95 % confidence interval."""

    value: float
    low: float
    high: float


def subplots(columns: int, width: float, height: float, title: str) -> tuple[Figure, list[Axes]]:
    """Make a figure of `columns` charts side by side; sizes in inches."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        figure.suptitle(title)
        return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def svg(figure: Figure) -> str:
    """Write a figure as an SVG document."""
    out = StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write a figure as an SVG file."""
    write_text(path, svg(figure))


def line_chart(
    title: str, lines: Mapping[str, Points], xlabel: str = "", ylabel: str = ""
) -> Figure:
    """Named lines over common linear axes."""
    figure, (axes,) = subplots(1, 6, 3.5, title)
    for (name, points), colour in zip(lines.items(), COLOURS * len(lines), strict=False):
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name, color=colour)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def interval_chart(title: str, estimates: Mapping[float, Estimate], xlabel: str) -> Figure:
    """Estimates by x, with their intervals."""
    figure, (axes,) = subplots(1, 5, 3.5, title)
    values = [one.value for one in estimates.values()]
    axes.errorbar(list(estimates), values, error_bars(estimates.values()), marker="o", capsize=3)
    axes.set_xlabel(xlabel)
    return figure


def bar_chart(title: str, estimates: Mapping[tuple[str, str], Estimate], baseline: float) -> Figure:
    """Bars with intervals by (group, name), a group's side by side, and a line at `baseline`."""
    groups = list(dict.fromkeys(group for group, _ in estimates))
    names = list(dict.fromkeys(name for _, name in estimates))
    others = [name for name in names if name not in METHOD_COLOURS]
    colours = dict(zip(others, COLOURS * len(others), strict=False)) | METHOD_COLOURS
    figure, (axes,) = subplots(1, 2.5 + 1.2 * len(groups), 3.5, title)
    width = 0.8 / max(len(names), 1)
    for number, name in enumerate(names):
        at = {
            place + (number - (len(names) - 1) / 2) * width: estimates[group, name]
            for place, group in enumerate(groups)
            if (group, name) in estimates
        }
        heights = [one.value for one in at.values()]
        axes.bar(list(at), heights, width, yerr=error_bars(at.values()), label=name,
                 color=colours[name], error_kw={"elinewidth": 0.8})  # fmt: skip
    axes.axhline(baseline, color="#555555", linewidth=0.8)
    axes.set_xticks(range(len(groups)), groups)
    axes.grid(False, axis="x")
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def error_bars(estimates: Iterable[Estimate]) -> tuple[list[float], list[float]]:
    """Return the lengths of the intervals below and above the values."""
    every = list(estimates)
    below = [max(one.value - one.low, 0.0) for one in every]
    return below, [max(one.high - one.value, 0.0) for one in every]


def log_axes(axes: Axes) -> None:
    """Make both axes logarithmic, with ticks such as 300k and 1M."""
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
        axis.set_minor_formatter(NullFormatter())


def short_number(number: float) -> str:
    """Write a number in few characters: 300k, 1M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"
