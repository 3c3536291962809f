"""Shared by the tests of `draftline ask`, `summarize` and `chat`: a model that always answers one
word, files to ask about, and the command in a terminal."""

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

from tests.support.command import EOS, READY_COMMAND, chain_model, environment

TIMEOUT_S = 180.0
WORD = "FLASK_DEBUG"  # the answer to everything; no letter occurs twice
GUIDE = (
    "# Guide\n\nThe variable `FLASK_DEBUG` turns the debugger on.\n\n"
    "## Other\n\nA table has rows and columns, as many as there is room for.\n"
)


def make_model(folder: Path, word: str = WORD) -> Path:
    """A model that always answers `word`; without a template, prompts end with a space."""
    return chain_model(folder, f" {word}", EOS, context=8192)


def make_files(folder: Path) -> Path:
    """Write guide.md, another text and an empty file; returns the path of guide.md."""
    (folder / "guide.md").write_text(GUIDE, "utf-8")
    (folder / "other.txt").write_text("Nothing but prose.\n", "utf-8")
    (folder / "empty.txt").write_text("", "utf-8")
    return folder / "guide.md"


def make_embedder(folder: Path, topics: Sequence[str]) -> Path:
    """A tiny model2vec model: one dimension for the words of each topic."""
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


class Terminal:
    """The command in its own process, on a pseudo-terminal that can be typed into."""

    def __init__(self, folder: Path, *arguments: str | Path, **variables: str) -> None:
        command = [sys.executable, "-c", READY_COMMAND, *map(str, arguments)]
        self._ours, theirs = pty.openpty()
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(folder, **variables),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""
        self._position = 0  # `until` searches from here

    def until(self, text: str) -> None:
        """Wait until `text` is shown after the text of the previous call."""
        deadline = time.monotonic() + TIMEOUT_S
        while (found := self.seen.find(text, self._position)) < 0:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen[-999:]!r}"
            readable = bool(select.select([self._ours], [], [], 1)[0])
            assert not readable or self._read(), f"no {text!r} in {self.seen[-999:]!r}"
        self._position = found + len(text)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def interrupt_at_prompt(self) -> int:
        """Press Ctrl-C until the command ends, as a user would; returns the exit code. Python loses
        one that arrives between showing a prompt and waiting for input."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.seen[-999:]
            self.interrupt()
            if select.select([self._ours], [], [], 1)[0]:
                self._read()
        return self.end()

    def end(self) -> int:
        """Wait for the end of the output; returns the exit code."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            assert time.monotonic() < deadline, f"it does not end: {self.seen[-999:]!r}"
            if select.select([self._ours], [], [], 1)[0] and not self._read():
                break
        os.close(self._ours)
        return self.process.wait(TIMEOUT_S)

    def _read(self) -> bool:
        try:
            part = os.read(self._ours, 4096)
        except OSError:  # the other side is closed
            return False
        self.seen += part.decode("utf-8", "replace")
        return bool(part)


def lines(output: bytes) -> list[str]:
    return output.decode().splitlines()
