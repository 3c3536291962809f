"""`python -m bench replay`: the rules against a naive search, the data, costs, and output."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.replay.costs import FixedCost, pass_costs
from bench.replay.ours import PARTS
from bench.replay.peers import (
    DraftlineRule,
    LogitSpecRule,
    PromptLookupRule,
    RecyclingRule,
    SamLastRule,
    SamRule,
    SamTreeRule,
    rules,
)
from bench.replay.replay import main
from bench.replay.run import Key, OtherFiles, ReplaySetup, Tally, play, run, workspace_path
from engine.drafting import DraftContext
from engine.model.cost_model import POINTS, USUAL, CostModel, processor_key, remember
from engine.records import Draft
from index.workspace.workspace import Workspace
from research.methods.suffix_lookup import BORDER
from research.train.edit_records import EditError, RecordedEdit, Replay, hunks, load, read, replays
from tests.bench.conftest import RunBench
from tests.support.drafters import NoLibrary, made_up, weights_of
from tests.support.encoders import Bytes

ROOT = Path(__file__).resolve().parents[2]

SAMPLE = ROOT / "bench" / "replay" / "sample_edits.jsonl"
PROMPT = (10,)
COSTS = FixedCost([1 + 0.05 * (rows - 1) for rows in POINTS])
LETTERS = st.text("ab\n", min_size=1, max_size=40)
WORDS = st.lists(st.sampled_from(["a = 1\n", "b(a)\n", "\n", "  c\n", "d"]), max_size=12)
LINES = WORDS.map("".join).filter(bool)
RECORD = {
    "before": "a\n", "after": "b\n", "path": "x.py", "package": "p", "old_version": "1",
    "new_version": "2",
}  # fmt: skip
SCHEMA = {
    "drafter", "source", "mode", "package", "budget", "tokens_per_step", "speedup", "precision",
    "us_per_step_p50", "us_per_step_p99",
}  # fmt: skip


def edit(before: str, after: str, path: str = "x.py") -> RecordedEdit:
    return RecordedEdit(path, "p", "p 1 -> 2", path, before, after)


def counted(recorded: list[Replay], names: list[str], budgets: list[int]) -> dict[Key, Tally]:
    known = rules(draftline_rule(), PARTS)
    chosen = [rule for rule in known if rule.name in names or not names]
    tallies: dict[Key, Tally] = {}
    with Workspace(None, Bytes()) as workspace:
        for _ in run(recorded, chosen, budgets, COSTS, workspace, PROMPT, tallies):
            pass
    return tallies


@cache
def draftline_rule() -> DraftlineRule:
    """As it is on a machine that has counted nothing yet."""
    weights: Any = {kind: weights_of("trained") for kind in ("file", "hunk")}
    return DraftlineRule(made_up(256), NoLibrary(), {"": weights})  # type: ignore[arg-type]


def figures(tallies: dict[Key, Tally]) -> dict[Key, tuple[float, ...]]:
    return {key: (t.tokens, t.steps, t.nodes, t.accepted, t.cost) for key, t in tallies.items()}


def guessed(recorded: list[Replay], ids: list[int]) -> list[Replay]:
    """The replays with likely tokens: the model's own, then some of `ids`."""
    return [
        replace(
            one,
            likely=[[token, *(i for i in ids if i != token)][: len(ids)] for token in one.output],
        )
        for one in recorded
    ]


# -- the rules ---------------------------------------------------------------------------------


@settings(max_examples=40)
@given(texts=st.lists(st.tuples(LINES, LINES), min_size=1, max_size=3), mode=st.booleans())
def test_every_rule_writes_the_answer_and_the_same_twice(
    texts: list[tuple[str, str]], mode: bool
) -> None:
    edits = [edit(before, after, f"{n}.py") for n, (before, after) in enumerate(texts)]
    recorded = guessed(replays(edits, "hunk" if mode else "file", Bytes()), list(b"ab=1(\n"))
    tallies = counted(recorded, [], [4])  # run raises where an answer is not the recorded one
    if recorded:
        assert figures(tallies) == figures(counted(recorded, [], [4]))
    for tally in tallies.values():
        assert tally.tokens == sum(len(one.output) for one in recorded)
        assert tally.steps <= tally.tokens <= tally.steps + tally.accepted
        assert tally.accepted <= tally.nodes <= 4 * tally.steps


