"""A conversation about files, selections and problems that the editor reports.

The client sends the whole conversation each time; none of it is stored here. The context comes
first in the prompt, so that a follow-up reuses the KV cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from engine.prompts.fim import MAX_TOKEN_CHARS
from engine.rag.citations import Source, cite
from engine.records import Message, Request, RequestError
from lsp_server.chat.answering import StreamedAnswer, answer
from lsp_server.chat.context import (
    ContextText,
    Encode,
    ShownPassage,
    choose_passages,
    open_texts,
    read_context,
)
from lsp_server.protocol.messages import (
    ChatParams,
    ConversationMessage,
    Diagnostic,
    Progress,
    failed,
)
from lsp_server.protocol.positions import Text, units
from lsp_server.protocol.text_sync import path_of

if TYPE_CHECKING:
    from engine.remote.any_engine import EditorEngine
    from lsp_server.protocol.protocol import Server
    from lsp_server.session import Session

SYSTEM_PROMPT = (
    "You help a programmer in a code editor. Answer briefly and exactly. Put code into fenced "
    "blocks that name the language, and quote the lines that you mean."
)
WhySecret = Callable[[str, str], str | None]  # (path, text) -> why it may hold secrets

SLOT = ("chat", "")
MAX_ANSWER_TOKENS = 1024
MAX_CONTEXT_TOKENS = 4096  # tokens of files and selections in the prompt
MESSAGE_TOKENS = 8  # tokens of the marks around a message
TEMPLATE_TOKENS = 64  # tokens that the chat template adds to those
MAX_DIAGNOSTICS, MAX_DIAGNOSTIC_CHARS = 20, 400
FORGOTTEN = "the conversation is longer than this model can read: its first messages were left out"


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A question with what it shows to the model."""

    request: Request
    passages: list[ShownPassage]
    notes: list[str]  # for the user


async def chat(server: Server, session: Session, params: ChatParams) -> dict[str, Any]:
    """Answer the last message of a conversation.

    Raises a protocol error if there is no answer.
    """
    if not params.messages or params.messages[-1].role != "user":
        raise failed("no question: the last message must be the user's")
    if not params.messages[-1].content.strip():
        raise failed("the question is empty: say what you want to know")
    open_, encoding = open_texts(session.documents), session.documents.encoding
    prepared: list[_Prepared] = []
    keep_secret = session.index.why_secret if session.elsewhere else None

    def prepare(engine: EditorEngine) -> Request:
        prepared.append(_prepare(engine, params, open_, encoding, keep_secret))
        return prepared[-1].request

    progress = Progress(server, params.workDoneToken, params.partialResultToken)
    made = await answer(session, SLOT, progress, "Answering", prepare)
    question, passages = params.messages[-1].content, prepared[-1].passages
    citations = await asyncio.to_thread(_citations, made, passages, question, encoding)
    return {
        "text": made.done.text,
        "citations": citations,
        "notes": prepared[-1].notes,
        "stats": made.stats(),
    }


