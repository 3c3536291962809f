"""Cuts a long text where the tokenizer splits it anyway, so that its pieces' ids are its own.

Most tokenizers split a text between a letter or digit and the white space after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from engine.prompts.token_bounds import BYTE_LEVEL_STEPS, Spec, steps_of

CUT = re.compile("[0-9A-Za-z][ \r\n]")
ACROSS_CUT = re.compile(CUT.pattern.encode())
PIECE_CHARS = 1 << 14

# A text cut at such places; tells whether a tokenizer does split there.
CUT_PROBE = (
    "it's a1", " 23", "\n\n  b", " =\n\tg", "\r\n \r\nh", "  i) -\u00e9 e\u0301 j", " 'k", "\n",
)  # fmt: skip


def pieces(text: str) -> Iterator[str]:
    """Cut the text in pieces of PIECE_CHARS or a little more.

    They are longer where there is no place to cut.
    """
    start = 0
    while cut := CUT.search(text, start + PIECE_CHARS):
        stop = cut.start() + 1
        yield text[start:stop]
        start = stop
    yield text[start:]


def may_cut(spec: Spec, token_bytes: Sequence[bytes | None]) -> bool:
    """Return whether a byte-level tokenizer has no token that reaches across a cut.

    It must add nothing to the start of a text, either. `spec`: tokenizer.json. CUT_PROBE tells the
    rest.
    """
    steps = [*steps_of(spec.get("normalizer")), *steps_of(spec.get("pre_tokenizer"))]
    if any(step["type"] not in BYTE_LEVEL_STEPS or step.get("add_prefix_space") for step in steps):
        return False
    return not any(data is not None and ACROSS_CUT.search(data) for data in token_bytes)
