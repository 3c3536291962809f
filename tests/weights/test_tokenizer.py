"""Tokenizers made from a GGUF's metadata, compared with those that transformers makes of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import CohereTokenizer, GPT2Tokenizer, Qwen2Tokenizer
from transformers.integrations.gguf import gguf_tokenizer_mapping as oracle

from engine import weights
from engine.prompts.text_pieces import PIECE_CHARS
from engine.prompts.tokenizer import Tokenizer as PromptTokenizer
from engine.weights import WeightsError
from engine.weights.gguf import sentencepiece
from engine.weights.gguf.gguf_file import read_gguf
from engine.weights.gguf.pre_tokenizers import PRE_TOKENIZERS
from engine.weights.gguf.sentencepiece import BLANK, BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from engine.weights.gguf.tokenizer import generation_config, tokenizer
from tests.support.gguf_metadata import VOCABULARY, byte_level, file_of, pieces, trained
from tests.support.mixed_text import mixed_lines

WHOLE = pytest.param(10_000, marks=pytest.mark.full)


def converted(fields: dict[str, Any]) -> Any:
    """Our tokenizer as the engine uses it: without control tokens, so that text makes none."""
    spec = tokenizer(file_of(fields), len(fields["tokenizer.ggml.tokens"]))
    return Tokenizer.from_str(json.dumps(spec | {"added_tokens": [], "post_processor": None}))


def of_transformers(fields: dict[str, Any]) -> Any:
    """What transformers makes of the metadata."""
    names = oracle.GGUF_TOKENIZER_MAPPING["tokenizer"]
    known = {
        name: fields[f"tokenizer.{key}"]
        for key, name in names.items()
        if f"tokenizer.{key}" in fields
    }
    made, _ = oracle.convert_gguf_tokenizer(fields["general.architecture"], known)
    return bare(made)


def bare(made: Any) -> Any:
    """A tokenizer without its control tokens, and without NFC, which would change texts."""
    spec = json.loads(made.to_str())
    if (spec["normalizer"] or {}).get("type") == "NFC":
        spec["normalizer"] = None
    return Tokenizer.from_str(json.dumps(spec | {"added_tokens": [], "post_processor": None}))


def ids(made: Any, lines: list[str]) -> list[list[int]]:
    return [one.ids for one in made.encode_batch(lines, add_special_tokens=False)]


@pytest.mark.parametrize("count", [300, WHOLE])
@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS.keys() & oracle.GGUF_PRE_TOKENIZER_SPLITS))
def test_text_is_split_as_transformers_splits_it(pre: str, count: int) -> None:
    fields, lines = byte_level(pre), mixed_lines(count)
    assert ids(converted(fields), lines) == ids(of_transformers(fields), lines)


@pytest.mark.parametrize("count", [300, WHOLE])
@pytest.mark.parametrize(
    ("pre", "family"),
    [("gpt-2", GPT2Tokenizer), ("qwen2", Qwen2Tokenizer), ("command-r", CohereTokenizer)],
)
def test_text_is_split_as_by_the_family_s_own_class(
    pre: str, family: Callable[..., Any], count: int
) -> None:
    vocabulary, merges = trained(byte_level=True)
    theirs = family(vocab=vocabulary, merges=[tuple(one.split(" ")) for one in merges])
    lines = mixed_lines(count)
    assert ids(converted(byte_level(pre)), lines) == ids(bare(theirs.backend_tokenizer), lines)


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_every_way_of_splitting_keeps_every_character(pre: str) -> None:
    made, lines = converted(byte_level(pre)), mixed_lines(100)
    assert [made.decode(one) for one in ids(made, lines)] == lines


@pytest.mark.parametrize(
    ("pre", "text", "words"),
    [
        ("gpt-2", "it's 1234 ab", ["it", "'s", " 1234", " ab"]),
        ("starcoder", "it's 1234 ab", ["it", "'s", " ", "1", "2", "3", "4", " ab"]),
        (
            "deepseek-llm",
            "a=b\n\n 12 的x",
            ["a", "=", "b", "\n", "\n", " ", "1", "2", " ", "的", "x"],
        ),
        ("deepseek-coder", "a=b\n\n 12;", ["a", "=", "b", "\n", "\n", " ", "1", "2", ";"]),
        ("deepseek-v3", "1234 x.y的の", ["123", "4", " x", ".y", "的の"]),
        ("falcon", "a+b 12345", ["a", "+", "b", " ", "123", "45"]),
        ("kimi-k2", "CamelCase汉字abc", ["Camel", "Case", "汉字", "abc"]),
        ("seed-coder", "a; \n12", ["a", ";", " \n", "1", "2"]),
        ("bailingmoe", "I'LL 12\n\n\n", ["I", "'LL", " ", "1", "2", "\n\n\n"]),
        ("minicpm5", "1234 a", ["123", "4", " a"]),
        ("tiny_aya", "1234567 a", ["1", "234", "567", " a"]),
        ("exaone-moe", "a b 1", ["a b", " ", "1"]),
    ],
)
def test_a_family_s_own_rules(pre: str, text: str, words: list[str]) -> None:
    steps = tokenizer(file_of(byte_level(pre)), VOCABULARY + 300)["pre_tokenizer"]["pretokenizers"]
    splitting = Tokenizer(models.BPE())
    splitting = Tokenizer.from_str(
        json.dumps(
            json.loads(splitting.to_str())
            | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}
        )
    )
    found = splitting.pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:stop] for _, (start, stop) in found] == words


WAYS = {json.dumps(steps): pre for pre, steps in PRE_TOKENIZERS.items()}
FAST = ("deepseek-llm", "qwen35")


@pytest.mark.parametrize(
    "pre",
    [
        pre if pre in FAST else pytest.param(pre, marks=pytest.mark.full)
        for pre in sorted(WAYS.values())
    ],
)
def test_a_long_text_in_pieces_has_the_ids_of_the_whole(pre: str, tmp_path: Path) -> None:
    """The engine cuts long texts where it believes that the tokenizer splits them anyway."""
    fields, text = byte_level(pre), "\n".join(mixed_lines(800, seed=2))
    spec = tokenizer(file_of(fields), VOCABULARY + 1)
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    assert len(text) > 2 * PIECE_CHARS
    assert PromptTokenizer(tmp_path).encode(text) == ids(converted(fields), [text])[0]


@pytest.mark.parametrize("pre", ["default", "of-tomorrow", "x\n\x1b[2J"])
def test_an_unknown_way_of_splitting_is_named(pre: str) -> None:
    with pytest.raises(WeightsError, match="pre-tokenizer") as error:
        converted(byte_level(pre))
    assert pre.split("\n")[0] in str(error.value) and str(error.value).isprintable()


# -- SentencePiece -------------------------------------------------------------------------------


def joined(text: str, fields: dict[str, Any]) -> list[str]:
    """SentencePiece as it is described: of all neighbours that make a piece join the best ones,
    the leftmost first; write what is no piece as bytes."""
    kinds, tokens = fields["tokenizer.ggml.token_type"], fields["tokenizer.ggml.tokens"]
    scores = {
        token: score
        for token, score, kind in zip(tokens, fields["tokenizer.ggml.scores"], kinds, strict=True)
        if kind == NORMAL
    }
    parts = [*f"{BLANK}{text.replace(' ', BLANK)}"] if text else []
    while True:
        pairs = [(scores.get(a + b, -math.inf), -n) for n, (a, b) in enumerate(pairwise(parts))]
        best, at = max(pairs, default=(-math.inf, 0))
        if best == -math.inf:
            break
        parts[-at : 2 - at] = ["".join(parts[-at : 2 - at])]
    return [
        one
        for part in parts
        for one in ([part] if part in scores else [f"<0x{byte:02X}>" for byte in part.encode()])
    ]


@pytest.mark.parametrize("count", [300, WHOLE])
@pytest.mark.parametrize("architecture", ["phi3", "gemma4"])
def test_pieces_are_joined_as_with_transformers(architecture: str, count: int) -> None:
    """Its conversion for Phi-3 puts a blank before the text, as SentencePiece does; the one for
    other models does not where there is one already."""
    fields, lines = pieces(architecture=architecture), mixed_lines(count)
    if architecture == "gemma4":
        merges = [
            " ".join(pair)
            for pair in sentencepiece.merges(
                dict(
                    zip(
                        fields["tokenizer.ggml.tokens"],
                        fields["tokenizer.ggml.scores"],
                        strict=True,
                    )
                )
            )
        ]
        fields |= {"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.merges": merges}
    assert ids(converted(fields), lines) == ids(of_transformers(fields), lines)


def test_pieces_are_joined_as_sentencepiece_joins_them() -> None:
    fields = pieces()
    made = converted(fields)
    for line in [*mixed_lines(150), "", " ", "  a", "<s>", "</s>a", "<0x0A>", "<unk>"]:
        assert made.encode(line, add_special_tokens=False).tokens == joined(line, fields)


@given(st.text(st.characters(exclude_characters=BLANK, exclude_categories=["Cs"])))
def test_pieces_and_bytes_decode_to_the_text(text: str) -> None:
    made = _sentencepiece()
    assert made.decode(made.encode(text, add_special_tokens=False).ids) == text


@cache
def _sentencepiece() -> Any:
    return converted(pieces())


def test_the_blank_before_a_text_is_left_out_where_the_file_says_so() -> None:
    made = converted(pieces(add_space_prefix=False))
    assert made.encode("a", add_special_tokens=False).tokens == ["a"]
    assert made.decode(made.encode(" a").ids) == " a"


def test_runs_that_gemma_defines_are_text_and_the_longest_one_is_taken() -> None:
    fields = pieces(architecture="gemma3", add_space_prefix=False)
    runs = [mark * n for mark in ("\n", " ") for n in range(2, 8)]
    tokens = [one for one in fields["tokenizer.ggml.tokens"] if one.replace(BLANK, " ") not in runs]
    tokens += ["\n"] * ("\n" not in tokens) + runs + ["<table>"]
    kinds = [
        USER_DEFINED if one in (*runs, "<table>") else BYTE if one.startswith("<0x") else NORMAL
        for one in tokens
    ]
    kinds[:3] = UNKNOWN, CONTROL, CONTROL
    fields |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    spec = tokenizer(file_of(fields), len(tokens))
    assert [one["content"] for one in spec["added_tokens"]] == ["<unk>", "<s>", "</s>", "<table>"]
    made = converted(fields)
    for mark in "\n", BLANK:
        found = made.encode(mark * 17, add_special_tokens=False).tokens
        assert found == [mark * 7, mark * 7, mark * 3]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"scores": [0.0]}, "scores"),
        ({"scores": [math.nan] * 9000}, "scores"),
        ({"scores": "none"}, "not an array"),
        ({"model": "t5"}, "t5"),
        ({"model": 5}, "model"),
        ({"unknown_token_id": "0"}, "unknown_token_id"),
        ({"add_bos_token": True, "bos_token_id": "1"}, "bos_token_id"),
    ],
)
def test_metadata_that_describe_no_sentencepiece_are_refused(
    fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(WeightsError, match=says):
        converted(pieces(**fields))


def test_a_piece_of_unbounded_length_is_refused() -> None:
    fields = pieces()
    fields["tokenizer.ggml.tokens"][-1] = "a" * (sentencepiece.MAX_PIECE_CHARS + 1)
    with pytest.raises(WeightsError, match="characters"):
        converted(fields)


def test_a_vocabulary_that_joins_in_too_many_ways_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sentencepiece, "MAX_MERGES", 100)
    with pytest.raises(WeightsError, match="too many ways"):
        converted(pieces())


def test_texts_begin_with_the_token_that_the_file_or_its_kind_wants() -> None:
    def first(fields: dict[str, Any]) -> Any:
        spec = tokenizer(file_of(fields), 1 << 20)["post_processor"]
        return spec and spec["single"][0]["SpecialToken"]["id"]

    assert first(pieces()) == "<s>"  # SentencePiece's own ids, where the file has none
    assert first(pieces(add_bos_token=False)) is None
    assert first(byte_level("qwen2", bos_token_id=1)) is None
    assert first(byte_level("llama-bpe", bos_token_id=VOCABULARY)) == "<|end|>"
    assert first(byte_level("qwen2", add_bos_token=True, bos_token_id=VOCABULARY)) == "<|end|>"


def test_a_turn_s_end_is_known_by_its_name() -> None:
    fields = byte_level("gpt-4o", eos_token_id=1)
    assert generation_config(file_of(fields))["eos_token_id"] == [1, VOCABULARY]
    fields["tokenizer.ggml.tokens"].append("<|return|>")  # then <|end|> ends a part
    fields["tokenizer.ggml.token_type"].append(CONTROL)
    assert generation_config(file_of(fields))["eos_token_id"] == [1, VOCABULARY + 1]


@pytest.mark.full
@pytest.mark.model
@pytest.mark.parametrize(
    ("name", "family"), [("qwen2.5-coder-0.5b", Qwen2Tokenizer), ("smollm2-135m", CohereTokenizer)]
)
def test_the_built_in_models_texts_are_split_as_by_their_family_s_class(
    name: str, family: Callable[..., Any]
) -> None:
    """SmolLM2 has no class of its own; Cohere's splits as its tokenizer.json does."""
    folder = weights.locate(name)
    fields = read_gguf(folder.with_name(f"{folder.name}.gguf")).fields
    vocabulary = {word: n for n, word in enumerate(fields["tokenizer.ggml.tokens"])}
    merges = [tuple(one.split(" ")) for one in fields["tokenizer.ggml.merges"]]
    theirs = bare(family(vocab=vocabulary, merges=merges).backend_tokenizer)
    lines = mixed_lines(10_000)
    assert ids(converted(fields), lines) == ids(theirs, lines)
