"""The charts hold the data they are given, and the same data gives the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from bench.common.charts import (
    Estimate,
    bar_chart,
    interval_chart,
    line_chart,
    save,
    short_number,
    svg,
)
from bench.index import plot

GROWTH: list[dict[str, Any]] = [
    {"index": name, "tokens": tokens, "build_s": tokens / 9, "match_us_p50": 7.0}
    for name in ("draftline", "arctic")
    for tokens in (300_000, 1_000_000)
]


def test_bars_are_as_tall_as_their_values() -> None:
    estimates = {
        ("qa", "<sam>"): Estimate(2.0, 1.5, 2.5),
        ("qa", "auto"): Estimate(1.0, 1.0, 1.0),
        ("rag", "auto"): Estimate(3.0, 2.0, 3.5),
    }
    figure = bar_chart("a & b", estimates, baseline=1.0)
    (axes,) = figure.axes
    bars = {bar.get_label(): [one.get_height() for one in bar] for bar in axes.containers
            if hasattr(bar, "patches")}  # fmt: skip
    assert bars == {"<sam>": [2.0], "auto": [1.0, 3.0]}
    assert [text.get_text() for text in axes.get_xticklabels()] == ["qa", "rag"]
    drawn = ElementTree.fromstring(svg(figure))
    text = "".join(drawn.itertext())
    assert "a & b" in text and "<sam>" in text


def test_lines_and_intervals_hold_their_points() -> None:
    (axes,) = line_chart("t", {"one": [(1, 2), (3, 4)], "two": [(5, 6)]}).axes
    found = {str(line.get_label()): np.asarray(line.get_xydata()).tolist() for line in axes.lines}
    assert found == {"one": [[1, 2], [3, 4]], "two": [[5, 6]]}
    (axes,) = interval_chart("t", {0.0: Estimate(2.0, 1.0, 4.0)}, "k").axes
    assert np.asarray(axes.lines[0].get_xydata()).tolist() == [[0.0, 2.0]]


def test_the_growth_chart_has_a_point_for_each_result() -> None:
    forms = [{"frozen": n, "young_tokens": n - 1, "match_us_p50": n / 7} for n in (1, 2, 9)]
    results = [GROWTH[0] | {"forms": forms}, *GROWTH[1:]]
    build, match, segments = plot.draw(results, "a < b & c").axes
    for axes in (build, match):
        assert sum(len(line.get_xdata()) for line in axes.lines) == len(results)
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    (line,) = segments.lines
    assert list(line.get_xdata()) == [1, 3, 10] and line.get_label() == "300k tokens"


def test_the_same_data_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        save(plot.draw(GROWTH, "growth"), tmp_path / name)
    one, two = ((tmp_path / name).read_bytes() for name in ("one.svg", "two.svg"))
    assert one == two and b"<dc:date>" not in one
    assert ElementTree.fromstring(one).tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize(
    ("number", "text"), [(300_000, "300k"), (1e6, "1M"), (12, "12"), (0.5, "0.5")]
)
def test_numbers_on_an_axis_are_short(number: float, text: str) -> None:
    assert short_number(number) == text
