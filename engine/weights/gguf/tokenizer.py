"""The model folder of a GGUF file: tokenizer.json, tokenizer_config.json, generation_config.json.

The weights stay in the file. torch, transformers and tokenizers are not needed.

Byte-level BPE (`tokenizer.ggml.model` "gpt2") and SentencePiece ("llama"; "gemma4" has it with
merges). A byte-level tokenizer gets no normaliser (Qwen's own has NFC): for text that is NFC
already the tokens are the same, and any other text keeps its exact bytes.
"""

from __future__ import annotations

import json
import logging
from functools import cache
from pathlib import Path
from typing import Any

from engine.weights.errors import one_line, shown
from engine.weights.gguf import sentencepiece
from engine.weights.gguf.chat_templates import of_ollama
from engine.weights.gguf.end_tokens import turn_ends
from engine.weights.gguf.gguf_file import Gguf
from engine.weights.gguf.pre_tokenizers import ADD_BOS, IGNORES_MERGES, PRE_TOKENIZERS, byte_level
from engine.weights.gguf.sentencepiece import BLANK, BYTE, CONTROL, UNKNOWN, UNUSED, USER_DEFINED

log = logging.getLogger(__name__)

# What a SentencePiece file without these fields means by them.
SENTENCEPIECE_IDS = {"unknown": 0, "bos": 1, "eos": 2}
END_IDS = "tokenizer.ggml.eos_token_ids"
# Names in tokenizer_config.json and in the file.
SPECIAL_TOKENS = (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))


def write_folder(file: Gguf, folder: Path, ollamas: str = "") -> None:
    """Write the model folder of a GGUF file.

    `ollamas`: the template that Ollama has for it, for a file without one of its own.
    WeightsError for a file whose tokenizer is not known.
    """
    folder.mkdir()
    _write_json(folder / "generation_config.json", generation_config(file))
    _write_json(folder / "tokenizer.json", tokenizer(file, file.shape("token_embd.weight")[0]))
    config = tokenizer_config(file)
    if "chat_template" not in config and ollamas:
        if known := of_ollama(ollamas, frozenset(file.field("tokenizer.ggml.tokens"))):
            config["chat_template"] = known
        else:
            log.warning("%s: Ollama's template is not understood", one_line(file.path.name))
    _write_json(folder / "tokenizer_config.json", config)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def tokenizer(file: Gguf, vocabulary: int) -> dict[str, Any]:
    """Make the content of tokenizer.json.

    Control tokens are special, so that they can be split. `vocabulary`: rows of the embedding,
    which every token needs one of.
    """
    tokens, kinds = vocabulary_of(file)
    if len(tokens) > vocabulary:
        raise file.damaged(
            f"'tokenizer.ggml.tokens' has {len(tokens)} entries, the embedding {vocabulary} rows"
        )
    steps = (
        _byte_level(file, tokens, kinds) if _is_byte_level(file) else _pieces(file, tokens, kinds)
    )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(i, token, special=kinds[i] != USER_DEFINED)
            for i, token in enumerate(tokens)
            if kinds[i] in (CONTROL, UNKNOWN) or _is_mark(file, token, kinds[i])
        ],
        "post_processor": _bos_template(file, tokens),
        **steps,
    }


def vocabulary_of(file: Gguf) -> tuple[list[str], list[int]]:
    """Return the tokens and their types."""
    tokens = file.entries("tokenizer.ggml.tokens", str)
    kinds = file.entries("tokenizer.ggml.token_type", int)
    if len(kinds) != len(tokens):
        raise file.damaged(
            f"'tokenizer.ggml.tokens' has {len(tokens)} entries, and 'tokenizer.ggml.token_type' "
            f"{len(kinds)}"
        )
    return tokens, kinds


def _is_byte_level(file: Gguf) -> bool:
    """Return whether the vocabulary is byte-level BPE.

    WeightsError where it is of no known kind.
    """
    kind = file.text("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama", "gemma4"):
        raise file.unsupported(f"tokenizer {shown(kind)}")
    return kind == "gpt2"


def _is_mark(file: Gguf, token: str, kind: int) -> bool:
    """Return whether a user-defined token is a mark that text does not produce by itself.

    White space, of which SentencePiece vocabularies define whole runs, is text.
    """
    return kind == USER_DEFINED and (_is_byte_level(file) or bool(token.strip(f" \t\r\n{BLANK}")))


def _byte_level(file: Gguf, tokens: list[str], kinds: list[int]) -> dict[str, Any]:
    """Make the steps of byte-level BPE."""
    pre = file.text("tokenizer.ggml.pre", "default")
    if pre not in PRE_TOKENIZERS:
        raise file.unsupported(f"tokenizer 'gpt2' and pre-tokenizer {shown(pre)}")
    used = _used(file, tokens, kinds)
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": PRE_TOKENIZERS[pre]},
        "decoder": byte_level(use_regex=False),
        "model": _bpe(used, _merges(file, used), ignore_merges=pre in IGNORES_MERGES),
    }


def _pieces(file: Gguf, tokens: list[str], kinds: list[int]) -> dict[str, Any]:
    """Make the steps of SentencePiece."""
    has_merges = file.text("tokenizer.ggml.model") == "gemma4"
    prefix = bool(file.field("tokenizer.ggml.add_space_prefix", not has_merges))
    # The file spells user-defined pieces as text, and all others as they are after normalisation.
    spelled = [
        token.replace(" ", BLANK) if kind == USER_DEFINED else token
        for token, kind in zip(tokens, kinds, strict=True)
    ]
    used = _used(file, spelled, kinds)
    unknown = token_id(file, "unknown")
    if has_merges:
        merges = _merges(file, used)
    else:
        merges = sentencepiece.merges(sentencepiece.piece_scores(file, spelled, kinds))
        if len(merges) > sentencepiece.MAX_MERGES:
            raise file.damaged("'tokenizer.ggml.tokens' can be joined in too many ways")
    return {
        "normalizer": sentencepiece.normalizer(prefix),
        "pre_tokenizer": None,
        "decoder": sentencepiece.decoder(prefix),
        "model": _bpe(
            used,
            merges,
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback=BYTE in kinds,
        ),
    }


