"""The figures of `python -m bench specbench` from made-up answers, samples and question files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.common import questions
from bench.common.stats import ratio_of_sums
from bench.decode.methods import truncated_gains
from bench.specbench import metrics

ROOT = Path(__file__).resolve().parents[2]

# -- figures ---------------------------------------------------------------------------------------


def answer(
    question: int, tokens: list[int], seconds: list[float], lengths: list[int], **more: Any
) -> dict[str, Any]:
    choice = {"turns": ["text"] * len(tokens), "new_tokens": tokens, "wall_time": seconds,
              "accept_lengths": lengths, "passes": [len(lengths)], "recounted": tokens,
              "decode_time": seconds, "decoded": tokens, "ids": [[1]] * len(tokens)}  # fmt: skip
    about = {"run": 0, "method": "plain", "category": "qa", "error": "", "question_id": question}
    choice |= {key: value for key, value in more.items() if key in choice}
    about |= {key: value for key, value in more.items() if key in about}
    return about | {"choices": [choice]}


def asked(*ids: int) -> list[questions.Question]:
    return [questions.Question(one, "qa", ("?",)) for one in ids]


def figures(lines: list[dict[str, Any]], method: str, *ids: int, **more: Any) -> dict[str, Any]:
    rows = metrics.group_lines(lines)
    methods = list(dict.fromkeys(line["method"] for line in lines))
    found = metrics.results(rows, methods, asked(*ids), more.get("gaps", {}), more.get("tie", 0.1))
    of = {(one["method"], one["category"]): one for one in found}
    assert of[method, "qa"] | {"category": ""} == of[method, "overall"] | {"category": ""}
    return of[method, "qa"]


PLAIN = [
    answer(1, [10, 20], [1.0, 2.0], [1] * 30, recounted=[8, 19]),  # 10 tokens/s, published: 9
    answer(2, [30], [1.0], [1] * 30, recounted=[27]),  # 30 tokens/s, published: 27
]
FAST = [
    answer(1, [10, 20], [0.5, 1.0], [3] * 10, method="sam"),  # 20 tokens/s
    answer(2, [30], [1.5], [1] * 20 + [5, 5], method="sam"),  # 20 tokens/s
]


def test_golden_figures() -> None:
    """Means over questions, a ratio of means; that of sums beside it; accepted over all steps."""
    plain, fast = (figures([*PLAIN, *FAST], name, 1, 2) for name in ("plain", "sam"))
    assert plain["tokens_per_s"] == 20 and plain["speedup"] == plain["speedup_total"] == 1
    assert plain["mean_accepted"] == plain["tokens_per_pass"] == 1
    assert fast["tokens_per_s"] == fast["tokens_per_s_median"] == 20
    assert fast["speedup"] == 1.0, "not 4/3, the mean of ratios"
    assert fast["speedup_total"] == pytest.approx(4 / 3, abs=1e-4)
    assert fast["speedup_recounted"] == pytest.approx(20 / 18, abs=1e-4)
    assert fast["tokens_per_s_total"] == 20
    assert fast["mean_accepted"] == 1.875, "60 tokens in 32 steps"
    assert fast["equal"] is True and fast["questions"] == 2 and fast["runs"] == 1
    assert fast["speedup_low"] <= fast["speedup"] <= fast["speedup_high"]


def test_golden_figures_of_three_runs() -> None:
    """Their mean and sample deviation (ddof 1), each run beside its own plain one."""
    lines = []
    for run, seconds in enumerate((1.0, 2.0, 4.0)):
        lines.append(answer(1, [8], [4.0], [1] * 8, run=run))
        lines.append(answer(1, [8], [seconds], [4, 4], run=run, method="sam"))
    found = figures(lines, "sam", 1)
    assert found["tokens_per_s_runs"] == [8, 4, 2] and found["runs"] == 3
    assert found["tokens_per_s"] == pytest.approx(14 / 3, abs=1e-3)
    assert found["tokens_per_s_std"] == pytest.approx(3.055, abs=1e-3)
    assert found["speedup"] == pytest.approx((4 + 2 + 1) / 3, abs=1e-4)
    assert found["speedup_std"] == pytest.approx(1.5275, abs=1e-4)


def test_unanswered_questions_are_left_out_on_both_sides_and_named() -> None:
    failed = answer(2, [], [], [], method="sam", error="the prompt is too long")
    lines = [*PLAIN, FAST[0], failed]
    found = figures(lines, "sam", 1, 2)
    assert found["questions"] == 1 and found["speedup"] == 2.0, "beside question 1 alone"
    assert figures(lines, "plain", 1, 2)["questions"] == 2
    (named,) = metrics.errors(metrics.group_lines(lines))
    assert named["question_id"] == 2 and named["error"] == "the prompt is too long"


def test_a_changed_text_is_found_and_near_ties_are_distinguished() -> None:
    other = answer(2, [30], [1.5], [1] * 20 + [5, 5], method="sam", turns=["texts"])
    lines = [*PLAIN, FAST[0], other]
    (place,) = metrics.different(metrics.group_lines(lines))
    assert place == (0, "sam", ("qa", 2))
    for gap, near in ((0.05, 1), (0.1, 0), (3.0, 0)):
        found = figures(lines, "sam", 1, 2, gaps={place: gap})
        assert found["equal"] is False and found["different"] == 1
        assert found["near_ties"] == near and found["equal_but_ties"] is bool(near)
    assert figures([*PLAIN, *FAST], "sam", 1, 2)["equal_but_ties"] is True


def test_the_second_line_of_a_question_counts() -> None:
    again = answer(1, [5], [5.0], [1] * 5)
    rows = metrics.group_lines([*PLAIN, again])
    assert rows[0, "plain"]["qa", 1] is again and len(rows[0, "plain"]) == 2


def test_auto_is_compared_with_the_best_other_method() -> None:
    autos = [answer(n, [30], [s], [2] * 15, method="auto") for n, s in ((1, 1.0), (2, 2.0))]
    slow = [answer(n, [30], [9.0], [2] * 15, method="rest") for n in (1, 2)]
    lines = [*PLAIN, *FAST, *autos, *slow]
    rows, names = metrics.group_lines(lines), ["plain", "rest", "sam", "auto"]
    found = metrics.results(rows, names, asked(1, 2), {}, 0.1)
    beside = metrics.auto(rows, names, asked(1, 2), found)
    assert [one["category"] for one in beside] == ["qa", "overall"]
    assert beside[0]["best"] in ("plain", "sam")
    assert beside[0]["ratio"] == pytest.approx(22.5 / 20, abs=1e-4)
    assert metrics.fastest(rows, asked(1, 2), 2) == ["auto", "sam"]


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(0, 60))
def test_gains_are_truncated_at_the_end_of_the_answer(steps: list[int], tokens: int) -> None:
    """No step gives tokens behind the end, and those before it give all that they did."""
    found = truncated_gains(steps, tokens)
    assert sum(found) == min(tokens, sum(steps)) and all(found)
    assert found[:-1] == steps[: len(found)][:-1]


@given(st.lists(st.tuples(st.floats(1, 9), st.floats(1, 9)), min_size=1, max_size=8))
def test_a_ratio_of_sums_and_its_interval(pairs: list[tuple[float, float]]) -> None:
    found = ratio_of_sums(pairs)
    assert found.value == pytest.approx(sum(a for a, _ in pairs) / sum(b for _, b in pairs))
    ratios = [a / b for a, b in pairs]
    assert min(ratios) <= found.low * (1 + 1e-9) and found.high <= max(ratios) * (1 + 1e-9)
    with pytest.raises(ValueError, match="no ratio"):
        ratio_of_sums([(1, 0)])


# -- questions and methods -------------------------------------------------------------------------


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def test_a_sample_is_fixed_and_interleaves_groups() -> None:
    every = [
        questions.Question(f"{category}{n}", category, ("?",))
        for category in (*questions.MT_BENCH, "qa", "hagrid")
        for n in range(10)
    ]
    drawn = questions.sample(every, 6)
    assert drawn == questions.sample(every, 6) and len(set(drawn)) == 18
    assert [one.group for one in drawn] == ["mt_bench", "qa", "hagrid"] * 6
    assert sorted(map(str, questions.sample(every, 0))) == sorted(map(str, every))
    assert len(questions.sample(every, 99)) == len(every)


def test_a_conversation_continues_with_the_answers_given() -> None:
    one = questions.Question(81, "writing", ("first", "second"))
    assert one.group == "mt_bench"
    assert one.request_after((), 7).messages == ({"role": "user", "content": "first"},)
    later = one.request_after(["answer"], 7)
    assert [m["content"] for m in later.messages] == ["first", "answer", "second"]
    assert [m["role"] for m in later.messages] == ["user", "assistant", "user"]
    assert later.max_tokens == 7


def test_each_data_set_has_its_own_kind_of_request(tmp_path: Path) -> None:
    path = write(tmp_path / "he.jsonl", [{"task_id": "HumanEval/0", "prompt": "def f():\n"}])
    (one,) = questions.human_eval(path)
    request = one.request_after((), 9)
    assert (request.kind, request.text, request.max_tokens) == ("complete", "def f():\n", 9)
    assert one.category == one.group == "humaneval" and request.stop
    record = {"id": 3, "before": "x = 1\n", "after": "y = 1\n", "tests": "",
              "instruction_descriptive": "Rename x to y.", "instruction_lazy": "y"}  # fmt: skip
    (one,) = questions.can_it_edit(write(tmp_path / "ce.jsonl", [record]))
    request = one.request_after((), 9)
    assert (request.kind, request.text, request.selection) == ("edit", "x = 1\n", None)
    assert request.instruction == "Rename x to y." and one.group == "canitedit"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"question_id": 1, "category": "qa", "turns": []}', "line 1: .*turns"),
        ('{"question_id": 1, "category": "qa", "turns": "?"}', "line 1: .*turns"),
        ('{"category": "qa", "turns": ["?"]}', "line 1: .*question_id"),
        ("[]", "line 1"),
        ('{"question_id": 1, "category": "qa", "turns": ["?"]}\n' * 2, "line 2: 1 again"),
        ("\n", "no question"),
    ],
)
def test_malformed_files_are_refused(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(line, "utf-8")
    with pytest.raises(ValueError, match=rf"questions\.jsonl.*{says}"):
        questions.spec_bench(path)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, why in (("gone", "No such file"), ("binary", "'utf-8' codec"), (".", "Is a dir")):
        with pytest.raises(ValueError, match=f"unreadable: {why}.*: name a file of questions$"):
            questions.spec_bench(tmp_path / name)
