"""What the command line says of itself: help that fits the terminal, and errors that name what was
probably meant."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.command import environment
from tests.support.questions import Terminal
from ui.cli.main import make_parser
from ui.cli.parser import Formatter, Parser
from ui.common.errors import Failure


def walk(parser: Parser) -> Iterator[Parser]:
    """A parser and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for one in {id(each): each for each in action.choices.values()}.values():
                yield from walk(one)


PARSERS = {parser.prog: parser for parser in walk(make_parser([]))}


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("name", PARSERS)
def test_no_line_of_the_help_is_wider_than_the_terminal(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = PARSERS[name].format_help()
    assert all(len(line) <= columns for line in shown.splitlines()), shown
    for action in PARSERS[name]._actions:
        assert all(
            option in shown for option in action.option_strings if action.help != "==SUPPRESS=="
        )


WORDS = st.text(st.characters(categories=["L", "Nd"]), min_size=1, max_size=12)


@given(st.lists(st.lists(WORDS, min_size=1), min_size=1), st.integers(20, 90))
def test_filling_keeps_all_words(paragraphs: list[list[str]], width: int) -> None:
    text = "\n\n".join(" ".join(words) for words in paragraphs)
    filled = Formatter("x")._fill_text(text, width, "")
    assert filled.split() == text.split()
    assert all(len(line) <= width for line in filled.splitlines())


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("edti", "did you mean edit?"),
        ("modles", "did you mean models?"),
        ("models lst", "did you mean list?"),
        ("edit f -i x --aply", "unrecognized arguments: --aply (did you mean --apply?)"),
        ("edit f -i x --modle=a", "did you mean --model?"),
        ("chat --dtype f33", "did you mean f32?"),
        ("storage cler", "did you mean clear?"),
        ("quux", "choose from edit, apply"),
        ("edit a b -i x", "unrecognized arguments: b: see `draftline edit --help`"),
    ],
)
def test_what_was_probably_meant_is_named(line: str, meant: str) -> None:
    with pytest.raises(Failure) as raised:
        make_parser(line.split()).parse_args(line.split())
    assert meant in str(raised.value) and "\n" not in str(raised.value)
    assert "see `draftline" in str(raised.value)


def test_the_options_of_a_command_are_in_groups() -> None:
    """Those that name the model, draw by chance or draft are not between its own."""
    for name in ("edit", "apply", "ask", "summarize", "chat"):
        groups = {
            str(group.title): [action.dest for action in group._group_actions]
            for group in PARSERS[f"draftline {name}"]._action_groups
        }
        check = ["a check that runs"] * (name == "edit")
        assert [*groups][2:] == ["output", *check, "model", "sampling", "drafting"]
        own = set(groups["options"])
        assert not own & {"model", "device", "temperature", "drafter", "stats", "server"}


CLOSED = [
    (["models"], ">&-", 0),
    (["apply", "empty", "--update", "a.py"], ">&-", 0),
    (["mcp"], "<&-", 2),
    (["mcp"], ">&-", 2),
    (["lsp", "--server", "own"], "<&-", 2),
]


@pytest.mark.parametrize(("arguments", "closed", "code"), CLOSED)
def test_closed_streams_are_no_bug(
    tmp_path: Path, arguments: list[str], closed: str, code: int
) -> None:
    (tmp_path / "a.py").write_text("a = 1\n", "utf-8")
    (tmp_path / "empty").touch()
    command = [sys.executable, "-m", "ui.cli", *arguments]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
    )
    assert done.returncode == code, done.stderr
    assert b"a bug in draftline" not in done.stderr and b"Traceback" not in done.stderr


def test_lists_fit_the_terminal(tmp_path: Path) -> None:
    """Names that one copies are whole."""
    columns, seen = 60, ""
    for command in ("models", "storage"):
        terminal = Terminal(tmp_path, command, COLUMNS=str(columns))
        assert terminal.end() == 0
        seen += terminal.seen
    lines = re.sub(r"\x1b\[[0-9;]*m", "", seen).splitlines()
    wide = [line for line in lines if len(line) > columns]
    assert all(len(line.split()[-1]) > columns - 24 for line in wide), wide  # a long path
    assert "Qwen/Qwen2.5-Coder-7B-Instruct" in lines
