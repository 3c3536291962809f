"""`draftline chat`: its commands, what is kept, Ctrl-C, and conversations as files.

The model is a chain that answers everything with one word.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.records import Piece, Step
from tests.support.command import EOS, chain_model, draftline
from tests.support.questions import WORD, Terminal, lines, make_model
from ui.cli.chat import COMMANDS, VERDICT_COLOURS, colour_of_verdict
from ui.cli.conversation import Conversation, ConversationError

TURNS = st.lists(st.tuples(st.text(), st.text()), max_size=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("chain") / "model")


def talk(folder: Path, model: Path, messages: str, *more: str) -> tuple[list[str], list[str]]:
    """The lines of stdout and stderr of a conversation; the exit code is 0."""
    result = draftline(folder, "chat", "--model", model, *more, stdin=messages.encode())
    assert result.returncode == 0, result.stderr.decode()
    return lines(result.stdout), lines(result.stderr)


@pytest.mark.parametrize("ending", ["/bye", "!!exit"])
def test_commands(tmp_path: Path, model: Path, ending: str) -> None:
    """With either sign before them."""
    messages = "\n".join(
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
            "/frobnicate",
            "/save",
            "/load missing.json",
            "/load talk.json",
            "third",
            "/save all.json",
            "/help",
            ending,
            "never read",
        ]
    )
    out, err = talk(tmp_path, model, messages, "--system", "be brief")
    assert out == [WORD] * 4
    *reported, last = [line.removeprefix("draftline: ") for line in err[:12]]
    starts = [
        "talk.json: 4 messages saved",
        "talk.json: already exists",
        "removed: second",
        "less.json: 2 messages saved",
        "the conversation is forgotten",
        "the conversation is empty",
        "the conversation is empty",
        "/frobnicate: no such command",
        "/save: no file",
        "missing.json: not read",
        "talk.json: 4 messages loaded",
    ]
    assert len(reported) == len(starts) and all(map(str.startswith, reported, starts)), reported
    assert last == "all.json: 6 messages saved"
    assert err[12:] == COMMANDS.splitlines()

    saved = json.loads((tmp_path / "all.json").read_text())
    assert saved[0] == {"role": "system", "content": "be brief"}
    assert [message["content"] for message in saved[1:]] == [
        text for question in ("first", "second", "third") for text in (question, WORD)
    ]


@pytest.mark.parametrize(
    ("more", "messages", "answers"),
    [
        ([], "\none\n\n \ntwo\n", 2),
        ([], "/usr/bin is a path\n/bin/sh, too\n", 2),
        ([], "", 0),
        (["--multiline"], "\none\nstill one\n\ntwo\n\n\nthree", 3),
        (["--no-history"], "one\ntwo", 2),
    ],
)
def test_messages_and_their_ends(
    tmp_path: Path, model: Path, more: list[str], messages: str, answers: int
) -> None:
    assert talk(tmp_path, model, messages, *more) == ([WORD] * answers, [])


def test_answers_as_json_with_their_figures(tmp_path: Path, model: Path) -> None:
    out, err = talk(tmp_path, model, "one\ntwo", "--json", "--verbose", "--stats")
    found = [json.loads(line) for line in out]
    assert [(one["answer"], one["reason"]) for one in found] == [(WORD, "stop")] * 2
    for one in found:
        assert one["usage"]["completion_tokens"] > 0
        assert sum(one["characters_by_source"].values()) == len(WORD)
    shown = "\n".join(err)
    assert all(name in shown for name in VERDICT_COLOURS)
    assert "forward passes" in shown


def test_a_full_context_drops_the_oldest_turns(tmp_path: Path) -> None:
    """The model reads a token per character, and 400 of them."""
    model = chain_model(tmp_path / "model", " ok", EOS, context=400)
    messages = "\n".join(f"question {number} {'x' * 60}" for number in range(6))
    out, err = talk(tmp_path, model, messages, "--max-tokens", "20")
    assert out == ["ok"] * 6
    assert err and all("does not see the first" in line for line in err)
    assert len(err) < 6, "a quarter is freed at once"
    out, err = talk(tmp_path, model, "y" * 500 + "\nshort")
    assert out == ["ok"] and "context" in err[0]


@pytest.mark.full
def test_colours_on_a_terminal_show_which_drafts_were_accepted(tmp_path: Path, model: Path) -> None:
    terminal = Terminal(tmp_path, "chat", "--model", model, "-v")
    terminal.until("you: ")
    terminal.type("hello\n")
    terminal.until("passes")
    terminal.until("you: ")
    terminal.type("\n")
    terminal.until("you: ")
    terminal.type("/bye\n")
    assert terminal.end() == 0
    for name, colour in (("accepted draft", 31), ("correction", 34), ("bonus", 35)):
        assert f"\x1b[{colour}m{name} " in terminal.seen


def test_ctrl_c_stops_the_answer_and_not_the_conversation(tmp_path: Path) -> None:
    model = chain_model(tmp_path / "model", " ab", "\n", context=30000)
    more = ["--max-tokens", "29000", "--no-speculation", "--verbose"]
    terminal = Terminal(tmp_path, "chat", "--model", model, *more, NO_COLOR="1")
    terminal.until("you: ")
    terminal.type("hello\n")
    terminal.until("ab\r\n ab")
    terminal.interrupt()
    terminal.until("what was written is kept")
    terminal.until("you: ")
    terminal.type("/save talk.json\n")
    terminal.until("2 messages saved")
    terminal.until("you: ")
    assert terminal.interrupt_at_prompt() == 130
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", terminal.seen), "NO_COLOR is set"
    question, answer = json.loads((tmp_path / "talk.json").read_text())
    assert question["content"] == "hello" and answer["content"].startswith("ab\n ab")


def test_colours_of_drafts() -> None:
    drafted, own = Piece("a", "context"), Piece("b", "model")
    assert colour_of_verdict(Step((drafted, own), 4, 1), drafted) == "red"
    assert colour_of_verdict(Step((drafted, own), 4, 1), own) == "blue"
    assert colour_of_verdict(Step((drafted, own), 1, 1), own) == "magenta"
    assert colour_of_verdict(Step((own,)), own) == "magenta"


# -- conversations as files --------------------------------------------------------------------


@given(st.text(), TURNS)
def test_a_saved_conversation_is_loaded_as_it_was(
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
def test_files_that_are_no_conversation_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "talk.json"
    file.write_bytes(content)
    with pytest.raises(ConversationError, match=r"talk.json: .*: name a file that /save wrote"):
        Conversation.load(file)


@pytest.mark.parametrize("where", ["missing/talk.json", "folder"])
def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path, where: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConversationError, match=where):
        Conversation().save(tmp_path / where)
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


def test_messages_of_a_conversation() -> None:
    one = Conversation("be brief")
    one.add("a", "b")
    one.add("c", "d")
    contents = [message["content"] for message in one.messages("e", start=2)]
    assert contents == ["be brief", "c", "d", "e"]
    assert one.remove() == ("c", "d")
    assert [message["role"] for message in one.messages("x")] == [
        "system", "user", "assistant", "user",
    ]  # fmt: skip
