"""`draftline ask` and `draftline summarize`: what is printed where, and the exit codes.

The model is a chain that answers every question with one word of the guide. What is shown to a
model, and what is cited, is tested in tests/rag.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from engine.records import Event
from engine.worker import Job
from tests.support.command import Result, chain_model, draftline, on_terminal, one_line
from tests.support.questions import (
    GUIDE,
    WORD,
    Terminal,
    lines,
    make_embedder,
    make_files,
    make_model,
)
from ui.common.answer_view import AnswerView

QUESTION = "Which variable turns the debugger on?"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("chain") / "model")


@pytest.fixture
def guide(tmp_path: Path) -> Path:
    return make_files(tmp_path)


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that repeats " ab" up to --max-tokens."""
    return chain_model(tmp_path_factory.mktemp("endless") / "model", " ab", "\n", context=30000)


def ask(
    guide: Path,
    model: Path,
    *more: str | Path,
    files: tuple[str, ...] = (),
    question: str = QUESTION,
) -> Result:
    """Ask about the guide and other files beside it, without the embedding model's loading."""
    options = ("-q", question, "--model", model, "--embed", "none", *more)
    return draftline(guide.parent, "ask", *files, guide, *options)


def summarize(guide: Path, model: Path, *more: str) -> Result:
    return draftline(guide.parent, "summarize", guide, "--model", model, *more)


@pytest.mark.parametrize("more", [[], ["--no-speculation"], ["--whole", "guide.md"]])
def test_an_answer_with_its_sources_below(guide: Path, model: Path, more: list[str]) -> None:
    result = ask(guide, model, *more)
    assert (result.returncode, result.stderr) == (0, b"")
    assert lines(result.stdout) == [WORD, "", "copied from:", f"  [1] guide.md, line 3: {WORD}"]


def test_json_holds_everything(guide: Path, model: Path) -> None:
    result = ask(guide, model, "--json", "--stats", files=("other.txt",))
    got = json.loads(result.stdout)
    assert result.returncode == 0 and result.stdout.count(b"\n") == 1
    assert (got["question"], got["answer"], got["found"]) == (QUESTION, WORD, True)
    assert (got["reason"], got["covered"], got["notes"]) == ("stop", 1.0, [])
    (citation,) = got["citations"]
    assert (citation["name"], citation["page"]) == ("guide.md", None)
    (first, *_) = got["evidence"]
    at = first["start"]
    assert got["supported"] and (first["name"], first["page"]) == ("guide.md", None)
    assert [first["text"][start - at : stop - at] for start, stop in first["marks"]] == [WORD]
    assert (citation["text"], citation["quote"]) == (WORD, WORD)
    assert GUIDE[citation["source_start"] : citation["source_stop"]] == WORD
    assert got["answer"][citation["start"] : citation["stop"]] == WORD
    assert [document["name"] for document in got["documents"]] == ["other.txt", "guide.md"]
    assert got["usage"]["completion_tokens"] > 0 and got["tokens_per_second"] > 0
    assert b"forward passes" in result.stderr


def test_passages_are_found_by_meaning_too(guide: Path, model: Path, tmp_path: Path) -> None:
    embedder = make_embedder(tmp_path / "vectors", ["variable debugger", "table rows"])
    result = ask(guide, model, "--embed", embedder)
    assert (result.returncode, result.stderr) == (0, b"") and lines(result.stdout)[0] == WORD
    missing = ask(guide, model, "--embed", tmp_path / "nowhere")
    assert missing.returncode == 2 and "nowhere: " in one_line(missing)


def test_an_answer_that_is_cut_off_is_reported(guide: Path, model: Path) -> None:
    result = ask(guide, model, "--max-tokens", "1")
    assert result.returncode == 0 and result.stdout
    assert b"cut off at 1 tokens: allow more with --max-tokens" in result.stderr


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_nothing_found_is_reported_and_is_code_1(guide: Path, model: Path, more: list[str]) -> None:
    result = ask(guide, model, *more, question="How many moons has Jupiter?")
    assert (result.returncode, result.stderr) == (1, b"")
    answer = json.loads(result.stdout)["answer"] if more else result.stdout.decode()
    assert all(word in answer for word in ("moons", "jupiter"))
    assert not more or json.loads(result.stdout)["found"] is False


def test_unreadable_files_are_reported_and_the_others_are_used(guide: Path, model: Path) -> None:
    result = ask(guide, model, files=("missing.pdf", "empty.txt"))
    assert result.returncode == 0 and result.stdout.startswith(WORD.encode())
    first, second = lines(result.stderr)
    assert "missing.pdf" in first and "empty.txt" in second


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ask", "-q", "x"], "no files"),
        (["ask", "guide.md"], "required: -q"),
        (["ask", "guide.md", "-q", " "], "-q: empty"),
        (["ask", "missing.md", "-q", "x"], "no file could be read"),
        (["ask", "guide.md", "-q", "x", "--top-p", "2"], "top_p 2.0: must be"),
        (["ask", "guide.md", "-q", "x", "--max-tokens", "0"], "give a whole number of 1 or more"),
        (["summarize", "missing.md"], "missing.md"),
        (["summarize", "."], "a folder; name the files in it"),
        (["summarize", "guide.md", "--temperature", "-1"], "temperature -1.0: must be"),
        (["chat", "--top-k", "-1"], "top_k -1: must be"),
        (["chat", "--system", "\udcff"], "--system: not text"),
    ],
)
def test_bad_input_is_reported_before_a_model_is_loaded(
    guide: Path, arguments: list[str], message: str
) -> None:
    result = draftline(guide.parent, *arguments, "--model", "no such model")
    assert result.returncode == 2 and result.stdout == b""
    assert message in lines(result.stderr)[-1]