@settings(max_examples=60)
@given(before=LETTERS, after=LETTERS, budget=st.integers(1, 9))
def test_no_rule_that_copies_once_beats_the_best_single_copy(
    before: str, after: str, budget: int
) -> None:
    tallies = counted(replays([edit(before, after)], "file", Bytes()), [], [budget])
    best = tallies["single-copy", "all", budget]
    assert best.precision == 1
    for rule in rules():
        if rule.family in ("sam-first", "sam-last", "prompt-lookup", "vllm"):
            assert tallies[rule.name, "all", budget].speedup <= best.speedup + 1e-9


@given(before=LETTERS, after=LETTERS)
def test_without_drafts_the_speedup_is_one(before: str, after: str) -> None:
    one = counted(replays([edit(before, after)], "file", Bytes()), ["nothing"], [8])
    tally = one["nothing", "all", 8]
    assert tally.speedup == tally.tokens_per_step == tally.precision == 1


@settings(max_examples=30)
@given(before=LETTERS, after=LETTERS)
def test_a_step_costs_a_pass_over_its_rows(before: str, after: str) -> None:
    for tally in counted(replays([edit(before, after)], "file", Bytes()), [], [8]).values():
        assert tally.cost == pytest.approx(tally.steps + 0.05 * tally.nodes)


def drafts(kind: Any, recorded: list[Replay], capacity: int, **options: Any) -> Iterator[Draft]:
    """What a rule drafts at each token of the first replay's answer."""
    with Workspace(None, Bytes()) as workspace:
        files = OtherFiles(workspace, recorded)
        files.show(recorded[0])
        drafter = kind(ReplaySetup(recorded[0], files, PROMPT, capacity, COSTS), **options)
        output = recorded[0].output
        drafter.begin(context_of(recorded[0], [], capacity))
        for done in range(len(output)):
            yield drafter.propose(context_of(recorded[0], output[:done], capacity), None)
            drafter.observe(Draft(), [], output[done : done + 1], None, 1.0)


@given(before=LETTERS, after=LETTERS, last=st.booleans(), factor=st.sampled_from([0, 1, 4]))
def test_sam_agrees_with_the_naive_search(before: str, after: str, last: bool, factor: int) -> None:
    recorded = replays([edit(before, after)], "file", Bytes())
    kind = SamLastRule if last else SamRule
    for done, draft in enumerate(drafts(kind, recorded, 8, factor=factor)):
        text = [*recorded[0].prediction, BORDER, *PROMPT, *recorded[0].output[:done]]
        assert draft.tokens == longest(text, last, factor, 8)
        assert draft.parents == list(range(-1, len(draft) - 1))


@settings(max_examples=30)
@given(before=LETTERS, after=LETTERS, factor=st.sampled_from([0, 1, 4]))
def test_a_tree_of_sam_has_only_what_followed_a_longest_match(
    before: str, after: str, factor: int
) -> None:
    recorded = replays([edit(before, after)], "file", Bytes())
    trees = drafts(SamTreeRule, recorded, 8, factor=factor)
    sequences = drafts(SamLastRule, recorded, 8, factor=factor)
    for done, (tree, sequence) in enumerate(zip(trees, sequences, strict=True)):
        text = [*recorded[0].prediction, BORDER, *PROMPT, *recorded[0].output[:done]]
        assert len(sequence) <= len(tree) <= 8
        followed = continuations(text)
        assert all(path in followed for path in paths(tree))
        assert bool(tree) == bool(followed)


def paths(draft: Draft) -> list[tuple[int, ...]]:
    """The tokens from the root to each node."""
    found: list[tuple[int, ...]] = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found


def continuations(text: list[int]) -> set[tuple[int, ...]]:
    """All runs that followed an earlier place of the longest suffix of the text that has one."""
    for length in range(len(text), 0, -1):
        tail = text[-length:]
        ends = [at for at in range(length, len(text)) if text[at - length : at] == tail]
        rests = [takewhile(lambda token: token != BORDER, text[at:]) for at in ends]
        found = [rest for rest in map(tuple, rests) if rest and BORDER not in tail]
        if found:
            return {rest[:size] for rest in found for size in range(1, len(rest) + 1)}
    return set()


