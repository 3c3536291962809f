"""The grammars of merged files: one allows every right answer, and no line of neither text; the
other allows the ways to place an update, and nothing else."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher

from bench.apply.tasks import update_of
from engine import Config, Engine
from engine.editing.apply_snippet import merge
from engine.editing.merge_ways import MergeWays, Run
from engine.prompts.line_grammar import MAX_CHARS, line_grammar, ways_grammar
from engine.prompts.tokenizer import Tokenizer
from engine.records import Request
from engine.sampling.grammar import Grammars
from tests.editing.test_merge_ways import graphs, texts
from tests.support import law

tokenizer = law.tokenizer  # fixture
MARK = "# ... existing code ..."
LINES = st.sampled_from(["a", "  b = 'c'", "\tx\\", '"é"', "if a:", "", "}"])
TEXTS = st.lists(LINES, min_size=1, max_size=8).filter(lambda lines: bool(lines[0] and lines[-1]))


def accepts(tokenizer: Tokenizer, grammar: str, text: str) -> bool:
    """Whether `text` follows the grammar, to its end."""
    state = Grammars(tokenizer).start(grammar, tokenizer.eos)
    return all(map(state.takes, tokenizer.encode(text))) and state.takes(min(tokenizer.eos))


@given(TEXTS, TEXTS)
@settings(max_examples=100)
def test_every_merge_of_an_update_is_allowed(
    tokenizer: Tokenizer, old: list[str], new: list[str]
) -> None:
    update = update_of(old, new, 1, MARK).strip("\n")
    grammar = line_grammar("\n".join(old), update, "```")
    assert accepts(tokenizer, grammar, "\n".join([*new, "```"]))


@given(TEXTS.filter(lambda lines: len(lines) > 1), st.integers(0, 99))
@settings(max_examples=50)
def test_no_other_line_is(tokenizer: Tokenizer, lines: list[str], seed: int) -> None:
    grammar = line_grammar("\n".join(lines), f"{MARK}\n  new\n{MARK}", "```")
    at = random.Random(seed).randrange(len(lines) + 1)
    for line, allowed in {"\tnew": True, "news": False, MARK: False, "...": False}.items():
        text = "\n".join([*lines[:at], line, *lines[at:], "```"])
        inside = 0 < at < len(lines)
        assert accepts(tokenizer, grammar, text) == (allowed and inside), line


@given(st.text(), st.text(min_size=1), st.booleans())
@example("", '\x7f\x85\u2028"\\', False)
@settings(max_examples=300)
def test_any_text_has_a_grammar(code: str, line: str, is_marked: bool) -> None:
    update = f"{MARK}\n{line}\n{MARK}" if is_marked else line
    assert LLMatcher.validate_grammar(line_grammar(code, update, "```")) == ""


def test_the_first_and_the_last_line_stay_beside_marks(tokenizer: Tokenizer) -> None:
    for update, text in {
        f"{MARK}\nx": "b\nx",
        f"x\n{MARK}": "x\na",
        f"{MARK}\nx\n{MARK}": "x",
    }.items():
        assert not accepts(tokenizer, line_grammar("a\nb", update, "```"), f"{text}\n```")
    assert accepts(tokenizer, line_grammar("a", f"{MARK}\nx\n{MARK}", "```"), "a\nx\n```")


def test_huge_texts_have_none() -> None:
    assert line_grammar("x" * MAX_CHARS, "y", "```") == ""


@given(graphs(), st.lists(st.sampled_from(["a", "b", "}"]), max_size=4))
@settings(max_examples=100)
def test_the_ways_of_an_update_and_nothing_else_are_allowed(
    tokenizer: Tokenizer, ways: MergeWays, other: list[str]
) -> None:
    grammar, every = ways_grammar(ways, "```"), texts(ways)
    for text in [*every, tuple(other)]:
        assert accepts(tokenizer, grammar, "\n".join([*text, "```"])) == (text in every)


def test_any_line_is_a_line_of_a_way() -> None:
    ways = MergeWays([[], [Run(('\x7f\x85\u2028"\\', ""), 0)]], 1)
    assert LLMatcher.validate_grammar(ways_grammar(ways, "```")) == ""


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_model_chooses_one_of_the_ways(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temperature: float
) -> None:
    """One of random weights, with and without speculation. What comes after its choice is not
    computed."""
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path))
    text, update = "import os\n\ndef f():\n    pass\n", f"LIMIT = 1\n\ndef f():\n{MARK}\n"
    ways = merge(text, update).ways
    assert ways is not None
    every, seen = texts(ways), set()
    with Engine(Config(model=str(tiny("llama")), library=False)) as engine:
        for seed in range(12):
            request = Request("edit", text, update=update, temperature=temperature, seed=seed)
            done, plain = (engine.submit(request, one).result() for one in (True, False))
            assert (done.reason, done.matched) == ("stop", "\n```")
            assert (done.text, done.usage.completion_tokens) == (
                plain.text, plain.usage.completion_tokens
            )  # fmt: skip
            assert done.usage.forwards < plain.usage.forwards == plain.usage.completion_tokens
            seen.add(done.text)
    assert {tuple(one.split("\n")) for one in seen} <= every
    assert len(seen) > (temperature > 0)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_model_writes_known_lines_only(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temperature: float
) -> None:
    """One of random weights, with and without speculation."""
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path))
    request = Request(
        "edit", "a = 1\nb = 2\nc = 3\n", update="b = 5\n# ...", max_tokens=60,
        temperature=temperature, seed=3,
    )  # fmt: skip
    with Engine(Config(model=str(tiny("llama")), library=False)) as engine:
        done, plain = (engine.submit(request, one).result() for one in (True, False))
    lines = {"a = 1", "b = 2", "c = 3", "b = 5", ""}
    assert {line.strip() for line in done.text.split("\n")[:-1]} <= lines
    assert done.text == plain.text and done.text.strip()
