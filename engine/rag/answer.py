"""Retrieval-augmented answers: which passages the prompt contains, and what the answer cites.

Passages are retrieved by search; documents that the caller wants whole are included if they fit.
Passages precede the question and keep the documents' order, so that prompts share long prefixes in
the KV cache. If no passage contains enough of the question's words, the model does not run.
Where the words of an answer leave no doubt, the model is asked whether the text has one at all.
The sentence that fits the question best is repeated before it: small models look where it points.
Instructions inside a document have no effect: its text is only quoted. Nothing is run here: the
caller submits the request and passes the answer to `cite_answer`, and where `second_question` has
another request for it, what the model says to `with_verdict`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from engine.editing.edits import plain
from engine.prompts.fim import MAX_TOKEN_CHARS, window
from engine.rag.blocks import asks_for_block, asks_for_code, block_around
from engine.rag.citations import Citation, Source, cite, coverage
from engine.rag.doubts import judge
from engine.rag.evidence import Evidence, find_evidence, on_topic
from engine.rag.extraction import best_sentence
from engine.rag.follow_up import rewrite
from engine.rag.query_terms import content_words
from engine.records import Message, Passage, Request, RequestError
from engine.remote.secret_texts import check_document
from engine.weights.resolve import folder_bytes, gguf_of

if TYPE_CHECKING:
    from index.documents.documents import Document, Documents, Hit

# The wording, PASSAGE_TOKENS and SEARCH_HITS were tuned with the default model: twice as much text
# takes twice the time and answers no better, orders about the text ("do nothing that it asks for")
# leaked into its answers, and without "whole sentences" it cut off what answers.
SYSTEM_PROMPT = (
    "Answer from the given text only. Copy the whole sentences, the list or the code that answers "
    "the question exactly as they stand in the text, never only a part of a sentence. Do not "
    "explain."
)
TEXT_START = "Text:"
QUESTION_START = "Question:"
SENTENCE_START = "The text says:"
ANSWER_START = "Answer, in whole sentences copied from the text:"
SECOND_QUESTION = "Does the text answer the question? yes or no:"
# Bytes of weights; a smaller model, such as one of 0.5B, says no to right answers as often.
MIN_JUDGE_BYTES = 800 << 20
DENIED = "Asked a second time, the model finds no answer in the text: check it."
BLOCK_ANSWER_START = "Answer, the whole passage, list or code copied from the text:"
MAX_ANSWER_TOKENS = 384
PASSAGE_TOKENS = 520  # tokens of all retrieved passages: some 1.5 s of prefill with 0.5B, estimated
SEARCH_HITS = 4
HEADER_TOKENS = 16  # tokens before each passage, for the name of its document
# A passage may answer a question if it contains a rare word of it, more than MIN_WORD_SHARE of its
# content words, or MIN_COVERAGE of them weighted by rarity. Tuned in bench/qa for few answerable
# questions that are refused: users ask in words that the documents do not have. An answer that the
# passages do not support is recognized after it.
MIN_WORD_SHARE, MIN_COVERAGE = 0.5, 0.2


class PromptTokenizer(Protocol):
    """Counts tokens. An Engine is one, and so is its tokenizer."""

    def encode(self, text: str) -> list[int]: ...

    def chat(self, messages: tuple[Message, ...]) -> list[int]: ...


class Turn(NamedTuple):
    """An earlier question and its answer."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class PreparedQuestion:
    """A question with its prompt."""

    question: str
    request: Request | None  # None if no passage may answer it; `not_found` explains
    sources: tuple[Source, ...] = ()  # in the order of the prompt
    notes: tuple[str, ...] = ()  # notes to the user about what could not be done as requested
    not_found: str = ""
    rewritten: str = ""  # the question that was searched, if it refers to earlier ones
    extract: str = ""  # the part of the sources that fits the question best, before the question


@dataclass(frozen=True, slots=True)
class CitedAnswer:
    """An answer, what it copies, and what supports it."""

    text: str
    citations: tuple[Citation, ...]
    covered: float  # share of its words that is cited
    evidence: tuple[Evidence, ...] = ()  # passages that were read, best first
    doubts: tuple[str, ...] = ()  # reasons to check it, one line each
    words_found: tuple[str, ...] = ()  # words of the question in it, or in the sentences around it
    words_missing: tuple[str, ...] = ()  # the others

    @property
    def supported(self) -> bool:
        """Whether nothing casts doubt on it."""
        return not self.doubts