@settings(max_examples=30)
@given(before=LETTERS, after=LETTERS, capacity=st.integers(1, 12))
def test_logitspec_also_guesses_what_was_likely_in_place_of_the_last_token(
    before: str, after: str, capacity: int
) -> None:
    recorded = guessed(replays([edit(before, after)], "file", Bytes()), list(b"xya"))
    for done, draft in enumerate(drafts(LogitSpecRule, recorded, capacity)):
        assert len(set(paths(draft))) == len(draft) <= capacity
        roots = {path[0] for path in paths(draft)}
        likely = set(recorded[0].likely[done - 1][1:]) if done else set()
        if len(draft) < capacity:
            assert likely <= roots


def test_token_recycling_drafts_the_likely_tokens_that_it_has_seen() -> None:
    recorded = guessed(replays([edit("x", "abcab")], "file", Bytes()), list(b"yz!"))
    *_, last = drafts(RecyclingRule, recorded, 99, shape="2.2.2")
    draft = [bytes(path) for path in paths(last)]
    assert {b"b", b"y", b"z", b"bc", b"bca", b"by"} <= set(draft)  # a was followed by b


def context_of(replay: Replay, output: list[int], capacity: int) -> DraftContext:
    return DraftContext(list(PROMPT), [replay.prediction], list(output), capacity)


def longest(text: list[int], last: bool, factor: int, capacity: int) -> list[int]:
    """What follows the longest suffix of the text that occurs before, by trying all."""
    for length in range(len(text), 0, -1):
        run_ = text[-length:]
        ends = [at for at in range(length, len(text)) if text[at - length : at] == run_]
        ends = [at for at in ends if text[at] != BORDER and BORDER not in run_]
        if ends:
            at = ends[-1] if last else ends[0]
            found = text[at : at + (min(capacity, factor * length) if factor else capacity)]
            return found[: found.index(BORDER)] if BORDER in found else found
    return []


@given(before=LETTERS, after=LETTERS, whole=st.booleans())
def test_prompt_lookup_agrees_with_the_naive_search(before: str, after: str, whole: bool) -> None:
    recorded = replays([edit(before, after)], "file", Bytes())
    options = {"most": 3, "least": 1, "whole": whole}
    for done, draft in enumerate(drafts(PromptLookupRule, recorded, 4, **options)):
        text = [*recorded[0].prediction, BORDER, *PROMPT, *recorded[0].output[:done]]
        expected: list[int] = []
        for count in range(min(3, 1 + done), 0, -1):
            places = range(len(text) - count - (3 if whole else 0))
            found = [at + count for at in places if text[at : at + count] == text[-count:]]
            found = [at for at in found if text[at] != BORDER]
            if found:
                expected = text[found[0] : found[0] + 4]
                break
        assert draft.tokens == list(takewhile(lambda token: token != BORDER, expected))


def test_the_workspace_has_the_other_files_but_not_the_replays_own() -> None:
    edits = [edit("one = 1\n", "1\n", "1.py"), edit("two = 2\n", "2\n", "2.py")]
    recorded = replays(edits, "file", Bytes())
    with Workspace(None, Bytes()) as workspace:
        files = OtherFiles(workspace, recorded)
        for replay, other in ((recorded[0], "two"), (recorded[1], "one"), (recorded[0], "two")):
            files.show(replay)
            assert workspace.paths == [workspace_path(one) for one in recorded if one is not replay]
            assert files.ids() == [list(f"{other} = {'12'[other == 'two']}\n".encode())]


def test_a_change_that_is_in_another_file_is_copied() -> None:
    new = "import something\nfrom elsewhere import it\n" * 2
    edits = [edit("x\n", "y\n" + new, "1.py"), edit(new, new, "2.py")]
    tallies = counted(replays(edits, "file", Bytes())[:1], ["sam-last-fixed"], [64])
    with_it = counted(replays(edits, "file", Bytes()), ["sam-last-fixed"], [64])
    alone = tallies["sam-last-fixed", "all", 64].steps
    assert with_it["sam-last-fixed", "all", 64].steps < alone


