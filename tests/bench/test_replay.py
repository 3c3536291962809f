"""`python -m bench replay`: the rules against a naive search, the bound, the data, and output."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.replay.ours import PARTS
from bench.replay.peers import BORDER, DraftlineRule, PromptLookupRule, SamRule, rules
from bench.replay.replay import main
from bench.replay.run import Key, OtherFiles, ReplaySetup, Tally, play, run, workspace_path
from engine.drafting import DraftContext
from index.workspace.workspace import Workspace
from research.train.edit_records import EditError, RecordedEdit, Replay, hunks, load, read, replays
from tests.bench.conftest import RunBench
from tests.support.drafters import NoLibrary, made_up, weights_of
from tests.support.encoders import Bytes

ROOT = Path(__file__).resolve().parents[2]

SAMPLE = ROOT / "bench" / "replay" / "sample_edits.jsonl"
PROMPT = (10,)
LETTERS = st.text("ab\n", min_size=1, max_size=40)
WORDS = st.lists(st.sampled_from(["a = 1\n", "b(a)\n", "\n", "  c\n", "d"]), max_size=12)
LINES = WORDS.map("".join).filter(bool)
RECORD = {
    "before": "a\n", "after": "b\n", "path": "x.py", "package": "p", "old_version": "1",
    "new_version": "2",
}  # fmt: skip
SCHEMA = {
    "drafter", "mode", "package", "budget", "beta", "tokens_per_step", "speedup", "precision",
    "us_per_step_p50", "us_per_step_p99",
}  # fmt: skip


def edit(before: str, after: str, path: str = "x.py") -> RecordedEdit:
    return RecordedEdit(path, "p", "p 1 -> 2", path, before, after)


def counted(recorded: list[Replay], names: list[str], budgets: list[int]) -> dict[Key, Tally]:
    known = rules(draftline_rule(), PARTS)
    chosen = [rule for rule in known if rule.name in names or not names]
    tallies: dict[Key, Tally] = {}
    with Workspace(None, Bytes()) as workspace:
        for _ in run(recorded, chosen, budgets, [0.0, 0.05], workspace, PROMPT, tallies):
            pass
    return tallies


@cache
def draftline_rule() -> DraftlineRule:
    """As it is on a machine that has counted nothing yet."""
    weights: Any = {kind: weights_of("trained") for kind in ("file", "hunk")}
    return DraftlineRule(made_up(256), NoLibrary(), {"": weights})  # type: ignore[arg-type]


def figures(tallies: dict[Key, Tally]) -> dict[Key, tuple[int, int, int, int]]:
    return {key: (t.tokens, t.steps, t.nodes, t.accepted) for key, t in tallies.items()}


# -- the rules ---------------------------------------------------------------------------------


@settings(max_examples=40)
@given(texts=st.lists(st.tuples(LINES, LINES), min_size=1, max_size=3), mode=st.booleans())
def test_every_rule_writes_the_answer_and_the_same_twice(
    texts: list[tuple[str, str]], mode: bool
) -> None:
    edits = [edit(before, after, f"{n}.py") for n, (before, after) in enumerate(texts)]
    recorded = replays(edits, "hunk" if mode else "file", Bytes())
    tallies = counted(recorded, [], [4])  # run raises where an answer is not the recorded one
    if recorded:
        assert figures(tallies) == figures(counted(recorded, [], [4]))
    for tally in tallies.values():
        assert tally.tokens == sum(len(one.output) for one in recorded)
        assert tally.steps <= tally.tokens <= tally.steps + tally.accepted
        assert tally.accepted <= tally.nodes <= 4 * tally.steps


@settings(max_examples=60)
@given(before=LETTERS, after=LETTERS, budget=st.integers(1, 9))
def test_no_rule_that_copies_once_beats_the_bound(before: str, after: str, budget: int) -> None:
    tallies = counted(replays([edit(before, after)], "file", Bytes()), [], [budget])
    bound = tallies["bound", "all", budget, 0.0]
    assert bound.precision == 1
    for name in (rule.name for rule in rules()):
        if name.startswith(("sam", "prompt", "vllm")):
            for beta in (0.0, 0.1, 1.0):
                tally = tallies[name, "all", budget, 0.0]
                assert tally.speedup(beta) <= bound.speedup(beta) + 1e-9


@given(before=LETTERS, after=LETTERS)
def test_without_drafts_the_speedup_is_one(before: str, after: str) -> None:
    tally = counted(replays([edit(before, after)], "file", Bytes()), ["nothing"], [8])
    one = tally["nothing", "all", 8, 0.0]
    assert one.speedup(0.0) == one.speedup(0.1) == one.tokens_per_step == one.precision == 1


@given(before=LETTERS, after=LETTERS, last=st.booleans(), factor=st.sampled_from([0, 1, 4]))
def test_sam_agrees_with_the_naive_search(before: str, after: str, last: bool, factor: int) -> None:
    recorded = replays([edit(before, after)], "file", Bytes())
    with Workspace(None, Bytes()) as workspace:
        setup = ReplaySetup(recorded[0], OtherFiles(workspace, recorded), PROMPT, 8, 0.0)
        setup.files.show(recorded[0])
        drafter = SamRule(setup, last, factor)
        for done in range(len(recorded[0].output)):
            output = recorded[0].output[:done]
            text = [*recorded[0].prediction, BORDER, *PROMPT, *output]
            draft = drafter.propose(context_of(recorded[0], output, 8), None)
            assert draft.tokens == longest(text, last, factor, 8)
            assert draft.parents == list(range(-1, len(draft) - 1))
            drafter.observe(draft, [], recorded[0].output[done : done + 1], None, 1.0)


def context_of(replay: Replay, output: list[int], capacity: int) -> DraftContext:
    return DraftContext(list(PROMPT), [replay.prediction], list(output), capacity)


def longest(text: list[int], last: bool, factor: int, capacity: int) -> list[int]:
    """What follows the longest suffix of the text that occurs before, by trying all."""
    for length in range(min(64, len(text)), 0, -1):
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
    with Workspace(None, Bytes()) as workspace:
        setup = ReplaySetup(recorded[0], OtherFiles(workspace, recorded), PROMPT, 4, 0.0)
        setup.files.show(recorded[0])
        output = recorded[0].output
        drafter = PromptLookupRule(setup, 3, 1, whole)
        drafter.text.extend(output)
        text = [*recorded[0].prediction, BORDER, *PROMPT, *output]
        expected: list[int] = []
        for count in (3, 2, 1):
            places = range(len(text) - count - (3 if whole else 0))
            found = [at for at in places if text[at : at + count] == text[-count:]]
            if found and count <= 1 + len(output):
                expected = text[found[0] + count : found[0] + count + 4]
                break
        if BORDER in expected:
            expected = expected[: expected.index(BORDER)]
        assert drafter.propose(context_of(recorded[0], output, 4), None).tokens == expected


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
    alone = tallies["sam-last-fixed", "all", 64, 0.0].steps
    assert with_it["sam-last-fixed", "all", 64, 0.0].steps < alone


def test_arctic_drafts_what_it_has_seen() -> None:
    pytest.importorskip("arctic_inference")
    text = "".join(f"line {n} of it\n" for n in range(40))
    tallies = counted(replays([edit(text, text)], "file", Bytes()), ["arctic-4x"], [32])
    assert tallies["arctic-4x", "all", 32, 0.0].tokens_per_step > 5


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
    names = ["sam-last", "bound", "nothing", "draftline"]
    done = run_bench(
        main, "--mode", "hunk", "--limit", "2", "--model", tiny("llama"), "--budget", "8", "16",
        "--beta", "0", "0.1", "--json", "--library", str(ROOT / "bench"), "--drafter", *names,
    )  # fmt: skip
    assert done.code == 0, done.err
    found = [json.loads(line) for line in done.out.splitlines()]
    assert all(SCHEMA <= set(row) <= SCHEMA | {"rule"} for row in found)
    plain = [row for row in found if "rule" not in row]
    cells = {(r["drafter"], r["package"], r["budget"], r["beta"]) for r in plain}
    assert len(cells) == len(plain) == 7 * 2 * 2 * 2  # sam's four, three more; packages; dials
    at = {(r["drafter"], r["package"], r["budget"], r["beta"]): r for r in plain}
    best = [r for r in found if r["drafter"] == "best automaton rule" and r["package"] == "all"]
    assert [row["beta"] for row in best] == [0.0, 0.0, 0.1]
    for row in best:
        rivals = [
            one["speedup"]
            for key, one in at.items()
            if key[0].startswith("sam") and key[1] == "all" and key[3] == row["beta"]
            and (row["beta"] or key[2] == row["budget"])
        ]  # fmt: skip
        assert row["speedup"] == max(rivals)
    assert "best automaton rule" in done.err


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--drafter", "nobody"], "--drafter nobody: choose from"),
        (["--budget", "0"], "--budget 0: must be"),
        (["--beta", "-1"], "--beta -1.0: must be"),
        (["nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["--package", "nothing"], "no package nothing: choose from draftline"),
        (["--index", "nowhere"], "--index nowhere: not a folder"),
        (["--library", "nowhere"], "--library nowhere: not a folder"),
        (["--every", "0"], "--every 0: must be 1 or more"),
        (["--without", "wings"], "--without wings: choose from all, near"),
        (["--without", "far", "--drafter", "bound"], "--without: needs draftline"),
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


def test_a_replay_ends_with_the_answer() -> None:
    replay = replays([edit("abc\nabc\n", "abc\nabc\n")], "file", Bytes())[0]
    rule = next(rule for rule in rules() if rule.name == "bound")
    with Workspace(None, Bytes()) as workspace:
        setup = ReplaySetup(replay, OtherFiles(workspace, [replay]), PROMPT, 8, 0.0)
        tally, output = play(replay, rule.make(setup), PROMPT, 8)
    assert output == replay.output and (tally.steps, tally.nodes) == (1, 7)
