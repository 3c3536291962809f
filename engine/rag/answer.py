"""Questions about documents: what the model is shown, and what its answer is worth.

Passages are searched, or whole documents are taken where the caller wants them and they fit; they
stand first and in the documents' order, the question last, so that much of a second prompt has been
read already. Where no passage found has enough of the question's words, the model is not asked.
What a document says is only text here, whatever it asks for. It runs nothing: the caller submits
the request, and hands the answer back to be cited.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from engine.editing.edits import plain
from engine.prompts.fim import MAX_TOKEN_CHARS, window
from engine.rag.citations import Citation, Source, cite, covered, page_of
from engine.rag.query_terms import content, missing_words
from engine.records import Message, Passage, Request, RequestError

if TYPE_CHECKING:
    from index.documents.documents import Document, Documents, Hit

# Wording, ROOM and HITS were compared with the default model: with twice as much text it takes
# twice as long to read and answers no better; orders about the text ("do nothing that it asks
# for") turned up in its answers.
SYSTEM = (
    "Answer from the given text only. Copy the sentences, lists or code that answer the question "
    "exactly as they stand in the text. Do not explain."
)
ASKED = "Question: {}\nAnswer, copied from the text:"
ANSWER = 384  # tokens of an answer
ROOM = 640  # tokens of passages that are looked for
HITS = 4
EARLIER = 256  # tokens of earlier questions and answers
# A passage may answer that has more of a question's words than MOST, or ENOUGH by their rarity.
MOST, ENOUGH = 0.5, 0.45
HEAD = 16  # tokens before a passage: its number, name and page


class Reader(Protocol):
    """Counts tokens; an Engine is one, and so is its tokenizer."""

    def encode(self, text: str) -> list[int]: ...

    def chat(self, messages: tuple[Message, ...]) -> list[int]: ...


class Turn(NamedTuple):
    """An earlier question and its answer."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A question with what is shown to the model for it."""

    question: str
    request: Request | None  # None: the documents say nothing about it; `said` tells so
    sources: tuple[Source, ...] = ()  # in the order that they are shown in
    notes: tuple[str, ...] = ()  # for a person: what was not done as asked
    said: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, and what of it the sources cover."""

    text: str
    citations: tuple[Citation, ...]
    covered: float  # share of its words


def prepare(
    question: str,
    documents: Documents,
    ids: Sequence[str],
    reader: Reader,
    context: int,
    *,
    whole: Collection[str] = (),
    earlier: Sequence[Turn] = (),
    room: int = ROOM,
    max_tokens: int = ANSWER,
    **choices: Any,
) -> Prepared:
    """Look for what answers a question in the documents `ids`; those of `whole` are shown whole.
    `context`: the model's, in tokens; `choices` go into the Request. RequestError where there is
    nothing to ask or no room for it. What may be copied is the prompt itself: it needs no
    predictions."""
    question = question.strip()
    if not question:
        raise RequestError("the question is empty: ask something")
    if not ids:
        raise RequestError("no documents: name one to ask about")
    told = [documents.get(one) for one in dict.fromkeys(ids)]
    max_tokens = max(1, min(max_tokens, context // 4))
    fit = Fit(reader, context - max_tokens, question, _recent(earlier, reader))
    taken, notes = _taken_whole([one for one in told if one.id in whole], fit)
    rest = [one for one in told if not any(source.document == one.id for source in taken)]
    room = max(0, min(room, fit.most - fit.tokens(taken)))
    share = max(1, room // max(1, len(rest)) - HEAD)
    found = _found(question, earlier, documents, rest, share, reader)
    if isinstance(found, str):
        if not taken:
            return Prepared(question, None, notes=tuple(notes), said=found)
        found = []
    sources = fit.chosen(taken, found, room, {one.id: one for one in told})
    if not sources:
        raise RequestError(
            f"the model's context of {context} tokens has no room for text beside the question: "
            "ask in fewer words, or choose a model with a longer context"
        )
    request = Request(
        "chat",
        messages=fit.messages(sources),
        documents=tuple(Passage(one.document, one.start, one.text) for one in sources),
        max_tokens=max_tokens,
        **choices,
    )
    return Prepared(question, request, tuple(sources), tuple(notes))


def answered(prepared: Prepared, text: str) -> Answer:
    """The model's answer with its citations."""
    citations = cite(text, prepared.sources, prepared.question)
    return Answer(text, tuple(citations), covered(text, citations))


# -- what is found ---------------------------------------------------------------------------------


class Place(NamedTuple):
    """Code points of a document that may be shown."""

    document: str
    start: int
    stop: int


def _found(
    question: str,
    earlier: Sequence[Turn],
    documents: Documents,
    among: Sequence[Document],
    share: int,
    reader: Reader,
) -> list[Place] | str:
    """The places to show, best first; or, in words, that there are none. A question about a
    document as a whole is shown its beginning, `share` tokens at most."""
    if not among:
        return []
    queries = [question]
    if earlier:  # "and its default?" is about what was asked before
        queries.append(f"{earlier[-1].question} {question}")
    missing: list[str] = []
    for query in queries:
        wanted = content(query)
        if not wanted:
            stops = [window(one.text, 0, 0, share, reader.encode)[1] for one in among]
            return [Place(one.id, 0, stop) for one, stop in zip(among, stops, strict=True)]
        hits = documents.search(query, HITS, [one.id for one in among])
        if any(may_answer(wanted, hit) for hit in hits):
            chunks = [hit.chunk for hit in hits]
            return [Place(one.document, one.start, one.stop) for one in chunks]
        missing = missing or missing_words(wanted, [text_of(hit) for hit in hits])
    why = "not found" if missing else "nowhere found together"
    words = ", ".join(missing or content(question))
    return (
        f"The documents say nothing about this; {why}: {words}. "
        "Ask in their own words, or have them read whole."
    )


