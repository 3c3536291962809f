"""Prompts and streamed text: user text never becomes a control token, and no character is split."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.prompts.builder import prompt_of
from engine.prompts.detokenizer import Detokenizer
from engine.prompts.token_bytes import byte_characters
from engine.prompts.tokenizer import Tokenizer
from engine.records import Piece, Request, RequestError
from engine.text_stream import TextStream, joined
from index.records import Span


@pytest.fixture(scope="module")
def tokenizer(tiny: Any) -> Tokenizer:
    return Tokenizer(tiny("llama"))


texts = st.text(max_size=60) | st.text("ab<|end>\u00e9\U0001f60b\n ", max_size=40)


@given(texts)
def test_text_round_trips_without_control_tokens(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not set(ids) & set(tokenizer.control.values())


@given(texts, texts)
def test_a_chat_has_only_the_template_s_control_tokens(
    tokenizer: Tokenizer, system: str, user: str
) -> None:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    ids = tokenizer.chat(messages, reply="so")
    start, end = tokenizer.control["<|start|>"], tokenizer.control["<|end|>"]
    assert [token for token in ids if token in (start, end)] == [start, end] * 2 + [start]
    assert ids[-len(tokenizer.encode("so")) :] == tokenizer.encode("so")
    marks = [n for n, token in enumerate(ids) if token in (start, end)]
    assert tokenizer.decode(ids[marks[0] + 1 : marks[1]]) == f"system\n{system}"
    assert tokenizer.decode(ids[marks[2] + 1 : marks[3]]) == f"user\n{user}"


@given(texts)
def test_pieces_are_whole_characters_and_join_to_the_text(tokenizer: Tokenizer, text: str) -> None:
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.push(token) for token in tokenizer.encode(text)]
    assert "".join(pieces) + detokenizer.flush() == text
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)


class Together:
    """A tokenizer whose tokens are only decoded together."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.lead, self.decode = tokenizer.lead, tokenizer.decode

    def own_text(self, token: int) -> None:
        return None


@given(st.data())
def test_tokens_have_the_text_that_they_have_together(
    tokenizer: Tokenizer, data: st.DataObject
) -> None:
    """Any tokens, also those of incomplete and of impossible characters."""
    known = [*range(len(tokenizer.token_bytes)), *tokenizer.control.values()]
    ids = data.draw(st.lists(st.sampled_from(known), max_size=30))
    one, other = Detokenizer(tokenizer), Detokenizer(Together(tokenizer))  # type: ignore[arg-type]
    for token in ids:
        assert one.push(token) == other.push(token)
    assert one.flush() == other.flush()


