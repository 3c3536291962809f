"""Token features besides the id: bytes, hashes and classes, for every kind of tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafting.vocabulary import STARTS_LINE, token_class, token_features, vocabulary
from engine.prompts.token_bytes import byte_characters, byte_level
from engine.prompts.tokenizer import Tokenizer
from engine.weights import locate
from tests.conftest import byte_bpe
from ui.demo import SAMPLE

TEXTS = st.text(max_size=40) | st.text("def x=(1)\n\t_\u00e9\U0001f60b<|end|>\u2581", max_size=40)
ENCODABLE = "adefinorstu:()\u00e9 "  # characters that every tokenizer here can encode


def backends() -> dict[str, Any]:
    """Tokenizers with blanks as "\u2581", one with byte fallback; and a word-level one."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    words = [(char, -1.0) for char in ENCODABLE.replace(" ", "\u2581")] + [("\u2581de", -1.0)]
    unigram = Tokenizer(models.Unigram([*words, ("?", -9.0)], unk_id=len(words)))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.decoder = decoders.Metaspace()

    names = [f"<0x{n:02X}>" for n in range(256)] + ["\u2581", "d", "e", "de", "\u2581de"]
    merges = [("d", "e"), ("\u2581", "de")]
    numbers = {name: n for n, name in enumerate(["<unk>", *names])}
    pieces = Tokenizer(models.BPE(numbers, merges, byte_fallback=True, unk_token="<unk>"))
    blank = [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    pieces.normalizer = normalizers.Sequence(blank)
    replaced = decoders.Replace("\u2581", " ")
    strip = decoders.Strip(" ", 1, 0)
    steps = [replaced, decoders.ByteFallback(), decoders.Fuse(), strip]
    pieces.decoder = decoders.Sequence(steps)
    pieces.add_special_tokens(["<unk>"])

    apart = Tokenizer(models.WordLevel({"de": 0, " ": 1, "?": 2, "\u00e9": 4}, unk_token="?"))
    apart.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s"), "isolated")
    apart.decoder = decoders.Fuse()
    return {"unigram": unigram, "pieces": pieces, "words": apart}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    root = tmp_path_factory.mktemp("tokenizers")
    found = {}
    for kind, size in (("small", 280), ("large", 340)):
        (root / kind).mkdir()
        byte_bpe(root / kind, size)
        found[kind] = Tokenizer(root / kind)
    for kind, backend in backends().items():
        (root / kind).mkdir()
        backend.save(str(root / kind / "tokenizer.json"))
        found[kind] = Tokenizer(root / kind)
    return found


def bytes_of_tokens(tokenizer: Tokenizer, text: str) -> bytes:
    """The concatenated bytes of a text's tokens."""
    return b"".join(tokenizer.token_bytes[token] or b"" for token in tokenizer.encode(text))


# -- bytes -----------------------------------------------------------------------------------------


@given(text=TEXTS, kind=st.sampled_from(["small", "large"]))
def test_token_bytes_concatenate_to_the_text(
    tokenizers: dict[str, Tokenizer], text: str, kind: str
) -> None:
    assert bytes_of_tokens(tokenizers[kind], text) == text.encode()


@given(text=TEXTS.filter(lambda text: "\u2581" not in text))
def test_byte_fallback_token_bytes_concatenate_to_the_text(
    tokenizers: dict[str, Tokenizer], text: str
) -> None:
    """After the blank that the tokenizer adds."""
    assert bytes_of_tokens(tokenizers["pieces"], text) == (f" {text}".encode() if text else b"")


@given(text=st.text(ENCODABLE, min_size=1, max_size=40).filter(lambda text: text[0] != " "))
def test_unigram_token_bytes_concatenate_to_the_text(
    tokenizers: dict[str, Tokenizer], text: str
) -> None:
    assert bytes_of_tokens(tokenizers["unigram"], text) == f" {text}".encode()


def test_word_level_tokens_have_their_own_bytes(tokenizers: dict[str, Tokenizer]) -> None:
    assert tokenizers["words"].token_bytes == [b"de", b" ", b"?", None, "\u00e9".encode()]
    assert tokenizers["words"].byte_lengths.tolist() == [-1] * 5


@given(st.lists(st.text("".join(char for _, char in byte_characters()) + "\u2581 \n\ue000")))
def test_byte_level_words_are_read_char_by_char(words: list[str]) -> None:
    by_char = {char: byte for byte, char in byte_characters()}
    slow = [bytes(map(by_char.__getitem__, w)) if set(w) <= set(by_char) else None for w in words]
    assert byte_level(words) == slow


def test_byte_lengths_are_given_where_they_are_fixed(
    tokenizers: dict[str, Tokenizer],
) -> None:
    for kind, tokenizer in tokenizers.items():
        lengths = tokenizer.byte_lengths
        assert len(lengths) == len(tokenizer.token_bytes) and lengths.dtype == np.int32
        if kind in ("small", "large"):
            assert lengths.tolist() == [
                -1 if data is None else len(data) for data in tokenizer.token_bytes
            ]
        else:
            assert (lengths == -1).all(), "the tokenizer may add a blank at the start"


# -- hashes and classes ----------------------------------------------------------------------------


def test_equal_bytes_have_equal_features_in_every_tokenizer(
    tokenizers: dict[str, Tokenizer],
) -> None:
    seen: dict[bytes, tuple[int, int]] = {}
    shared = 0
    for tokenizer in tokenizers.values():
        hashes, classes = token_features(tokenizer)
        assert len(hashes) == len(classes) == len(tokenizer.token_bytes)
        assert (hashes.dtype, classes.dtype) == (np.uint32, np.uint8)
        vocabulary(tokenizer)  # the drafter takes them
        for number, data in enumerate(tokenizer.token_bytes):
            values = (int(hashes[number]), int(classes[number]))
            if data is None:
                assert values == (0, 5)
            else:
                shared += data in seen
                assert seen.setdefault(data, values) == values and values[0] == crc32(data)
    assert shared > 256


def test_control_tokens_have_no_bytes(tokenizers: dict[str, Tokenizer]) -> None:
    for kind in ("small", "large", "pieces"):
        classes = token_features(tokenizers[kind])[1]
        numbers = list(tokenizers[kind].control.values())
        assert numbers and all(classes[number] == 5 for number in numbers)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" ", 0), ("\t\t", 0), ("\r", 0), ("\u3000", 0),
        ("\n", 1 + 8), ("\n    ", 1 + 8), (" \n\n", 1 + 8),
        ("(", 2), (" ==", 2), ("(self", 2), ("\U0001f60b", 2), (".x", 2), ("'''", 2),
        (":\n", 2 + 8), (" {\n\t", 2 + 8), (")\n)", 2), ("\n#", 2),
        (" word", 3), ("\tif", 3), ("\nfrom", 3), (" _x", 3), (" 1", 3), ("  \u65e5", 3),
        ("word", 4), ("_", 4), ("9", 4), ("\u00e9t\u00e9", 4), ("x\ufffd", 4), ("end\n", 4 + 8),
        ("", 5), ("\ufffd", 5), (" \ufffd", 5), ("\0", 5), ("\ufeff\n", 5 + 8),
    ],
)  # fmt: skip
def test_token_classes(text: str, expected: int) -> None:
    assert token_class(text) == expected


