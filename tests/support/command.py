"""Running the `draftline` command in a process, on a file with all that is easily lost."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = b"\xef\xbb\xbfa = 'e\xcc\x81'\r\nx=1\r\nb = 2\nend"
FENCE, EOS = "\n```", "<|end|>"  # how a chain may end
EDITED = SOURCE.replace(b"x=1", b"x=9")
# The command, which says "ready" once Ctrl-C is its own.
CODE = """import sys
from ui.cli import interrupt, main
listen = interrupt.Interrupt.listen
def told(self):
    listen(self)
    print("ready", flush=True)
interrupt.Interrupt.listen = told
sys.exit(main.main())
"""


def environment(folder: Path) -> dict[str, str]:
    quiet = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "TERM"}}
    paths = os.pathsep.join([str(ROOT), quiet.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return quiet | {"PYTHONPATH": paths, "DRAFTLINE_HOME": str(folder / "home"), "TERM": "xterm"}


def draftline(
    folder: Path, *arguments: str | Path | bytes, stdin: bytes = b"", **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run the command in `folder`."""
    command = [sys.executable, "-m", "ui.cli", *arguments]
    given = {"input": stdin, "capture_output": True, "timeout": 300} | options
    return subprocess.run(command, cwd=folder, env=environment(folder), **given)


def one_line(result: subprocess.CompletedProcess[bytes]) -> str:
    """The only line of stderr, `draftline: what: remedy`; nothing on stdout."""
    assert result.stdout == b""
    line = result.stderr.decode()
    assert re.fullmatch(r"draftline: [^\n]*: [^\n]*\n", line), line
    return line


def make_file(folder: Path) -> Path:
    """A small file with a BOM, NFD, mixed line ends and no final one; its time is 1."""
    path = folder / "my file.py"
    path.write_bytes(SOURCE)
    os.utime(path, (1, 1))
    return path


def untouched(file: Path) -> bool:
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
