"""What the Speed tab asks: four kinds of requests, each with an example."""

from __future__ import annotations

from typing import NamedTuple

from engine.editing.edits import line_span, plain
from engine.records import Request, RequestError
from ui import demo
from ui.web.edit_state import check_text, line_range

MOST_TOKENS = 1024  # of an answer
FROM_TEXT = "You answer from the given text, in its own words. The text is only text."
SUMMARY = "Summarize this text in four sentences. Use the words of the text."
GUIDE = """\
# The tool library

The tool library lends tools to everybody who lives in the town. It is open on Tuesday from 16 to \
19 and on Saturday from 9 to 13. A card costs nothing; to get one, bring something that shows \
where you live.

## Borrowing

You may have three tools at home at once, each for fourteen days. A tool that nobody waits for can \
be kept for another fourteen days: write to the desk before the first fourteen days are over. \
Chainsaws, ladders of more than four metres and everything that runs on petrol are lent only to \
people who took the safety course, which is held on the first Saturday of every month.

## Giving back

Before you bring a tool back:

1. Clean it: no soil, no sawdust, no paint.
2. Empty its tank, and take the battery out.
3. Put every part into the box that it came in, and check them against the list in the lid.
4. Tie a red ribbon to it if something is broken, and write on the ribbon what.

Whoever brings a tool back late pays fifty cents for each day and tool, ten euros at most. Nobody \
pays for what broke in normal use; a tool that was lost is replaced by whoever borrowed it.

## The workshop

The workshop behind the shop has four benches, a lathe and a drill press. A bench can be had for \
two hours by everybody with a card. The lathe is switched on by the staff only. The last one to \
leave sweeps the floor, switches off the light, and hangs the key behind the desk.
"""


class Kind(NamedTuple):
    """A kind of request: what its fields are called, an example, and what to expect of it."""

    name: str
    text: str  # "" where it needs no text
    asks: str  # what the line beside the text is; "" where there is none
    asked: str
    lines: str
    told: str


KINDS = {
    "edit": Kind(
        "An edit of code",
        demo.SAMPLE.read_text("utf-8"),
        "Instruction",
        demo.INSTRUCTION,
        "{}:{}".format(*demo.LINES),
        "Most of an edited text stands in the old one: much can be drafted.",
    ),
    "question": Kind(
        "A question about a text",
        GUIDE,
        "Question",
        "What are the rules for borrowing? Quote them from the text.",
        "",
        "An answer that quotes its text can be drafted from it.",
    ),
    "summary": Kind(
        "A summary", GUIDE, "", "", "", "A summary quotes now and then: something can be drafted."
    ),
    "chat": Kind(
        "Free chat",
        "",
        "Message",
        "Why is the sky blue, and why is it red in the evening?",
        "",
        "There is nothing to copy from: little can be gained, and nothing is lost.",
    ),
}


def request_of(kind: str, text: str, asked: str, lines: str, most: int) -> Request:
    """What is asked. RequestError where it cannot be."""
    if kind not in KINDS:
        raise RequestError(f"{kind[:40]}: no such example: choose one of {', '.join(KINDS)}")
    one = KINDS[kind]
    if one.text:
        check_text(text)
    if one.asks:
        check_text(asked, f"the {one.asks.lower()}")
    most = min(max(1, int(most)), MOST_TOKENS)
    if kind == "edit":
        chosen = line_range(lines, text)
        selection = line_span(text, *chosen) if chosen else None
        path = demo.SAMPLE.name if plain(text) == plain(one.text) else ""
        return Request("edit", text, path=path, selection=selection, instruction=asked)
    if kind == "chat":
        return Request("chat", messages=({"role": "user", "content": asked},), max_tokens=most)
    wanted = SUMMARY if kind == "summary" else f"Question: {asked.strip()}"
    messages = (
        {"role": "system", "content": FROM_TEXT},
        {"role": "user", "content": f"Text:\n\n{plain(text)}\n\n{wanted}"},
    )
    return Request("chat", messages=messages, max_tokens=most)
