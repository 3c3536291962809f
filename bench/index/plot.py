"""Draw how the indexes grow, from the results of `python -m bench index --growth`.

python -m bench index-plot RECORD.json OUT.svg
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench.common.charts import log_axes, save, short_number, subplots
from bench.common.cli import argument_parser

COLOURS = {
    "draftline": "#0b6e4f",
    "arctic": "#c44536",
    "python": "#3d5a9e",
    "suffix-array": "#8a8a8a",
}
SHADES = ("#9bd1bb", "#5fb394", "#2f9270", "#0b6e4f", "#064530")  # colours of draftline, by size
CHARTS = (
    ("build_s", "build, seconds"),
    ("match_us_p50", "match of 64 tokens, p50, microseconds"),
)


def draw(results: list[dict[str, Any]], title: str) -> Figure:
    """Draw build and match time by size, a line per index.

    Draws draftline's match time by the number of segments, too, a line per size.
    """
    measured_forms = [one for one in results if one.get("forms")]
    figure, charts = subplots(3 if measured_forms else 2, 13, 3.6, title)
    for axes, (key, label) in zip(charts, CHARTS, strict=False):
        for name in dict.fromkeys(one["index"] for one in results):
            points = sorted((one["tokens"], one[key]) for one in results if one["index"] == name)
            width = 2.5 if name == "draftline" else 1.5
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=width,
                      label=name, color=COLOURS.get(name, "#000000"))  # fmt: skip
        axes.set(title=label, xlabel="tokens")
        log_axes(axes)
        axes.legend(frameon=False)
    if measured_forms:
        axes = charts[-1]
        for one, shade in zip(measured_forms, SHADES * len(measured_forms), strict=False):
            segments = [form["frozen"] + (form["young_tokens"] > 0) for form in one["forms"]]
            times = [form["match_us_p50"] for form in one["forms"]]
            axes.plot(segments, times, marker="o", markersize=3, color=shade,
                      label=f"{short_number(one['tokens'])} tokens")  # fmt: skip
        axes.set(title="draftline: match, p50, microseconds", xlabel="segments")
        log_axes(axes)
        axes.legend(frameon=False)
    return figure


def main(argv: list[str] | None = None) -> int:
    parser = argument_parser("index-plot", __doc__)
    parser.add_argument("record", type=Path, help="the JSON file that `index --growth` wrote")
    parser.add_argument("out", type=Path, help="the SVG file to write")
    options = parser.parse_args(argv)
    known = json.loads(options.record.read_text("utf-8"))
    save(draw(known["results"], known["title"]), options.out)
    return 0
