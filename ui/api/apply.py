"""Updates to merge into files.

They come to /v1/apply, and as chats in the form that Morph's and Relace's clients send,
`<instruction>...</instruction><code>...</code><update>...</update>`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.editing.apply_answer import by_model
from engine.records import Request
from ui.api import schemas as types
from ui.api.errors import ApiError
from ui.api.requests import max_tokens_of, seed_of, temperature_of, text_of, top_p_of
from ui.api.responses import ResponseBuilder, finish_reason, timings

if TYPE_CHECKING:
    from ui.api.jobs import JobStream

INSTRUCTION = re.compile(r"<(instructions?)>(.*?)</\1>\s*", re.DOTALL)
BETWEEN = re.compile(r"</code>\s*<update>")
CODE, END = "<code>", "</update>"


def apply_request(body: types.ApplyRequest) -> Request:
    """Return the request of /v1/apply."""
    return Request(
        "edit",
        body.code,
        path=body.path,
        instruction=body.instruction,
        update=body.update or "\n",  # refused; "" would be an edit by instruction
        max_tokens=body.max_tokens,
        temperature=temperature_of(body.temperature),
        top_k=body.top_k or 0,
        top_p=top_p_of(body.top_p),
        seed=seed_of(body.seed, body.temperature),
    )


def apply_in_chat(body: types.ChatRequest) -> types.ApplyRequest | None:
    """Return the update that a chat's last message requests to merge.

    None for any other chat. `stop` and `prediction` mean nothing for it. Raises ApiError where the
    file's end is ambiguous.
    """
    last = body.messages[-1]
    text = text_of(last.content, separator="\n").strip()
    if last.role != "user" or not text.endswith(END):
        return None
    lead = INSTRUCTION.match(text)
    rest = text[lead.end() :] if lead else text
    parts = BETWEEN.split(rest, maxsplit=2)
    if not rest.startswith(CODE) or len(parts) == 1:
        return None
    if len(parts) > 2:
        message = "messages: the file has </code> and <update> too: send it to /v1/apply"
        raise ApiError(400, message, "messages")
    return types.ApplyRequest(
        code=parts[0].removeprefix(CODE),
        update=parts[1].removesuffix(END),
        instruction=lead[2].strip() if lead else "",
        model=body.model,
        max_tokens=max_tokens_of(body),
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=max(body.top_k or 0, 0),
        seed=body.seed,
    )


async def apply_answer(stream: JobStream, builder: ResponseBuilder) -> types.ApplyAnswer:
    """Return the response of /v1/apply. Raises ApiError, and EditRefused."""
    done = await stream.result()
    finish_reason(done)
    return types.ApplyAnswer(
        created=builder.created,
        model=builder.model,
        code=done.text,
        method="model" if by_model(done) else "merge",
        usage=builder.usage(done.usage),
        timings=timings(done.usage, stream.total_s),
    )