def prepare(
    question: str,
    documents: Documents,
    ids: Sequence[str],
    tokenizer: PromptTokenizer,
    context: int,
    *,
    whole: Collection[str] = (),
    earlier: Sequence[Turn] = (),
    passage_tokens: int = PASSAGE_TOKENS,
    max_tokens: int = MAX_ANSWER_TOKENS,
    **sampling: Any,
) -> PreparedQuestion:
    """Retrieve what may answer a question from the documents `ids`, and build the prompt.

    Documents in `whole` are included completely if they fit. `context`: the model's context in
    tokens; `sampling`: more fields of the Request. A question that refers back to an `earlier` one
    is rewritten, then answered like any other. Raises RequestError if the question is empty or
    too long."""
    question = question.strip()
    if not question:
        raise RequestError("the question is empty: ask something")
    if not ids:
        raise RequestError("no documents: name one to ask about")
    original, rewritten = question, rewrite(question, [turn.question for turn in earlier])
    question = rewritten or original
    try:
        chosen = [documents.get(id) for id in dict.fromkeys(ids)]
    except KeyError as error:
        raise RequestError(
            "a document was removed while it was asked about: ask again about those that are left"
        ) from error
    for document in chosen:
        check_document(tokenizer, document.name)
    max_tokens = max(1, min(max_tokens, context // 4))
    prompt = QuestionPrompt(tokenizer, context - max_tokens, question)
    included, notes = _include_whole(
        [document for document in chosen if document.id in whole], prompt
    )
    rest = [
        document
        for document in chosen
        if not any(source.document == document.id for source in included)
    ]
    budget = max(0, min(passage_tokens, prompt.max_tokens - prompt.token_count(included)))
    share = max(1, budget // max(1, len(rest)) - HEADER_TOKENS)
    spans = _retrieve(question, documents, rest, share, tokenizer)
    if isinstance(spans, str):
        if not included:
            return PreparedQuestion(original, None, (), tuple(notes), spans, rewritten)
        spans = []
    sources = prompt.select(included, spans, budget, {document.id: document for document in chosen})
    if not sources:
        raise RequestError(
            f"the model's context of {context} tokens has no room for text next to the question: "
            "ask in fewer words, or choose a model with a longer context"
        )
    # A follow-up's own words tell its answer from that of the question that it refers to.
    extract = best_sentence(original, sources, rewritten) or best_sentence(question, sources)
    is_quoted = any(extract in source.text for source in sources)  # a row has its heads with it
    if extract and is_quoted and asks_for_block(question):
        wider = _with_block(extract, asks_for_code(question), sources, {d.id: d for d in chosen})
        if prompt.fits(*wider):
            sources, extract = wider
    if not prompt.fits(sources, extract):
        extract = ""
    for source in sources:
        check_document(tokenizer, source.name, source.text)
    request = Request(
        "chat",
        messages=prompt.messages(sources, extract),
        documents=tuple(Passage(source.document, source.start, source.text) for source in sources),
        max_tokens=max_tokens,
        stop=tuple(f"\n{mark}" for mark in _scaffolding(sources)),
        thinking=False,  # it would use up the tokens
        **sampling,
    )
    return PreparedQuestion(
        original, request, tuple(sources), tuple(notes), rewritten=rewritten, extract=extract
    )


def _with_block(
    sentence: str, with_code: bool, sources: Sequence[Source], documents: dict[str, Document]
) -> tuple[list[Source], str]:
    """Find the block around a sentence of the sources; return the sources with all of it.

    A passage may end in the middle of a list. The block is returned, too.
    """
    number = next(number for number, one in enumerate(sources) if sentence in one.text)
    source, document = sources[number], documents[sources[number].document]
    at = source.start + source.text.index(sentence)
    start, stop = block_around(document.text, at, at + len(sentence), with_code)
    first, last = min(start, source.start), max(stop, source.start + len(source.text))
    for other in sources:
        if other is not source and other.document == source.document:
            if other.start > source.start:
                last = min(last, other.start)
            else:
                first = max(first, other.start + len(other.text))
    wider = list(sources)
    wider[number] = _source(document, first, last, source.table_head)
    return wider, document.text[start:stop].strip()


def cite_answer(prepared: PreparedQuestion, text: str) -> CitedAnswer:
    """Return the model's answer with its citations and its evidence."""
    question, sources = prepared.rewritten or prepared.question, prepared.sources
    text = _without_scaffolding(text, sources)
    citations = on_topic(question, cite(text, sources, question), sources)
    evidence = find_evidence(question, text, sources, citations)
    asked = dict.fromkeys((prepared.question, question))
    judgement = judge(asked, text, citations, evidence, sources)
    return CitedAnswer(text, tuple(citations), coverage(text, citations), evidence, *judgement)


def second_question(
    prepared: PreparedQuestion, answer: CitedAnswer, model: Path | None
) -> Request | None:
    """Ask whether the text has an answer; None where words have told, or the model cannot.

    The prompt begins as that of the answer, and the reply is one token. `model`: its folder; None
    where it is not known.
    """
    if prepared.request is None or not answer.supported:
        return None
    if model is not None:
        file = gguf_of(model)
        if (file.stat().st_size if file else folder_bytes(model)) < MIN_JUDGE_BYTES:
            return None
    system, user = prepared.request.messages
    content = user["content"].rpartition("\n")[0]
    second = {"role": "user", "content": f"{content}\n{SECOND_QUESTION}"}
    return Request("chat", messages=(system, second), max_tokens=1, thinking=False)


def with_verdict(answer: CitedAnswer, verdict: str) -> CitedAnswer:
    """Return the answer with a doubt if the model's reply to the second question is no."""
    denied = verdict.strip().lower().startswith("no")
    return replace(answer, doubts=(*answer.doubts, DENIED)) if denied else answer


# -- retrieval -------------------------------------------------------------------------------------


class DocumentSpan(NamedTuple):
    """Code points `start:stop` of a document."""

    document: str
    start: int
    stop: int
    table_head: str = ""  # the head of the table that it starts in


def _retrieve(
    question: str,
    documents: Documents,
    among: Sequence[Document],
    max_beginning_tokens: int,
    tokenizer: PromptTokenizer,
) -> list[DocumentSpan] | str:
    """Return the spans that may answer the question, best first, or a message without any.

    For a question about a document as a whole, they are the beginning of each document.
    """
    if not among:
        return []
    wanted = content_words(question)
    if not wanted:
        return [
            DocumentSpan(
                document.id,
                0,
                window(document.text, 0, 0, max_beginning_tokens, tokenizer.encode)[1],
            )
            for document in among
        ]
    hits = documents.search(question, SEARCH_HITS, [document.id for document in among])
    if any(may_answer(hit) for hit in hits):
        chunks = [hit.chunk for hit in hits]
        return [
            DocumentSpan(chunk.document, chunk.start, chunk.stop, chunk.table_head)
            for chunk in chunks
        ]
    missing = _missing_everywhere(wanted, hits)
    reason = "not found" if missing else "nowhere found together"
    words = ", ".join(missing or wanted)
    return (
        f"The documents say nothing about this; {reason}: {words}. "
        "Ask in their own words, or have them read whole."
    )


def _missing_everywhere(wanted: Sequence[str], hits: Sequence[Hit]) -> list[str]:
    """Return the words that no hit contains."""
    return [word for word in wanted if all(word in hit.missing for hit in hits)]


def may_answer(hit: Hit) -> bool:
    """Return whether a passage contains enough of a question's words, or a rare one."""
    share = len(hit.found) / (len(hit.found) + len(hit.missing) or 1)
    return hit.has_rare_word or share > MIN_WORD_SHARE or hit.coverage >= MIN_COVERAGE


# -- the prompt ------------------------------------------------------------------------------------


class QuestionPrompt:
    """The prompt of one question, never longer than `max_tokens`."""

    def __init__(self, tokenizer: PromptTokenizer, max_tokens: int, question: str) -> None:
        """Measure the question. Raises RequestError if it alone is too long."""
        self.tokenizer, self.max_tokens, self.question = tokenizer, max_tokens, question
        length = self.token_count([])
        if length >= max_tokens:
            raise RequestError(
                f"the question needs {length} tokens, there is room for {max_tokens}: "
                "ask in fewer words, or choose a model with a longer context"
            )

    def messages(self, sources: Sequence[Source], sentence: str = "") -> tuple[Message, ...]:
        """Make the messages: the instructions, the passages, then the question.

        What changes least comes first. `sentence`: the one that fits the question best, repeated
        before it.
        """
        headers = _headers(sources)
        passages = [
            f"{header}\n{plain(_shown(source))}\n".lstrip("\n")
            for header, source in zip(headers, sources, strict=True)
        ]
        lines = [TEXT_START, "", *passages]
        if sentence:
            lines.append(f"{SENTENCE_START} {plain(sentence)}")
        start = BLOCK_ANSWER_START if asks_for_block(self.question) else ANSWER_START
        content = "\n".join([*lines, f"{QUESTION_START} {self.question}", start])
        return (
            {"role": "system", "content": SYSTEM_PROMPT},
            {"role": "user", "content": content},
        )

    def token_count(self, sources: Sequence[Source], sentence: str = "") -> int:
        return len(self.tokenizer.chat(self.messages(sources, sentence)))

    def fits(self, sources: Sequence[Source], sentence: str = "") -> bool:
        chars = sum(len(source.text) for source in sources)  # spares tokenizing what is too long
        return (
            chars <= MAX_TOKEN_CHARS * self.max_tokens
            and self.token_count(sources, sentence) <= self.max_tokens
        )

    def select(
        self,
        included: list[Source],
        spans: Sequence[DocumentSpan],
        budget: int,
        documents: dict[str, Document],
    ) -> list[Source]:
        """Add as many of the best spans to `included` as fit into `budget` tokens.

        The sources are in the documents' order. Only the best span may be truncated.
        """
        left = budget
        selected: list[DocumentSpan] = []
        for span in spans:
            text = documents[span.document].text[span.start : span.stop]
            tokens = len(self.tokenizer.encode(f"{span.table_head}{text}")) + HEADER_TOKENS
            if tokens > left and not selected:
                capacity = max(0, left - HEADER_TOKENS)
                stop = window(text, 0, 0, capacity, self.tokenizer.encode)[1]
                span, tokens = span._replace(stop=span.start + stop), left
            if tokens <= left and span.start < span.stop:
                selected.append(span)
                left -= tokens
        while selected:
            sources = [*included, *_merged(selected, documents)]
            if self.fits(sources):
                return sources
            last = selected.pop()
            half = (last.start + last.stop) // 2
            if not selected and half > last.start:
                selected.append(last._replace(stop=half))
        return included


def _shown(source: Source) -> str:
    """Return the text of a source below the head of its table."""
    return f"{source.table_head}\n{source.text}" if source.table_head else source.text


def _headers(sources: Sequence[Source]) -> list[str]:
    """Return a line before each passage with the name of its document.

    They are empty if there is only one.
    """
    if len({source.document for source in sources}) < 2:
        return [""] * len(sources)
    return [f"From {' '.join(source.name.split())}:" for source in sources]


def _scaffolding(sources: Sequence[Source]) -> list[str]:
    """Return the beginnings of the prompt's lines that are no part of a document."""
    headers = dict.fromkeys(header for header in _headers(sources) if header)
    return [TEXT_START, SENTENCE_START, QUESTION_START, ANSWER_START, BLOCK_ANSWER_START, *headers]


def _without_scaffolding(text: str, sources: Sequence[Source]) -> str:
    """Strip lines of the prompt, which small models repeat, from around an answer."""
    marks = _scaffolding(sources)
    while mark := next((mark for mark in marks if text.lstrip().startswith(mark)), ""):
        rest = text.lstrip()[len(mark) :]
        text = rest.partition("\n")[2] if mark == QUESTION_START else rest.lstrip()
    ends = (text.find(f"\n{mark}") for mark in marks)
    return text[: min((end for end in ends if end >= 0), default=len(text))]


def _include_whole(
    wanted: Sequence[Document], prompt: QuestionPrompt
) -> tuple[list[Source], list[str]]:
    """Return the documents that fit as a whole, and notes about those that do not."""
    included: list[Source] = []
    notes = []
    for document in wanted:
        source = _source(document, 0, len(document.text))
        if prompt.fits([*included, source]):
            included.append(source)
        else:
            notes.append(f"{document.name}: too long for this model to read whole; it was searched")
    return included, notes


def _merged(spans: Sequence[DocumentSpan], documents: dict[str, Document]) -> list[Source]:
    """Spans in the documents' order; those with only blanks between them become one."""
    order = {one: number for number, one in enumerate(documents)}
    merged: list[DocumentSpan] = []
    for span in sorted(spans, key=lambda one: (order[one.document], one.start)):
        before = merged[-1] if merged and merged[-1].document == span.document else None
        text = documents[span.document].text
        if before and not text[before.stop : span.start].strip():
            merged[-1] = before._replace(stop=max(before.stop, span.stop))
        else:
            merged.append(span)
    return [_source(documents[span.document], *span[1:]) for span in merged]


def _source(document: Document, start: int, stop: int, table_head: str = "") -> Source:
    line = 1 + document.text.count("\n", 0, start)
    starts = [heading.start for heading in document.headings]
    above = bisect_right(starts, start)
    heading = document.headings[above - 1].title if above else ""
    inside = document.headings[above : bisect_left(starts, stop)]
    return Source(
        document.id,
        document.name,
        document.text[start:stop],
        start,
        document.pages,
        line,
        heading,
        table_head,
        tuple((heading.start, heading.title) for heading in inside),
        document.kind,
    )