def test_a_missing_model_is_code_3(guide: Path) -> None:
    result = ask(guide, Path("smollm2-135"))
    assert result.returncode == 3 and "smollm2-135" in one_line(result)


# -- summarize ---------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--fresh"], ["--bullets"], ["--length", "short"], ["-v"]])
def test_a_summary_with_its_sources_below(guide: Path, model: Path, more: list[str]) -> None:
    mark = "- " if "--bullets" in more else ""
    one = "The variable `FLASK_DEBUG` turns the debugger on."
    other = "A table has rows and columns, as many as there is room for."
    expected = [one, f"{mark}Other: {other}", "copied from:", f"  [1] guide.md, line 3: {one}"]
    result = summarize(guide, model, *more)
    shown = [line for line in lines(result.stdout) if line]
    assert result.returncode == 0 and shown[:4] == ["Guide", *expected[:3]]
    assert shown[4:] == [expected[3], f"  [2] guide.md, line 7: {other}"]


def test_a_summary_as_json(guide: Path, model: Path) -> None:
    guide.write_text(GUIDE + "\n\n".join(f"## Part {n}\n\n{'text ' * 9}." for n in range(4)))
    result = summarize(guide, model, "--json", "--length", "long")
    got = json.loads(result.stdout)
    assert result.returncode == 0 and got["whole"] is True
    text = guide.read_text()
    assert [one["title"] for one in got["chapters"]][-4:] == [f"Part {n}" for n in range(4)]
    assert got["chapters"][0]["start"] == 0 and got["chapters"][-1]["stop"] == len(text)
    assert all(one["text"] in got["summary"] for one in got["chapters"])
    for citation in got["citations"]:
        assert citation["text"] == got["summary"][citation["start"] : citation["stop"]]
        assert citation["quote"] == text[citation["source_start"] : citation["source_stop"]]


def test_a_statement_is_not_written_again(guide: Path, model: Path) -> None:
    tokens = []
    for more in ([], [], ["--fresh"]):
        tokens.append(json.loads(summarize(guide, model, "--json", *more).stdout)["tokens"])
    assert tokens[0] > 0 and tokens[2] > 0 and tokens[1] == 0
    (finished,) = (guide.parent / "home" / "finished").iterdir()
    assert json.loads(finished.read_text()) == {"text": ""}


# -- on a terminal, and interrupted ------------------------------------------------------------


def test_control_characters_do_not_reach_a_terminal(guide: Path, tmp_path: Path) -> None:
    word = "A_9\x1b]0;1\x07"
    model = make_model(tmp_path / "evil", word)
    guide.write_text(f"The variable {word} turns the debugger on.")
    code, seen = on_terminal(guide.parent, "ask", guide, "-q", QUESTION, "-v", "--model", model)
    assert code == 0
    assert "A_9\u241b]0;1\u2407" in seen and "copied from" in seen
    assert "text by source" in seen
    assert "\x1b]0;" not in seen


def test_ctrl_c_keeps_what_is_written(guide: Path, endless: Path) -> None:
    """In a process of its own."""
    more = ["--model", endless, "--max-tokens", "29000", "--no-speculation"]
    terminal = Terminal(guide.parent, "ask", guide, "-q", QUESTION, *more)
    terminal.until("ab\r\n ab")
    terminal.interrupt()
    assert terminal.end() == 130
    assert "check it." in terminal.seen
    assert "interrupted" not in terminal.seen


def test_a_model_that_ends_midway_leaves_what_it_wrote(
    guide: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Job.put

    def put_and_fail(job: Job, event: Event) -> None:
        put(job, event)
        if event.text:
            raise ValueError("a broken kernel")

    with monkeypatch.context() as patch:
        patch.setattr(Job, "put", put_and_fail)
        failed = ask(guide, model, "--no-speculation", "--json")
    assert failed.returncode == 1
    assert failed.stderr == b"draftline: the model failed, ask again: a broken kernel\n"
    got = json.loads(failed.stdout)
    assert got["reason"] == "failed" and got["answer"] and WORD.startswith(got["answer"])


def test_an_interrupted_summary_has_every_chapter(
    guide: Path, endless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes when the model begins to write."""
    interrupts = []

    def phase(view: AnswerView, text: str) -> None:
        if text == "writing" and not interrupts:
            interrupts.append(text)
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(AnswerView, "phase", phase)
        stopped = summarize(guide, endless, "--no-speculation", "--json")
    assert stopped.returncode == 130 and b"run it again" in stopped.stderr
    written = json.loads(stopped.stdout)
    assert not written["whole"] and "Other: A table has rows" in written["summary"]
    got = json.loads(summarize(guide, endless, "--no-speculation", "--json").stdout)
    assert got["whole"] and got["summary"].startswith("Guide\n\nThe variable")


def test_long_stages_are_reported_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, however many parts; loading is silent."""
    with AnswerView() as view:
        view.progress("fetching m (part 1 of 2)", 1, 10)
        view.progress("fetching m (part 2 of 2)", 9, 10)
        view.progress("converting", 0, 5)
        view.progress("loading", 0, 0)
    assert capsys.readouterr().err == "draftline: fetching m\ndraftline: converting\n"
