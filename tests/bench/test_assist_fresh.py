"""`python -m bench assist-fresh`, `assist --tasks`: tasks of unknown code, and what readers say."""

from __future__ import annotations

import ast
import json
import shutil
import zipfile
from argparse import Namespace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.assist import assist, fresh, reading
from bench.assist.fresh import FreshTask, Package, make, permissive, read_tasks
from bench.assist.instructions import SELECTED, block_end, instruction, kinds, places, selections
from bench.assist.reading import LABELS, NONE, TO_LABEL, figures, labelled
from bench.assist.task import SAMPLES
from bench.common.environment import ROOT
from index.workspace.file_filter import Skipped
from tests.bench.conftest import RunBench
from tests.conftest import tiny_model

SOURCES = {
    "python": [
        *(ROOT / "bench" / "assist" / name for name in ("editor.py", "tables.py", "tokens.py")),
        SAMPLES / "inventory.py",
    ],
    "typescript": sorted(SAMPLES.glob("*.ts")),
}
TEXTS = [(name, path.read_text("utf-8")) for name, paths in SOURCES.items() for path in paths]


@given(st.sampled_from(TEXTS), st.integers(), st.data())
def test_instructions_are_lines_about_what_is_selected(
    source: tuple[str, str], seed: int, data: st.DataObject
) -> None:
    language, text = source
    start, stop = data.draw(st.sampled_from(selections(language, text)))
    selected = text[start:stop]
    assert len(selected.splitlines()) in SELECTED
    assert start == 0 or text[start - 1] == "\n"
    kind = data.draw(st.sampled_from(kinds(language)))
    said = instruction(kind, language, selected, Random(seed))
    assert said is None or (said.isprintable() and 0 < len(said) < 300)
    assert said == instruction(kind, language, selected, Random(seed))


@given(st.sampled_from(TEXTS), st.data())
def test_a_place_is_in_a_line_of_code_and_its_block_ends_with_a_line(
    source: tuple[str, str], data: st.DataObject
) -> None:
    language, text = source
    cursor, end = data.draw(st.sampled_from(places(language, text)))
    rest = text[cursor:end]
    assert rest and "\n" not in rest and text[end : end + 1] in ("\n", "")
    whole = block_end(text, cursor)
    assert whole >= end and text[whole : whole + 1] in ("\n", "")
    line = text.rfind("\n", 0, cursor) + 1
    indent = len(text[line:]) - len(text[line:].lstrip())
    for each in text[cursor:whole].split("\n")[1:]:
        assert not each.strip() or len(each) - len(each.lstrip()) >= indent


def test_every_kind_of_instruction_finds_its_thing() -> None:
    whole = "class A:\n    def __init__(self, a, b=3):\n        self.data = a\n"
    code = whole + (
        "    def run(self, items):\n"
        "        found = []\n"
        "        for x in items:\n"
        "            found.append(x)\n"
        "        try:\n"
        "            print('%s' % found[7], items['key'])\n"
        "        except Exception:\n"
        "            pass\n"
        "        if found:\n"
        "            a = 1\n"
        "        else:\n"
        "            a = 2\n"
        "        if a:\n"
        "            b = 2\n"
        "            self.data = b\n"
    )
    assert ast.parse(code)
    said = {kind: instruction(kind, "python", code, Random(1)) for kind in kinds("python")}
    assert [kind for kind, line in said.items() if line is None] == []
    assert {instruction(kind, "python", "x = 1\n", Random(1)) for kind in said} == {None}


def test_a_function_is_selected_with_its_comment_which_is_not_asked_for_again() -> None:
    function = "function a(x) {\n" + "  x++\n" * 20 + "}\n"
    documented = f"let q\n\n/**\n * Adds.\n */\n{function}"
    assert documented.index("/**") in dict(selections("typescript", documented))
    for text, said in ((documented, None), (function, "add a JSDoc comment to a")):
        assert instruction("docstring", "typescript", text, Random(1)) == said


def package(folder: Path, name: str = "one") -> Package:
    """A package whose files are some of this repository's."""
    target = folder / f"{name}-1.0" / name
    target.mkdir(parents=True)
    for path in SOURCES["python"]:
        shutil.copy(path, target)
    return Package(target.parent, name, "1.0", "MIT", "2026-11-01")


def made_tasks(folder: Path, seed: int = 1) -> list[FreshTask]:
    return make([package(folder)], Namespace(seed=seed, edits=2, completions=2))


