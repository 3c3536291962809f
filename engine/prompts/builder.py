"""A Request as a Prompt: what the model reads, and which text it is expected to repeat."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from engine.editing.apply_snippet import ways_of
from engine.editing.edits import plain, strip_blank_lines
from engine.editing.merged_text import refusal
from engine.editing.snippet import snippet
from engine.prompts.control_marks import check_format, marked_ids, rewritten_region
from engine.prompts.fim import ends, infill_ids
from engine.prompts.line_grammar import line_grammar, ways_grammar
from engine.prompts.prompt_encoder import PromptEncoder
from engine.prompts.prompt_spans import places
from engine.prompts.tokenizer import Tokenizer
from engine.prompts.tools import Tool
from engine.records import (
    MAX_PREDICTION_CHARS,
    MAX_PREDICTIONS,
    Message,
    Request,
    RequestError,
)
from engine.sampling.grammar_depth import MAX_DEPTH
from index.records import Span

COMPLETE_TOKENS = 256  # tokens of a completion, unless the request names a limit
EDIT_SPARE_TOKENS = 256  # tokens beyond one and a half times the edited text
MAX_SURROUNDINGS_CHARS = 32_000  # characters before and after a selection, to draft from
EDIT_REQUEST = "Rewrite this code: {}\nAnswer with the whole rewritten code only."
EDIT_REPLY = 'The code after the change "{}":\n\n'  # unchanged code comes less often after it
APPLY_REQUEST = (
    "This is an update of the code:\n\n{}\n\n{}Apply it. In the update, `... existing code ...` "
    "means that the code there stays as it is. Write the complete updated file, with nothing left "
    "out."
)
APPLY_REPLY = "The complete updated file:\n\n"
FAST_APPLY = re.compile(r"fast-?_?apply", re.IGNORECASE)  # names of models for FAST_APPLY_*
FAST_APPLY_SYSTEM = (
    "You are a coding assistant that helps merge code updates, ensuring every modification is "
    "fully integrated."
)
FAST_APPLY_USER = """{}Merge all changes from the <update> snippet into the <code> below.
- Preserve the code's structure, order, comments, and indentation exactly.
- Output only the updated code, enclosed within <updated-code> and </updated-code> tags.
- Do not include any additional text, explanations, placeholders, ellipses, or code fences.

<code>{}</code>

<update>{}</update>

Provide the complete updated code."""
FAST_APPLY_TAGS = ("<updated-code>", "</updated-code>")
LANGUAGES = {
    ".py": "python", ".js": "javascript", ".ts": "typescript", ".go": "go", ".rs": "rust",
    ".c": "c", ".h": "c", ".cpp": "cpp", ".hpp": "cpp", ".java": "java", ".md": "markdown",
    ".sh": "bash", ".html": "html", ".css": "css", ".json": "json", ".toml": "toml",
    ".yaml": "yaml", ".yml": "yaml", ".rb": "ruby", ".lua": "lua", ".sql": "sql",
}  # fmt: skip


@dataclass(slots=True)
class Prompt:
    """The text that the model reads, the texts that it may repeat, and its ends; in tokens."""

    ids: list[int]
    predictions: list[list[int]] = field(default_factory=list)
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None  # None: as many as fit the context
    ends: frozenset[int] = frozenset()  # end tokens next to the model's own
    thinks: bool = False  # the answer begins with the rest of reasoning
    whole: bool = False  # predictions[0] is a whole file that the answer repeats
    grammar: str = ""  # the answer follows it, unless the request has one
    span: Callable[[int, int], Span | None] | None = None  # (prediction, token) -> its origin
    documents: Callable[[int], Span | None] | None = None  # token of ids -> its origin


def prompt_of(
    request: Request,
    tokenizer: Tokenizer,
    context: int | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    model: str = "",
) -> Prompt:
    """Make the Prompt of a Request.

    RequestError where it is empty or has more than `context` tokens, found without tokenizing all
    of it. `cancelled` is called again and again, and ends it with Cancelled. `model`: its name, for
    models that are made to merge updates.
    """
    encoder = PromptEncoder(tokenizer, context, cancelled)
    prompt = unpredicted(request, encoder, model)
    prompt.predictions[1:1] = [tokenizer.encode(text) for text in limited(request.predictions)]
    if request.suffix is not None and prompt.predictions:
        prompt.predictions.append(prompt.ids)  # what is drafted from without predictions
    return prompt


def unpredicted(request: Request, encoder: PromptEncoder, model: str = "") -> Prompt:
    """Make the Prompt of a Request without the request's own predictions."""
    tokenizer = encoder.tokenizer
    if request.kind == "complete":
        return completion_prompt(request, encoder)
    if request.kind == "chat":
        if not request.messages:
            raise RequestError("no messages: a chat needs at least one")
        encoder.expect(len(request.messages))  # each takes one token at least
        tools = [Tool.of(text) for text in request.tools]
        # A grammar that holds from the start is that of the whole answer.
        whole = request.grammar or request.must_call or request.continues
        messages, begun = begun_reply(request)
        turns = tokenizer.turns(
            messages, begun, encoder.encode, request.thinking and not whole, tools
        )
        ids = [token for _, part in turns for token in part]
        places_of = places(request.documents, turns, tokenizer)
        thinks = tokenizer.ends_in_reasoning(ids)
        return Prompt(ids, [], request.stop, request.max_tokens, thinks=thinks, documents=places_of)
    if request.update:
        return apply_prompt(request, encoder, model)
    return edit_prompt(request, encoder)


