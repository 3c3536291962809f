"""`python -m bench replay-collect`: which files become records, and appending to a file."""

from __future__ import annotations

import json
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.replay import collect as replay_collect
from bench.replay.collect import changed_share, check_text, collect, language_of, main, spread
from index.workspace.file_filter import Skipped
from research.train.edit_records import read, replays
from tests.bench.conftest import RunBench
from tests.support.encoders import Bytes

ROOT = Path(__file__).resolve().parents[2]

LINES = [f"line {number}\n" for number in range(20)]
OLD = "".join(LINES)
NEW = "".join([*LINES[:7], "other\n", *LINES[8:]])
TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n"]), min_size=1, max_size=12)
SUFFIX = st.sampled_from([*replay_collect.SUFFIXES, ".TS", ".png", ""])


def releases(top: Path, files: dict[str, tuple[str | bytes, str | bytes]]) -> tuple[Path, Path]:
    """Two folders that hold each file's older and newer text."""
    both = top / "old", top / "new"
    for path, texts in files.items():
        for folder, text in zip(both, texts, strict=True):
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text if isinstance(text, bytes) else text.encode())
    return both


def collected(top: Path, files: dict[str, tuple[str | bytes, str | bytes]]) -> list[Any]:
    return collect(*releases(top, files), "p", ("1", "2"), "MIT")[0]


def call(both: tuple[Path, Path], out: Path, *more: str) -> int:
    return main([*map(str, both), "p", "1", "2", "MIT", str(out), *more])


@given(old=TEXTS, new=TEXTS)
def test_the_changed_share_counts_added_and_deleted_lines(old: list[str], new: list[str]) -> None:
    same = 0  # the longest common subsequence, by the table of the textbooks
    row = [0] * (len(new) + 1)
    for line in old:
        last = row
        row = [0]
        for number, other in enumerate(new):
            row.append(last[number] + 1 if line == other else max(row[number], last[number + 1]))
        same = row[-1]
    least = 1 - 2 * same / (len(old) + len(new))  # no diff is shorter
    try:
        share = changed_share("".join(old), "".join(new))
    except Skipped:
        diff = [*unified_diff(old, new, n=0)][2:]
        assert sum(line[0] in "+-" for line in diff) > 0.4 * (len(old) + len(new))
        return
    assert least - 1e-9 <= share <= 0.4
    assert (share == 0) == (old == new)


@settings(max_examples=30)
@given(
    count=st.integers(0, 12),
    most=st.integers(0, 14),
    suffixes=st.lists(SUFFIX, min_size=12, max_size=12),
)
def test_a_limit_per_language_keeps_the_order(count: int, most: int, suffixes: list[str]) -> None:
    records: list[Any] = []
    for number in range(count):
        try:
            language = language_of(f"a/b{number}{suffixes[number]}")
        except Skipped:
            assert suffixes[number] in (".png", "")
            continue
        records.append({"language": language, "path": number})
    kept = spread(records, most)
    for language in {one["language"] for one in records}:
        all_of_it = [one["path"] for one in records if one["language"] == language]
        of_it = [one["path"] for one in kept if one["language"] == language]
        assert len(of_it) == min(most or count, len(all_of_it))
        assert of_it == sorted(set(of_it)) and set(of_it) <= set(all_of_it)


def test_what_is_collected_is_what_replay_reads(tmp_path: Path) -> None:
    crlf = OLD.replace("\n", "\r\n"), NEW.replace("\n", "\r\n")
    odd = "é\u2028\ufeff" + OLD, "é\u2028\ufeff" + NEW
    files: dict[str, Any] = {"src/a.js": (OLD, NEW), "b.md": odd, "c.GO": crlf, "d.hpp": (OLD, NEW)}
    out = tmp_path / "edits.jsonl"
    assert call(releases(tmp_path, files), out) == 0
    edits = read(out)
    assert {edit.path: (edit.before, edit.after) for edit in edits} == files
    assert {edit.package for edit in edits} == {"javascript:p", "markdown:p", "go:p", "cpp:p"}
    assert {edit.step.split(" ", 1)[1] for edit in edits} == {"1 -> 2"}
    assert len({edit.id for edit in edits}) == 4
    for line in out.read_text("utf-8").splitlines():
        record = json.loads(line)
        assert record["licence"] == "MIT" and 0 < record["changed_fraction"] < 0.1
    assert len(replays(edits, "hunk", Bytes())) == 4


BIG = f"x = {'y' * 15}\n" * 3_001  # 60,020 bytes
MANY = "\n" * 5_001