def test_arctic_drafts_what_it_has_seen() -> None:
    pytest.importorskip("arctic_inference")
    text = "".join(f"line {n} of it\n" for n in range(40))
    tallies = counted(replays([edit(text, text)], "file", Bytes()), ["arctic-4x"], [32])
    assert tallies["arctic-4x", "all", 32].tokens_per_step > 5


# -- the data ----------------------------------------------------------------------------------


@given(before=LINES, after=LINES)
def test_hunks_applied_to_the_old_text_give_the_new_one(before: str, after: str) -> None:
    text, shift = before, 0
    for above, old, rest, new in hunks(before, after):
        assert above + old + rest == before
        text = text[: len(above) + shift] + new + text[len(above) + shift + len(old) :]
        shift += len(new) - len(old)
    assert text == after


@given(before=LINES, after=LINES)
def test_a_hunk_starts_at_its_old_lines(before: str, after: str) -> None:
    for replay in replays([edit(before, after)], "hunk", Bytes()):
        assert bytes(replay.prediction).decode() == before
        above = bytes(replay.prediction[: replay.start]).decode()
        assert above == "" or above.endswith("\n")
        assert replay.output


def test_tokens_are_the_tokenizers(tiny: Any) -> None:
    from engine.prompts.tokenizer import Tokenizer

    encoder = Tokenizer(tiny("llama"))
    for one, replay in zip(read(SAMPLE)[:5], load(SAMPLE, "file", encoder, limit=5), strict=True):
        assert replay.prediction == encoder.encode(one.before)
        assert replay.output == encoder.encode(one.after)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        (json.dumps(RECORD | {"before": ""}), "'before' is empty"),
        (json.dumps(RECORD | {"after": 3}), "'after' is not a string"),
        (json.dumps({k: v for k, v in RECORD.items() if k != "path"}), "'path' is missing"),
        (json.dumps(RECORD | {"after": "\ud800"}), "'after' has a lone surrogate"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, what: str) -> None:
    file = tmp_path / "edits.jsonl"
    file.write_text(json.dumps(RECORD) + "\n\n" + line + "\n")
    with pytest.raises(EditError) as caught:
        read(file)
    assert str(caught.value).startswith(f"{file}, line 3: {what}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe"])
def test_a_file_without_edits_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "edits.jsonl"
    file.write_bytes(content)
    with pytest.raises(EditError, match="edits"):
        read(file)


def test_the_shipped_sample_is_complete() -> None:
    edits = read(SAMPLE)
    assert len(edits) >= 20 and SAMPLE.stat().st_size < 400_000
    assert {one.package for one in edits} == {"draftline"}
    assert all(one.before != one.after for one in edits)


# -- the command -------------------------------------------------------------------------------


def test_one_line_of_json_for_each_figure(tiny: Any, run_bench: RunBench) -> None:
    names = ["sam-last", "single copy", "nothing", "draftline", "untrained"]
    done = run_bench(
        main, "--mode", "hunk", "--limit", "2", "--model", tiny("llama"), "--budget", "8", "16",
        "--costs", "0.1", "--json", "--library", str(ROOT / "bench"), "--drafter", *names,
    )  # fmt: skip
    assert done.code == 0, done.err
    found = [json.loads(line) for line in done.out.splitlines()]
    assert all(SCHEMA <= set(row) <= SCHEMA | {"rule"} for row in found)
    plain = [row for row in found if "rule" not in row]
    at = {(r["drafter"], r["package"], r["budget"]): r for r in plain}
    assert len(at) == len(plain) == 8 * 2 * 2  # sam's four, four more; packages; budgets
    best = [r for r in found if r["drafter"] == "best automaton rule" and r["package"] == "all"]
    assert [row["budget"] for row in best] == [8, 16, "best"]
    for row in best:
        rivals = [
            one["speedup"]
            for key, one in at.items()
            if key[0].startswith("sam") and key[1] == "all" and row["budget"] in (key[2], "best")
        ]
        assert row["speedup"] == max(rivals)
    assert "best automaton rule" in done.err and "best single copy" in done.err


