"""Reasoning that a model writes before its answer, and the marks around it.

Marks count where an answer begins, and nowhere else: what an answer quotes of them is text. A mark
that is a control token of the model is known by its id; one that the model writes as text is known
where its chat template has it. OpenAI's harmony format names a channel before every message
(https://cookbook.openai.com/articles/openai-harmony).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from engine.records import Piece

# Around the reasoning of Qwen, DeepSeek, GLM and others; Mistral; Seed; EXAONE; Kimi; Cohere;
# Apertus; Gemma; Granite.
MARKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<thought>", "</thought>"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|channel>", "<channel|>"),
    ("Here is my thought process:", "Here is my response:"),
)
# Around the answer, next to those around the reasoning.
ANSWER_MARKS = (("<response>", "</response>"), ("<|START_RESPONSE|>", "<|END_RESPONSE|>"))
# Variables that switch reasoning off, where a template reads them: in its
# statements, outside of quotes, and not as a field of a message. Templates are not trusted: every
# pattern takes linear time.
STATEMENT = re.compile(r"\{[{%](?:(?![%}]\}).)*", re.DOTALL)
QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?", re.DOTALL)
SWITCH = re.compile(r"(?<![\w.])(enable_thinking|thinking|thinking_budget|reasoning_effort)\b")
LABELS = {"<|channel>": "thought\n"}  # precedes the reasoning of Gemma 4
START, CHANNEL, MESSAGE, END = "<|start|>", "<|channel|>", "<|message|>", "<|end|>"  # harmony
ASSISTANT = f"{START}assistant"  # precedes a message of the model
REASONING_CHANNEL = "analysis"
TO_FUNCTION = "to=functions."  # part of the header of a message that calls one
RECIPIENT = re.compile(r"t|to|to=\S*")  # the beginning of such a part
FINAL = f"{CHANNEL}final{MESSAGE}"

State = Literal["start", "reasoning", "header", "after", "answer"]
OPENING = frozenset(opening for opening, _ in MARKS)
CLOSING = frozenset(closing for _, closing in MARKS)
IN_ANSWER = frozenset(mark for pair in ANSWER_MARKS for mark in pair)
HARMONY = frozenset((START, CHANNEL, MESSAGE, END))


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    """The marks of one model."""

    tokens: Mapping[int, str]  # control tokens
    texts: tuple[tuple[str, str], ...]  # marks that are written as text
    answer_texts: tuple[tuple[str, str], ...]
    in_template: frozenset[str]
    switch: bool  # the template can ask for an answer without reasoning

    def closing(self, prompt: str, calls: bool = False) -> str:
        """Return the text to append to a prompt so that no reasoning follows.

        The prompt is the template's, which was already to write none. With `calls` the answer may
        be one, which harmony has in another channel than text.
        """
        names = set(self.tokens.values())
        if {CHANNEL, MESSAGE} <= names:
            return FINAL if prompt.endswith("assistant") and not calls else ""
        end = prompt.rstrip()
        for opening, closing in MARKS:
            if not {opening, closing} <= self.in_template:
                continue
            if end.endswith(opening):
                return f"\n{closing}\n\n" if prompt.endswith("\n") else closing
            known = {opening, closing} <= names
            if known and not self.switch and not end.endswith(closing):
                blank = "" if opening.startswith("[") else "\n\n"  # the families write it so
                return f"{opening}{blank}{closing}{blank}"
        return ""

    def asks(self, text: str) -> bool:
        """Return whether a template's own words request reasoning: they show its marks."""
        return any(opening in text for opening, _ in MARKS if opening in self.in_template)


def reasoning_marks(control: Mapping[str, int], template: str) -> ReasoningMarks | None:
    """Find the marks of a model by its control tokens and its chat template.

    None if it has none.
    """
    tokens = {
        control[mark]: mark
        for pair in [*MARKS, *ANSWER_MARKS]
        for mark in pair
        if set(pair) <= control.keys()
    }
    if control.keys() >= {CHANNEL, MESSAGE}:
        tokens |= {control[mark]: mark for mark in HARMONY if mark in control}
    texts, answer_texts = (
        tuple(
            pair
            for pair in pairs
            if not set(pair) <= control.keys() and all(mark in template for mark in pair)
        )
        for pairs in (MARKS, ANSWER_MARKS)
    )
    if not tokens and not texts:
        return None
    marks = frozenset(mark for pair in MARKS for mark in pair if mark in template)
    return ReasoningMarks(tokens, texts, answer_texts, marks, has_switch(template))


def has_switch(template: str) -> bool:
    """Return whether a template reads a variable that switches reasoning off."""
    return any(SWITCH.search(QUOTED.sub("", code)) for code in STATEMENT.findall(template))


