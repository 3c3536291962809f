"""`draftline ask` and `draftline summarize` as a user runs them: two streams, an exit code.

The model is a chain that answers every question with one word of the guide. What is shown to a
model and what is cited is tested elsewhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import chain_model, environment
from tests.support.questions import (
    GUIDE,
    WORD,
    Terminal,
    lines,
    make_embedder,
    make_files,
    make_model,
    run,
)
from ui.cli.answer_view import Writer

ASKED = "Which variable turns the debugger on?"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("chain") / "model")


@pytest.fixture
def guide(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return make_files(tmp_path)


@pytest.fixture
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Repeats " ab" for as long as it may."""
    return chain_model(tmp_path_factory.mktemp("endless") / "model", " ab", "\n", context=8192)


@pytest.mark.parametrize("more", [[], ["--no-speculation"], ["--whole", "guide.md"]])
def test_an_answer_and_below_it_what_was_copied(
    guide: Path, model: Path, capfdbinary: pytest.CaptureFixture[bytes], more: list[str]
) -> None:
    code = run("ask", guide, "-q", ASKED, "--model", model, *more)
    out, err = capfdbinary.readouterr()
    assert (code, err) == (0, b"")
    assert lines(out) == [WORD, "", "copied from:", f"  [1] guide.md, line 3: {WORD}"]