def test_an_incomplete_character_is_flushed_at_the_end(tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(tokenizer)
    ids = tokenizer.encode("\U0001f60b")
    assert "".join(detokenizer.push(token) for token in ids[:-1]) == "" or len(ids) == 1
    assert detokenizer.flush() == ("\ufffd" if len(ids) > 1 else "")


@given(texts, st.lists(st.text("ab<\n|", min_size=1, max_size=3), max_size=3), st.data())
def test_the_stream_does_not_depend_on_the_steps(
    tokenizer: Tokenizer, text: str, stops: list[str], data: st.DataObject
) -> None:
    ids = tokenizer.encode(text)

    def whole(sizes: list[int]) -> tuple[str, str | None, int]:
        stream, at, used = TextStream(tokenizer, tuple(stops)), 0, 0
        out: list[Piece] = []
        for size in sizes:
            part = ids[at : at + size]
            count, pieces = stream.push(part, [("test", None)] * len(part))
            out, at, used = out + pieces, at + size, used + count
            if stream.matched is not None:
                break
        out += stream.finish()
        assert "".join(piece.text for piece in out) == stream.text
        return stream.text, stream.matched, used

    sizes = data.draw(st.lists(st.integers(1, 9), min_size=len(ids) + 1, max_size=len(ids) + 1))
    found = whole(sizes)
    assert found == whole([1] * len(ids))
    ends = [(text.find(stop), stop) for stop in stops if stop in text]
    if not ends:
        assert found == (text, None, len(ids))
    else:
        assert found[1] is not None and text.startswith(found[0] + found[1])


def test_adjacent_pieces_of_one_span_are_joined() -> None:
    one, two, far = Span("a", 0, 2), Span("a", 2, 5), Span("a", 9, 10)
    pieces = [Piece("ab", "w", one), Piece("cde", "w", two), Piece("f", "w", far), Piece("g", "m")]
    assert joined(pieces) == [
        Piece("abcde", "w", Span("a", 0, 5)),
        Piece("f", "w", far),
        Piece("g", "m"),
    ]


SPANS = st.none() | st.builds(
    Span, st.sampled_from("ab"), st.integers(0, 3), st.integers(3, 5), st.integers(0, 1)
)


@given(st.lists(st.builds(Piece, st.text("xyz", max_size=2), st.sampled_from("wm"), SPANS)))
def test_pieces_are_joined_as_one_after_the_other(pieces: list[Piece]) -> None:
    expected: list[Piece] = []
    for piece in pieces:
        last = expected[-1] if expected else None
        span, ours = last.span if last else None, piece.span
        if last is None or last.source != piece.source or (span is None) != (ours is None):
            expected.append(piece)
        elif span is None or ours is None:
            expected[-1] = Piece(last.text + piece.text, piece.source)
        elif (span.path, span.stop, span.version) == (ours.path, ours.start, ours.version):
            whole = Span(span.path, span.start, ours.stop, span.version)
            expected[-1] = Piece(last.text + piece.text, piece.source, whole)
        else:
            expected.append(piece)
    assert joined(pieces) == expected


def test_a_character_of_several_tokens_has_one_span(tokenizer: Tokenizer) -> None:
    """If all its tokens come from that span; otherwise it is the model's own."""
    ids = tokenizer.encode("\U0001f60b")
    assert len(ids) > 1
    whole = ("documents", Span("a", 5, 6))
    others = ("model", None), ("context", None), ("documents", Span("b", 5, 6)), ("documents", None)
    for first, last, told in [(whole, whole, whole)] + [
        pair for one in others for pair in [(one, whole, others[0]), (whole, one, others[0])]
    ]:
        _, pieces = TextStream(tokenizer, ()).push(ids, [*[first] * (len(ids) - 1), last])
        assert pieces == [Piece("\U0001f60b", *told)]


def test_text_held_back_for_a_stop_string_keeps_its_spans(tokenizer: Tokenizer) -> None:
    text = "return left"
    ids = tokenizer.encode(text)
    stops = [len(tokenizer.decode(ids[:n])) for n in range(len(ids) + 1)]
    spans = [Span("a", *pair) for pair in pairwise(stops)]
    stream = TextStream(tokenizer, ("turn left or",))
    _, pieces = stream.push(ids, [("w", one) for one in spans])
    pieces += stream.finish()
    assert "".join(piece.text for piece in pieces) == text
    for piece in pieces:
        assert piece.span and text[piece.span.start : piece.span.stop] == piece.text


def test_an_edit_prompt_contains_the_selection_and_predicts_it(tokenizer: Tokenizer) -> None:
    text = "\ufeffone\r\n\r\n  two\r\n  three\r\n\r\nfour\r\n"
    start, stop = text.index("\r\n\r\n  two") + 2, text.index("four")
    request = Request("edit", text, path="x.py", selection=(start, stop), instruction="change it")
    prompt = prompt_of(request, tokenizer)
    shown = tokenizer.decode(prompt.ids)
    assert "```python\n  two\n  three\n```" in shown
    assert "four" not in shown and "x.py" not in shown and "\r" not in shown
    assert shown.endswith('assistant\nThe code after the change "change it":\n\n```python\n')
    assert tokenizer.decode(prompt.predictions[0]) == "  two\n  three\n```"
    assert prompt.stop == ("\n```",)


@pytest.mark.parametrize("text", ["a = 1\nb = 2", "a = 1\nb = 2\n", "\n\na = 1\nb = 2\r\n\n"])
def test_a_selection_of_all_but_blank_lines_is_a_whole_file(
    tokenizer: Tokenizer, text: str
) -> None:
    """Blank lines around it do not count."""
    prompt = prompt_of(Request("edit", text, instruction="change it"), tokenizer)
    assert prompt.whole and len(prompt.predictions) == 1
    part = Request("edit", text, selection=(text.index("b"), len(text)), instruction="change it")
    assert not prompt_of(part, tokenizer).whole


def test_the_fence_is_longer_than_any_in_the_text(tokenizer: Tokenizer) -> None:
    text = "# Title\n````\ncode\n````\n"
    prompt = prompt_of(Request("edit", text, path="x.md", instruction="change it"), tokenizer)
    assert prompt.stop == ("\n`````",)
    assert tokenizer.decode(prompt.ids).endswith("`````markdown\n")


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Request("edit", "x", instruction="  "), "instruction is empty"),
        (Request("edit", "x", instruction="i", selection=(0, 9)), "outside the text"),
        (Request("edit", "xyz", instruction="i", selection=(2, 1)), "outside the text"),
        (Request("chat"), "no messages"),
    ],
)
def test_empty_and_invalid_requests_are_refused(
    tokenizer: Tokenizer, request_: Request, reason: str
) -> None:
    with pytest.raises(RequestError, match=reason):
        prompt_of(request_, tokenizer)