class ReasoningFilter:
    """Takes the reasoning out of one answer while it is written.

    Tokens and their text come one by one, so that the result does not depend on the size of steps.
    """

    def __init__(
        self, marks: ReasoningMarks, opened: bool, as_text: bool, calls: bool = False
    ) -> None:
        """Start before the answer.

        `opened`: the prompt ends inside reasoning; `as_text`: marks that are text count; `calls`:
        harmony's messages to functions are text, with their headers.
        """
        self.marks = marks
        self.calls = calls and MESSAGE in marks.tokens.values()
        self.texts = marks.texts if as_text else ()
        self.state: State = "reasoning" if opened else "start"
        self.reasoning: list[str] = []
        self.taken = 0  # parts of it that `take` has returned
        self.header = ""  # a harmony message's header
        self.label = ""  # it may come before the reasoning, and is no part of it
        self.held: list[Piece] = []  # text that may begin a mark, or precede one
        self.closing = [closing for _, closing in self.texts]
        self.answer_end = ""  # the mark after an answer that began with one

    def mark(self, token: int) -> bool:
        """Take a token that is a mark here; False for any other."""
        name = self.marks.tokens.get(token)
        if name is None:
            return False
        if name in HARMONY:
            self._harmony(name)
        elif name in OPENING and self.state != "answer":
            self._enter("reasoning")
            self.label = LABELS.get(name, "")
        elif name in CLOSING and self.state != "answer":
            self._enter("after")
        elif name not in IN_ANSWER:
            return False
        return True

    def push(self, piece: Piece) -> list[Piece]:
        """Take the text of a token; return what is known to be the answer's."""
        if self.state == "header":
            self.header += piece.text
            return []
        self.held.append(piece)
        if self.state == "answer":
            return self._answer()
        return self._reason() if self.state == "reasoning" else self._begin()

    def finish(self) -> list[Piece]:
        """Return the text held back, at the end of the answer."""
        held, self.held = self.held, []
        if self.state == "reasoning":
            self.reasoning.append(joined(held))
            return []
        text = joined(held).strip()
        return [] if text == self.answer_end and self.state != "start" else held

    @property
    def text(self) -> str:
        """The reasoning so far."""
        return "".join(self.reasoning)

    def take(self) -> str:
        """Return the reasoning since the last call."""
        taken, self.taken = self.taken, len(self.reasoning)
        return "".join(self.reasoning[taken:])

    def _enter(self, state: State) -> None:
        """Go to another state at a mark. Text that was held back is reasoning, or blank."""
        if self.state == "reasoning":
            self.reasoning.append(joined(self.held))
        self.held, self.state = [], state

    def _harmony(self, name: str) -> None:
        """Take a mark of a message's header.

        It names a channel, and a function before or behind it. The header of an answer's first
        message begins in the prompt.
        """
        header = self.header if self.state != "start" else joined(self.held)
        self.header = ""
        if name == CHANNEL:
            self._enter("header")
            self.header = header + CHANNEL
        elif name != MESSAGE:
            self._enter("header")
        elif self.calls and TO_FUNCTION in header:
            self._enter("answer")
            self.held = [Piece(f"{ASSISTANT}{header.removeprefix('assistant')}{MESSAGE}", "model")]
        else:
            channel = header.rpartition(CHANNEL)[2].strip()
            self._enter("reasoning" if channel.startswith(REASONING_CHANNEL) else "answer")

    def _begin(self) -> list[Piece]:
        """Begin reasoning at a mark, and the answer at everything else but blanks.

        Blanks between the two belong to neither.
        """
        text = joined(self.held).lstrip()
        blanks = len(joined(self.held)) - len(text)
        for opening, _ in self.texts:
            if text.startswith(opening):
                self.held, self.state = after(self.held, blanks + len(opening)), "reasoning"
                return self._reason()
        wrapped = self.marks.answer_texts if self.state == "after" else ()
        for opening, closing in wrapped:
            if text.startswith(opening):
                self.held, self.answer_end = after(self.held, blanks + len(opening)), closing
                return self._begin()
        if not text or any(opening.startswith(text) for opening, _ in (*self.texts, *wrapped)):
            return []
        if self.calls and self.state == "start" and RECIPIENT.fullmatch(text):
            return []
        if self.state == "after":
            self.held = after(self.held, blanks)
        self.state = "answer"
        return self._answer()

    def _answer(self) -> list[Piece]:
        """Return all but what may be the mark at the end."""
        text = joined(self.held)
        keep = 0
        if self.answer_end:
            at = text.rfind(self.answer_end)
            last = at >= 0 and not text[at + len(self.answer_end) :].strip()
            keep = len(text) - at if last else overlap(text, [self.answer_end])
        out, self.held = before(self.held, len(text) - keep), after(self.held, len(text) - keep)
        return out

    def _reason(self) -> list[Piece]:
        """Reasoning up to a closing mark."""
        text = joined(self.held)
        if self.label:
            if text != self.label and self.label.startswith(text):
                return []
            if text.startswith(self.label):
                self.held = after(self.held, len(self.label))
            self.label, text = "", joined(self.held)
        hits = [(text.find(mark), mark) for mark in self.closing if mark in text]
        if hits:
            at, closing = min(hits)
            self.reasoning.append(text[:at])
            self.held, self.state = after(self.held, at + len(closing)), "after"
            return self._begin()
        keep = overlap(text, self.closing)
        self.reasoning.append(text[: len(text) - keep])
        self.held = after(self.held, len(text) - keep)
        return []


def joined(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def before(pieces: list[Piece], count: int) -> list[Piece]:
    """Return the first `count` characters; a piece that is cut loses its Span."""
    out: list[Piece] = []
    for piece in pieces:
        text = piece.text[: max(0, count)]
        count -= len(piece.text)
        if text:
            out.append(piece if text == piece.text else Piece(text, piece.source))
    return out


def after(pieces: list[Piece], count: int) -> list[Piece]:
    """Return the pieces without their first `count` characters; one that is cut loses its Span."""
    out: list[Piece] = []
    for piece in pieces:
        rest = piece.text[count:]
        count = max(0, count - len(piece.text))
        if rest:
            out.append(piece if rest == piece.text else Piece(rest, piece.source))
    return out


def overlap(text: str, marks: list[str]) -> int:
    """Length of the longest end of `text` that begins one of `marks`."""
    longest = max(map(len, marks), default=1) - 1
    for count in range(min(len(text), longest), 0, -1):
        if any(mark.startswith(text[-count:]) for mark in marks):
            return count
    return 0
