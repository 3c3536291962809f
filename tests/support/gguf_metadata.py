"""The metadata of GGUF files with small vocabularies that were trained on mixed text."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from engine.weights.gguf.gguf_file import Gguf
from engine.weights.gguf.sentencepiece import BLANK, BYTE, CONTROL, NORMAL, UNKNOWN
from tests.support.mixed_text import mixed_lines

VOCABULARY = 2000
LETTERS = 400  # of a vocabulary of characters; others are written as bytes


@cache
def trained(byte_level: bool) -> tuple[dict[str, int], list[str]]:
    """A vocabulary and merges that were trained on mixed text."""
    made = Tokenizer(models.BPE())
    letters: list[str] = []
    lines = mixed_lines(2000, seed=1)
    if byte_level:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        letters = pre_tokenizers.ByteLevel.alphabet()
    else:
        lines = [f"{BLANK}{line.replace(' ', BLANK)}" for line in lines]
        made.pre_tokenizer = pre_tokenizers.Split(BLANK, "merged_with_next")
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, limit_alphabet=LETTERS, initial_alphabet=letters
    )
    made.train_from_iterator(lines, trainer)
    model = json.loads(made.to_str())["model"]
    return model["vocab"], [" ".join(pair) for pair in model["merges"]]


def metadata(tokens: list[str], kinds: list[int], **more: Any) -> dict[str, Any]:
    """The fields of a GGUF file."""
    return {
        "general.architecture": more.pop("architecture", "llama"),
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def byte_level(pre: str, **more: Any) -> dict[str, Any]:
    vocabulary, merges = trained(byte_level=True)
    tokens = [*sorted(vocabulary, key=vocabulary.__getitem__), "<|end|>"]
    kinds = [NORMAL] * len(vocabulary) + [CONTROL]
    return metadata(tokens, kinds, model="gpt2", pre=pre, merges=merges, **more)


def pieces(**more: Any) -> dict[str, Any]:
    """A SentencePiece vocabulary: the control tokens, the bytes, then pieces by falling score. Runs
    of blanks have one score, as in Llama's."""
    vocabulary, _ = trained(byte_level=False)
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256)), *words]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(words)]
    scores = [-1e9 if set(one) == {BLANK} else -float(n) for n, one in enumerate(tokens)]
    return metadata(tokens, kinds, **{"model": "llama", "scores": scores} | more)


def file_of(fields: dict[str, Any]) -> Gguf:
    return Gguf(Path("model.gguf"), fields, {}, None)  # type: ignore[arg-type]