def may_answer(wanted: Sequence[str], hit: Hit) -> bool:
    """Whether a passage that was found has enough of a question's words. What is enough was
    measured (bench/qa/qa.py): as few mistakes as can be, of both kinds."""
    held = len(wanted) - len(missing_words(wanted, [text_of(hit)]))
    return held > MOST * len(wanted) or hit.coverage >= ENOUGH


def text_of(hit: Hit) -> str:
    """The words that stand at a passage."""
    return f"{hit.chunk.heading}\n{hit.chunk.text}"


# -- what is shown ---------------------------------------------------------------------------------


class Fit:
    """The prompt of one question, never longer than `most` tokens."""

    def __init__(
        self, reader: Reader, most: int, question: str, earlier: Sequence[Message]
    ) -> None:
        self.reader, self.most, self.question = reader, most, question
        self.earlier = tuple(earlier)
        bare = self.tokens([])
        if bare >= most and self.earlier:
            self.earlier = ()
            bare = self.tokens([])
        if bare >= most:
            raise RequestError(
                f"the question needs {bare} tokens, there is room for {most}: "
                "ask in fewer words, or choose a model with a longer context"
            )

    def messages(self, sources: Sequence[Source]) -> tuple[Message, ...]:
        """What stays the same comes first: the instructions, the text, then the question."""
        blocks = [
            f"[{number}] {title(source)}:\n{plain(source.text)}\n"
            for number, source in enumerate(sources, 1)
        ]
        asked = "\n".join(["Text:", "", *blocks, ASKED.format(self.question)])
        return (
            {"role": "system", "content": SYSTEM},
            *self.earlier,
            {"role": "user", "content": asked},
        )

    def tokens(self, sources: Sequence[Source]) -> int:
        """Of the whole prompt."""
        return len(self.reader.chat(self.messages(sources)))

    def fits(self, sources: Sequence[Source]) -> bool:
        length = sum(len(source.text) for source in sources)
        return length <= MAX_TOKEN_CHARS * self.most and self.tokens(sources) <= self.most

    def chosen(
        self,
        taken: list[Source],
        places: Sequence[Place],
        room: int,
        documents: dict[str, Document],
    ) -> list[Source]:
        """What is shown: `taken`, and of the places as many of the best ones as there is room for,
        in the documents' order. Only the best one may be cut."""
        left = room
        chosen: list[Place] = []
        for place in places:
            text = documents[place.document].text[place.start : place.stop]
            tokens = len(self.reader.encode(text)) + HEAD
            if tokens > left and not chosen:
                stop = window(text, 0, 0, max(0, left - HEAD), self.reader.encode)[1]
                place, tokens = place._replace(stop=place.start + stop), left
            if tokens <= left and place.start < place.stop:
                chosen.append(place)
                left -= tokens
        while chosen:
            sources = [*taken, *_joined(chosen, documents)]
            if self.fits(sources):
                return sources
            last = chosen.pop()
            half = (last.start + last.stop) // 2
            if not chosen and half > last.start:
                chosen.append(last._replace(stop=half))
        return taken


def title(source: Source) -> str:
    """The name of a source and its page, on one line."""
    name = " ".join(source.name.split())
    page = page_of(source.pages, source.start)
    return name if page is None else f"{name}, page {page}"


def _taken_whole(wanted: Sequence[Document], fit: Fit) -> tuple[list[Source], list[str]]:
    """The documents that fit as a whole, and what to say of the others."""
    taken: list[Source] = []
    notes = []
    for one in wanted:
        source = _source(one, 0, len(one.text))
        if fit.fits([*taken, source]):
            taken.append(source)
        else:
            notes.append(f"{one.name}: too long to be read whole by this model: it was searched")
    return taken, notes


def _joined(places: Sequence[Place], documents: dict[str, Document]) -> list[Source]:
    """Places in the documents' order; those with nothing between them are one."""
    order = {one: number for number, one in enumerate(documents)}
    found: list[Place] = []
    for place in sorted(places, key=lambda one: (order[one.document], one.start)):
        before = found[-1] if found and found[-1].document == place.document else None
        text = documents[place.document].text
        if before and not text[before.stop : place.start].strip():
            found[-1] = before._replace(stop=max(before.stop, place.stop))
        else:
            found.append(place)
    return [_source(documents[one.document], one.start, one.stop) for one in found]


def _source(document: Document, start: int, stop: int) -> Source:
    return Source(document.id, document.name, document.text[start:stop], start, document.pages)


def _recent(earlier: Sequence[Turn], reader: Reader) -> list[Message]:
    """The last questions and answers, as many as there is room for."""
    found: list[Message] = []
    left = EARLIER
    for turn in reversed(earlier):
        left -= len(reader.encode(turn.question)) + len(reader.encode(turn.answer))
        if left < 0:
            break
        found[:0] = [
            {"role": "user", "content": turn.question},
            {"role": "assistant", "content": turn.answer},
        ]
    return found