def begun_reply(request: Request) -> tuple[Sequence[Message], str]:
    """Return a chat's messages, and the answer that the client has begun; "" for none.

    RequestError where there is none to go on with.
    """
    if not request.continues:
        return request.messages, ""
    *messages, last = request.messages
    if last["role"] != "assistant" or "tool_calls" in last or not messages:
        raise RequestError("messages: to go on with, end with a text of the assistant after others")
    return messages, last["content"]


def completion_prompt(request: Request, encoder: PromptEncoder) -> Prompt:
    """Make the Prompt of a `complete` request.

    Where marks in it say which text the answer rewrites, that is predicted first, then the whole
    prompt.
    """
    tokenizer = encoder.tokenizer
    capacity = COMPLETE_TOKENS if request.max_tokens is None else request.max_tokens
    if request.suffix is not None:
        ids = [*tokenizer.begin, *infill_ids(request, encoder)]
        return Prompt(ids, [], request.stop, capacity, ends(tokenizer))
    if not request.parse_special:
        ids = [*tokenizer.begin, *encoder.encode(plain(request.text))]
        return Prompt(ids, [], request.stop, capacity)
    check_format(request.text, tokenizer)
    ids = [*tokenizer.begin, *marked_ids(request.text, encoder)]
    region = "" if request.predictions else rewritten_region(plain(request.text))
    predictions = [marked_ids(region, PromptEncoder(tokenizer)), ids] if region else []
    stops = ends(tokenizer)
    marked = not stops.isdisjoint(ids)
    return Prompt(ids, predictions, request.stop, capacity, stops if marked else frozenset())


def limited(texts: Sequence[str]) -> list[str]:
    """Return the first of the predictions, as many and as long as an answer may repeat."""
    found: list[str] = []
    capacity = MAX_PREDICTION_CHARS
    for text in texts[:MAX_PREDICTIONS]:
        if part := text[:capacity]:
            found.append(plain(part))
            capacity -= len(part)
    return found


@dataclass(frozen=True, slots=True)
class EditTexts:
    """The texts of an edit by instruction."""

    first: int  # the code to rewrite, without blank lines around it: code points of the text
    last: int
    chosen: str  # the code between them
    fence: str  # the fence around it
    message: str  # the user's message
    reply: str  # the start of the answer, up to the code


def edit_texts(request: Request) -> EditTexts:
    """Make the texts of an edit by instruction. RequestError where there is nothing to do.

    Only the selection is shown, because small models rewrite whatever else they see. The wording
    was chosen on EditEval's even records with Qwen2.5-Coder of 0.5B and 1.5B.
    """
    if not request.instruction.strip():
        raise RequestError("the instruction is empty: say what to change")
    start, stop = request.selection or (0, len(request.text))
    if not 0 <= start <= stop <= len(request.text):
        raise RequestError(f"selection {start}:{stop} is outside the text (0:{len(request.text)})")
    first, last = strip_blank_lines(request.text, start, stop)
    chosen = plain(request.text[first:last])
    fence = "`" * max(3, 1 + longest_run(request.text, "`"))
    language = fence_language(request.path)
    instruction = request.instruction.strip()
    message = f"{fence}{language}\n{chosen}\n{fence}\n\n{EDIT_REQUEST.format(instruction)}"
    reply = f"{EDIT_REPLY.format(instruction)}{fence}{language}\n"
    return EditTexts(first, last, chosen, fence, message, reply)


def edit_prompt(request: Request, encoder: PromptEncoder) -> Prompt:
    """Make the Prompt of an edit by instruction, which predicts the edited text first.

    The reply is started up to an open code fence, so the answer is the code itself, token for token
    as in the file, up to the closing fence.
    """
    texts, tokenizer = edit_texts(request), encoder.tokenizer
    first, last, fence = texts.first, texts.last, texts.fence
    messages = [{"role": "user", "content": texts.message}]
    turns = tokenizer.turns(messages, texts.reply, encoder.encode, thinking=False)
    ids = [token for _, part in turns for token in part]
    expected = tokenizer.encode_inside(f"{texts.chosen}\n{fence}")
    capacity = request.max_tokens
    if capacity is None:
        capacity = EDIT_SPARE_TOKENS + len(expected) * 3 // 2
    around = [tokenizer.encode(text) for text in surroundings(request.text, first, last)]
    return Prompt(
        ids,
        [expected, *around],
        (f"\n{fence}", *request.stop),
        capacity,
        whole=not around,
        span=spans(request, first, last, expected, tokenizer),
    )


