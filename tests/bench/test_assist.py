"""`python -m bench assist`: the tasks, the rules by which answers are scored, and a whole run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.assist import assist
from bench.assist.assist import COMPLETIONS, EDITS
from bench.assist.editor import applied
from bench.assist.score import (
    HARMFUL,
    NONE,
    OUTCOMES,
    PARTLY,
    RIGHT,
    WRONG,
    Score,
    errors,
    score_completion,
    score_edit,
    without_blocks,
)
from bench.assist.tables import figures, shares
from bench.assist.task import SAMPLES, CompletionTask, EditTask
from bench.assist.tokens import COMMENT, LANGUAGES, language_of, tokens
from bench.latency.places import position
from engine.editing.edits import changes
from tests.bench.conftest import RunBench
from tests.conftest import tiny_model

BY_NAME = {assist.identity(task): task for task in (*EDITS, *COMPLETIONS)}
SAMPLE_FILES = sorted(path for path in SAMPLES.iterdir() if path.is_file())


def edit_task(name: str) -> EditTask:
    task = BY_NAME[name]
    assert isinstance(task, EditTask)
    return task


def scored(name: str, *swaps: str) -> Score:
    """The score of a task's best answer with some texts replaced, each of which is there."""
    task = edit_task(name)
    answer = task.right[0]
    for old, new in zip(swaps[::2], swaps[1::2], strict=True):
        assert old in answer
        answer = answer.replace(old, new)
    return score_edit(task, task.file_with(answer))


# -- the tasks ---------------------------------------------------------------------------------


def test_every_language_has_tasks_with_names_of_their_own() -> None:
    assert len(BY_NAME) == len(EDITS) + len(COMPLETIONS)
    for several in (EDITS, COMPLETIONS):
        languages = set(LANGUAGES.values()) - {"c"}  # it is in tasks of other benchmarks only
        assert {language_of(task.file) for task in several} == languages


def test_text_that_the_parser_gives_up_on_has_syntax_errors() -> None:
    assert errors("endless.ts", "x = [" * 2000) > 0


def test_samples_have_no_syntax_errors() -> None:
    assert {path.name: errors(path.name, path.read_text("utf-8")) for path in SAMPLE_FILES} == {
        path.name: 0 for path in SAMPLE_FILES
    }


def test_reference_answers_are_right_and_the_unchanged_text_is_not() -> None:
    for task in EDITS:
        for right in task.right:
            assert score_edit(task, task.file_with(right)) == (RIGHT, ""), assist.identity(task)
        for nothing in (task.text, None):
            assert score_edit(task, nothing).outcome == NONE, assist.identity(task)


def test_what_follows_in_the_file_is_right_and_a_word_is_not() -> None:
    for task in COMPLETIONS:
        assert task.before + task.removed + task.after == (SAMPLES / task.file).read_text("utf-8")
        for right in (task.removed, task.required):
            assert score_completion(task, right) == (RIGHT, ""), assist.identity(task)
        for nothing in (None, "", " \n"):
            assert score_completion(task, nothing).outcome == NONE, assist.identity(task)
        for pattern in task.also:  # of other right answers
            for little in ("", "x", "return", "if", "x = 1", "("):
                assert re.fullmatch(pattern, little) is None, assist.identity(task)


# -- edits -------------------------------------------------------------------------------------


