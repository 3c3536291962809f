"""Charts are well-formed, and the same data gives the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

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


def test_names_in_a_chart_are_text() -> None:
    estimates = {("a & b", "<sam>"): Estimate(2.0, 1.5, 2.5)}
    charts = [
        bar_chart("a & b", estimates, baseline=1.0),
        line_chart("a & b", {"<sam>": [(1, 2), (3, 4)]}),
        interval_chart("a & b", {0.0: Estimate(2.0, 1.0, 4.0)}, "<sam>"),
        plot.draw(GROWTH, "a & b <sam>"),
    ]
    for chart in charts:
        text = "".join(ElementTree.fromstring(svg(chart)).itertext())
        assert "a & b" in text and "<sam>" in text


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