# -- costs -------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(points=st.lists(st.floats(0.1, 9), min_size=1, max_size=9))
def test_costs_are_those_of_the_file_over_those_of_one_row(points: list[float]) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "costs.json"
        growing = sorted(points)
        file.write_text(json.dumps(dict(zip(POINTS, growing, strict=False))))
        costs, about = pass_costs(str(file), "model")
        for rows, cost in zip(POINTS, growing, strict=False):
            assert costs(rows) == pytest.approx(cost / growing[0])
        file.write_text(json.dumps({"passes": [{"rows": 1, "ms": 4.0}, {"rows": 4, "ms": 6.0}]}))
        assert pass_costs(str(file), "model")[0](4) == pytest.approx(1.5)
    assert "costs.json" in about


def test_costs_are_fixed() -> None:
    assert np.allclose(COSTS.table(999, 5), [1.0, 1.05, 1.1, 1.15, 1.2])
    COSTS.observe(3, 0, 99.0)
    assert COSTS(11) == pytest.approx(1.5)


def test_without_costs_they_are_this_machines_or_a_usual_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path))
    costs, about = pass_costs(None, "model")
    assert "of a usual machine" in about and costs(16) == pytest.approx(USUAL[4])
    key = processor_key("model", "stored", os.cpu_count() or 1)
    remember(tmp_path / "costs.json", key, CostModel([2.0 * rows for rows in POINTS]))
    costs, about = pass_costs(None, "model")
    assert "measured" in about and costs(16) == pytest.approx(16)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--drafter", "nobody"], "--drafter nobody: choose from"),
        (["--budget", "0"], "--budget 0: must be"),
        (["--costs", "-1"], "-1: No such file"),
        (["--costs", __file__], "not costs of passes: give"),
        (["--answers", __file__], "no answers to edits: write them with"),
        (["nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["--package", "nothing"], "no package nothing: choose from draftline"),
        (["--index", "nowhere"], "--index nowhere: not a folder"),
        (["--library", "nowhere"], "--library nowhere: not a folder"),
        (["--every", "0"], "--every 0: must be 1 or more"),
        (["--without", "wings"], "--without wings: choose from all, near"),
        (["--without", "far", "--drafter", "vllm"], "--without: needs draftline"),
        (["--session"], "--session: a whole file has one answer"),
        (["--folds", "--weights", "x"], "--folds fits its own weights"),
        (["--train", "x"], "--train: needs --folds"),
        (["--folds"], "one package cannot be split"),
    ],
)
def test_errors_are_one_line(
    tiny: Any, run_bench: RunBench, arguments: list[str], what: str
) -> None:
    done = run_bench(main, "--model", tiny("llama"), *arguments)
    assert done.code != 0 and done.out == ""
    assert what in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


def test_folds_are_tested_with_the_weights_of_all_other_packages(
    tmp_path: Path, tiny: Any, run_bench: RunBench
) -> None:
    def recorded(package: str) -> str:
        known = {"package": package, "path": "x.py", "old_version": "1", "new_version": "2"}
        return json.dumps({**known, "before": "a = 1\n" * 9, "after": "a = 1\n" * 5 + "b\n" * 4})

    edits, more = tmp_path / "edits.jsonl", tmp_path / "more.jsonl"
    edits.write_text("\n".join(map(recorded, "ab")) + "\n")
    more.write_text("\n".join(map(recorded, "abc")) + "\n")
    done = run_bench(
        main, str(edits), "--folds", "--train", str(more), "--drafter", "draftline", "--budget",
        "4", "--costs", "0.1", "--library", str(tmp_path), "--model", tiny("llama"),
    )  # fmt: skip
    assert done.code == 0, done.err
    trained = [line for line in done.err.splitlines() if line.startswith("training on")]
    assert [line.split(":")[0] for line in trained] == ["training on b, c", "training on a, c"]


def test_a_replay_ends_with_the_answer() -> None:
    replay = replays([edit("abc\nabc\n", "abc\nabc\n")], "file", Bytes())[0]
    rule = next(rule for rule in rules() if rule.name == "single-copy")
    with Workspace(None, Bytes()) as workspace:
        setup = ReplaySetup(replay, OtherFiles(workspace, [replay]), PROMPT, 8, COSTS)
        tally, output = play(replay, rule.make(setup), PROMPT, 8, COSTS)
    assert output == replay.output and (tally.steps, tally.nodes) == (1, 7)