def test_token_byte_lengths_add_up_to_the_text(tokenizer: Tokenizer) -> None:
    text = "def f(x):\n\treturn '\u00e9\U0001f60b' # na\u0308her\n"
    (ids,) = tokenizer.encode_batch([text])
    assert int(tokenizer.byte_lengths[ids].sum()) == len(text.encode())
    again, starts = tokenizer.encode_with_offsets(text)
    assert again.tolist() == ids.tolist() == tokenizer.encode(text)
    assert starts[0] == 0 and sorted(starts) == list(starts)


def test_byte_characters_are_those_of_byte_level_bpe() -> None:
    from tokenizers import decoders, pre_tokenizers

    characters = dict(byte_characters())
    assert sorted(characters.values()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    decoder = decoders.ByteLevel()
    assert all(decoder.decode([characters[n]]) == chr(n) for n in range(128))
    pairs = [characters[byte] for byte in "\u00e9\u07ff".encode()]
    assert decoder.decode(pairs) == "\u00e9\u07ff"


@given(texts, st.data())
def test_token_offsets_are_code_points(
    tokenizer: Tokenizer, text: str, data: st.DataObject
) -> None:
    """For the tokenizer's ids of a text and for any others with the same bytes."""
    singles = {byte: tokenizer.backend.token_to_id(char) for byte, char in byte_characters()}
    ids: list[int] = []
    for token in tokenizer.encode(text):
        whole = tokenizer.byte_lengths[token] == 1 or data.draw(st.booleans())
        ids += [token] if whole else [singles[byte] for byte in bytes_of(tokenizer, token)]
    starts, stops = tokenizer.places(np.array(ids, np.int32))
    owner = [at for at, char in enumerate(text) for _ in char.encode()]  # by byte
    assert b"".join(bytes_of(tokenizer, token) for token in ids) == text.encode()
    before = 0
    for token, start, stop in zip(ids, starts, stops, strict=True):
        after = before + len(bytes_of(tokenizer, token))
        assert (start, stop) == (owner[before], owner[after - 1] + 1)
        before = after


def bytes_of(tokenizer: Tokenizer, token: int) -> bytes:
    """The bytes of a token, from its name in the vocabulary."""
    bytes_by = {char: byte for byte, char in byte_characters()}
    text = tokenizer.backend.id_to_token(token)
    return bytes(bytes_by[char] for char in text)