# Path, old text, new text
LEFT_OUT: list[tuple[str, str | bytes, str | bytes]] = [
    ("a.js", OLD, OLD),
    ("a.js", "", NEW),
    ("a.js", OLD, ""),
    ("a.js", OLD, "".join([*LINES[:7], *["other\n"] * 13])),  # 13 of 20 lines
    ("a.js", BIG, BIG[60:]),
    ("a.js", BIG[60:], BIG),
    ("a.js", BIG[1000:], BIG[1000:] + "é" * 1_000),  # fewer characters than bytes
    ("a.py", MANY, MANY + "\n"),
    ("a.js", OLD + f"{'x' * 9_000}\n", NEW + f"{'x' * 9_000}\n"),  # a mean over 200
    ("a.md", OLD + f"{'x' * 5_001}\n", NEW + f"{'x' * 5_001}\n"),
    ("a.go", "// Code generated by x. DO NOT EDIT.\n" + OLD, NEW),
    ("a.ts", OLD, "/* @generated */\n" + NEW),
    ("a.ts", OLD, "// Automatically generated\n" + NEW),
    ("a.ts", OLD, "// Do not edit this\n" + NEW),
    ("a.js", b"\0" + OLD.encode(), b"\0" + NEW.encode()),
    ("a.js", b"\xff" + OLD.encode(), b"\xff" + NEW.encode()),
    ("a.png", OLD, NEW),
    ("LICENSE", OLD, NEW),
    ("a.min.js", OLD, NEW),
    ("a.pb.go", OLD, NEW),
    ("a_pb2.py", OLD, NEW),
    ("package-lock.yaml", OLD, NEW),
    ("vendor/a.js", OLD, NEW),
    ("deps/x/a.js", OLD, NEW),
    ("x/Third_Party/a.js", OLD, NEW),
    ("node_modules/q/a.js", OLD, NEW),
    ("dist/a.js", OLD, NEW),
    ("a\n.js", OLD, NEW),
]


def test_left_out_alone(tmp_path: Path) -> None:
    files = {f"{n}/{path}": (old, new) for n, (path, old, new) in enumerate(LEFT_OUT)}
    found = collected(tmp_path, files | {"vendor.js": (OLD, NEW)})
    assert [one["path"] for one in found] == ["vendor.js"]


def test_long_lines_are_prose_in_markdown_alone() -> None:
    text = f"{'word ' * 100}\n" * 3
    check_text(text, "markdown")
    with pytest.raises(Skipped, match="too long"):
        check_text(text, "javascript")


def test_files_of_one_release_and_targets_of_outside_links_are_left_out(
    tmp_path: Path,
) -> None:
    both = releases(tmp_path, {"a.js": (OLD, NEW)})
    (both[0] / "gone.js").write_text(OLD)
    (both[1] / "come.js").write_text(NEW)
    for folder, text in zip(both, (OLD, NEW), strict=True):
        (tmp_path / f"{folder.name}.js").write_text(text)
        (folder / "link.js").symlink_to(tmp_path / f"{folder.name}.js")
    found, _ = collect(*both, "p", ("1", "2"), "MIT")
    assert [one["path"] for one in found] == ["a.js"]


def test_a_second_run_adds_what_is_new_and_keeps_what_is_there(tmp_path: Path) -> None:
    out = tmp_path / "edits.jsonl"
    both = releases(tmp_path, {"a.js": (OLD, NEW)})
    call(both, out)
    first = out.read_bytes()
    call(both, out)
    assert out.read_bytes() == first
    out.write_bytes(first.rstrip(b"\n"))  # a last line without an end
    call(releases(tmp_path, {"b.ts": (OLD, NEW)}), out)
    assert out.read_bytes().startswith(first)
    assert [edit.path for edit in read(out)] == ["a.js", "b.ts"]


def test_only_requested_languages(tmp_path: Path) -> None:
    out = tmp_path / "edits.jsonl"
    both = releases(tmp_path, {f"{n}.{end}": (OLD, NEW) for n in range(5) for end in ("js", "md")})
    call(both, out, "--language", "markdown", "--most", "2")
    assert [edit.path for edit in read(out)] == ["0.md", "2.md"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: "nowhere"}, "nowhere: not a folder"),
        ({2: " "}, "name ' ': must be printable text"),
        ({5: "M\nT"}, "licence 'M\\nT': must be printable text"),
        ({4: "1"}, "two different versions"),
        ({6: "broken.jsonl"}, "broken.jsonl, line 1: not JSON"),
        ({6: "none/edits.jsonl"}, "none/edits.jsonl: No such file"),
        ({1: "empty"}, "no file is in both"),
    ],
)
def test_errors_are_one_line(
    change: dict[int, str], message: str, tmp_path: Path, run_bench: RunBench
) -> None:
    releases(tmp_path, {"a.js": (OLD, NEW)})
    (tmp_path / "broken.jsonl").write_text("{")
    (tmp_path / "empty").mkdir()
    values = ["old", "new", "p", "1", "2", "MIT", "edits.jsonl"]
    for place, value in change.items():
        values[place] = value
    done = run_bench(main, *values)
    assert done.code != 0 and done.out == ""
    assert message in done.err.splitlines()[-1] and "Traceback" not in done.err
    assert (tmp_path / "broken.jsonl").read_text() == "{"
