"""Token ids from the caches always equal the encoder's."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import index.workspace.token_cache
from engine.prompts.tokenizer import Tokenizer
from index.workspace.token_cache import Encoder, TokenCache, chunks
from tests.conftest import byte_bpe
from tests.support.encoders import Bytes, Composed


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Encoder]:
    """By kind: bytes, normalizing, byte-level BPE, and one that adds a prefix space."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers

    root = tmp_path_factory.mktemp("tokenizers")
    for kind in ("bpe", "spaced"):
        (root / kind).mkdir()
    byte_bpe(root / "bpe")
    words = [(char, -1.0) for char in "\u2581abdefinortu:() "] + [("?", -9.0), ("\u2581de", -1.0)]
    spaced = Backend(models.Unigram(words, unk_id=len(words) - 2))
    spaced.pre_tokenizer = pre_tokenizers.Metaspace()
    spaced.decoder = decoders.Metaspace()
    spaced.save(str(root / "spaced" / "tokenizer.json"))
    real = {kind: Tokenizer(root / kind) for kind in ("bpe", "spaced")}
    return {"bytes": Bytes(), "composed": Composed(), **real}


KINDS = ("bytes", "composed", "bpe", "spaced")
LINES = st.sampled_from(
    ["def f(a):", "    return f(a) \u00e9", "\t\tx = y  ", "", "  ", "# note", "/* o */", "12",
     "e\u0301 o", "import \u65e5\u672c", "\u00a0x", "}\r", "name\r", "    \"a\": [1, 2],", "x" * 90]
)  # fmt: skip
CHARS = st.characters(max_codepoint=0x1FFFF, exclude_categories=["Cs"])
TEXTS = st.lists(LINES | st.text(CHARS, max_size=20), max_size=12).map("\n".join)


def source(seed: int, size: int) -> str:
    """Text like a program's, of about `size` characters."""
    chance = random.Random(seed)
    words = ["return", "x", "name(self,", "=", "[0]", "#", "value", "'text'", "None", "if", "1)"]
    lines = []
    while size > 0:
        words_of_line = (chance.choice(words) for _ in range(chance.randrange(9)))
        ends = chance.choice([":", "", ",", ""])
        line = "    " * chance.randrange(4) + " ".join(words_of_line) + ends
        lines.append(line)
        size -= len(line) + 1
    return "\n".join(lines)


def oracle(encoder: Encoder, text: str) -> tuple[list[int], list[int] | None]:
    """The ids and starts of a whole text, from the encoder alone."""
    (ids,) = encoder.encode_batch([text])
    spelled = b"".join(encoder.token_bytes[one] or b"" for one in ids)
    if (encoder.byte_lengths[ids] >= 0).all() and spelled == text.encode():
        return ids.tolist(), None
    ids, starts = encoder.encode_with_offsets(text)
    return ids.tolist(), [*starts.tolist(), len(text)]


def same(encoder: Encoder, text: str, one: Any) -> bool:
    ids, starts = oracle(encoder, text)
    assert one.ids.dtype == np.int32
    return one.ids.tolist() == ids and (one.starts is None) == (starts is None) and (
        starts is None or one.starts.tolist() == starts
    )  # fmt: skip


@pytest.fixture(scope="class")  # per function here; hypothesis rejects function scope
def short_chunks() -> Iterator[None]:
    """Make chunks so short that short texts have many."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("MIN_CHUNK_CHARS", 4),
            ("MAX_CHUNK_CHARS", 24),
            ("CUT_EVERY", 3),
            ("RECENT_CHUNK_CHARS", 300),
        ):
            patch.setattr(index.workspace.token_cache, name, value)
        yield


# -- chunks ----------------------------------------------------------------------------------------


def may_cut(text: str, at: int) -> bool:
    """After a line end between two characters that are not white space, before a line end after a
    letter or digit, or before the space after a line's first word."""
    before, after = text[at - 1], text[at]
    if before == "\n":
        return not text[at - 2].isspace() and not after.isspace() and after != "/"
    if text[at:].startswith(("\n", "\r\n")):
        return before.isascii() and before.isalnum()
    line = text[text.rfind("\n", 0, at) + 1 : at]
    is_first = len(line.split()) == 1 and not before.isspace()
    return "\n" in text[:at] and after in " \t" and is_first


@settings(max_examples=150)
@given(text=TEXTS)
@example(text="def f(a):\n/00000000 \ndef f(a):")
def test_chunks_are_cut_where_tokenizers_split(short_chunks: None, text: str) -> None:
    parts = chunks(text)
    assert "".join(parts) == text
    assert all(parts)
    at = 0
    for part in parts[:-1]:
        at += len(part)
        assert len(part) >= 3, "the minimum without a line end"
        assert may_cut(text, at), (text[:at], text[at:])


