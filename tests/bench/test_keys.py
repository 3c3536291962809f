"""`python -m bench keys`: what is typed, and how many tokens of prompts are read for it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench.latency import keys
from bench.latency.keys import CLOSERS, FEW_TOKENS, Reads, counts, sample_places, texts
from engine.model.kv_cache import common_prefix
from engine.prompts import fim
from engine.prompts.builder import prompt_of
from lsp_server.completion.inline import request_for
from lsp_server.protocol.text_sync import OpenDocuments
from tests.bench.conftest import RunBench
from tests.engine.test_fim import QWEN
from tests.support.marked_tokenizer import with_marks

BODY = "".join(f"    total_{n} = count(items[{n}], 'a')\n" for n in range(8))
FILE = "".join(f"def f{n}(items):\n{BODY}\n\n" for n in range(9))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    for name in "abc":
        (tmp_path / "project" / f"{name}.py").write_text(FILE)
    return tmp_path / "project"


def test_what_is_typed_is_what_was_removed(workspace: Path) -> None:
    ((_, place),) = sample_places(workspace, 1)
    for closes in (False, True):
        shown = [*texts(place, closes)]
        assert shown[0] == (place.text[: place.start], place.text[place.stop :])
        for before, after in shown:
            assert place.text.startswith(before)
            closed = after.removesuffix(place.text[place.stop :])
            assert set(closed) <= set(CLOSERS.values()) if closes else not closed
        assert all(len(one[0]) < len(next_one[0]) for one, next_one in pairwise(shown))


def test_the_count_is_what_no_earlier_prompt_begins_with(workspace: Path, tmp_path: Path) -> None:
    ((path, place),) = sample_places(workspace, 1)
    tokenizer = with_marks(tmp_path, QWEN)
    reads, other = (Reads(tokenizer, None, 600) for _ in range(2))
    earlier: list[list[int]] = []
    expected = []
    for before, after in texts(place, True):
        document = OpenDocuments().open(path.as_uri(), "python", 1, before + after)
        request = request_for(other.session, other.engine, document, len(before), other.layout)
        ids = prompt_of(request, tokenizer).ids
        known = max((common_prefix(one, ids[:-1]) for one in earlier), default=0)
        expected.append(len(ids) - known)
        earlier.append(ids)
    found = counts(place, path, reads, True)
    # The pool forgets: it reads more where an old prompt would have helped.
    assert len(found) == len(expected) - 1
    assert all(one >= best for one, best in zip(found, expected[1:], strict=True))
    assert sum(one == best for one, best in zip(found, expected[1:], strict=True)) > 50


def test_a_key_costs_few_tokens_and_did_not_when_all_of_the_rest_followed(
    run_bench: RunBench, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_marks(tmp_path, QWEN)
    options = ["--model", str(tmp_path), "--workspace", str(workspace), "--places", "2"]

    def rows() -> list[dict[str, Any]]:
        ran = run_bench(keys.main, *options)
        assert ran.code == 0, ran.err
        return list(json.loads(ran.out.splitlines()[-1])["rows"])

    found = rows()
    assert len(found) == 2 * len(keys.SPEEDS)
    for row in found:
        assert row["median"] <= FEW_TOKENS and row["few_share"] > 0.95, row
    monkeypatch.setattr(fim, "NEAR_TOKENS", 1 << 20)
    assert rows()[-1]["median"] > 3 * found[-1]["median"]


def test_a_workspace_without_functions_is_named(run_bench: RunBench, tmp_path: Path) -> None:
    ran = run_bench(keys.main, "--workspace", tmp_path)
    assert ran.code == 2 and str(tmp_path) in ran.err
