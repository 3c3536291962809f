"""Probabilities of an answer's tokens, in the forms of OpenAI's protocols."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from engine.records import TokenChance
from ui.api import schemas as types

Chances = tuple[TokenChance, ...]  # of a token, and behind it of the likeliest ones in its place


class Offsets:
    """Counts the characters before each token of an answer."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._count = 0

    def before(self, data: bytes) -> int:
        """Return the characters before a token, and count its own."""
        before = self._count
        self._count += len(self._decoder.decode(data))
        return before


def token_text(data: bytes) -> str:
    """Return a token's text; of a part of a character its bytes, as OpenAI's do."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def chat_logprobs(chances: Sequence[Chances]) -> types.ChatLogprobs:
    """Return the probabilities of tokens as a chat's choice has them."""

    def entry(chance: TokenChance) -> types.TokenLogprob:
        text = token_text(bytes(chance.data))
        assert chance.logprob is not None  # it is no prompt's
        return types.TokenLogprob(token=text, logprob=chance.logprob, bytes=[*chance.data])

    return types.ChatLogprobs(
        content=[
            types.AnswerLogprob(
                **entry(own).model_dump(), top_logprobs=[entry(other) for other in others]
            )
            for own, *others in chances
        ]
    )


def text_logprobs(
    chances: Sequence[Chances], offsets: Offsets, likeliest: bool
) -> types.TextLogprobs:
    """Return the probabilities of tokens as a completion's choice has them."""
    texts = [[token_text(bytes(one.data)) for one in entry] for entry in chances]
    values = [[one.logprob for one in entry] for entry in chances]
    pairs = [
        None
        if numbers[0] is None
        else dict(zip((*names[1:], names[0]), (*numbers[1:], numbers[0]), strict=True))
        for names, numbers in zip(texts, values, strict=True)
    ]
    return types.TextLogprobs(
        tokens=[names[0] for names in texts],
        token_logprobs=[numbers[0] for numbers in values],
        top_logprobs=pairs if likeliest else None,
        text_offset=[offsets.before(bytes(entry[0].data)) for entry in chances],
    )
