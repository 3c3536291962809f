"""The passage around a sentence, as a question for a quotation wants it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.rag.blocks import MAX_BLOCK_CHARS, asks_for_block, asks_for_code, block_around

MANUAL = """Before you begin.

The server is for development. It is slow
under high load.

These are common:

* one
  more

* two

.. data:: LIFETIME

   How long a session lasts.

   A day, if not set.

Start it like this.

```sh
serve --now

serve --later
```

The end.
"""
pieces = st.sampled_from(["word ", ".", "\n", "\n\n", "* ", "   ", "```", "\r\n", "\u2028", "é"])
texts = st.lists(pieces, max_size=60).map("".join)


def block(words: str, with_code: bool = False) -> str:
    start = MANUAL.index(words)
    first, last = block_around(MANUAL, start, start + len(words), with_code)
    return MANUAL[first:last].strip()


@pytest.mark.parametrize(
    ("words", "begins", "ends"),
    [
        ("It is slow", "The server", "high load."),
        ("These are common", "These are", "* two"),
        ("* two", "These are", "* two"),
        ("one", "These are", "* two"),
        ("How long", ".. data", "not set."),
        ("A day", ".. data", "not set."),
        ("Start it", "Start it", "this."),
    ],
)
def test_the_paragraph_list_or_definition_comes_whole(words: str, begins: str, ends: str) -> None:
    assert block(words).startswith(begins)
    assert block(words).endswith(ends)


def test_code_below_a_sentence_comes_with_it_where_it_is_asked_for() -> None:
    assert block("Start it", with_code=True).endswith("serve --later\n```")
    assert block("The end", with_code=True) == "The end."


@pytest.mark.parametrize(
    ("question", "whole", "code"),
    [
        ("Quote the warning about high load.", True, False),
        ("Zitiere den Absatz über die Kaution.", True, False),
        ("Citez l'article sur le dépôt.", True, False),
        ("列出所有限制。", True, False),
        ("Give the code that starts the server.", True, True),
        ("Which command starts it?", True, True),
        ("How high is the rent?", False, False),
        ("How large is a codeword?", False, False),
    ],
)
def test_questions(question: str, whole: bool, code: bool) -> None:
    assert (asks_for_block(question), asks_for_code(question)) == (whole, code)


@given(texts, st.data(), st.booleans())
def test_a_block_holds_its_sentence_and_is_not_too_long(
    text: str, data: st.DataObject, with_code: bool
) -> None:
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    first, last = block_around(text, start, stop, with_code)
    assert 0 <= first <= start <= stop <= last <= len(text)
    assert last - first <= max(MAX_BLOCK_CHARS, stop - start)


def test_a_long_block_is_left_out() -> None:
    items = "\n\n".join(f"* item {number} of a long list" for number in range(200))
    start = items.index("* item 100 ")
    first, last = block_around(items, start, start + 10, False)
    assert items[first:last].strip() == "* item 100 of a long list"
    assert block_around("word " * 1000, 2000, 2004, False) == (2000, 2004)