def test_half_of_a_text_and_broken_syntax_are_harmful_and_unasked_text_is_not_right() -> None:
    more = "\nSomething else was added here as well, and nobody had asked for any of it.\n"
    comments = {"python": "\n#{}\n", "markdown": "{}"}
    for task in EDITS:
        language, right = language_of(task.file), task.right[0]
        lines = task.before.splitlines(keepends=True)
        half = task.file_with("".join(lines[: len(lines) // 2]))
        assert score_edit(task, half).outcome == HARMFUL, assist.identity(task)
        broken = task.file_with(right + ("```\n" if language == "markdown" else "(\n"))
        assert score_edit(task, broken) == (HARMFUL, "the syntax is broken"), assist.identity(task)
        added = comments.get(language, "\n//{}\n").format(more.strip("\n"))
        outcome = score_edit(task, task.file_with(right + added)).outcome
        assert outcome in (PARTLY, WRONG), assist.identity(task)


def test_what_is_missing_or_added_is_partly_done() -> None:
    assert scored("cart.ts:rename-local", "return sum", "return grams").outcome == PARTLY
    assert scored("inventory.py:frozen", "sku: str\n    change", "sku: int\n    change") == (
        PARTLY,
        "something is missing or added",
    )
    assert scored("router.ts:no-var", "let timer", "var timer").outcome == PARTLY


def test_what_was_not_asked_for_is_wrong() -> None:
    task = edit_task("inventory.py:rename-local")
    other = re.sub(r"\btext\b", "needle", task.before)
    assert score_edit(task, task.file_with(other)).outcome == WRONG
    task = edit_task("calendar_slots.py:translate")
    inserted = task.before.replace(
        "    for slot in ordered:\n",
        "    for slot in ordered:\n        if slot.end <= slot.start:\n            continue\n",
    )
    assert score_edit(task, task.file_with(inserted)) == (WRONG, "not what was asked")
    task = edit_task("logs.py:exception")
    other = task.before.replace("OSError", "Exception")
    assert score_edit(task, task.file_with(other)).outcome == WRONG


def test_a_rename_of_something_else_as_well_is_not_right() -> None:
    task = edit_task("cart.ts:rename-parameter")
    every = re.sub(r"\bid\b", "productId", task.before)
    assert score_edit(task, task.file_with(every)).outcome == PARTLY


def test_untranslated_comments_are_not_right() -> None:
    assert scored("router.ts:translate", "A colon", "Ein Doppelpunkt und").outcome == PARTLY
    task = edit_task("router.ts:translate")
    assert score_edit(task, task.file_with(task.before.replace("// ", "//  "))).outcome == WRONG
    gone = re.sub(r"(?m)^ *//.*\n", "", task.before)
    assert score_edit(task, task.file_with(gone)) == (HARMFUL, "a comment is lost")


def test_a_program_decides_where_many_are_right() -> None:
    name = "logs.py:empty-average"
    assert scored(name, "    total = 0\n    count", "    total = 0.0\n    count").outcome == RIGHT
    assert scored(name, "total / count if count else 0.0", "total / max(count, 1)").outcome == RIGHT
    assert scored(name, "else 0.0", "else 1.0") == (WRONG, "tests fail")
    assert scored(name, "sizes[entry.host] += entry.size", "sizes[entry.host] = 0").outcome != RIGHT


def test_lines_that_were_to_stay_keep_their_indentation() -> None:
    task = edit_task("cart.ts:method-comments")
    moved = task.right[0].replace("  subtotal()", "subtotal()")
    assert score_edit(task, task.file_with(moved)).outcome == PARTLY
    task = edit_task("cart.ts:async")  # its own lines move
    assert score_edit(task, task.file_with(task.right[0])).outcome == RIGHT


def test_a_definition_that_is_there_twice_is_harmful() -> None:
    task = edit_task("notes.go:rename-receiver")
    answer = "type Store struct {\n\tFolder string\n}\n\n" + task.right[0]
    assert score_edit(task, task.file_with(answer)) == (HARMFUL, "Store is defined twice")


def test_a_lost_definition_is_harmful() -> None:
    task = edit_task("inventory.py:docstrings")
    answer = task.right[0].replace("def load(", "def read(")
    assert score_edit(task, task.file_with(answer)) == (HARMFUL, "load is lost")


def test_imports_that_join_the_files_own_count_with_the_edit() -> None:
    task = edit_task("limiter.go:sorted")
    answer = task.file_with(task.right[0])
    assert score_edit(task, answer.replace('\t"fmt"\n', '\t"fmt"\n\t"sort"\n')).outcome == RIGHT
    elsewhere = answer.replace("return false", "return true")
    assert score_edit(task, elsewhere).outcome == PARTLY, "the rest of the file counts as well"


def test_blocks_are_left_out_by_indentation() -> None:
    text = "a\ndef f():\n    x\n\n    y\nb\nfunc g(\n  z,\n) {\n  w\n}\nc"
    assert without_blocks(text, ["def f", "func g"]) == "a\nb\nc"
    assert without_blocks(text, ["def h"]) == text


# -- completions -------------------------------------------------------------------------------


def test_the_beginning_of_what_follows_is_harmful_only_inside_a_string() -> None:
    for task in COMPLETIONS:
        for stop in range(1, len(task.required)):
            score = score_completion(task, task.required[:stop])
            if score.why == "a keyword alone":
                assert re.fullmatch(r"\w+", task.required[:stop].strip()), assist.identity(task)
            elif score.outcome == HARMFUL:
                assert score.why == "cut in a string", assist.identity(task)
                line = (task.before + task.required[:stop]).rpartition("\n")[2]
                assert re.search(r"[\"'`]", line), assist.identity(task)


def test_brackets_without_an_end_are_harmful() -> None:
    for task in COMPLETIONS:
        is_code = language_of(task.file) != "markdown" and not re.search(r"[\"`]", task.at)
        if is_code:  # in prose and in strings all is text
            outcome = score_completion(task, f"{task.required} + (").outcome
            assert outcome == HARMFUL, assist.identity(task)


def place_of(at: str) -> CompletionTask:
    (task,) = (task for task in COMPLETIONS if at in task.at)
    return task


def test_closings_that_are_there_already_are_harmful() -> None:
    task = place_of("Slot(last.start, ¦max")
    assert score_completion(task, "max(last.end, slot.end)))") == (HARMFUL, "the syntax is broken")
    task = place_of("See [LICENSE](")
    assert score_completion(task, "LICENSE).").outcome == HARMFUL


def test_a_string_that_does_not_end_is_harmful() -> None:
    task = place_of("raise OutOfStock(")
    assert score_completion(task, 'f"{sku}: not enough').outcome == HARMFUL
    assert score_completion(task, 'f"{sku}: {item.count} le') == (HARMFUL, "cut in a string")


def test_repeated_lines_are_harmful() -> None:
    task = place_of("¦total += item.value_cents¦")
    below = "print(item)\n        return total"
    assert score_completion(task, below).why == "a line nearby is repeated: return total"
    twice = "print(item.value_cents)\n            print(item.value_cents)"
    assert score_completion(task, twice) == (HARMFUL, "a line is offered twice")
    above = "for item in self.items.values():\n                pass"
    assert score_completion(task, above).outcome == HARMFUL
    row = place_of("| 3.0 | ¦")
    assert score_completion(row, "compression with zstd | started |").outcome == WRONG


def test_code_below_that_is_no_longer_reached_is_harm() -> None:
    task = place_of("now := l.now()")
    assert score_completion(task, "return l.buckets[client]") == (
        HARMFUL,
        "the code below is never reached",
    )
    assert score_completion(task, "if now.IsZero() {\n\t\treturn nil\n\t}").outcome == WRONG
    task = place_of("¦return None¦\n")
    assert score_completion(task, "return Slot(0, 0)").outcome != HARMFUL, "the block ends there"


def test_what_starts_right_is_partly_right_and_the_rest_wrong() -> None:
    task = place_of("return ¦self.count < LOW_STOCK¦")
    assert score_completion(task, "self.count < 3") == (PARTLY, "ends otherwise")
    assert score_completion(task, "self.count <= LOW_STOCK").outcome == RIGHT
    assert score_completion(task, "True") == (WRONG, "something else follows")
    assert score_completion(task, "self") == (WRONG, "cut too early")
    assert score_completion(task, "self.count < LOW") == (WRONG, "cut in a word")
    assert score_completion(task, "self.count < LOW_STOCK + 1").outcome == PARTLY
    assert score_completion(task, "self.count < LOW_STOCK  # few").outcome == RIGHT
    assert score_completion(task, "self.count < LOW_STOCK\n\n    x = 1").outcome == RIGHT


def test_a_block_whose_body_is_still_to_be_written_is_not_broken() -> None:
    task = place_of("¦if match is None:¦")
    assert score_completion(task, "if not match:").outcome == RIGHT
    assert score_completion(task, "if match:").outcome != HARMFUL
    assert score_completion(task, "while match").outcome == HARMFUL


def test_a_program_decides_about_completions_as_well() -> None:
    task = place_of("def format_price(cents")
    assert score_completion(task, 'return "%d.%02d" % divmod(cents, 100)').outcome == RIGHT
    assert score_completion(task, 'return f"{cents}"').outcome in (PARTLY, WRONG)


# -- tokens ------------------------------------------------------------------------------------


def test_layout_does_not_count_but_indentation_in_python_does() -> None:
    one = tokens("python", "f(a,\n  b,\n)\nx = 'y'  # z\n")
    assert one == tokens("python", 'f(a, b)\n\n\nx = "y" # z')
    assert tokens("python", "if a:\n    b\nc") != tokens("python", "if a:\n    b\n    c")
    assert tokens("python", "a\nb") != tokens("python", "a b")
    assert tokens("go", "f(a,\n\tb,\n)") == tokens("go", "f(a, b)")
    assert tokens("rust", "&'a str") == tokens("rust", "& 'a  str") != tokens("rust", "&'b str")
    assert tokens("rust", "' '") != tokens("rust", "'\\t'")
    assert tokens("markdown", "| a |  b|\n|-|:--|") == tokens("markdown", "| a | b |\n\n|---|---|")
    assert tokens("markdown", "* a\n  b") != tokens("markdown", "* a\nb")


def test_free_wording_is_left_out_but_not_its_place() -> None:
    german, english = "a\n# eins\n# zwei\nb", "a\n# one two three\nb"
    assert tokens("python", german) != tokens("python", english)
    assert tokens("python", german, [COMMENT]) == tokens("python", english, [COMMENT])
    assert tokens("python", german, [COMMENT]) != tokens("python", "a\nb", [COMMENT])
    assert tokens("python", german, [COMMENT]) != tokens("python", "# x\na\nb", [COMMENT])


def test_no_part_of_a_sample_is_skipped() -> None:
    for path in SAMPLE_FILES:
        text = path.read_text("utf-8")
        written = "".join(token.text for token in tokens(language_of(path.name), text))
        letters = [re.sub(r"[\s,|:'\"-]", "", each) for each in (written, text)]
        assert letters[0] == letters[1], path.name


# -- the editor and the figures ----------------------------------------------------------------

TEXTS = st.lists(st.sampled_from(["", "a", "é😋", "b = 1", "  c"]), max_size=6).map("\n".join)


@given(TEXTS, TEXTS)
def test_changes_are_applied_as_an_editor_does(old: str, new: str) -> None:
    made = [
        {
            "range": {"start": position(old, one.start), "end": position(old, one.stop)},
            "newText": one.text,
        }
        for one in changes(old, new)
    ]
    assert applied(old, made) == new


@given(st.lists(st.tuples(st.sampled_from(OUTCOMES), st.booleans()), min_size=1))
def test_figures_count_every_row_once(rows: list[tuple[str, bool]]) -> None:
    made = figures([{"outcome": one, "warned": two, "by_rule": False} for one, two in rows])
    assert sum(made[name] for name in OUTCOMES) == made["tasks"] == len(rows)
    bad = sum(one in (WRONG, HARMFUL) and not warned for one, warned in rows)
    assert made["bad_share"] == pytest.approx(bad / len(rows), abs=1e-4)
    assert made["bad_low"] <= made["bad_share"] <= made["bad_high"]
    assert f"{100 * made['right_share']:.1f}%" in shares(made)


@pytest.mark.full
def test_a_whole_run_prints_a_table_and_one_line_and_is_resumed(
    tmp_path: Path, run_bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assist, "QUICK_STEP", len(COMPLETIONS) // 2)
    model = tiny_model(tmp_path / "tiny", context=8192)
    out, part = tmp_path / "out.json", tmp_path / "out.part.jsonl"
    answers = tmp_path / "answers.jsonl"
    options = ["--model", model, "--quick", "--only", "completions", "--out", out]
    ran = run_bench(assist.main, *options, "--answers", answers)
    assert ran.code == 0 and "Completions" in ran.out
    (whole,) = json.loads(ran.out.splitlines()[-1])["models"]
    assert whole == json.loads(out.read_text("utf-8")) and not part.exists()
    assert [row["task"] for row in whole["rows"]] == [
        assist.identity(task) for task in COMPLETIONS[:: assist.QUICK_STEP]
    ]
    assert whole["results"]["completions"]["all"]["tasks"] == len(whole["rows"])
    assert len(answers.read_text("utf-8").splitlines()) == len(whole["rows"])

    head = {key: whole[key] for key in ("model", "checks", "quick", "tasks")}
    kept = [json.dumps(one) for one in (head, *whole["rows"])]
    part.write_text("\n".join(kept) + "\n", "utf-8")
    again = run_bench(assist.main, *options, "--resume")
    assert json.loads(again.out.splitlines()[-1])["models"][0]["rows"] == whole["rows"]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--only", "edits,chat"], "--only chat"),
        (["--model", "a", "--model", "b", "--out", "c"], "--out: takes a single model"),
        (["--checks", "maybe"], "--checks"),
    ],
)
def test_bad_options_are_named(run_bench: RunBench, arguments: list[str], names: str) -> None:
    ran = run_bench(assist.main, *arguments)
    assert ran.code == 2 and ran.out == ""
    assert names in ran.err.splitlines()[-1]


def test_a_missing_model_is_one_line(tmp_path: Path, run_bench: RunBench) -> None:
    ran = run_bench(assist.main, "--model", tmp_path / "nowhere", "--out", tmp_path / "out.json")
    assert ran.code == 2 and ran.out == ""
    assert "nowhere" in ran.err.splitlines()[-1] and not (tmp_path / "out.json").exists()
