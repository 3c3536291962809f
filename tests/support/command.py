"""Run the `draftline` command, in this process or in one of its own, and the models and files that
its tests use."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = b"\xef\xbb\xbfa = 'e\xcc\x81'\r\nx=1\r\nb = 2\nend"
FENCE, EOS = "\n```", "<|end|>"  # ends of a chain model's answers
EDITED = SOURCE.replace(b"x=1", b"x=9")
SEEN = b"draftline: my file.py: not run: syntax, lost definitions and names looked at\n"
Result = subprocess.CompletedProcess[bytes]

# The command, which prints "ready" as soon as it handles Ctrl-C.
READY_COMMAND = """import sys
from ui.cli import main
from ui.common import interrupt
listen = interrupt.Interrupt.listen
def listen_and_report(self):
    listen(self)
    print("ready", flush=True)
interrupt.Interrupt.listen = listen_and_report
sys.exit(main.main())
"""


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """The environment of a command whose cache is `folder / "home"`."""
    ours = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "TERM"}}
    paths = os.pathsep.join([str(ROOT), ours.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    own = {"PYTHONPATH": paths, "DRAFTLINE_HOME": str(folder / "home"), "TERM": "xterm"}
    return ours | own | variables


def draftline(
    folder: Path,
    *arguments: str | Path | bytes,
    stdin: bytes = b"",
    cache: Path | None = None,
    **variables: str,
) -> Result:
    """Run the command in this process, with `folder` as its current folder. Its cache is `home` in
    `cache`, by default in `folder`; `variables` are added to the environment."""
    env = environment(cache or folder, **variables)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = _run(folder, env, arguments, stdin, out.fileno(), err.fileno())
        out.seek(0)
        err.seek(0)
        return Result(arguments, code, out.read(), err.read())


def on_terminal(folder: Path, *arguments: str | Path | bytes, **variables: str) -> tuple[int, str]:
    """Run the command in this process, with stdout and stderr on one terminal; the exit code, and
    what the terminal received."""
    ours, theirs = os.openpty()
    received: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the other side is closed
            while part := os.read(ours, 4096):
                received.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        code = _run(folder, environment(folder, **variables), arguments, b"", theirs, theirs)
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
    return code, b"".join(received).decode("utf-8", "replace")


def _run(
    folder: Path,
    env: dict[str, str],
    arguments: tuple[str | Path | bytes, ...],
    stdin: bytes,
    out: int,
    err: int,
) -> int:
    from ui.cli.main import main

    before = Path.cwd()
    with _environment(env), _process_state(), _redirected(stdin, out, err):
        os.chdir(folder)
        try:
            return main([os.fsdecode(argument) for argument in arguments])
        finally:
            os.chdir(before)


def draftline_process(
    folder: Path, *arguments: str | Path | bytes, stdin: bytes = b"", **options: Any
) -> Result:
    """Run the command in a process of its own, with `folder` as its current folder."""
    command = [sys.executable, "-m", "ui.cli", *arguments]
    given = {"input": stdin, "capture_output": True, "timeout": 300} | options
    return subprocess.run(command, **{"cwd": folder, "env": environment(folder)} | given)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _process_state() -> Iterator[None]:
    """Restore what commands change in their process: signal handlers, logging, torch's threads."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    root, transformers = logging.getLogger(), logging.getLogger("transformers")
    loggers = [(root, root.level, root.handlers[:]), (transformers, transformers.level, None)]
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else 0
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for logger, level, before in loggers:
            logger.setLevel(level)
            if before is not None:
                logger.handlers[:] = before
        if torch:
            torch.set_num_threads(threads)


@contextmanager
def _redirected(stdin: bytes, out: int, err: int) -> Iterator[None]:
    """Redirect file descriptors 1 and 2, which child processes inherit, and `sys`'s streams."""
    streams = sys.stdin, sys.stdout, sys.stderr
    saved = {number: os.dup(number) for number in (1, 2)}
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdin, sys.stdout, sys.stderr = streams
        for number, copy in saved.items():
            os.dup2(copy, number)
            os.close(copy)


def one_line(result: Result) -> str:
    """The only line of stderr, `draftline: what: remedy`; nothing on stdout."""
    assert result.stdout == b""
    line = result.stderr.decode()
    assert re.fullmatch(r"draftline: [^\n]*: [^\n]*\n", line), line
    return line


def make_file(folder: Path) -> Path:
    """A file with a BOM, NFD, mixed line ends and no final one; its modification time is 1."""
    path = folder / "my file.py"
    path.write_bytes(SOURCE)
    os.utime(path, (1, 1))
    return path


def untouched(file: Path) -> bool:
    """Whether a file of `make_file` was never written."""
    return file.read_bytes() == SOURCE and file.stat().st_mtime == 1


def chain_model(folder: Path, answer: str, end: str, context: int = 2048) -> Path:
    """A Llama of one-hot rows: "\\n" leads to `answer`'s characters one by one, then to `end`
    (FENCE, EOS, or "\\n" to begin again)."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM

    folder.mkdir()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [EOS, *letters, "``", "```", "\u010a```"]
    vocab = {name: number for number, name in enumerate(names)}
    merges = [("`", "`"), ("``", "`"), ("\u010a", "```")]
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.add_special_tokens([EOS])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    width = 512
    config = LlamaConfig(
        vocab_size=len(vocab),
        hidden_size=width,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=context,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=0,
    )
    model = LlamaForCausalLM(config).float()
    path = tokenizer.encode(f"\n{answer}").ids
    assert len(set(path)) == len(path), "each token of a chain leads to one other"
    path += tokenizer.encode(end).ids
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name:
                weight.zero_()
        model.model.embed_tokens.weight[:, : len(vocab)] = torch.eye(len(vocab))
        for token, after in itertools.pairwise(path):
            model.lm_head.weight[after, token] = 1
    model.save_pretrained(folder)
    return folder
