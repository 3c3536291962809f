"""Requests as bodies of OpenAI's protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.editing.edits import plain, strip_blank_lines
from engine.editing.snippet import snippet
from engine.prompts.builder import COMPLETE_TOKENS, apply_messages, edit_texts
from engine.prompts.fim import FimFormat
from engine.records import Message, Request, RequestError
from engine.remote.stops import Fence

MAX_STOPS = 4  # stop strings that the protocol takes; further ones are looked for here
CHAT, COMPLETION = "/chat/completions", "/completions"


@dataclass(slots=True)
class RequestPlan:
    """The way to send a request and to read its answer."""

    path: str
    body: dict[str, Any]
    stop: tuple[str, ...] = ()
    fence: Fence | None = None  # the answer is the code in it


def plan_of(request: Request, model: str, suffixes: bool, fim: FimFormat | None) -> RequestPlan:
    """Plan how to send a request.

    `suffixes`: the server takes them; else the marks of `fim`, if there are any, tell where to fill
    in. RequestError for what the protocol cannot do.
    """
    if request.tools or request.must_call or request.grammar:
        raise RequestError("tools and grammars need an engine of Draftline: leave out openai:")
    if request.changes_logits or request.min_p or request.logprobs is not None:
        raise RequestError("penalties, biases and probabilities need an engine of Draftline")
    if request.stop_tokens or request.continues:
        raise RequestError("end tokens and begun answers need an engine of Draftline")
    body: dict[str, Any] = {
        "model": model,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "seed": request.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    body |= {"top_k": request.top_k} if request.top_k else {}
    body |= {"max_tokens": request.max_tokens} if request.max_tokens is not None else {}
    if request.kind == "complete":
        return _completion(request, body, suffixes, fim)
    fence = None if request.kind == "chat" else Fence()
    body["messages"] = [
        {"role": message["role"], "content": message["content"]} for message in _messages(request)
    ]
    body |= {"stop": list(request.stop[:MAX_STOPS])} if request.stop and not fence else {}
    return RequestPlan(CHAT, body, request.stop, fence)


def _messages(request: Request) -> tuple[Message, ...]:
    """Make the conversation of a chat or an edit."""
    if request.kind == "chat":
        if not request.messages:
            raise RequestError("no messages: a chat needs at least one")
        return request.messages
    if not request.update:
        return ({"role": "user", "content": edit_texts(request).message},)
    first, last = strip_blank_lines(request.text, 0, len(request.text))
    update = snippet(request.update, request.text)
    if not update.strip():
        raise RequestError("the update is empty: write the changed lines")
    return tuple(apply_messages(plain(request.text[first:last]), update, request)[0])


def _completion(
    request: Request, body: dict[str, Any], suffixes: bool, fim: FimFormat | None
) -> RequestPlan:
    before, after = plain(request.text), plain(request.suffix or "")
    body["prompt"] = before
    stop = request.stop
    if request.suffix is not None and suffixes:
        body["suffix"] = after
    elif request.suffix is not None and fim is not None:
        shown = "".join(
            f"{fim.file}{path}\n{plain(text).rstrip()}\n" for path, text in request.snippets
        )
        body["prompt"] = (shown if fim.file else "") + (
            f"{fim.suffix}{after}{fim.prefix}{before}{fim.middle}"
            if fim.suffix_first
            else f"{fim.prefix}{before}{fim.suffix}{after}{fim.middle}"
        )
        stop = (*stop, *fim.marks, *((fim.file,) if fim.file else ()))
    body.setdefault("max_tokens", COMPLETE_TOKENS)
    body |= {"stop": list(stop[:MAX_STOPS])} if stop else {}
    return RequestPlan(COMPLETION, body, stop)
