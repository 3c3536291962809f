"""The blocks of a prompt that an answer may repeat, found in token ids."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.drafting.hosts.prompt_blocks import PromptBlocks, TokenTexts, find_blocks
from engine.prompts.tokenizer import Tokenizer
from tests.support.drafters import ids, toy_tokenizer
from tests.support.encoders import Bytes

TEXTS = TokenTexts(Bytes.token_bytes)


def blocks_of(text: str) -> list[str]:
    data = text.encode()
    found = find_blocks(np.frombuffer(data, np.uint8).astype(np.int32), TEXTS)
    return [data[start:stop].decode() for start, stop in found.blocks]


LINES = st.sampled_from(["```", "```py", "````", "~~~", "  ```", "x = `a`", "", "<doc>", "</doc>"])


def oracle(text: str) -> tuple[set[tuple[int, int]], bool]:
    """The spans of a text's fenced blocks, line by line, and whether a fence is left open."""
    spans, mark, first, at = set[tuple[int, int]](), "", 0, 0
    for line in text.split("\n"):
        fence = re.fullmatch(r" {0,3}(`{3,}|~{3,})([^`]*)", line)
        if not mark:
            if fence:
                mark, first = fence[1], at + len(line) + 1
        elif fence and fence[1].startswith(mark) and not fence[2].strip():
            spans |= {(first, at)} if first < at else set()
            mark = ""
        at += len(line) + 1
    return spans, bool(mark)


@given(st.lists(LINES, max_size=12))
@example(["````", "```", "````", "<doc>", "```", "</doc>"])
def test_fenced_blocks_are_those_between_their_lines(lines: list[str]) -> None:
    text = "\n".join(lines)
    spans, is_open = oracle(text)
    found = find_blocks(np.frombuffer(text.encode(), np.uint8).astype(np.int32), TEXTS)
    tags = {one for one in found.blocks if text[: one[0]].endswith("<doc>\n")}
    assert spans <= {*found.blocks} <= spans | tags
    assert bool(found.open_fence) == is_open
    sizes = [stop - start for start, stop in found.blocks]
    assert sizes == sorted(sizes, reverse=True) and all(sizes)


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("Fix:\n```python\na = 1\n```\nPlease", ["a = 1\n"]),
        ("```\n`x`\n```\n~~~ sh\n```\nls -l\n~~~\n", ["```\nls -l\n", "`x`\n"]),
        ("<code>\nab\n</code>\n<file path='b'>\nlonger\n</file>\n", ["longer\n", "ab\n"]),
        ("```html\n<p>\nword\n</p>\n```\n", ["<p>\nword\n</p>\n"]),
        ("<a>\n<b>\nx\n</b>\n</a>", ["<b>\nx\n</b>\n", "x\n"]),
        ("</a>\n<a>\n<a>\ny\n</a>\n", ["y\n"]),
        ("no blocks, `code` and 1 < 2 > 0", []),
        ("```\n```\n", []),
        ("", []),
    ],
)  # fmt: skip
def test_examples(text: str, blocks: list[str]) -> None:
    assert blocks_of(text) == blocks


def test_an_open_fence_is_told() -> None:
    text = b"```\na\n```\nThe code:\n````py\n"
    found = find_blocks(np.frombuffer(text, np.uint8).astype(np.int32), TEXTS)
    assert found == PromptBlocks([(4, 6)], b"````")


def test_control_tokens_and_unknown_ids_end_a_line() -> None:
    tokens = [*b"x", 999, *b"```\nabc\n```", -1, *b"rest"]
    assert find_blocks(ids(tokens), TEXTS).blocks == [(6, 10)]


def test_a_token_across_the_border_is_no_part_of_a_block() -> None:
    texts = TokenTexts([b"```", b"\n\n", b"ab", b"\n", b"ab\n```"])
    assert find_blocks(ids([0, 1, 2, 3, 0, 3]), texts).blocks == [(2, 4)]


def test_blocks_of_a_real_tokenizer_decode_to_their_texts() -> None:
    tokenizer: Tokenizer = toy_tokenizer()
    code = "def add(left, right):\n    return left + right  # é😋\n"
    prompt = ids(tokenizer.encode(f"Change it:\n```python\n{code}```\nThanks"))
    (block,) = find_blocks(prompt, TokenTexts(tokenizer.token_bytes)).blocks
    assert tokenizer.decode(prompt[slice(*block)].tolist()).strip() == code.strip()


def test_hostile_prompts_take_linear_time() -> None:
    """A quadratic search would take hours."""
    for text in ("<a>\n", "```\n", "</a>\n<b>\n", "````" * 3, "<a " + "x" * 150, "~~~x"):
        find_blocks(np.frombuffer(text.encode() * 20_000, np.uint8).astype(np.int32), TEXTS)
