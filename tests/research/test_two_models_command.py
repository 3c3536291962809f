"""`draftline two-models`: texts, colours, tables, JSON, lists of prompts, errors."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from research import two_models
from research.commands.two_models_view import ORIGIN_COLOURS
from research.comparison import METHODS
from tests.conftest import byte_bpe, tiny_model
from tests.support.command import draftline, draftline_process, on_terminal, one_line

PROMPT = "def add(left"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two random models, and one with another tokenizer."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("target", "draft", "other")):
        tiny_model(folder / name, seed=seed)
    byte_bpe(folder / "other", 290)
    lines = ["def add(left", "", "x = 1", "return", "class Point:", "    y"]
    (folder / "prompts.txt").write_text("\n".join(lines))
    records = ['"x = 1"', '{"prompt": "return"}', '{"text": "x"}', "x", "7", json.dumps("x " * 600)]
    (folder / "prompts.jsonl").write_text("\n".join(records))
    return folder


MODELS = ("two-models", "--model", "./target", "--draft-model", "./draft", "--device", "cpu")


def test_all_ways_side_by_side(place: Path) -> None:
    result = draftline(place, *MODELS, "-i", PROMPT, "-M", "5", "--seed", "0")
    assert (result.returncode, result.stderr) == (0, b"")
    out = result.stdout.decode()
    texts = dict(re.findall(r"== (\w+): [^\n]+\n(.*?)\n\n", out, re.DOTALL))
    assert [*texts] == [*METHODS]
    assert texts["ours"] == texts["target"] != texts["draft"]
    assert texts["leviathan"] == texts["chen"]
    assert all(text.startswith(PROMPT) for text in texts.values())
    assert re.search(r"ours: alpha \d.\d\d, a drafted token costs .*--gamma 4; ", out)


def test_json_agrees_with_the_functions(place: Path) -> None:
    asked = {"temperature": 0.5, "top_k": 7, "top_p": 0.8, "seed": 3}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in asked.items()]
    given = ["-i", PROMPT, "-M", "6", "-g", "2", "--ways", "ours,target", "-b", "2", "--json", "-v"]
    result = draftline(place, *MODELS, *options, *given)
    assert (result.returncode, result.stderr) == (0, b"")
    found = json.loads(result.stdout)
    expected = two_models.speculative_decoding(
        two_models.load(str(place / "draft"), str(place / "target")), [PROMPT], 6, 2, **asked
    )
    assert result.stdout.count(b"\n") == 1
    assert (found["prompt"], found["model"], found["gamma"]) == (PROMPT, "./target", 2)
    assert [*found["ways"]] == ["ours", "target"] and found["worth"] == {}
    ours, target = found["ways"].values()
    assert ours["text"] == target["text"] == expected.texts[0]
    assert (ours["drafted"], ours["accepted"]) == (expected.drafted[0], expected.accepted[0])
    assert (target["drafted"], target["passes"], target["own"]) == (0, 6, 6)
    for one in (ours, target):
        assert one["generated"] == 6 == one["accepted"] + one["corrected"] + one["own"]


def test_a_benchmark_is_a_table(place: Path) -> None:
    line = ["-i", PROMPT, "-M", "3", "-b", "1", "--ways", "target,draft,ours"]
    result = draftline(place, *MODELS, *line)
    assert result.returncode == 0
    out = result.stdout.decode()
    head, *rows = out[out.index("           tokens/s") :].splitlines()[:4]
    assert head.split() == ["tokens/s", "passes", "a", "pass", "x", "target"]
    assert [row.split()[0] for row in rows] == ["target", "draft", "ours"]
    assert rows[0].split()[2:] == ["3", "1.00", "1.00"]


def test_profiles_are_written(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "profiles"
    line = ["-i", PROMPT, "-M", "2", "--ways", "ours,chen", "-p", folder]
    result = draftline(place, *MODELS, *line)
    assert result.returncode == 0
    assert f"{folder}: profiles for TensorBoard" in result.stderr.decode()
    for way in ("ours", "chen"):
        assert json.loads((folder / f"{way}.pt.trace.json").read_text())["traceEvents"]


@pytest.mark.parametrize("plain", [False, True])
def test_colours_on_a_terminal(place: Path, plain: bool) -> None:
    """Counters and rounds are there with NO_COLOR too."""
    line = ["two-models", "--model", "./target", "--draft-model", "./target", "--device", "cpu"]
    given = ["-i", "x", "-M", "7", "-g", "2", "-v", "--ways", "ours", "--temperature", "0"]
    code, shown = on_terminal(place, *line, *given, **({"NO_COLOR": "1"} if plain else {}))
    assert code == 0, shown
    assert ("\x1b[31m" in shown) is not plain, "accepted: red"
    assert ("\x1b[35m" in shown) is not plain, "the target's own: magenta"
    bare = re.sub(r"\x1b\[[0-9;?]*\w", "", shown)
    assert f"text by source: {' '.join(ORIGIN_COLOURS)}" in bare
    assert "generated 7, drafted 4, accepted 4, corrected 0, own 3" in bare
    places = [int(one) for one in re.findall(r"  at (\d+): ", bare)]
    assert [after - places[0] for after in places] == [0, 3, 6]
    assert "2 of 2 accepted, own at" in bare


# -- lists -----------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_list_in_its_order_by_one_and_by_several_processes(place: Path) -> None:
    """Three processes for five prompts; no text depends on the others."""
    given = [*MODELS, "--prompts", "prompts.txt", "-M", "4"]
    alone = [json.loads(line) for line in draftline(place, *given).stdout.splitlines()]
    assert [one["prompt"] for one in alone] == [
        "def add(left", "x = 1", "return", "class Point:", "    y"
    ]  # fmt: skip
    pair = two_models.load(str(place / "draft"), str(place / "target"))
    for one in alone:
        options = {"temperature": 1.0, "top_k": 20, "top_p": 0.9}
        written = two_models.speculative_decoding(pair, [one["prompt"]], 4, 4, **options)
        assert one["text"] == written.texts[0]
    result = draftline_process(place, *given, "--processes", "3")
    assert (result.returncode, result.stderr) == (0, b"")
    several = [json.loads(line) for line in result.stdout.splitlines()]
    timed = ("seconds", "tokens_per_second")
    for one in (*alone, *several):
        assert all(one.pop(name) > 0 for name in timed)
    assert several == alone


def test_a_bad_prompt_of_a_list_is_its_own_error(place: Path) -> None:
    line = ["--prompts", "prompts.jsonl", "-M", "2", "--ways", "leviathan"]
    result = draftline(place, *MODELS, *line)
    assert result.returncode == 1
    out, err = result.stdout.decode(), result.stderr.decode()
    good, also, *bad = (json.loads(line) for line in out.splitlines())
    assert (good["prompt"], also["prompt"]) == ("x = 1", "return")
    assert good["generated"] == also["generated"] == 2
    assert err == "draftline: 4 of 6 prompts were not answered: see their errors\n"
    errors = [one["error"] for one in bad]
    assert [error.split(":")[0] for error in errors[:3]] == ["line 3", "line 4", "line 5"]
    assert "the models' context has 512: shorten the prompt" in errors[3]


@pytest.mark.full
def test_a_process_that_fails_ends_all(place: Path) -> None:
    """Each process reports the memory limit; none waits for another."""
    pytest.importorskip("accelerate")
    given = ["--prompts", "prompts.txt", "--processes", "2", "--max-memory", "cpu=1KB"]
    result = draftline_process(place, *MODELS, *given)
    assert result.returncode == 2 and result.stdout == b""
    assert b"draftline: ./target: does not fit {'cpu': 1000}" in result.stderr


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "code", "why"),
    [
        (["--draft-model", "./other"], 2, "./other cannot draft for ./target: their tokenizers"),
        (["--model", "./gone"], 3, "gone"),
        (["--processes", "2"], 2, "--processes 2: is for --prompts: name a file"),
        (["-i", "x " * 600], 2, "the models' context has 512: shorten the prompt"),
        (["-i", " "], 2, "-i: empty"),
        (["--top-p", "2"], 2, "top_p 2.0: must be above 0 and at most 1"),
        (["--max-memory", "999=1GB"], 2, "./target: no GPU 999: this machine has"),
    ],
)
def test_bad_input_is_one_line(place: Path, given: list[str], code: int, why: str) -> None:
    text = [] if "-i" in given else ["-i", "x"]
    result = draftline(place, *MODELS, *given, *text, "-M", "2", "--ways", "ours")
    assert result.returncode == code and why in one_line(result)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--prompts", "gone.txt"], "gone.txt: No such file or directory: name a text file"),
        (["--prompts", "target/model.safetensors"], "not UTF-8: name a text file"),
        (["--prompts", "empty.txt"], "empty.txt: no prompt in it: write one per line"),
        (["--prompts", "prompts.txt", "-b"], "--benchmark: takes one text: give it with -i"),
        (["--prompts", "prompts.txt", "--ways", "ours,chen"], "--prompts takes one method"),
    ],
)
def test_bad_lists_are_one_line(place: Path, given: list[str], why: str) -> None:
    (place / "empty.txt").write_text("\n \n")
    result = draftline(place, *MODELS, *given)
    assert result.returncode == 2 and why in one_line(result)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--ways", "ours,theirs"], "theirs: choose from target, draft, leviathan, chen, ours"),
        (["--max-memory", "0=9XB"], "0=9XB: write it like 0=9GB,1=500MiB,cpu=20GB"),
        (["--max-memory", "0=9GB,0=9GB"], "0=9GB: this device is named twice"),
        (["--gamma", "0"], "0: give a whole number of 1 or more"),
        ([], "one of the arguments -i/--input --prompts is required"),
    ],
)
def test_bad_options_are_one_line(tmp_path: Path, given: list[str], why: str) -> None:
    result = draftline(tmp_path, "two-models", *given, *(["-i", "x"] if given else []))
    assert result.returncode == 2 and why in one_line(result)


def test_without_accelerate(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the option that needs it fails."""
    monkeypatch.setitem(sys.modules, "accelerate", None)
    result = draftline(place, *MODELS, "-i", "x", "--max-memory=0=1GB")
    assert result.returncode == 2
    assert "needs accelerate: `pip install accelerate`" in one_line(result)
    result = draftline(place, *MODELS, "-i", "x", "-M", "2", "--ways", "target")
    assert result.returncode == 0


@pytest.mark.full
def test_a_process_has_the_exit_code_and_the_line(place: Path) -> None:
    line = ["two-models", "--model", "./target", "--draft-model", "./other", "-i", "x"]
    result = draftline_process(place, *line)
    assert result.returncode == 2
    reported = one_line(result)
    assert "./other cannot draft for ./target: their tokenizers differ" in reported
    assert "choose a draft model of the same tokenizer" in reported
