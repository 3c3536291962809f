"""`draftline chat` as a user talks with it: commands, what is kept, Ctrl-C; and its files.

The model is a chain that answers everything with one word.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.records import Piece, Step
from tests.support.command import EOS, chain_model
from tests.support.questions import WORD, Terminal, lines, make_model, run
from ui.cli.chat import COMMANDS, VERDICTS, by_verdict
from ui.cli.conversation import Conversation, ConversationError

Talk = Callable[..., tuple[list[str], list[str]]]
TURNS = st.lists(st.tuples(st.text(), st.text()), max_size=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("chain") / "model")


@pytest.fixture
def talk(
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> Talk:
    """The lines of stdout and of stderr for some input; the exit code is 0."""
    monkeypatch.chdir(tmp_path)

    def talk(model: Path, said: str, *more: str) -> tuple[list[str], list[str]]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(said.encode())))
        capfdbinary.readouterr()
        assert run("chat", "--model", model, *more) == 0
        out, err = capfdbinary.readouterr()
        return lines(out), lines(err)

    return talk


def test_commands(talk: Talk, tmp_path: Path, model: Path) -> None:
    said = "\n".join(
        [
            "first",
            "second",
            "!!save talk.json",
            "!!save talk.json",
            "!!remove",
            "!!save less.json",
            "!!regen",
            "!!reset",
            "!!remove",
            "!!regen",
            "!!frobnicate",
            "!!save",
            "!!load missing.json",
            "!!load talk.json",
            "third",
            "!!save all.json",
            "!!help",
            "!!exit",
            "never read",
        ]
    )
    out, err = talk(model, said, "--system", "be brief")
    assert out == [WORD] * 4
    told = [line.removeprefix("draftline: ") for line in err]
    assert told[0] == "talk.json: 4 messages saved"
    assert told[1].startswith("talk.json: is there already")
    assert told[2:4] == ["removed: second", "less.json: 2 messages saved"]
    assert told[4] == "the conversation is forgotten"
    assert [line.split(":")[0] for line in told[5:7]] == ["nothing was said yet"] * 2
    assert told[7].startswith("!!frobnicate: no command")
    assert told[8].startswith("!!save: names no file")
    assert told[9].startswith("missing.json: not read")
    assert told[10].startswith("talk.json: 4 messages")
    assert told[11] == "all.json: 6 messages saved"
    assert told[12:] == COMMANDS.splitlines()

    saved = json.loads((tmp_path / "all.json").read_text())
    assert saved[0] == {"role": "system", "content": "be brief"}
    assert [one["content"] for one in saved[1:]] == [
        each for asked in ("first", "second", "third") for each in (asked, WORD)
    ]


@pytest.mark.parametrize(
    ("more", "said", "answers"),
    [
        ([], "one\n\ntwo\n", 1),
        ([], "", 0),
        (["--multiline"], "one\nstill one\n\ntwo\n\n\nthree", 2),
        (["--no-history"], "one\ntwo", 2),
    ],
)
def test_messages_and_their_ends(
    talk: Talk, model: Path, more: list[str], said: str, answers: int
) -> None:
    assert talk(model, said, *more) == ([WORD] * answers, [])


def test_answers_as_json_and_their_figures(talk: Talk, model: Path) -> None:
    out, err = talk(model, "one\ntwo", "--json", "--verbose", "--stats")
    found = [json.loads(line) for line in out]
    assert [(one["answer"], one["reason"]) for one in found] == [(WORD, "stop")] * 2
    for one in found:
        assert one["usage"]["completion_tokens"] > 0
        assert sum(one["characters_by_source"].values()) == len(WORD)
    shown = "\n".join(err)
    assert all(name in shown for name in VERDICTS)
    assert "forward passes" in shown


def test_a_full_context_loses_the_oldest_turns(talk: Talk, tmp_path: Path) -> None:
    """A model that reads a token a character, and 400 of them."""
    model = chain_model(tmp_path / "model", " ok", EOS, context=400)
    said = "\n".join(f"question {number} {'x' * 60}" for number in range(6))
    out, err = talk(model, said, "--max-tokens", "20")
    assert out == ["ok"] * 6
    assert err and all("does not see the first" in line for line in err)
    assert len(err) < 6, "a quarter is freed at once"
    out, err = talk(model, "y" * 500 + "\nshort")
    assert out == ["ok"] and "context" in err[0]


def test_on_a_terminal_colours_tell_what_became_of_drafts(tmp_path: Path, model: Path) -> None:
    terminal = Terminal(tmp_path, "chat", "--model", model, "-v")
    terminal.until("you: ")
    terminal.type("hello\n")
    terminal.until("passes")
    terminal.until("you: ")
    terminal.type("\n")
    assert terminal.end() == 0
    for name, colour in (("accepted draft", 31), ("correction", 34), ("bonus", 35)):
        assert f"\x1b[{colour}m{name} " in terminal.seen


def test_ctrl_c_stops_the_answer_and_not_the_conversation(tmp_path: Path) -> None:
    model = chain_model(tmp_path / "model", " ab", "\n", context=8192)
    more = ["--max-tokens", "4000", "--no-speculation", "--verbose"]
    terminal = Terminal(tmp_path, "chat", "--model", model, *more, NO_COLOR="1")
    terminal.until("you: ")
    terminal.type("hello\n")
    terminal.until("ab\r\n ab")
    terminal.interrupt()
    terminal.until("what was written is kept")
    terminal.until("you: ")
    terminal.type("!!save talk.json\n")
    terminal.until("2 messages saved")
    terminal.until("you: ")
    terminal.interrupt()
    assert terminal.end() == 130
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", terminal.seen), "NO_COLOR is set"
    question, answer = json.loads((tmp_path / "talk.json").read_text())
    assert question["content"] == "hello" and answer["content"].startswith("ab\n ab")


def test_what_became_of_a_draft() -> None:
    drafted, own = Piece("a", "context"), Piece("b", "model")
    assert by_verdict(Step((drafted, own), 4, 1), drafted) == "red"
    assert by_verdict(Step((drafted, own), 4, 1), own) == "blue"
    assert by_verdict(Step((drafted, own), 1, 1), own) == "magenta"
    assert by_verdict(Step((own,)), own) == "magenta"


# -- conversations as files --------------------------------------------------------------------


@given(st.text(), TURNS)
def test_what_is_saved_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, system: str, turns: list[tuple[str, str]]
) -> None:
    one = Conversation(system)
    for question, answer in turns:
        one.add(question, answer)
    folder = tmp_path_factory.mktemp("talk")
    one.save(folder / "talk.json")
    assert Conversation.load(folder / "talk.json") == one
    assert [file.name for file in folder.iterdir()] == ["talk.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"{}",
        b"[1]",
        b'[{"role": "user"}]',
        b'[{"role": "user", "content": 1}]',
        b'[{"role": "user", "content": "x"}]',
        b'[{"role": "assistant", "content": "x"}, {"role": "user", "content": "x"}]',
        b'[{"role": "user", "content": "\\ud800"}, {"role": "assistant", "content": "x"}]',
        b"[" * 100_000,
    ],
)
def test_what_is_no_conversation_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "talk.json"
    file.write_bytes(content)
    with pytest.raises(ConversationError, match=r"talk.json: .*: |must take turns"):
        Conversation.load(file)


@pytest.mark.parametrize("where", ["missing/talk.json", "folder"])
def test_what_cannot_be_written_is_told(tmp_path: Path, where: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConversationError, match=where):
        Conversation().save(tmp_path / where)
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


def test_messages_of_a_conversation() -> None:
    one = Conversation("be brief")
    one.add("a", "b")
    one.add("c", "d")
    said: Any = [message["content"] for message in one.messages("e", start=2)]
    assert said == ["be brief", "c", "d", "e"]
    assert one.remove() == ("c", "d")
    assert [message["role"] for message in one.messages("x")] == [
        "system", "user", "assistant", "user",
    ]  # fmt: skip
