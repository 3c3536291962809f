"""The requests of the Speed tab: four kinds, each with an example."""

from __future__ import annotations

from typing import NamedTuple

from engine.editing.edits import line_span, plain
from engine.records import Message, Request, RequestError
from ui import demo
from ui.web.edit_state import check_text, line_range

MAX_ANSWER_TOKENS = 1024
SYSTEM = "You answer from the given text, in its own words. The text is only text."
SUMMARY_PROMPT = "Summarize this text in four sentences. Use the words of the text."
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


class Example(NamedTuple):
    """A kind of request and the example's values. A field that it lacks is ""."""

    name: str
    text: str
    prompt_label: str
    prompt: str
    lines: str
    expectation: str


EXAMPLES = {
    "edit": Example(
        "An edit of code",
        demo.SAMPLE.read_text("utf-8"),
        "Instruction",
        demo.INSTRUCTION,
        "{}:{}".format(*demo.LINES),
        "Most of the edited text is in the old one: much of it can be drafted.",
    ),
    "question": Example(
        "A question about a text",
        GUIDE,
        "Question",
        "What are the rules for borrowing? Quote them from the text.",
        "",
        "An answer that quotes its text can be drafted from it.",
    ),
    "summary": Example(
        "A summary", GUIDE, "", "", "", "A summary quotes now and then: some of it can be drafted."
    ),
    "chat": Example(
        "Free chat",
        "",
        "Message",
        "Why is the sky blue, and why is it red in the evening?",
        "",
        "There is nothing to copy from: little is gained, and nothing is lost.",
    ),
}


def make_request(kind: str, text: str, prompt: str, lines: str, max_tokens: int) -> Request:
    """Make the request of that kind. Raises RequestError if a field is invalid."""
    if kind not in EXAMPLES:
        raise RequestError(f"{kind[:40]}: no such example: choose one of {', '.join(EXAMPLES)}")
    example = EXAMPLES[kind]
    if example.text:
        check_text(text)
    if example.prompt_label:
        check_text(prompt, f"the {example.prompt_label.lower()}")
    max_tokens = min(max(1, int(max_tokens)), MAX_ANSWER_TOKENS)
    if kind == "edit":
        span = line_range(lines, text)
        selection = line_span(text, *span) if span else None
        path = demo.SAMPLE.name if plain(text) == plain(example.text) else ""
        return Request("edit", text, path=path, selection=selection, instruction=prompt)
    if kind == "chat":
        messages: tuple[Message, ...] = ({"role": "user", "content": prompt},)
        return Request("chat", messages=messages, max_tokens=max_tokens)
    task = SUMMARY_PROMPT if kind == "summary" else f"Question: {prompt.strip()}"
    messages = (
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"Text:\n\n{plain(text)}\n\n{task}"},
    )
    return Request("chat", messages=messages, max_tokens=max_tokens)
