"""Speculation changes nothing on real weights and real text: bits of logits, and whole answers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine import Config, Engine, Request
from engine.editing.edits import apply, line_span
from engine.model.torch.torch_target import TorchTarget
from engine.records import Draft
from engine.weights import locate
from engine.weights.resolve import gguf_of
from tests.model.test_target import begin, load, path_to, some_tokens, some_tree
from tests.support.command import draftline_process
from ui.demo import INSTRUCTION, LINES, SAMPLE

SMALL, DEFAULT = "smollm2-135m", "qwen2.5-coder-0.5b"
CASES = [
    pytest.param(model, dtype, marks=pytest.mark.model if fast else pytest.mark.full)
    for model, dtype, fast in (
        *(
            (SMALL, "f32", False),
            (SMALL, "bf16", False),
            (SMALL, "q8", False),
            (SMALL, "auto", True),
        ),
        *((DEFAULT, "f32", False), (DEFAULT, "bf16", False), (DEFAULT, "q8", False)),
        (DEFAULT, "auto", False),
    )
]
TEXT = SAMPLE.read_text("utf-8")


def tokens_of_text(target: TorchTarget, model: str) -> list[int]:
    from engine.prompts.tokenizer import Tokenizer

    return Tokenizer(locate(model)).encode(TEXT * 2)


@pytest.mark.parametrize(("model", "dtype"), CASES)
def test_nodes_of_drafts_have_the_bits_of_one_token_passes(model: str, dtype: str) -> None:
    """A chain of real text, and a tree that contains it among other branches, against one-token
    passes; and the cache after `keep` equals that of a prefill."""
    target = load(locate(model), dtype)
    assert target.exact
    text = tokens_of_text(target, model)
    prompt, rest = text[:160], text[160:172]
    begin(target, prompt)
    alone = []
    for last in (prompt[-1], *rest):
        alone.append(target.forward(last, Draft()).logits[0].clone())
        target.keep([])
    chain = Draft()
    for node, token in enumerate(rest):
        chain.add(token, node - 1, 1.0, "test")
    begin(target, prompt)
    together = target.forward(prompt[-1], chain).logits
    assert all(torch.equal(row, one) for row, one in zip(together, alone, strict=True))
    tree, path = some_tree(12, target.vocab), []
    for token in rest:  # the text, among other branches
        path.append(tree.add(token, path[-1] if path else -1, 1.0, "test"))
        tree.add(some_tokens(1, target.vocab, token)[0], path[-1], 0.1, "test")
    begin(target, prompt)
    logits = target.forward(prompt[-1], tree).logits
    for node, one in zip([-1, *path], alone, strict=True):
        assert torch.equal(logits[node + 1], one)
    target.keep(path)
    kept = target.sequence.cache[0].clone()
    target.pool.sequences.clear()
    begin(target, [*prompt, *rest, 5])
    rows = len(prompt) + len(rest)
    assert torch.equal(target.sequence.cache[0][..., :rows, :], kept[..., :rows, :])
    assert path_to(tree, path[-1]) == path


@pytest.mark.parametrize(("model", "dtype"), CASES)
def test_speculation_never_changes_the_answer(model: str, dtype: str) -> None:
    """Edits, completions and chat, greedy and sampled, on one engine."""
    folder = str(locate(model))
    fast = (model, dtype) == (SMALL, "auto")  # runs in `make test`: shorter answers
    edit = Request(
        "edit", TEXT, path="a.py", selection=line_span(TEXT, 29, 35), instruction=INSTRUCTION,
        max_tokens=40 if fast else None,
    )  # fmt: skip
    sampled = {"temperature": 0.8, "seed": 4, "top_p": 0.9}
    requests = [edit, Request("complete", TEXT[:300], max_tokens=24, **sampled)]  # type: ignore[arg-type]
    if dtype in ("q8", "auto"):  # f32 and bf16 are slow on CPUs without bf16 instructions
        message = {"role": "user", "content": f"Summarize:\n{TEXT}"}
        requests.append(Request("chat", messages=(message,), max_tokens=32 if fast else 80))
    with Engine(Config(model=folder, dtype=dtype)) as engine:
        for request in requests:
            drafted = engine.submit(request).result()
            plain = engine.submit(request, speculation=False).result()
            assert drafted.text == plain.text and drafted.reason == plain.reason
            assert drafted.usage.completion_tokens == plain.usage.completion_tokens


def file_of(model: str) -> Path:
    """The GGUF file of a built-in model, for a process that has a cache of its own."""
    file = gguf_of(locate(model))
    assert file is not None
    return file


@pytest.mark.full
def test_the_command_makes_the_demo_s_edit(tmp_path: Path) -> None:
    """With and without speculation: the requested rename and nothing else."""
    model = file_of(DEFAULT)
    results = []
    for option in ([], ["--no-speculation"]):
        file = tmp_path / "sample.py"
        file.write_text(TEXT, "utf-8")
        found = draftline_process(
            tmp_path, "edit", file.name, "-i", INSTRUCTION, "--model", model,
            "--lines", "{}:{}".format(*LINES), "--apply", "--stats", *option,
        )  # fmt: skip
        assert found.returncode == 0, found.stderr.decode()
        results.append(file.read_text("utf-8"))
    assert results[0] == results[1]
    expected = TEXT.replace("path: str", "source: str").replace("open(path", "open(source")
    assert results[0] == expected.replace("{path}", "{source}")


@pytest.mark.full
def test_the_demo_finds_equal_texts(tmp_path: Path) -> None:
    found = draftline_process(tmp_path, "demo", "--model", file_of(DEFAULT))
    assert found.returncode == 0
    assert "both texts are equal" in found.stdout.decode()


@pytest.mark.full
def test_an_edit_preserves_bom_line_ends_and_decomposed_characters() -> None:
    """They survive an edit by a real model, whatever else it changes."""
    text = "\ufeff# cafe\u0301\r\ndef add(left, right):\r\n    # nai\u0308ve\r\n"
    text += "    return left + right\r\n"
    request = Request(
        "edit", text, path="a.py", instruction="Rename the parameter `right` to `other`."
    )
    with Engine(Config(model=DEFAULT)) as engine:
        done = engine.submit(request).result()
    edited = apply(request, done)
    assert edited.startswith("\ufeff") and "left + other" in edited
    assert edited.count("\n") == edited.count("\r\n")
    assert "# nai\u0308ve\r\n" in edited
