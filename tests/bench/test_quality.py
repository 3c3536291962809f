"""`python -m bench quality`: selections, figures, and a run that is stopped and resumed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.quality import quality
from bench.quality.tables import figures, summary
from bench.quality.tasks import (
    Record,
    chosen,
    common,
    request,
    selection,
    spread,
    untouched,
)  # fmt: skip
from tests.conftest import tiny_model
from ui.verify.rates import wilson

ROOT = Path(__file__).resolve().parents[2]

LINES = st.lists(
    st.sampled_from(["", "  ", "def f():", "    x = 1", "    pass", "y = 2", "é"]), max_size=7
)
TEXTS = LINES.map("\n".join)


def weight(lines: list[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def heaviest(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    """The most bytes of lines in both, in order, by trying everything."""

    @cache
    def best(i: int, k: int) -> int:
        if i == len(a) or k == len(b):
            return 0
        both = weight([a[i]]) + best(i + 1, k + 1) if a[i] == b[k] else 0
        return max(both, best(i + 1, k), best(i, k + 1))

    return best(0, 0)


# -- what must stay ----------------------------------------------------------------------------


@given(LINES, LINES)
def test_common_lines_are_equal_in_order_and_the_most(a: list[str], b: list[str]) -> None:
    pairs = common(a, b)
    assert all(a[i] == b[k] for i, k in pairs)
    for each in zip(*pairs, strict=True):
        assert list(each) == sorted(set(each))
    assert weight([a[i] for i, _ in pairs]) == heaviest(tuple(a), tuple(b))


@given(TEXTS, TEXTS, TEXTS)
def test_kept_bytes_are_at_most_the_bytes_to_keep(before: str, after: str, ours: str) -> None:
    must, stayed = untouched(before, after, ours)
    assert 0 <= stayed <= must <= len(before.encode()) + 1
    assert untouched(before, after, after) == untouched(before, after, before) == (must, must)


def test_a_wrongly_changed_line_is_missed() -> None:
    before, after = "a = 1\nb = 2\nc = 3", "a = 1\nb = 9\nc = 3"
    assert untouched(before, after, "a = 1\nb = 9\nc = 4") == (12, 6)
    assert untouched(before, after, "a = 1\nb = 2\nb = 9\nc = 3\nd = 4") == (12, 12)
    assert untouched(before, after, "a = 1\r\nb = 9\r\nc = 3\r\n") == (12, 0), "line ends count"


# -- what is asked -----------------------------------------------------------------------------


@given(TEXTS, TEXTS)
def test_the_selection_contains_every_difference(before: str, after: str) -> None:
    start, stop = selection(before, after)
    assert 0 <= start <= stop <= len(before)
    assert start == 0 or before[start - 1] == "\n"
    assert stop == len(before) or before[stop - 1] == "\n"
    assert f"{after}\n".startswith(before[:start])
    assert after.endswith(before[stop:].lstrip("\n "))  # lines may be added behind blank ones


MODULE = """import os

@cache
def one(a):
    return a

class Two:
    limit = 1

    def three(self):
        def four():
            return 4
        return four()
"""


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("return a\n", "return a + 1\n", (3, 5)),  # with its decorator
        ("return 4\n", "return 5\n", (11, 12)),
        ("return four()", "return 7", (10, 13)),
        ("limit = 1", "limit = 2", (8, 8)),
        ("import os\n", "import os\nimport re\n", (1, 1)),
        ("return a\n", "return a\n\ndef new():\n    return 1\n", (3, 5)),
        ("import os", "import os, re!", (1, 1)),
    ],
)
def test_the_function_around_a_change_is_selected(
    old: str, new: str, lines: tuple[int, int]
) -> None:
    start, stop = selection(MODULE, MODULE.replace(old, new))
    assert (MODULE[:start].count("\n") + 1, MODULE[:stop].count("\n")) == lines


def test_text_that_is_not_python_or_unchanged_is_selected_whole() -> None:
    assert selection("print 'a'\nx = 1", "print 'a'\nx = 2") == (0, 15)
    assert selection(MODULE, MODULE) == (0, len(MODULE))


def records(count: int, marker: str = "") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Lines of the two files; record 1 of each fails its own tests."""
    editeval, canitedit = [], []
    for n in range(count):
        code = f"def f():\n    return {n}  # {marker}"
        right = n + 1 if n != 1 else n
        tests = f"assert f() == {n + 1}, '{marker}'"
        both = {"before": code, "after": code.replace(f"{n}", f"{right}", 1)}
        editeval.append(
            both
            | {
                "id": f"EditEval/{n}",
                "instruction": "Add 1.",
                "tests": f"def check():\n    {tests}",
            }
            | {"context": "class A:\n    pass\n{{Code}}\ncode = '''{{Code}}'''\n" if n % 3 else ""}
        )
        asked = {f"instruction_{kind}": f"{marker} Add 1." for kind in ("descriptive", "lazy")}
        canitedit.append(
            both | asked | {"id": n, "name": marker, "tests": f"if True:\n    {tests}"}
        )
    return editeval, canitedit


