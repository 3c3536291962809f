"""Prefix caching: a second edit of a file prefills only what changed, since prompts start with what
stays and several recent sequences stay cached. Counted in tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Config, Done, Engine, Request
from engine.prompts.builder import prompt_of
from tests.conftest import tiny_model

CODE = "".join(f"def part_{n}(left, right):\n    return left + right * {n}\n" for n in range(48))
OTHER = CODE.replace("part", "piece")
THIRD = CODE.replace("part", "share")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("long") / "llama", context=4096)


@pytest.fixture
def engine(model: Path, home: Path) -> Iterator[Engine]:
    with Engine(Config(model=str(model), threads=2)) as engine:
        yield engine


def edit(text: str, instruction: str, selection: tuple[int, int] | None = None) -> Request:
    return Request(
        "edit", text, path="a.py", instruction=instruction, selection=selection, max_tokens=6
    )


def read(engine: Engine, request: Request) -> tuple[int, int]:
    """Tokens prefilled, and tokens of the whole prompt."""
    usage = engine.submit(request).result().usage
    return usage.prompt_tokens - 1 - usage.cached_tokens, usage.prompt_tokens


def lines(first: int, last: int) -> tuple[int, int]:
    """The span of CODE's lines from `first` (0-based) up to but not including `last`."""
    ends = [0]
    for line in CODE.splitlines(keepends=True):
        ends.append(ends[-1] + len(line))
    return ends[first], ends[last]


def test_no_answer_shows_what_others_have_asked(engine: Engine) -> None:
    """Neither by its count nor by its time: the whole prompt is read for each owner."""
    request = edit(CODE, "rename left to first")

    def cached(owner: str) -> int:
        return engine.submit(request, owner=owner).result().usage.cached_tokens

    assert cached("A") == 0 == cached("B")
    tokens = engine.submit(request, owner="A").result().usage.prompt_tokens
    assert cached("A") == cached("B") == tokens - 1 and cached("C") == 0


@pytest.mark.parametrize("selection", [None, lines(10, 90)])
def test_only_another_instruction_is_read(
    engine: Engine, selection: tuple[int, int] | None
) -> None:
    first, _ = read(engine, edit(CODE, "rename left to first", selection))
    second, _ = read(engine, edit(CODE, "say what it does", selection))
    assert second <= 0.2 * first


def test_after_an_edit_only_the_text_behind_the_change_is_read(engine: Engine) -> None:
    first, _ = read(engine, edit(CODE, "rename left to first"))
    changed = CODE.replace("* 46", "- 46")
    second, _ = read(engine, edit(changed, "say what it does"))
    assert second <= 0.2 * first


def test_a_selection_with_the_same_start_is_not_read_again(engine: Engine) -> None:
    first, _ = read(engine, edit(CODE, "rename left to first", lines(10, 90)))
    second, _ = read(engine, edit(CODE, "say what it does", lines(10, 20)))
    assert second <= 0.2 * first


def test_another_selection_shares_the_head_of_the_prompt(engine: Engine) -> None:
    """Prompts contain only the selection: all but the head is read again."""
    one, other = edit(CODE, "rename left", lines(0, 20)), edit(CODE, "rename left", lines(30, 44))
    heads = [prompt_of(request, engine.parts.tokenizer).ids for request in (one, other)]
    head = next(n for n, (a, b) in enumerate(zip(*heads, strict=False)) if a != b)
    read(engine, one)
    second, size = read(engine, other)
    assert head > 20 and second == size - 1 - head


def test_several_files_stay_cached(engine: Engine) -> None:
    firsts = [read(engine, edit(text, "rename left"))[0] for text in (CODE, OTHER, THIRD)]
    for text, first in zip((CODE, OTHER, THIRD), firsts, strict=True):
        assert read(engine, edit(text, "say what it does"))[0] <= 0.2 * first


@pytest.mark.parametrize("limit", [{"cached_sequences": 1}, {"cache_bytes": 1}])
def test_sequences_beyond_the_limits_are_evicted(
    model: Path, home: Path, limit: dict[str, Any]
) -> None:
    with Engine(Config(model=str(model), threads=2, **limit)) as engine:
        first, _ = read(engine, edit(CODE, "rename left"))
        read(engine, edit(OTHER, "rename left"))
        assert len(engine.parts.target.pool.sequences) == 1
        assert read(engine, edit(CODE, "say what it does"))[0] > 0.8 * first


def test_cached_prefixes_do_not_change_the_answer(engine: Engine, model: Path, home: Path) -> None:
    requests = [
        edit(CODE, "rename left"),
        edit(CODE, "say what it does"),
        edit(CODE, "rename left"),
    ]
    warm = [engine.submit(request).result() for request in requests]
    assert warm[1].usage.cached_tokens and warm[2].usage.cached_tokens
    for request, done in zip(requests, warm, strict=True):
        engine.parts.target.pool.sequences.clear()
        cold: Done = engine.submit(request).result()
        assert not cold.usage.cached_tokens
        assert (cold.text, cold.reason) == (done.text, done.reason)
