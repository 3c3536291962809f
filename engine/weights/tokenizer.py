"""A GGUF's byte-level BPE -> tokenizer.json, tokenizer_config.json and generation_config.json.

The tokenizer gets no normaliser (Qwen's own has NFC): for text that is NFC already the tokens are
the same, and any other text keeps its exact bytes. SentencePiece tokenizers are refused.
"""

from __future__ import annotations

from typing import Any

from engine.weights.errors import shown
from engine.weights.gguf_file import Gguf
from engine.weights.model_config import LIMITS

CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # tokenizer.ggml.token_type

SPLIT_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLIT_QWEN2 = SPLIT_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def tokenizer(file: Gguf, vocabulary: int) -> dict[str, Any]:
    """tokenizer.json: byte-level BPE. Control tokens are special, so that they can be split.
    `vocabulary`: rows of the embedding, which every token needs one of."""
    kind, pre = file.text("tokenizer.ggml.model"), file.text("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or pre not in PRE_TOKENIZERS:
        raise file.unsupported(f"tokenizer {shown(kind)} and pre-tokenizer {shown(pre)}")
    tokens = file.entries("tokenizer.ggml.tokens", str)
    kinds = file.entries("tokenizer.ggml.token_type", int)
    merges = [merge.split(" ") for merge in file.entries("tokenizer.ggml.merges", str)]
    if len(kinds) != len(tokens) or len(tokens) > vocabulary:
        raise file.damaged(
            f"'tokenizer.ggml.tokens' has {len(tokens)} entries, 'tokenizer.ggml.token_type' "
            f"{len(kinds)}, and the embedding {vocabulary} rows"
        )
    used = {token: i for i, token in enumerate(tokens) if kinds[i] != UNUSED}
    if len(used) + kinds.count(UNUSED) != len(tokens):
        raise file.damaged("'tokenizer.ggml.tokens' lists a token twice")
    for merge in merges:
        if len(merge) != 2 or not used.keys() >= {*merge, "".join(merge)}:
            raise file.damaged(
                f"'tokenizer.ggml.merges' joins tokens that it does not have: "
                f"{shown(' '.join(merge))}"
            )
    post = None
    if file.field("tokenizer.ggml.add_bos_token", False):
        bos = token_id(file, "bos")
        if bos is None:
            raise file.damaged("it has no 'tokenizer.ggml.bos_token_id'")
        post = _bos_template(tokens, bos)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(i, token, special=kinds[i] == CONTROL)
            for token, i in used.items()
            if kinds[i] in (CONTROL, USER_DEFINED)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": PRE_TOKENIZERS[pre]},
        "post_processor": post,
        "decoder": _byte_level(use_regex=False),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre == "llama-bpe",
            "vocab": used,
            "merges": merges,
        },
    }


def _byte_level(use_regex: bool) -> dict[str, Any]:
    plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    return plain | {"use_regex": use_regex}


def _split(regex: str) -> list[dict[str, Any]]:
    pattern = {"pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return [{"type": "Split"} | pattern, _byte_level(use_regex=False)]


PRE_TOKENIZERS = {
    "gpt-2": [_byte_level(use_regex=True)],
    "smollm": [{"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)],
    "starcoder": [{"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)],
    "llama-bpe": _split(SPLIT_LLAMA3),
    "qwen2": _split(SPLIT_QWEN2),
    "deepseek-r1-qwen": _split(SPLIT_QWEN2),
}


def _added(number: int, token: str, special: bool) -> dict[str, Any]:
    return {
        "id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": False, "special": special,
    }  # fmt: skip


def _bos_template(tokens: list[str], bos: int) -> dict[str, Any]:
    """A post-processor that puts the beginning-of-text token first."""
    first = {"SpecialToken": {"id": tokens[bos], "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [first, text],
        "pair": [first, text, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {tokens[bos]: {"id": tokens[bos], "ids": [bos], "tokens": [tokens[bos]]}},
    }


def tokenizer_config(file: Gguf) -> dict[str, Any]:
    """tokenizer_config.json. The generic class: Qwen2's own would add its normaliser again."""
    tokens = file.field("tokenizer.ggml.tokens")
    config: dict[str, Any] = {
        "tokenizer_class": "TokenizersBackend",
        "clean_up_tokenization_spaces": False,
        "model_max_length": file.field(f"{file.field('general.architecture')}.context_length"),
    }
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        number = token_id(file, key)
        if number is not None:
            config[f"{name}_token"] = tokens[number]
    if "tokenizer.chat_template" in file.fields:
        config["chat_template"] = file.text("tokenizer.chat_template")
    return config


def generation_config(file: Gguf) -> dict[str, Any]:
    """generation_config.json: ids only. End of text, end of turn and padding all end an answer."""
    ends = [token_id(file, key) for key in ("eos", "eot", "padding")]
    return {
        "bos_token_id": token_id(file, "bos"),
        "eos_token_id": list(dict.fromkeys(end for end in ends if end is not None)),
        "pad_token_id": token_id(file, "padding"),
    }


def token_id(file: Gguf, name: str) -> int | None:
    """The id of a special token ("bos", "eos", "eot", "padding"); None where the file has none."""
    key = f"tokenizer.ggml.{name}_token_id"
    if key not in file.fields:
        return None
    number = file.integer(key, LIMITS["vocab_size"], least=0)
    count = len(file.entries("tokenizer.ggml.tokens", str))
    if number >= count:
        raise file.damaged(f"'{key}' is {number}, and 'tokenizer.ggml.tokens' has {count} entries")
    return number