def apply_prompt(request: Request, encoder: PromptEncoder, model: str = "") -> Prompt:
    """Make the Prompt of an edit that merges an update into a file.

    The reply is started up to the code, as in `edit_prompt`. Where it is known how the update can
    be placed, it is limited to these ways and predicts the likeliest; else it is limited to lines
    of both, and predicts the file. Models that are made to merge, and those that may reason first,
    are not limited. Raises RequestError where no way would be accepted.
    """
    first, last = strip_blank_lines(request.text, 0, len(request.text))
    code, update = plain(request.text[first:last]), snippet(request.update, request.text)
    if not update.strip():
        raise RequestError("the update is empty: write the changed lines")
    if FAST_APPLY.search(model):
        messages, reply, end = fast_apply_messages(code, update, request.instruction.strip())
    else:
        messages, reply, end = apply_messages(code, update, request)
    tokenizer = encoder.tokenizer
    turns = tokenizer.turns(messages, reply, encoder.encode, thinking=False)
    ways = ways_of(request.text, update, request.path)
    expected = tokenizer.encode_inside(("\n".join(ways.likeliest) if ways else code) + end)
    changed = tokenizer.encode(update)
    capacity = request.max_tokens
    if capacity is None:
        capacity = EDIT_SPARE_TOKENS + len(expected) + len(changed)
    grammar = ""
    if end.startswith("\n") and tokenizer.reasoning is None:
        line = end[1:]
        if ways and len(ways.nodes) <= MAX_DEPTH:
            if why := refusal(request, ways):
                raise RequestError(why)
            grammar = ways_grammar(ways, line)
        else:
            grammar = line_grammar(code, update, line)
    return Prompt(
        [token for _, part in turns for token in part],
        [expected, changed],
        (end, *request.stop),
        capacity,
        whole=True,
        grammar=grammar,
        span=None if ways else spans(request, first, last, expected, tokenizer),
    )


Messages = tuple[list[Message], str, str]  # messages, the start of the reply and the code's end


def fence_language(path: str) -> str:
    """Return the language that a code fence names for a file; "" if none is known."""
    return LANGUAGES.get(Path(path).suffix.lower(), "")


def apply_messages(code: str, update: str, request: Request) -> Messages:
    """Make the messages for a model that has no format of its own."""
    fence = "`" * max(3, 1 + longest_run(f"{code}\n{update}", "`"))
    language = fence_language(request.path)
    shown = [f"{fence}{language}\n{text}\n{fence}" for text in (code, update)]
    instruction = request.instruction.strip()
    message = APPLY_REQUEST.format(shown[1], f"{instruction}\n" if instruction else "")
    messages = [{"role": "user", "content": f"{shown[0]}\n\n{message}"}]
    return messages, f"{APPLY_REPLY}{fence}{language}\n", f"\n{fence}"


def fast_apply_messages(code: str, update: str, instruction: str) -> Messages:
    """Make the messages for FastApply models, as their cards have it.

    The instruction comes first.
    """
    start, end = FAST_APPLY_TAGS
    if end in code + update:
        raise RequestError(f"the file or the update contains {end}: use a model of another kind")
    lead = f"{instruction}\n\n" if instruction else ""
    messages = [
        {"role": "system", "content": FAST_APPLY_SYSTEM},
        {"role": "user", "content": FAST_APPLY_USER.format(lead, code, update)},
    ]
    return messages, start, end


def surroundings(text: str, first: int, last: int) -> list[str]:
    """Return the text before and after the selection, to draft from.

    A side where only blank lines are left has none.
    """
    near = (
        text[max(0, first - MAX_SURROUNDINGS_CHARS) : first],
        text[last : last + MAX_SURROUNDINGS_CHARS],
    )
    return [plain(part) for part in near if part.strip()]


def spans(
    request: Request, first: int, last: int, expected: list[int], tokenizer: Tokenizer
) -> Callable[[int, int], Span | None] | None:
    """Return a function (0, token) -> Span of the edited text's tokens, if its file is known."""
    if not request.path or plain(request.text[first:last]) != request.text[first:last]:
        return None  # line ends were normalised: offsets differ

    @cache
    def places() -> tuple[list[int], list[int]]:
        starts, stops = tokenizer.places(np.array(expected, np.int32))
        return starts.tolist(), stops.tolist()

    def span(prediction: int, token: int) -> Span | None:
        starts, stops = places()
        if prediction != 0 or token >= len(starts) or first + stops[token] > last:
            return None
        return Span(request.path, first + starts[token], first + stops[token], request.version)

    return span


def longest_run(text: str, mark: str) -> int:
    """Length of the longest run of one character."""
    found, above = 0, 1
    while mark * above in text:
        found, above = above, 2 * above
    while above - found > 1:
        middle = (found + above) // 2
        found, above = (middle, above) if mark * middle in text else (found, middle)
    return found