@given(TEXTS)
def test_a_line_starts_after_a_line_end_and_blanks(text: str) -> None:
    *before, last = text.split("\n")
    assert bool(token_class(text) & STARTS_LINE) == (bool(before) and not last.strip())
    assert token_class(text) & 7 in range(6)


@given(TEXTS)
def test_blank_tokens_are_classified_by_their_newlines(text: str) -> None:
    kind = token_class(text) & 7
    assert (kind in (0, 1)) == (bool(text) and not text.strip())
    assert kind != 0 or "\n" not in text
    assert kind != 1 or "\n" in text


# -- real tokenizers -------------------------------------------------------------------------------

MODELS = [
    pytest.param("smollm2-135m", marks=pytest.mark.model),
    pytest.param("qwen2.5-coder-0.5b", marks=pytest.mark.full),
]


@pytest.mark.parametrize("model", MODELS)
def test_a_real_tokenizer_has_complete_features(model: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer(locate(model))
    text = SAMPLE.read_text("utf-8") + "\tna\u0308her \U0001f60b\r\n\n\n  \u65e5\u672c\u8a9e"
    assert bytes_of_tokens(tokenizer, text) == text.encode()
    hashes, classes = token_features(tokenizer)
    numbers = set(range(len(classes))) - set(tokenizer.control.values())
    assert all(tokenizer.token_bytes[number] for number in numbers)
    assert np.count_nonzero(classes & 7 == 5) < 0.02 * len(classes)
    byte_bpe(tmp_path)
    tiny = Tokenizer(tmp_path)
    by_bytes = dict(zip(tiny.token_bytes, zip(*token_features(tiny), strict=True), strict=True))
    same = [
        (hashes[number], classes[number]) == by_bytes[data]
        for number, data in enumerate(tokenizer.token_bytes)
        if data is not None and data in by_bytes
    ]
    assert len(same) > 256 and all(same)
