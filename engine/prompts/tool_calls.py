"""The calls of tools in an answer, while it is streamed and when it is whole."""

from __future__ import annotations

import re

from engine.prompts.call_formats import FORMATS
from engine.prompts.call_formats.call_format import Call, HalfCall, Schemas
from engine.prompts.call_formats.json_calls import is_half, objects

MAX_MALFORMED = 64  # marks without a call; more of an answer are not looked at
BEGINNINGS = tuple(dict.fromkeys(format.opening for format in FORMATS))
READERS = {
    mark: tuple(dict.fromkeys(format.read for format in FORMATS if format.opening == mark))
    for mark in BEGINNINGS
}
BEGINNING = re.compile("|".join(map(re.escape, BEGINNINGS)))
FENCED = re.compile(r"\s*```(?:json|xml)?\s*([{\[].*)```\s*", re.DOTALL)
MAY_BE_BARE = re.compile(  # calls without marks, or their beginning
    r"\s*(?:`{1,2}|(?:```(?:json|jso|js|j|xml|xm|x)?\s*)?(?:\[\s*)?(?:\{\s*(?:\".*)?)?)", re.DOTALL
)
HALF_BARE = re.compile(  # the beginning of a call without marks, and of its name
    r"[^{]*(?:\{\s*(?:\"(?:n|na|nam|name|name\"\s*:?\s*|name\"\s*:\s*\"([^\"]*)(?:\".*)?)?)?)?",
    re.DOTALL,
)


def read_calls(text: str, schemas: Schemas, cut: bool = False) -> tuple[str, list[Call]]:
    """Return an answer's text around its calls, and its calls, in whichever format.

    What is no call of a function that `schemas` names is text, but for half a call at the end of an
    answer that was `cut` off. Without marks the whole answer must be calls.
    """

    def known(calls: list[Call]) -> bool:
        return bool(calls) and all(call.name in schemas for call in calls)

    bare = FENCED.fullmatch(text)
    body = bare[1] if bare else text
    calls, end = objects(body, 0)
    if known(calls) and (not body[end:].strip() or (cut and is_half(body[end:].lstrip("\n;, ")))):
        return "", calls
    begun = HALF_BARE.fullmatch(text) if cut and MAY_BE_BARE.fullmatch(text) else None
    if begun and (begun[1] is None or any(name.startswith(begun[1]) for name in schemas)):
        return "", []
    content, calls, at = "", [], 0  # the text up to `at` has been read
    malformed = 0
    while (mark := BEGINNING.search(text, at)) and malformed < MAX_MALFORMED:
        found, end, half = _marked(text, mark, schemas)
        if known(found):
            content += text[at : mark.start()].removesuffix("\n")
            calls += found
            at = end
        elif cut and half:
            content += text[at : mark.start()].removesuffix("\n")
            at = len(text)
        else:
            content += text[at : mark.end()]
            at = mark.end()
            malformed += 1
    rest = text[at:]
    if cut and (half_mark := _half_mark(rest)):
        rest = rest[:-half_mark].removesuffix("\n")
    content += rest if rest.strip() or not calls else ""
    return content if content.strip() or not calls else "", calls


def held_back(text: str) -> int:
    """Count the characters at the end of an unfinished answer that may belong to a call.

    Those that go when a call follows count, too.
    """
    mark = BEGINNING.search(text)
    before = text[: mark.start()] if mark else text[: len(text) - _half_mark(text)]
    if not before.strip() or MAY_BE_BARE.fullmatch(text):
        return len(text)
    return len(text) - len(before.removesuffix("\n"))


def _half_mark(text: str) -> int:
    """Return the length of the beginning of a mark at the end of a text."""
    for count in range(min(len(text), max(map(len, BEGINNINGS)) - 1), 0, -1):
        if any(mark.startswith(text[-count:]) for mark in BEGINNINGS):
            return count
    return 0


def _marked(text: str, mark: re.Match[str], schemas: Schemas) -> tuple[list[Call], int, bool]:
    """Return the calls behind a mark, their end, and whether the text ends inside one."""
    half = False
    for read in READERS[mark[0]]:
        try:
            calls, end = read(text, mark.end(), schemas)
        except HalfCall:
            half = True
        else:
            if calls:
                return calls, end, False
    return [], mark.end(), half