def _prepare(
    engine: EditorEngine,
    params: ChatParams,
    open_: dict[str, Text],
    encoding: str,
    why_secret: WhySecret | None,
) -> _Prepared:
    """Write the prompt: the context of the conversation, then as many of its messages as fit.

    Texts that may hold secrets are left out where there is a `why_secret` to find them.
    """
    max_tokens = min(MAX_ANSWER_TOKENS, max(1, engine.context // 4))
    capacity = engine.context - max_tokens - TEMPLATE_TOKENS - len(engine.encode(SYSTEM_PROMPT))
    texts, diagnostics = read_context(params.context, open_, encoding), [*params.diagnostics]
    secret: dict[str, str] = {}  # by URI, why
    if why_secret is not None:
        secret = _secret_texts(texts, diagnostics, open_, why_secret)
        texts = [text_file for text_file in texts if text_file.uri not in secret]
        diagnostics = [diagnostic for diagnostic in diagnostics if diagnostic.uri not in secret]
    problems = _problems(diagnostics, open_)
    capacity -= len(engine.encode(problems))
    messages = _merged(params.messages)
    question = messages[-1]["content"]
    least = _message_tokens(question, capacity, engine.encode)
    if least > capacity:
        raise RequestError(
            f"the question is too long, there is room for {max(0, capacity)} tokens: ask in fewer "
            "words, name a file with @ instead of pasting it, or choose a model with a longer "
            "context"
        )
    budget = min(MAX_CONTEXT_TOKENS, engine.context // 2, capacity - least)
    passages, notes = choose_passages(texts, question, budget, engine.encode)
    notes += [f"{why}: this was not sent to another machine" for why in secret.values()]
    shown = "".join(passage.shown() for passage in passages)
    first = shorten(messages, capacity - len(engine.encode(shown)), engine.encode)
    if first:
        notes.append(FORGOTTEN)
    head, *rest = messages[first:]
    request = Request(
        "chat",
        messages=(
            {"role": "system", "content": SYSTEM_PROMPT},
            head | {"content": shown + problems + head["content"]},
            *rest,
        ),
        predictions=tuple(passage.text for passage in passages),
        max_tokens=max_tokens,
        thinking=False,  # it would use up the tokens
    )
    return _Prepared(request, passages, notes)


def _secret_texts(
    texts: Sequence[ContextText],
    diagnostics: Sequence[Diagnostic],
    open_: dict[str, Text],
    why_secret: WhySecret,
) -> dict[str, str]:
    """Find the files that may hold secrets: by URI, the file's name and the reason."""
    files = {text_file.uri: text_file.text.text for text_file in texts}
    for problem in diagnostics:
        text = open_.get(problem.uri) or open_.get(path_of(problem.uri) or "")
        files.setdefault(problem.uri, f"{text.text if text else ''}\n{problem.message}")
    found = {}
    for uri, text_of in files.items():
        path = path_of(uri) or uri
        if why := why_secret(path, text_of):
            found[uri] = f"{path.rsplit('/', 1)[-1]}: {why}"
    return found


def _merged(messages: Sequence[ConversationMessage]) -> list[Message]:
    """Merge neighbouring messages of one role, since chat templates demand alternating roles.

    A question that got no answer and the next one become one message. Messages before the user's
    first are dropped.
    """
    found: list[Message] = []
    for message in messages:
        role, content = message.role, message.content
        if found and found[-1]["role"] == role:
            found[-1] = {"role": role, "content": f"{found[-1]['content']}\n\n{content}"}
        elif found or role == "user":
            found.append({"role": role, "content": content})
    return found


def shorten(messages: Sequence[Message], max_tokens: int, encode: Encode) -> int:
    """Find the first message to send, so that it and the later ones have at most `max_tokens`.

    Returns its number. It is always one of the user's; the last message if no other fits. More than
    necessary is left out, in steps of half of `max_tokens`: the prompts of the next questions then
    begin with the same message, which keeps the KV cache valid.
    """
    sizes = [_message_tokens(message["content"], max_tokens, encode) for message in messages]
    excess = sum(sizes) - max_tokens
    if excess <= 0:
        return 0
    step = max(1, max_tokens // 2)
    target, dropped = -(-excess // step) * step, 0
    for number, size in enumerate(sizes):
        if messages[number]["role"] == "user" and dropped >= target:
            return number
        dropped += size
    return len(messages) - 1


def _message_tokens(text: str, max_tokens: int, encode: Encode) -> int:
    """Count the tokens of a message.

    Of one that is far too long, the result is a number that is too large as well.
    """
    if len(text) > MAX_TOKEN_CHARS * max(1, max_tokens):
        return len(text) // MAX_TOKEN_CHARS + MESSAGE_TOKENS
    return len(encode(text)) + MESSAGE_TOKENS


def _problems(diagnostics: Sequence[Diagnostic], open_: dict[str, Text]) -> str:
    """List what the editor reports, each problem with its line of code."""
    lines = []
    for diagnostic in diagnostics[:MAX_DIAGNOSTICS]:
        path, number = path_of(diagnostic.uri), diagnostic.range.start.line
        name = (path or diagnostic.uri).rsplit("/", 1)[-1]
        message = " ".join(diagnostic.message.split())[:MAX_DIAGNOSTIC_CHARS]
        text = open_.get(diagnostic.uri) or open_.get(path or "")
        if text is not None and number >= text.line_count:
            raise RequestError(
                f"{name}: no line {number + 1}, it has {text.line_count}: ask again with the "
                "problems of now"
            )
        code = text.text[slice(*text.line(number))].strip() if text else ""
        where = f"{name}, line {number + 1}" + (f" (`{code}`)" if code else "")
        lines.append(f"- {where}: {message}\n")
    return f"Problems that the editor reports:\n{''.join(lines)}\n" if lines else ""


def _citations(
    made: StreamedAnswer, passages: Sequence[ShownPassage], question: str, encoding: str
) -> list[dict[str, Any]]:
    """Find the parts of an answer that are copied from the passages, and where those are."""
    text = made.done.text
    sources = [
        Source(str(number), one.source.name, one.text, one.start)
        for number, one in enumerate(passages)
    ]
    found = []
    for span in cite(text, sources, question):
        origin = passages[int(span.document)].source
        ends = (origin.text.position(at, encoding) for at in (span.source_start, span.source_stop))
        start, stop = (types.Position(*end) for end in ends)
        found.append(
            {
                "start": units(text[: span.start], "utf-16"),
                "end": units(text[: span.stop], "utf-16"),
                "uri": origin.uri,
                "range": types.Range(start, stop),
            }
        )
    return found