def _used(file: Gguf, tokens: list[str], kinds: list[int]) -> dict[str, int]:
    """Return the tokens that are in use, and their ids."""
    used = {token: i for i, token in enumerate(tokens) if kinds[i] != UNUSED}
    if len(used) + kinds.count(UNUSED) != len(tokens):
        raise file.damaged("'tokenizer.ggml.tokens' lists a token twice")
    return used


def _merges(file: Gguf, used: dict[str, int]) -> list[list[str]]:
    """Read the merges that the file lists, each of which makes a token of two."""
    merges = [merge.split(" ") for merge in file.entries("tokenizer.ggml.merges", str)]
    for merge in merges:
        if len(merge) != 2 or not used.keys() >= {*merge, "".join(merge)}:
            raise file.damaged(
                f"'tokenizer.ggml.merges' joins tokens that it does not have: "
                f"{shown(' '.join(merge))}"
            )
    return merges


def _bpe(used: dict[str, int], merges: list[list[str]], **options: Any) -> dict[str, Any]:
    plain = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    }
    return plain | options | {"vocab": used, "merges": merges}


def _added(number: int, token: str, special: bool) -> dict[str, Any]:
    return {
        "id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": False, "special": special,
    }  # fmt: skip


def _bos_template(file: Gguf, tokens: list[str]) -> dict[str, Any] | None:
    """Make a post-processor that puts the beginning-of-text token first.

    None where a text does not begin with it.
    """
    bos, named = token_id(file, "bos"), "tokenizer.ggml.bos_token_id" in file.fields
    usual = not _is_byte_level(file) or file.field("tokenizer.ggml.pre", "") in ADD_BOS
    if not file.field("tokenizer.ggml.add_bos_token", usual and bos is not None):
        return None
    if bos is None and named:
        return None  # it is outside of the vocabulary
    if bos is None:
        raise file.damaged("it has no 'tokenizer.ggml.bos_token_id'")
    first = {"SpecialToken": {"id": tokens[bos], "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [first, text],
        "pair": [first, text, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {tokens[bos]: {"id": tokens[bos], "ids": [bos], "tokens": [tokens[bos]]}},
    }


def tokenizer_config(file: Gguf) -> dict[str, Any]:
    """Make the content of tokenizer_config.json.

    It names the generic class: Qwen2's own would add its normaliser again.
    """
    tokens = file.field("tokenizer.ggml.tokens")
    config: dict[str, Any] = {
        "tokenizer_class": "TokenizersBackend",
        "clean_up_tokenization_spaces": False,
        "model_max_length": file.field(f"{file.field('general.architecture')}.context_length"),
    }
    for name, key in SPECIAL_TOKENS:
        number = token_id(file, key)
        if number is not None:
            config[f"{name}_token"] = tokens[number]
    if "tokenizer.chat_template" in file.fields:
        config["chat_template"] = file.text("tokenizer.chat_template")
    return config


def generation_config(file: Gguf) -> dict[str, Any]:
    """Make the content of generation_config.json: ids only.

    End of text, end of turn and padding all end an answer.
    """
    ends = [token_id(file, key) for key in ("eos", "eot", "padding")]
    ends += _end_ids(file)
    return {
        "bos_token_id": token_id(file, "bos"),
        "eos_token_id": list(
            dict.fromkeys(end for end in [*ends, *_turn_ends(file)] if end is not None)
        ),
        "pad_token_id": token_id(file, "padding"),
    }


def _end_ids(file: Gguf) -> list[int]:
    """Read all ids that end an answer, where the file lists them, as Ollama's do."""
    if END_IDS not in file.fields:
        return []
    ends, count = file.entries(END_IDS, int), len(file.entries("tokenizer.ggml.tokens", str))
    return [end for end in ends if _is_inside(file, END_IDS, end, count)]


def _turn_ends(file: Gguf) -> list[int]:
    """List the control tokens that are known by name to end a turn."""
    tokens, kinds = vocabulary_of(file)
    return turn_ends({token: i for i, token in enumerate(tokens) if kinds[i] == CONTROL})


def token_id(file: Gguf, name: str) -> int | None:
    """Find the id of a special token; None where the file has none, or one of no token.

    `name`: "bos", "eos", "eot", "padding" or "unknown".
    """
    key = f"tokenizer.ggml.{name}_token_id"
    count = len(file.entries("tokenizer.ggml.tokens", str))
    if key not in file.fields:
        usual = None if _is_byte_level(file) else SENTENCEPIECE_IDS.get(name)
        return usual if usual is not None and usual < count else None
    number = file.field(key)
    if type(number) is not int:
        raise file.damaged(f"'{key}' is {shown(number)}, not an integer")
    return number if _is_inside(file, key, number, count) else None


def _is_inside(file: Gguf, key: str, number: int, count: int) -> bool:
    """Return whether a token is one of the vocabulary's `count`; others are ignored and logged."""
    if 0 <= number < count:
        return True
    _warn_once(
        f"{one_line(file.path.name)}: '{key}' is {number}, outside of {count} tokens: ignored"
    )
    return False


@cache
def _warn_once(message: str) -> None:
    """Log a warning, for which several places may have a reason."""
    log.warning("%s", message)
