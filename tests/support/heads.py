"""Helpers for tests of heads and draft models: tiny models, the law at every end, interruptions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from engine.drafting import Drafter, NullDrafter
from engine.generate import Generation, generate
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Request
from tests.conftest import tiny_model
from tests.model.test_target import load
from tests.support.law import answer, run

QUESTIONS = [f"add({n}, right)" for n in range(12)]


def calm(folder: Path, share: float) -> Path:
    """A model whose layers contribute little, which makes its output more predictable."""
    file = tiny_model(folder) / "model.safetensors"
    weights = load_file(file)
    for name in weights:
        if "o_proj" in name or "down_proj" in name:
            weights[name] *= share
    save_file(weights, file, {"format": "pt"})
    return folder


def written(target: TorchTarget, ids: list[int], count: int, options: Any) -> list[int]:
    """The model's continuation of `ids` without end tokens."""
    tokenizer = Tokenizer(target.folder)
    tokenizer.eos = frozenset()
    request, prompt = Request("complete", **options), Prompt(ids, max_tokens=count)
    answer = Generation(request, prompt, tokenizer, target.context)
    list(generate(answer, target, NullDrafter()))
    return answer.output


def same_wherever_it_ends(
    target: TorchTarget, ids: list[int], drafters: Callable[[], Sequence[Drafter]], options: Any
) -> None:
    """Check the law with an end token at every position, and at many lengths."""
    tokenizer = Tokenizer(target.folder)
    for token in written(target, ids, 12, options):
        tokenizer.eos = frozenset({token})
        for room in (0, 1, 2, 3, 11, 30):
            prompt = Prompt(ids, max_tokens=room)
            _, expected = run(target, tokenizer, prompt, NullDrafter(), **options)
            for drafter in drafters():
                _, done = run(target, tokenizer, prompt, drafter, **options)
                assert answer(done) == answer(expected), (token, room)


def pair(folder: Path, noise: float = 0.15) -> tuple[TorchTarget, TorchTarget]:
    """A model, and the same with noise in its LM head."""
    model, other = tiny_model(folder / "model"), tiny_model(folder / "other")
    file = other / "model.safetensors"
    weights = load_file(file)
    torch.manual_seed(1)
    weights["lm_head.weight"] += noise * torch.randn_like(weights["lm_head.weight"])
    weights["model.norm.weight"] *= 1.01  # so that a head can tell the two apart
    save_file(weights, file, {"format": "pt"})
    return load(model, threads=1), load(other, threads=1)


STOPS = """
import sys, time
class Stops:
    def __init__(self, out):
        self.out, self.said = out, ""
    def write(self, text):
        self.out.write(text)
        self.said = (self.said + text)[-9999:]
        if any({line!r} in one and one[-1] in "\\r\\n" for one in self.said.splitlines(True)):
            self.out.flush()
            time.sleep(600)  # it is killed here, however late
        return len(text)
    def __getattr__(self, name):
        return getattr(self.out, name)
sys.stdout = Stops(sys.stdout)
"""


class Killed(BaseException):
    """Stands for a killed process: nothing in the code under test handles it."""


def kill_at(line: str) -> Callable[[str], None]:
    """A report function that ends a training once a line with `line` in it is reported."""

    def report(text: str) -> None:
        if line in text:
            raise Killed

    return report


def killed_at(code: str, line: str, folder: Path, **more: str) -> list[str]:
    """Run Python `code` until it prints a line with `line` in it, then kill the process. Returns
    its lines. `more`: environment variables."""
    own = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", STOPS.format(line=line) + code],
        cwd=folder, stdout=subprocess.PIPE, text=True, env=os.environ | own | more,
    )  # fmt: skip
    assert process.stdout is not None
    said = []
    for each in process.stdout:
        said.append(each.rstrip("\n"))
        if line in each:
            process.send_signal(signal.SIGKILL)
            break
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL, said
    return said
