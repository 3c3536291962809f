"""Commit messages from a diff."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from engine.prompts.builder import longest_run
from engine.prompts.fim import MAX_TOKEN_CHARS, window
from engine.records import Request
from lsp_server.chat.answering import answer
from lsp_server.chat.context import Encode
from lsp_server.chat.secret_changes import without_secrets
from lsp_server.protocol.messages import CommitMessageParams, Progress, failed

if TYPE_CHECKING:
    from engine.remote.any_engine import EditorEngine
    from lsp_server.protocol.protocol import Server
    from lsp_server.session import Session

SLOT = ("commit message", "")
# Chosen by eye among three wordings, on a few changes of this repository. It has no example,
# because the 0.5B model copies examples.
SYSTEM_PROMPT = "You write git commit messages."
QUESTION = (
    "Here is a diff:\n\n{}\nSummarize it as a commit message: a subject in the imperative mood, "
    "at most 72 characters, then an empty line and a sentence that says why. Do not list files. "
    "Answer with the message only."
)
MAX_SUBJECT_CHARS = 72
MAX_MESSAGE_TOKENS = 160
MAX_DIFF_TOKENS = 1536  # tokens; twice as many take twice the time
HEAD_TOKENS = 48  # tokens of a file's head
CUT = "[...]\n"  # a text in place of hunks that do not fit
FILE = re.compile(r"^diff --git .*$", re.MULTILINE)
HUNK = re.compile(r"^@@ ", re.MULTILINE)
LABEL = re.compile(r"^(?:commit message|subject|title)\s*:\s*", re.IGNORECASE)
QUOTES = "\"'`*# \t"


async def commit_message(
    server: Server, session: Session, params: CommitMessageParams
) -> dict[str, Any]:
    """Write a message for the change that a diff shows.

    Raises a protocol error if there is none.
    """
    if not params.diff.strip():
        raise failed("the diff is empty: stage some changes first")

    diff, notes = params.diff, list[str]()
    if session.elsewhere:
        await session.configured()
        diff, left_out = await asyncio.to_thread(without_secrets, diff, session.index.why_secret_in)
        notes = [
            f"{reason}, so its changes were not sent to {session.elsewhere}" for reason in left_out
        ]
        for note in notes:
            session.warn(note)
        if not diff:
            raise failed(f"{notes[0]}, and nothing else has changed: write the message yourself")
    progress = Progress(server, params.workDoneToken, params.partialResultToken)
    made = await answer(
        session,
        SLOT,
        progress,
        "Writing a commit message",
        lambda engine: request_for(engine, diff),
    )
    text = cleaned(made.done.text, cut=made.done.reason == "length")
    if not text:
        raise failed("the model wrote no message: stage fewer changes, or write it yourself")
    return {"text": text, "notes": notes, "stats": made.stats()}


def request_for(engine: EditorEngine, diff: str) -> Request:
    """Write the prompt with as much of a diff as fits."""
    capacity = min(MAX_DIFF_TOKENS, engine.context // 2)
    shown = shortened(diff, capacity, engine.encode)
    fence = "`" * max(3, 1 + longest_run(shown, "`"))
    content = QUESTION.format(f"{fence}diff\n{shown}{fence}\n")
    messages = (
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": content},
    )
    max_tokens = min(MAX_MESSAGE_TOKENS, max(1, engine.context // 4))
    return Request("chat", messages=messages, max_tokens=max_tokens, thinking=False)


def shortened(diff: str, max_tokens: int, encode: Encode) -> str:
    """Shorten a diff to about `max_tokens`: each file's head and an equal share of its hunks."""
    if len(diff) <= MAX_TOKEN_CHARS * max_tokens and len(encode(diff)) <= max_tokens:
        return diff if diff.endswith("\n") else f"{diff}\n"
    files = [*_parts(diff, FILE)]
    shown = files[: max(1, max_tokens // (2 * HEAD_TOKENS))]
    parts, left = [], max_tokens
    by_length = sorted(enumerate(shown), key=lambda one: len(one[1]))
    for count, (number, file) in enumerate(by_length):
        part = _file(file, left // (len(shown) - count), encode)
        left -= len(encode(part))
        parts.append((number, part))
    text = "".join(part for _, part in sorted(parts))
    more = len(files) - len(shown)
    return f"{text}[{more} more files]\n" if more else text


def _file(diff: str, max_tokens: int, encode: Encode) -> str:
    """Cut one file's diff to its head and as many of its hunks as fit, in their order."""
    head, *hunks = _parts(diff, HUNK)
    shown = head[: window(head, 0, 0, HEAD_TOKENS, encode)[1]]
    left = max_tokens - len(encode(shown))
    for hunk in hunks:
        stop = window(hunk, 0, 0, max(0, left), encode)[1]
        shown += hunk[:stop]
        left -= len(encode(hunk[:stop]))
        if stop < len(hunk):
            return f"{shown.rstrip()}\n{CUT}"
    return shown if shown.endswith("\n") else f"{shown}\n"


def _parts(text: str, mark: re.Pattern[str]) -> Iterator[str]:
    """Cut a text before each mark; what precedes the first one is a part unless it is empty."""
    starts = [found.start() for found in mark.finditer(text)]
    ends = [*starts, len(text)]
    if not starts or text[: ends[0]]:
        yield text[: ends[0]]
    for start, stop in zip(starts, ends[1:], strict=True):
        yield text[start:stop]


def cleaned(answer: str, cut: bool = False) -> str:
    """Extract the message from an answer, without fences, quotes and labels.

    It has a subject of at most MAX_SUBJECT_CHARS, an empty line, and the body if there is one.
    `cut`: the answer has no end, and its last, unfinished line is dropped.
    """
    fenced = re.search(r"^```[^\n]*\n(.*?)(?:^```|\Z)", answer, re.MULTILINE | re.DOTALL)
    lines = (fenced[1] if fenced else answer).strip().splitlines()
    if cut and len(lines) > 1:
        lines.pop()
    if not lines:
        return ""
    subject = LABEL.sub("", lines[0].strip(QUOTES)).strip(QUOTES).rstrip(".")
    body = "\n".join(line.rstrip() for line in lines[1:]).strip().strip("\"'`").strip()
    if len(subject) > MAX_SUBJECT_CHARS:
        subject, rest = _split_subject(subject)
        body = f"{rest}\n\n{body}".strip()
    return f"{subject}\n\n{body}" if body else subject


def _split_subject(line: str) -> tuple[str, str]:
    """Cut a line that is too long for a subject between words; the rest goes into the body."""
    at = line.rfind(" ", 0, MAX_SUBJECT_CHARS + 1)
    at = at if at > 0 else MAX_SUBJECT_CHARS
    return line[:at].rstrip(" ,;:"), line[at:].strip()
