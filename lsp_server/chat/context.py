"""The texts that a question comes with: whole files, selections, and passages of long ones.

The passages of a long text are those that fit the question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.editing.edits import plain
from engine.editing.text_file import FileError, read_text
from engine.prompts.builder import LANGUAGES, longest_run
from engine.prompts.fim import MAX_TOKEN_CHARS, window
from engine.rag.query_terms import content_words
from engine.records import RequestError
from index.documents.documents import Documents as Library
from index.documents.formats import ParsedDocument
from index.documents.formats.parser import DocumentParser
from lsp_server.protocol.messages import ContextItem
from lsp_server.protocol.positions import Text
from lsp_server.protocol.text_sync import OpenDocuments, path_of

MAX_ITEMS = 20
HEADER_TOKENS = 24  # tokens of a passage's name, lines and fences
SEARCH_HITS = 24
MAX_SEARCHED_CHARS = 1 << 20  # characters of one text

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class ContextText:
    """A file or an open document, or the part `start:stop` (code points) of it."""

    uri: str
    name: str
    text: Text
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """The part `start:stop` (code points) of a text that a prompt shows."""

    source: ContextText
    start: int
    stop: int

    @property
    def text(self) -> str:
        return self.source.text.text[self.start : self.stop]

    def shown(self) -> str:
        """Write the passage as it is in the prompt, under its name."""
        text, name = self.source.text, self.source.name
        if (self.start, self.stop) == (0, len(text.text)):
            return quoted(name, name, self.text)
        first, last = text.line_of(self.start) + 1, text.line_of(max(self.start, self.stop - 1)) + 1
        lines = f"line {first}" if first == last else f"lines {first} to {last}"
        return quoted(f"{name}, {lines}", name, self.text)


def quoted(heading: str, name: str, text: str) -> str:
    """Quote a text under a heading, fenced so that nothing in it ends the fence."""
    fence = "`" * max(3, 1 + longest_run(text, "`"))
    language = LANGUAGES.get(f".{name.rsplit('.', 1)[-1].lower()}", "")
    return f"{heading}:\n{fence}{language}\n{plain(text)}\n{fence}\n\n"


def open_texts(documents: OpenDocuments) -> dict[str, Text]:
    """Map URIs and paths to the texts of the open documents."""
    texts = {document.path: document.text for document in documents if document.path}
    return texts | {document.uri: document.text for document in documents}


def read_context(
    items: Sequence[ContextItem], open_: dict[str, Text], encoding: str
) -> list[ContextText]:
    """Read the texts of a question, each once.

    Open documents are as the editor has them, other files as they are on disk. Raises RequestError
    for what does not exist.
    """
    if len(items) > MAX_ITEMS:
        raise RequestError(f"{len(items)} files and selections: ask about at most {MAX_ITEMS}")
    found = (_read(item, open_, encoding) for item in items)
    return [*{(passage.uri, passage.start, passage.stop): passage for passage in found}.values()]


def _read(item: ContextItem, open_: dict[str, Text], encoding: str) -> ContextText:
    path = path_of(item.uri)
    name = (path or item.uri).rsplit("/", 1)[-1]
    text = open_.get(item.uri) or open_.get(path or "")
    if text is None:
        if path is None:
            raise RequestError(f"{name}: neither open nor a file on this machine: open it first")
        try:
            text = Text.of(read_text(Path(path)))
        except FileError as error:
            raise RequestError(str(error)) from error
    if item.range is None:
        return ContextText(item.uri, name, text, 0, len(text.text))
    for end in (item.range.start, item.range.end):
        if end.line > text.line_count:
            count = text.line_count
            raise RequestError(f"{name}: no line {end.line + 1}, it has {count}: select it again")
    ends = (item.range.start, item.range.end)
    start, stop = sorted(text.offset(end.line, end.character, encoding) for end in ends)
    return ContextText(item.uri, name, text, start, stop)


def choose_passages(
    texts: Sequence[ContextText], question: str, max_tokens: int, encode: Encode
) -> tuple[list[ShownPassage], list[str]]:
    """Choose what a prompt shows of the texts, and write notes for the user about what is left out.

    The passages are in the order of the texts: all of a text if it fits, else the same share of
    each text that is too long.
    """
    left = max_tokens
    found: dict[int, list[ShownPassage]] = {}
    notes = []
    by_length = sorted(enumerate(texts), key=lambda one: one[1].stop - one[1].start)
    for count, (number, one) in enumerate(by_length):
        capacity = max(1, left // (len(texts) - count) - HEADER_TOKENS)
        text = one.text.text[one.start : one.stop]
        spans = [(0, len(text))] if _fits(text, capacity, encode) else []
        if text and not spans:
            spans = excerpts(text, question, capacity, encode)
            notes.append(
                f"{one.name} is too long for this model: only the parts that fit the question "
                "were read"
            )
        found[number] = [
            ShownPassage(one, one.start + start, one.start + stop) for start, stop in spans if text
        ]
        left -= sum(len(encode(passage.text)) + HEADER_TOKENS for passage in found[number])
    return [passage for number in range(len(texts)) for passage in found[number]], notes


def excerpts(text: str, question: str, max_tokens: int, encode: Encode) -> list[tuple[int, int]]:
    """Find the spans of a text that fit a question best, with at most `max_tokens` together.

    They are in the order of the text. If the question names nothing in the text, its beginning is
    the only span.
    """
    left = max_tokens
    spans: list[tuple[int, int]] = []
    for start, stop in _search(text[:MAX_SEARCHED_CHARS], question):
        tokens = len(encode(text[start:stop])) + HEADER_TOKENS
        if tokens <= left:
            spans.append((start, stop))
            left -= tokens
    if not spans:
        return [(0, window(text, 0, 0, max_tokens, encode)[1])]
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if merged and not text[merged[-1][1] : start].strip():
            merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    return merged


class _Unparsed(DocumentParser):
    """A parser that takes a text as it is, so that positions stay those of the editor."""

    def parse(self, name: str, data: bytes) -> ParsedDocument:
        return ParsedDocument(data.decode())


def _search(text: str, question: str) -> Iterator[tuple[int, int]]:
    """Find the spans of a text that contain words of a question, best first."""
    if not content_words(question):
        return
    with Library() as library:
        library.add_data("text.txt", text.encode(), _Unparsed())
        for hit in library.search(question, SEARCH_HITS):
            yield hit.chunk.start, hit.chunk.stop


def _fits(text: str, max_tokens: int, encode: Encode) -> bool:
    return len(text) <= MAX_TOKEN_CHARS * max_tokens and len(encode(text)) <= max_tokens
