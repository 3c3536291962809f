"""Draftline's drafter inside a real vLLM (`make test-vllm`): the law, and many requests at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.common.tasks import CODE
from bench.vllm.model_folder import safetensors_folder
from bench.vllm.server import PYTHON, DraftCounts, vllm_server
from engine.prompts.tokenizer import Tokenizer
from engine.weights import locate

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON.exists(), reason="`make test-vllm` makes vLLM's environment"),
]

MODEL, TOKENS, DRAFT_TOKENS = "smollm2-135m", 64, 12
ASKED = ("Repeat this code.", "Rename `self` to `this`.", "What does it do?", "Add docstrings.")
OPTIONS = ("--dtype", "float32", "--max-model-len", "2048")


@dataclass(frozen=True)
class Served:
    """What one server answered: alone, and all requests at once."""

    alone: list[str]
    together: list[str]
    counts: DraftCounts


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Sixteen chats about four files, two of them equal, and completions of their code."""
    tokenizer, found = Tokenizer(locate(MODEL)), list[list[int]]()
    for file in sorted(CODE.rglob("*.py"))[:4]:
        code = "".join(file.read_text("utf-8").splitlines(keepends=True)[:30])
        for asked in ASKED[:3]:
            message = {"role": "user", "content": f"```python\n{code}```\n\n{asked}"}
            found.append(tokenizer.chat([message]))
        found.append(tokenizer.encode(code + code[: len(code) // 2]))
    return [*found[:15], found[0]]


def served(model: Path, method: str, prompts: list[list[int]]) -> Served:
    with vllm_server(model, method, DRAFT_TOKENS, OPTIONS) as server:
        alone = [server.complete(prompt, TOKENS).text for prompt in prompts]
        with ThreadPoolExecutor(len(prompts)) as pool:
            answers = list(pool.map(lambda prompt: server.complete(prompt, TOKENS), prompts))
        return Served(alone, [one.text for one in answers], server.counts())


@pytest.fixture(scope="module")
def servers(prompts: list[list[int]]) -> Iterator[dict[str, Served]]:
    model = safetensors_folder(locate(MODEL))
    yield {method: served(model, method, prompts) for method in ("plain", "draftline")}


def test_drafts_never_change_a_greedy_text(servers: dict[str, Served]) -> None:
    assert servers["draftline"].alone == servers["plain"].alone


def test_sixteen_requests_at_once_get_the_texts_that_they_get_alone(
    servers: dict[str, Served],
) -> None:
    assert servers["draftline"].together == servers["plain"].alone


def test_drafts_are_made_and_accepted(servers: dict[str, Served]) -> None:
    counts = servers["draftline"].counts
    assert counts.drafts > 50 and counts.acceptance_length > 2
    assert servers["plain"].counts == DraftCounts()
