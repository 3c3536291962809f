"""`python -m bench replay` with draftline: folds, parts left out, sessions, averages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.replay import replay
from bench.replay.costs import FixedCost
from bench.replay.ours import FOLDS, PARTS, describe_weights, draftline_rule, halves
from bench.replay.peers import DraftlineRule, rules
from bench.replay.replay import has_small_diff
from bench.replay.run import Key, OtherFiles, ReplaySetup, Tally, run
from bench.replay.table import figures, groups, sum_tallies
from engine.drafting import DraftContext
from engine.drafting._drafting import Weights
from engine.drafting.drafter_weights import SHIPPED, save_weights
from engine.drafting.next_token import NextTokenDrafter
from engine.drafting.stdlib_ngram import StdlibNgram
from engine.model.cost_model import POINTS
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft
from index.workspace.workspace import Workspace
from research.train.edit_records import RecordedEdit, Replay, read, replays
from tests.bench.conftest import RunBench
from tests.support.drafters import NoLibrary, made_up, weights_of
from tests.support.encoders import Bytes
from tests.support.training import make_place, record

ROOT = Path(__file__).resolve().parents[2]

PROMPT = (10,)
COSTS = FixedCost([1 + 0.02 * (rows - 1) for rows in POINTS])
COUNTS = st.tuples(st.integers(1, 99), st.integers(1, 99), st.integers(0, 99))


def edit(before: str, after: str, package: str = "p", path: str = "x.py") -> RecordedEdit:
    return RecordedEdit(path, package, f"{package} 1 -> 2", path, before, after)


def made(without: str = "") -> DraftlineRule:
    weights: Any = {kind: weights_of("trained") for kind in ("file", "hunk")}
    return DraftlineRule(made_up(256), NoLibrary(), {"": weights}, without)  # type: ignore[arg-type]


def counted(recorded: list[Replay], session: bool = False) -> Tally:
    chosen = [rule for rule in rules(made()) if rule.name == "draftline"]
    tallies: dict[Key, Tally] = {}
    with Workspace(None, Bytes()) as workspace:
        for _ in run(recorded, chosen, [16], COSTS, workspace, PROMPT, tallies, session):
            pass
    return tallies["draftline", "all", 16]


# -- folds -------------------------------------------------------------------------------------


@given(names=st.sets(st.text("abc", min_size=1), min_size=2))
def test_halves_share_nothing_and_leave_nothing_out(names: set[str]) -> None:
    one, two = halves(list(names))
    assert one | two == names and not one & two
    assert abs(len(one) - len(two)) <= 1
    assert max(one) < min(two)


@given(names=st.sets(st.sampled_from(sorted(FOLDS[0] | FOLDS[1])), min_size=2))
def test_the_published_packages_have_the_published_halves(names: set[str]) -> None:
    one, two = halves(list(names))
    assert one | two == names and not one & two and one and two
    if all(names & fold for fold in FOLDS):
        assert one <= FOLDS[0] and two <= FOLDS[1]


def test_a_package_is_replayed_by_weights_that_never_saw_it(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    tokenizer = Tokenizer(place / "model")
    edits = read(place / "edits.jsonl")
    other = [edit("a\nb\n" * 9, "c\n" * 9, one.package, one.path) for one in edits]

    def weights(some: list[RecordedEdit]) -> dict[str, list[float]]:
        library = StdlibNgram(place / "home", tokenizer, place / "sources")
        folds = halves([one.package for one in some])
        found = draftline_rule(some, folds, "hunk", tokenizer, library, SHIPPED, lambda line: None)
        return {name: found.weights[name]["hunk"].values.tolist() for name in ("one", "two")}

    first = weights(edits)
    changed = weights(
        [one if one.package == "one" else o for one, o in zip(edits, other, strict=True)]
    )
    assert first["one"] != first["two"]
    assert changed["two"] == first["two"]  # they were fitted on package one, which is as it was
    assert changed["one"] != first["one"]


def tally(counts: tuple[int, int, int]) -> Tally:
    steps, more, nodes = counts
    one = Tally(steps + more, steps, nodes, min(more, nodes), steps + 0.1 * nodes)
    one.times.extend([1e-6 * steps] * steps)
    return one


@given(counts=st.lists(COUNTS, min_size=4, max_size=4))
def test_all_is_the_mean_of_both_halves_and_pooled_is_all_together(
    counts: list[tuple[int, int, int]],
) -> None:
    packages = ["a", "b", "c", "d"]
    by_name = dict(zip(packages, map(tally, counts), strict=True))
    rows_of = groups(packages, [{"a", "b"}, {"c", "d", "gone"}], False)
    assert list(rows_of) == ["all", "pooled", *packages]

    def speedup(name: str) -> float:
        parts = [sum_tallies(by_name[package] for package in part) for part in rows_of[name]]
        return float(figures(parts)["speedup"])

    def rate(names: str) -> float:
        some = [by_name[name] for name in names]
        cost = sum(one.cost for one in some)
        return sum(one.tokens for one in some) / cost

    assert speedup("all") == pytest.approx(mean([rate("ab"), rate("cd")]), abs=1e-3)
    assert speedup("pooled") == pytest.approx(rate("abcd"), abs=1e-3)
    assert speedup("c") == pytest.approx(rate("c"), abs=1e-3)


def test_the_language_is_before_the_colon() -> None:
    assert groups(["c:x", "go:x", "go:y"], [], True) == {
        "all": [{"c:x", "go:x", "go:y"}], "c": [{"c:x"}], "go": [{"go:x", "go:y"}]
    }  # fmt: skip


# -- what is drafted ---------------------------------------------------------------------------


def drafts(without: str) -> list[Draft]:
    """What is drafted for an edit without a part."""
    replay = replays([edit("abc + d\n" * 9, "axyzc + d\n" * 9)], "file", Bytes())[0]
    found: list[Draft] = []
    with Workspace(None, Bytes()) as workspace:
        setup = ReplaySetup(replay, OtherFiles(workspace, [replay]), PROMPT, 16, COSTS)
        drafter = replace(made(), without=without)(setup)
        context = DraftContext(list(PROMPT), [replay.prediction], whole=True)
        drafter.begin(context)
        for token in replay.output:
            context.capacity = 16
            found.append(drafter.propose(context, None))
            context.output.append(token)
            drafter.observe(found[-1], [], [token], None, 1.0)
    return found


def is_chain(draft: Draft) -> bool:
    return draft.parents == list(range(-1, len(draft) - 1))


def test_what_is_left_out_is_left_out() -> None:
    assert any(map(len, drafts("siblings"))) and all(map(is_chain, drafts("siblings")))
    assert not all(map(is_chain, drafts("form")))
    assert any("substitution" in draft.sources for draft in drafts("far"))
    assert not any("substitution" in one.sources for one in drafts("substitutions"))


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), part=st.sampled_from(["", *PARTS]))
def test_steps_do_not_depend_on_earlier_replays(seed: int, part: str) -> None:
    chance = np.random.default_rng(seed)
    texts = ["".join(chance.choice(["a = 1\n", "b(a)\n", "c\n"], 9)) for _ in range(4)]
    first, second = replays(
        [edit(texts[0], texts[1], "p"), edit(texts[2], texts[3], "q")], "file", Bytes()
    )
    steps = []
    for some in ([first], [second, first]):
        tallies: dict[Key, Tally] = {}
        rule = next(rule for rule in rules(made(part)) if rule.name == "draftline")
        with Workspace(None, Bytes()) as workspace:
            for _ in run(some, [rule], [8], COSTS, workspace, PROMPT, tallies):
                pass
        steps.append(tallies["draftline", "p", 8].steps)
    assert steps[0] == steps[1]


def test_a_session_copies_what_it_wrote() -> None:
    between = "".join(f"line {n}\n" for n in range(30))
    new = "def something_else(of, another, kind):\n    return [kind, another, of]\n"
    recorded = replays([edit(between, new + between + new)], "hunk", Bytes())
    assert len(recorded) == 2
    alone, remembered = counted(recorded), counted(recorded, session=True)
    assert alone.tokens == remembered.tokens
    assert remembered.steps < 0.8 * alone.steps


def test_nothing_is_remembered_of_other_files() -> None:
    new = "def something_else(of, another, kind):\n    return [kind, another, of]\n"
    edits = [edit(f"{n}\n" * 9, f"{n}\n" * 9 + new, "p", f"{n}.py") for n in range(2)]
    recorded = replays(edits, "hunk", Bytes())
    assert counted(recorded).steps == counted(recorded, session=True).steps


def test_untrained_it_knows_nothing_of_earlier_answers() -> None:
    replay = replays([edit("abc + d\n" * 9, "axyzc + d\n" * 9)], "file", Bytes())[0]
    with Workspace(None, Bytes()) as workspace:
        setup = ReplaySetup(replay, OtherFiles(workspace, [replay]), PROMPT, 16, COSTS)
        drafter = replace(made(), trained=False)(setup)
    assert isinstance(drafter, NextTokenDrafter)
    assert not drafter.model.weights["file"].values.any()


@given(extra=st.integers(-3, 3))
def test_small_diffs_have_less_than_nine_thousand_bytes(extra: int) -> None:
    head = len("--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+\n")
    one = edit("a\n", "b" * (9000 - head + extra) + "\n")
    assert has_small_diff(one) == (extra < 0)


# -- the command -------------------------------------------------------------------------------


def options(place: Path) -> list[str]:
    """The edits, model and library of `make_place`."""
    return [
        str(place / "edits.jsonl"), "--model", str(place / "model"),
        "--library", str(place / "sources"),
    ]  # fmt: skip


def test_folds_parts_and_a_file_of_rows(tmp_path: Path, run_bench: RunBench) -> None:
    place = make_place(tmp_path)
    done = run_bench(
        replay.main, *options(place), "--folds", "--mode", "hunk", "--session",
        "--without", "far", "learning",
        "--budget", "8", "--costs", "0.1", "--drafter", "draftline", "sam-last", "--json",
        "--index", str(place / "sources"), "--out", str(place / "kept.json"),
    )  # fmt: skip
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    names = {row["drafter"] for row in rows if "rule" not in row}
    assert {"draftline", "without far", "without learning", "sam-last-4x"} < names
    assert {row["package"] for row in rows} == {"all", "pooled", "one", "two"}
    assert "halves: one | two" in done.err and "index of" in done.err
    kept = json.loads((place / "kept.json").read_text())
    assert all(row in rows for row in kept["rows"]) and kept["folds"] is True
    assert {row["drafter"] for row in kept["rows"]} > {"best draftline", "best automaton rule"}


def test_weights_fitted_on_the_replayed_packages_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    weights: Any = {kind: Weights() for kind in ("file", "hunk")}
    save_weights(weights, file, {"packages": "one, two", "edits": "e.jsonl"})
    assert describe_weights(file, {"two", "x"}) == (
        "weights: w.safetensors, FITTED ON THESE PACKAGES (e.jsonl); see --folds"
    )
    assert (
        describe_weights(file, {"x"})
        == "weights: w.safetensors, fitted on other packages (e.jsonl)"
    )
    assert "the shipped ones, FITTED" in describe_weights(SHIPPED, {"requests"})


def test_a_file_without_small_diffs_is_refused_in_one_line(
    tmp_path: Path, run_bench: RunBench
) -> None:
    place = make_place(tmp_path)
    new = "".join(f"a line of text, number {n}\n" for n in range(999))
    (place / "edits.jsonl").write_text(json.dumps(record("one", "x.py", "a\n", new)) + "\n")
    done = run_bench(replay.main, *options(place), "--small-diffs", "--drafter", "nothing")
    assert done.code != 0 and done.out == ""
    assert "nothing is left to replay" in done.err.splitlines()[-1]


def test_a_malformed_weights_file_is_one_line(tmp_path: Path, run_bench: RunBench) -> None:
    place = make_place(tmp_path)
    done = run_bench(replay.main, *options(place), "--weights", str(place / "edits.jsonl"))
    assert done.code != 0 and "Traceback" not in done.err
    assert "cannot read weights" in done.err.splitlines()[-1]
