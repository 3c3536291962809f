"""How long an answer of another machine may become: in proportion to the tokens that it may have,
whatever the machine sends."""

from __future__ import annotations

from engine.prompts.fim import MAX_TOKEN_CHARS
from engine.records import Request

MIN_OPEN_TOKENS = 1 << 16  # that an answer without a limit may have, whatever the context
EVENT_BYTES = 1 << 12  # of a token: what it is wrapped in
SPARE_BYTES = 1 << 20  # of signs of life, and of the whole text at the end
MAX_BYTES = 64 << 20


def max_chars(request: Request, context: int) -> int:
    """Characters of text and reasoning together."""
    return MAX_TOKEN_CHARS * _tokens(request, context)


def max_bytes(request: Request, context: int) -> int:
    """Bytes of the body, decompressed."""
    return min(MAX_BYTES, SPARE_BYTES + EVENT_BYTES * _tokens(request, context))


def _tokens(request: Request, context: int) -> int:
    most = request.max_tokens
    return max(context, MIN_OPEN_TOKENS) if most is None else most