def write(folder: Path, count: int, marker: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, many in zip(("editeval", "canitedit"), records(count, marker), strict=True):
        lines = "".join(json.dumps(one) + "\n" for one in many)
        (folder / f"{name}.jsonl").write_text(lines, "utf-8")
    return folder


def test_only_even_records_are_for_tuning(tmp_path: Path) -> None:
    folder = write(tmp_path, 9)
    number = {
        one.name: int(one.name.split("/")[1]) for one in chosen(folder, 99, True)["editeval-even"]
    }
    assert list(number.values()) == [0, 2, 4, 6, 8]
    reported = chosen(folder, 99, False)
    assert [one.name for one in reported["editeval"]] == [f"EditEval/{n}" for n in (1, 3, 5, 7)]
    assert len(reported["canitedit"]) == 9 and set(reported) == {"editeval", "canitedit"}
    assert [len(each) for each in chosen(folder, 4, False).values()] == [4, 2]


@given(st.integers(0, 50), st.integers(1, 60))
def test_a_sample_is_spread_over_all(size: int, count: int) -> None:
    numbers: Any = list(range(size))
    drawn = spread(numbers, count)
    assert drawn == sorted(set(drawn)) and len(drawn) == min(size, count)
    gaps = [b - a for a, b in zip(drawn, [*drawn[1:], size], strict=False)]
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_modes_differ_by_what_is_selected(tmp_path: Path) -> None:
    record = Record(
        "r", MODULE, MODULE.replace("return a\n", "return -a\n"), "", {"lazy": "Negate."}
    )
    whole, part = (request(record, "lazy", mode) for mode in ("file", "selection"))
    assert whole.text == part.text == MODULE and whole.instruction == "Negate."
    assert whole.selection is None and part.selection == selection(record.before, record.after)


# -- figures -----------------------------------------------------------------------------------


@given(st.integers(1, 200).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_the_interval_contains_the_share_and_narrows_with_more_edits(of: tuple[int, int]) -> None:
    low, high = wilson(*of)
    assert 0 <= low <= of[0] / of[1] + 1e-9 and of[0] / of[1] - 1e-9 <= high <= 1
    more = wilson(of[0] * 4, of[1] * 4)
    assert more[1] - more[0] < high - low


def row(outcome: str, **more: Any) -> dict[str, Any]:
    about = {"set": "s", "name": "n", "asked": "lazy", "mode": "file", "equal": True, "why": ""}
    stays = {"must_stay": 10, "stayed": 10, "unchanged": False, "tokens": 6, "forwards": 2}
    return about | {"outcome": outcome} | (stays if outcome != "refused" else {}) | more


def test_shares_are_of_all_edits_and_bytes_of_accepted_ones() -> None:
    rows = [row("passed"), row("failed", stayed=5, unchanged=True), row("refused"), row("passed")]
    found = figures(rows)
    assert (found["edits"], found["accepted"], found["passed"]) == (4, 0.75, 0.5)
    assert found["untouched_kept"] == round(25 / 30, 4) and found["unchanged"] == 1
    assert found["tokens_per_forward"] == 3.0
    assert figures([row("refused")])["untouched_kept"] is None


def test_a_difference_of_a_refused_edit_is_counted() -> None:
    own = row("left out", mode="own", asked="own", why="NameError")
    found = summary([own, row("refused", equal=False), row("passed", mode="selection")])
    assert found["different"] == 1 and found["left_out"] == ["n: NameError"]
    assert [one["mode"] for one in found["results"]] == ["file", "selection"]


# -- a run -------------------------------------------------------------------------------------


def bench(read: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    code = quality.main([str(one) for one in arguments])
    return code, json.loads(read.readouterr().out.splitlines()[-1])


def answer_of(row: dict[str, Any]) -> dict[str, Any]:
    """A row without its number of passes: how much is drafted depends on measured times."""
    return {key: value for key, value in row.items() if key != "forwards"}


@pytest.mark.full
def test_a_resumed_run_ends_like_another_and_a_difference_sets_the_exit_code(
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = tiny_model(tmp_path / "tiny", context=8192)
    folder = write(tmp_path / "data", 5, "a-text-of-the-record")
    out, part = tmp_path / "out.json", tmp_path / "out.part.jsonl"
    options = [folder, "--model", model, "--sample", "4", "--out", out]
    code, line = bench(capsys, *options)
    (whole,) = line["models"]
    assert code == 0 and whole == json.loads(out.read_text("utf-8"))
    assert "a-text-of-the-record" not in out.read_text("utf-8") and not part.exists()
    assert {one["set"]: one["edits"] for one in whole["results"]} == {"editeval": 1, "canitedit": 2}
    assert whole["left_out"] == ["EditEval/1: AssertionError"]
    assert len(whole["results"]) == 2 + 4 and whole["different"] == 0

    head = {
        key: whole[key]
        for key in ("model", "device", "kv", "tune", "sample", "modes", "asked_by", "tried")
    }
    rows = whole["rows"]
    changed = [rows[0] | {"equal": False, "mode": "file", "outcome": "refused"}, *rows[:4]]
    kept = [json.dumps(one) for one in (head, *changed)]
    part.write_text(
        "\n".join([*kept, json.dumps(rows[4])[:20]]), "utf-8"
    )  # cut while it was written
    code, line = bench(capsys, *options, "--resume")
    resumed = line["models"][0]["rows"]
    assert [answer_of(row) for row in resumed] == [*map(answer_of, [changed[0], *rows])]
    assert code == 1 and line["models"][0]["different"] == 1


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--modes", "file,line"], "--modes line: choose from file,selection"),
        (["--sample", "1"], "--sample 1"),
        (["--answers", "x.jsonl"], "--answers: needs --tune"),
        (["--model", "a", "--model", "b", "--out", "x"], "--out: takes a single model"),
        (["--resume"], "No such file"),
    ],
)
def test_bad_options_are_named(
    tmp_path: Path,
    arguments: list[str],
    names: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path if arguments == ["--resume"] else write(tmp_path, 5)
    with pytest.raises(SystemExit) as ended:
        quality.read_options([str(folder), *arguments])
    assert ended.value.code == 2 and names in capsys.readouterr().err.splitlines()[-1]


def test_a_bad_record_is_named(tmp_path: Path) -> None:
    write(tmp_path, 3)
    with (tmp_path / "canitedit.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"id": 7}\n')
    with pytest.raises(ValueError, match=r"canitedit\.jsonl, line 4: KeyError"):
        chosen(tmp_path, 4, False)


def test_another_run_is_not_resumed(tmp_path: Path) -> None:
    part = tmp_path / "x.part.jsonl"
    part.write_text('{"model": "a", "sample": 4}\n{"name": "r"}\n{"na', "utf-8")
    with pytest.raises(ValueError, match="made with sample 4, not 5: start anew without --resume"):
        quality.resumed(part, {"model": "a", "sample": 5})
    assert quality.resumed(part, {"model": "a", "sample": 4}) == [{"name": "r"}]
    assert part.read_text("utf-8").endswith('{"name": "r"}\n')
    assert quality.resumed(tmp_path / "none", {}) == []