def test_chunk_sizes() -> None:
    sizes = [len(part) for part in chunks(source(1, 500_000))]
    assert max(sizes) <= 4096 and 1000 < np.mean(sizes) < 2500
    assert chunks("x" * 50_000) == ["x" * 50_000]
    rows = "".join(f'    "{n * n}": [{n}],\n' for n in range(9000))  # no line may be cut at its end
    assert max(map(len, chunks(rows))) <= 4096


@pytest.mark.parametrize("seed", range(12))
def test_an_inserted_line_changes_a_few_chunks(seed: int) -> None:
    chance = random.Random(seed)
    rows = [f'    "{chance.random()}": [{n}],' for n in range(4000)]
    lines = source(seed, 100_000).split("\n") if seed % 2 else rows
    before = Counter(chunks("\n".join(lines)))
    lines.insert(chance.randrange(len(lines)), "    a = new + line")
    fresh = Counter(chunks("\n".join(lines))) - before
    assert 1 <= fresh.total() <= 8 < len(before) / 4


# -- the same ids, always --------------------------------------------------------------------------


def test_a_byte_lost_and_a_byte_gained_is_another_text(encoders: dict[str, Encoder]) -> None:
    """NFC makes three bytes of e and an accent two, and three bytes of this alef four."""
    encoder, text = encoders["composed"], "e\u0301 o\n" + "0" * 19 + "\ufb2e"
    one = TokenCache(encoder, None).encode_buffer(text)
    assert int(encoder.byte_lengths[one.ids].sum()) == len(text.encode())
    assert same(encoder, text, one) and one.starts is not None


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(rounds=st.lists(st.tuples(st.lists(TEXTS, max_size=4), st.booleans()), max_size=4))
def test_cached_ids_equal_the_encoders(
    short_chunks: None,
    encoders: dict[str, Encoder],
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    rounds: list[tuple[list[str], bool]],
) -> None:
    encoder, folder = encoders[kind], tmp_path_factory.mktemp("cache")
    tokens, known = TokenCache(encoder, folder), set()
    for texts, restart in rounds:
        hits = tokens.hits
        for one, text in zip(tokens.encode(texts), texts, strict=True):
            assert same(encoder, text, one)
        assert tokens.hits - hits == len(texts) - len(set(texts) - known)
        known |= set(texts)
        for text, plain in zip(texts, TokenCache(encoder, None).encode(texts), strict=True):
            assert same(encoder, text, plain) and same(encoder, text, tokens.encode_buffer(text))
        if restart:
            tokens.close()
            tokens = TokenCache(encoder, folder)
    tokens.close()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(text=TEXTS, edits=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 30), TEXTS)))
def test_buffer_ids_equal_file_ids_after_any_edits(
    short_chunks: None,
    encoders: dict[str, Encoder],
    kind: str,
    text: str,
    edits: list[tuple[int, int, str]],
) -> None:
    tokens = TokenCache(encoders[kind], None)
    for start, size, new in edits:
        text = text[:start] + new + text[start + size :]
        assert same(encoders[kind], text, tokens.encode_buffer(text))
        recent = sum(map(len, tokens._recent))
        assert tokens._recent_capacity == index.workspace.token_cache.RECENT_CHUNK_CHARS - recent
        assert recent <= max(index.workspace.token_cache.RECENT_CHUNK_CHARS, len(text))


def test_a_keystroke_tokenizes_few_chunks() -> None:
    encoder = Bytes()
    tokens, text = TokenCache(encoder, None), source(2, 200_000)
    tokens.encode_buffer(text)
    chance = random.Random(2)
    for _ in range(20):
        at, before = chance.randrange(len(text)), encoder.seen
        text = text[:at] + "x" + text[at:]
        one = tokens.encode_buffer(text)
        assert one.ids.tobytes() == Bytes().encode_batch([text])[0].tobytes()
        assert 0 < encoder.seen - before <= 5 * 4096


@pytest.mark.full
def test_a_real_tokenizer_splits_where_chunks_are_cut(short_chunks: None) -> None:
    from engine.weights import locate

    encoder = Tokenizer(locate("smollm2-135m"))
    tokens = TokenCache(encoder, None)
    files = sorted(Path(index.__file__).parent.rglob("*.py"))
    assert len(files) > 20
    for text in [file.read_text("utf-8") for file in files]:
        assert same(encoder, text, tokens.encode_buffer(text))
    assert tokens._chunks_tokenize_alike

    @settings(max_examples=500)
    @given(TEXTS | st.text("a1'. \n\r\t/\u00a0\u2003\u0301\x1c\x85\u3000\u65e5", max_size=80))
    def anything(text: str) -> None:
        assert same(encoder, text, tokens.encode_buffer(text))

    anything()


def test_tokenizers_that_do_not_split_at_cuts_get_whole_texts(
    encoders: dict[str, Encoder], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "index.workspace.token_cache")
    assert [TokenCache(encoders[kind], None)._chunks_tokenize_alike for kind in KINDS] == [
        True,
        True,
        True,
        False,
    ]
    assert len(caplog.records) == 1