def test_each_task_has_a_file_of_its_own_as_its_user_has_it(tmp_path: Path) -> None:
    tasks = made_tasks(tmp_path)
    assert [task.part for task in tasks] == ["edits"] * 2 + ["completions"] * 2
    assert len({task.file for task in tasks}) == len({task.name for task in tasks}) == 4
    for task in tasks:
        assert (tmp_path / task.folder / task.file).read_text("utf-8") == task.text
        original = ROOT / "bench" / "assist" / Path(task.file).name
        if not original.exists():
            original = SAMPLES / Path(task.file).name
        assert task.part == "edits" or (
            task.before + task.follows + task.after == original.read_text("utf-8")
        )
    again = make([package(tmp_path / "again")], Namespace(seed=1, edits=2, completions=2))
    assert tasks == again


@pytest.mark.parametrize("licence", ["MIT License", "BSD-3-Clause", "Apache-2.0", "ISC"])
def test_permissive_licences_are_taken(licence: str) -> None:
    assert permissive(licence) == licence


@pytest.mark.parametrize("licence", ["", "GPL-3.0", "LGPL, MIT", "MPL-2.0", "Permit me", "Other"])
def test_other_licences_are_left_out(licence: str) -> None:
    with pytest.raises(Skipped, match="licence"):
        permissive(licence)


def test_a_wheel_is_unpacked_with_its_licence_and_date(tmp_path: Path) -> None:
    wheel = tmp_path / "one-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(zipfile.ZipInfo("one/a.py", (2026, 10, 3, 0, 0, 0)), "x = 1\n")
        text = "Name: one\nClassifier: License :: OSI Approved :: MIT License\n"
        archive.writestr(zipfile.ZipInfo("one-1.0.dist-info/METADATA"), text)
    found = fresh.unpacked(wheel, "one", "2026-09-01", tmp_path / "to")
    assert (found.version, found.licence, found.date) == ("1.0", "MIT License", "2026-10-03")
    assert (found.folder / "one" / "a.py").read_text() == "x = 1\n"


# -- the answers, and labels --------------------------------------------------------------------

ROW = st.fixed_dictionaries({
    "part": st.sampled_from(sorted(LABELS)), "warned": st.booleans(), "by_rule": st.booleans(),
    "label": st.sampled_from(["right", "wrong", NONE]), "lines": st.integers(1, 200),
})  # fmt: skip


@given(st.lists(ROW, min_size=1, max_size=20))
@settings(max_examples=30)
def test_shares_lie_in_their_intervals_and_warnings_split_them(rows: list[dict[str, Any]]) -> None:
    made = {(one["part"], one["outcome"]): one for one in figures(rows)}
    for (part, outcome), one in made.items():
        assert one["of"] == sum(row["part"] == part for row in rows)
        assert one["low"] <= one["value"] <= one["high"]
        if part == "edits" and outcome in LABELS[part]:
            parts = [made[part, f"{outcome}, with{out} a warning"] for out in ("", "out")]
            assert one["count"] == sum(each["count"] for each in parts)


@pytest.mark.parametrize(
    ("labels", "problem"),
    [("", "e01 has no label"), ("e01 useful", "right, wrong"), ("e09 right", "no task has this")],
)
def test_a_label_that_is_missing_or_unknown_is_named(
    tmp_path: Path, labels: str, problem: str
) -> None:
    (path := tmp_path / "labels").write_text(labels)
    with pytest.raises(ValueError, match=problem):
        labelled([{"task": "e01", "part": "edits", "said": "warned"}], path)


@pytest.mark.full
def test_fresh_tasks_are_asked_written_down_and_reported(
    tmp_path: Path, run_bench: RunBench
) -> None:
    tasks = [*made_tasks(tmp_path / "tasks")[:1], *made_tasks(tmp_path / "other", 2)[-1:]]
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps(fresh.asdict(task)) + "\n" for task in tasks))
    assert read_tasks(file) == tasks
    records = tmp_path / "records"
    model = tiny_model(tmp_path / "tiny", context=8192)
    options = ["--model", model, "--tasks", file, "--records", records]
    ran = run_bench(assist.main, *options)
    assert ran.code == 0, ran.err
    rows = reading.read_rows(records)
    assert {row["task"] for row in rows} == {task.name for task in tasks}
    for task in tasks:
        text = (records / f"{task.name}.txt").read_text("utf-8")
        assert task.package in text and (task.instruction or task.follows) in text
    (labels := tmp_path / "labels").write_text(
        (records / TO_LABEL).read_text("utf-8").replace("   #", " wrong #")
    )
    ran = run_bench(assist.main, *options, "--labels", labels)
    assert ran.code == 0, ran.err
    (found,) = json.loads(ran.out.splitlines()[-1])["models"]
    assert {one["part"] for one in found["results"]["fresh"]} == set(LABELS)


@pytest.mark.parametrize(
    ("options", "names"),
    [(["--tasks", "a"], "--records"), (["--labels", "a"], "--labels needs them")],
)
def test_options_that_belong_together_are_named(
    run_bench: RunBench, options: list[str], names: str
) -> None:
    ran = run_bench(assist.main, *options)
    assert ran.code == 2 and names in ran.err.splitlines()[-1]