def test_json_holds_everything(
    guide: Path, model: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code = run("ask", "guide.md", "other.txt", "-q", ASKED, "--model", model, "--json", "--stats")
    out, err = capfdbinary.readouterr()
    got = json.loads(out)
    assert code == 0 and out.count(b"\n") == 1
    assert (got["question"], got["answer"], got["found"]) == (ASKED, WORD, True)
    assert (got["reason"], got["covered"], got["notes"]) == ("stop", 1.0, [])
    (one,) = got["citations"]
    assert (one["name"], one["page"], one["text"], one["quote"]) == ("guide.md", None, WORD, WORD)
    assert GUIDE[one["source_start"] : one["source_stop"]] == WORD
    assert got["answer"][one["start"] : one["stop"]] == WORD
    assert [each["name"] for each in got["documents"]] == ["guide.md", "other.txt"]
    assert got["usage"]["completion_tokens"] > 0 and got["tokens_per_second"] > 0
    assert b"forward passes" in err


def test_passages_are_found_by_meaning_too(
    guide: Path, model: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code = run(
        "ask",
        guide,
        "-q",
        ASKED,
        "--model",
        model,
        "--embed",
        make_embedder(tmp_path / "vectors", ["variable debugger", "table rows"]),
    )
    out, err = capfdbinary.readouterr()
    assert (code, err) == (0, b"") and lines(out)[0] == WORD
    assert run("ask", guide, "-q", ASKED, "--model", model, "--embed", tmp_path / "none") == 2
    assert b"no model2vec model" in capfdbinary.readouterr().err


def test_an_answer_that_was_cut_off_says_so(
    guide: Path, model: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code = run("ask", guide, "-q", ASKED, "--model", model, "--max-tokens", "1")
    out, err = capfdbinary.readouterr()
    assert code == 0 and out
    assert b"cut off at 1 tokens: allow more with --max-tokens" in err


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_nothing_found_is_said_and_is_exit_code_1(
    guide: Path, model: Path, capfdbinary: pytest.CaptureFixture[bytes], more: list[str]
) -> None:
    code = run("ask", guide, "-q", "How many moons has Jupiter?", "--model", model, *more)
    out, err = capfdbinary.readouterr()
    assert (code, err) == (1, b"")
    said = json.loads(out)["answer"] if more else out.decode()
    assert "say nothing about this; not found: moons, jupiter" in said
    assert not more or json.loads(out)["found"] is False


def test_files_that_cannot_be_read_are_told_and_the_others_are_asked(
    guide: Path, model: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code = run("ask", "missing.pdf", "empty.txt", guide, "-q", ASKED, "--model", model)
    out, err = capfdbinary.readouterr()
    assert code == 0 and out.startswith(WORD.encode())
    assert ["missing.pdf" in lines(err)[0], "empty.txt" in lines(err)[1]] == [True, True]
    assert len(lines(err)) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ask", "-q", "x"], "no files"),
        (["ask", "guide.md"], "required: -q"),
        (["ask", "guide.md", "-q", " "], "-q: empty"),
        (["ask", "missing.md", "-q", "x"], "no file could be read"),
        (["ask", "guide.md", "-q", "x", "--top-p", "2"], "top_p 2.0: must be"),
        (["ask", "guide.md", "-q", "x", "--max-tokens", "0"], "not 1 or more"),
        (["summarize", "missing.md"], "missing.md"),
        (["summarize", "."], "not a regular file"),
        (["summarize", "guide.md", "--temperature", "-1"], "temperature -1.0: must be"),
        (["chat", "--top-k", "-1"], "top_k -1: must be"),
        (["chat", "--system", "\udcff"], "--system: not text"),
    ],
)
def test_bad_input_is_told_in_a_line_before_a_model_is_loaded(
    guide: Path, capfdbinary: pytest.CaptureFixture[bytes], arguments: list[str], says: str
) -> None:
    from ui.cli import main

    try:
        code = run(*arguments, "--model", "no such model")
    except main.Failure as failure:  # what argparse refuses; ui/cli/main.py tells it
        code, said = failure.code, str(failure)
    else:
        out, err = capfdbinary.readouterr()
        said = err.decode()
        assert out == b"" and said.splitlines()[-1].startswith("draftline: ")
    assert code == 2
    assert says in said


def test_a_model_that_is_not_there_is_exit_code_3(
    guide: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run("ask", guide, "-q", ASKED, "--model", "smollm2-135") == 3
    out, err = capfdbinary.readouterr()
    assert out == b"" and len(lines(err)) == 1
    assert err.startswith(b"draftline: ") and b"smollm2-135" in err


@pytest.mark.parametrize("command", ["ask", "summarize", "chat"])
def test_help_needs_no_torch(tmp_path: Path, command: str) -> None:
    code = (
        "import sys\nfrom ui.cli.main import main\n"
        f"code = main([{command!r}, '--help'])\n"
        "heavy = ('torch', 'transformers', 'tokenizers')\n"
        "print([name for name in heavy if name in sys.modules], code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path), capture_output=True
    )
    assert b"130  interrupted" in result.stdout
    assert result.stdout.splitlines()[-1] == b"[] 0"


# -- summarize ---------------------------------------------------------------------------------


def test_a_summary_and_below_it_what_was_copied(
    guide: Path, model: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for more in ([], ["--fresh"], ["--bullets"], ["--length", "short"], ["-v"], []):
        mark = "- " if "--bullets" in more else ""
        expected = [mark + WORD, "", "copied from:", f"  [1] guide.md, line 3: {WORD}"]
        code = run("summarize", guide, "--model", model, *more)
        out, err = capfdbinary.readouterr()
        assert code == 0 and err.startswith(b"text by source" if more == ["-v"] else b"")
        assert lines(out) == expected


def test_a_summary_as_json(
    guide: Path, model: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    guide.write_text(GUIDE + "\n\n".join(f"## Part {n}\n\n{'text ' * 200}" for n in range(4)))
    code = run("summarize", guide, "--model", model, "--json", "--length", "long")
    got = json.loads(capfdbinary.readouterr().out)
    assert code == 0 and got["whole"] is True
    assert got["parts"] == got["parts_done"] == len(got["sections"]) > 2
    text = guide.read_text()
    assert [text[: got["sections"][0]["start"]], got["sections"][-1]["stop"]] == ["", len(text)]
    assert {one["text"] for one in got["sections"]} == {WORD}
    assert got["summary"].count(WORD) == got["parts"]
    for one in got["citations"]:
        assert one["text"] == got["summary"][one["start"] : one["stop"]]
        assert one["quote"] == text[one["source_start"] : one["source_stop"]]


def test_finished_parts_are_not_written_again(
    guide: Path, home: Path, model: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    tokens = []
    for more in ([], [], ["--fresh"]):
        run("summarize", guide, "--model", model, "--json", *more)
        tokens.append(json.loads(capfdbinary.readouterr().out)["tokens"])
    assert tokens[0] > 0 and tokens[2] > 0 and tokens[1] == 0
    (kept,) = (home / "finished").iterdir()
    assert json.loads(kept.read_text()) == {"text": WORD}


# -- on a terminal, and stopped ----------------------------------------------------------------


def test_control_characters_do_not_reach_a_terminal(guide: Path, tmp_path: Path) -> None:
    word = "A_9\x1b]0;1\x07"
    model = make_model(tmp_path / "evil", word)
    guide.write_text(f"The variable {word} turns the debugger on.")
    terminal = Terminal(guide.parent, "ask", guide, "-q", ASKED, "-v", "--model", model)
    assert terminal.end() == 0
    assert "A_9\u241b]0;1\u2407" in terminal.seen and "copied from" in terminal.seen
    assert "text by source" in terminal.seen
    assert "\x1b]0;" not in terminal.seen


def test_ctrl_c_keeps_what_is_written(guide: Path, endless: Path) -> None:
    more = ["--model", endless, "--max-tokens", "2000", "--no-speculation"]
    terminal = Terminal(guide.parent, "ask", guide, "-q", ASKED, *more)
    terminal.until("ab\r\n ab")
    terminal.interrupt()
    assert terminal.end() == 130
    assert "no passage of this is copied" in terminal.seen
    assert "interrupted" not in terminal.seen


def test_a_stopped_summary_tells_how_to_go_on(
    guide: Path, endless: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    guide.write_text(GUIDE + "\n\n".join(f"## Part {n}\n\n{'text ' * 200}" for n in range(3)))
    more = ["--model", endless, "--length", "long", "--no-speculation"]
    terminal = Terminal(guide.parent, "summarize", guide, *more)
    terminal.until("part 2 of")
    terminal.interrupt()
    assert terminal.end() == 130
    assert "ab" in terminal.seen and "run it again to go on" in terminal.seen
    capfdbinary.readouterr()
    assert run("summarize", guide, *more, "--json") == 0
    got = json.loads(capfdbinary.readouterr().out)
    assert got["whole"] and got["parts"] == len(got["sections"]) > 2
    assert got["tokens"] < sum(len(one["text"]) for one in got["sections"]), "one was kept"


def test_stages_that_take_long_are_told_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line each, however many parts; what is only loaded is silent."""
    with Writer() as writer:
        writer.progress("fetching m (part 1 of 2)", 1, 10)
        writer.progress("fetching m (part 2 of 2)", 9, 10)
        writer.progress("converting", 0, 5)
        writer.progress("loading", 0, 0)
    assert capsys.readouterr().err == "draftline: fetching m\ndraftline: converting\n"
