"""What the tests of `draftline ask`, `summarize` and `chat` share: a model that answers one word,
files to ask about, the command in this process and in another one."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import CODE, EOS, chain_model, environment

WORD = "FLASK_DEBUG"  # what the model says to everything; no letter comes twice
GUIDE = (
    "# Guide\n\nThe variable `FLASK_DEBUG` turns the debugger on.\n\n"
    "## Other\n\nA table has rows and columns, as many as there is room for.\n"
)


def make_model(folder: Path, word: str = WORD) -> Path:
    """A model whose every answer is that word; a prompt without a template ends in a blank."""
    return chain_model(folder, f" {word}", EOS, context=8192)


def make_files(folder: Path) -> Path:
    """guide.md, and next to it others that are read or refused."""
    (folder / "guide.md").write_text(GUIDE, "utf-8")
    (folder / "other.txt").write_text("Nothing but prose.\n", "utf-8")
    (folder / "empty.txt").write_text("", "utf-8")
    return folder / "guide.md"


def make_embedder(folder: Path, topics: Sequence[str]) -> Path:
    """A real model of model2vec, as small as can be: one dimension for the words of each topic."""
    model2vec = pytest.importorskip("model2vec")
    from tokenizers import Tokenizer, models, pre_tokenizers

    known = {word: n for n, word in enumerate(["[UNK]", *" ".join(topics).split()])}
    tokenizer = Tokenizer(models.WordLevel(known, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    vectors = np.zeros((len(known), len(topics) + 1), np.float32)
    vectors[0, -1] = 0.1
    for n, topic in enumerate(topics):
        for word in topic.split():
            vectors[known[word], n] = 1
    model2vec.StaticModel(vectors, tokenizer).save_pretrained(folder)
    return folder


def run(*arguments: str | Path) -> int:
    """The command in this process, as ui/cli/main.py starts it; its exit code."""
    from ui.cli.main import _parser

    args = _parser().parse_args([str(one) for one in arguments])
    code: int = args.run(args)
    return code


class Terminal:
    """The command in a process of its own, on a terminal that can be typed into."""

    def __init__(self, folder: Path, *arguments: str | Path, **extra: str) -> None:
        command = [sys.executable, "-c", CODE, *map(str, arguments)]
        self.ours, theirs = pty.openpty()
        env = environment(folder) | extra
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""
        self.at = 0  # what was waited for ends there

    def until(self, text: str, seconds: float = 180) -> None:
        """Wait until this was shown, after what was waited for before."""
        deadline = time.monotonic() + seconds
        while (found := self.seen.find(text, self.at)) < 0:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen[-999:]!r}"
            waiting = bool(select.select([self.ours], [], [], 1)[0])
            assert not waiting or self._read(), f"no {text!r} in {self.seen[-999:]!r}"
        self.at = found + len(text)

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Everything that is still shown; the exit code."""
        while self._read():
            pass
        os.close(self.ours)
        return self.process.wait(timeout=180)

    def _read(self) -> bool:
        try:
            part = os.read(self.ours, 4096)
        except OSError:  # the other side is closed
            return False
        self.seen += part.decode("utf-8", "replace")
        return bool(part)


def lines(data: bytes) -> list[str]:
    """Captured output as text."""
    return data.decode().splitlines()
