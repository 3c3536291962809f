"""Parsing of source text with tree-sitter, for the languages that it knows.

A tree is a help, never a condition: for other files, and for texts that are too large or too odd to
parse, there is none, and the caller goes on without. The grammars are installed with Draftline, and
each is loaded when a file first needs it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from itertools import accumulate
from pathlib import PurePath
from time import thread_time
from typing import TYPE_CHECKING
from zlib import compress

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Point, Range

MAX_PARSE_CHARS = 1 << 20  # characters; the largest modules of the standard library have a third
MAX_PARSE_SECONDS, MAX_PARSE_SECONDS_PER_MIB = 0.2, 2.0  # processor seconds; plain code takes 10 %
# A text that repeats itself for so many bytes, which then compress to fewer than that, is no code.
# Of 12,000 files of plain code none does; in such texts the memory that tree-sitter's search for a
# way out of an error needs grows with the square of their length, and no time limit is asked.
REPETITIVE_BYTES, REPETITIVE_COMPRESSED_BYTES = 2048, 52

# Types of nodes that are no code: comments, and the text of literals without its quotes.
TEXTS = frozenset((
    "comment", "line_comment", "block_comment", "html_comment", "string_content", "string_fragment",
    "multiline_string_fragment", "interpreted_string_literal_content", "raw_string_literal_content",
    "raw_string_content", "raw_string", "ansi_c_string", "heredoc_body", "character", "jsx_text",
    "char_literal", "character_literal", "regex_pattern",
))  # fmt: skip

QUOTES = ('"""', "'''")  # of strings that may be documentation

# A file name's extension -> its language, as `Tree.language` names it.
LANGUAGES = {
    **dict.fromkeys((".py", ".pyi", ".pyw"), "python"),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx"), "javascript"),
    **dict.fromkeys((".ts", ".mts", ".cts"), "typescript"),
    ".tsx": "tsx",
    ".go": "go",
    ".rs": "rust",
    ".c": "c",
    **dict.fromkeys((".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"), "cpp"),
    ".java": "java",
    ".json": "json",
    **dict.fromkeys((".sh", ".bash"), "bash"),
}


class Tree:
    """The syntax tree of a text.

    tree-sitter counts UTF-8 bytes; `span` and `text_of` translate. Before "\\r\\n" a comment has
    the "\\r", too.
    """

    def __init__(self, language: str, text: str, root: Node) -> None:
        self.language = language
        self.text = text
        self.root = root

    def span(self, node: Node) -> tuple[int, int]:
        """Return the code points (start, stop) of a node in the text."""
        return self.offset(node.start_byte), self.offset(node.end_byte)

    def text_of(self, node: Node) -> str:
        start, stop = self.span(node)
        return self.text[start:stop]

    def offset(self, byte: int) -> int:
        """Return the code point at a byte of the text's UTF-8."""
        return byte if self._offsets is None else self._offsets[byte]

    def byte(self, offset: int) -> int:
        """Return the byte of the text's UTF-8 at a code point."""
        return offset if self._offsets is None else bisect_right(self._offsets, offset) - 1

    def around(self, offsets: list[int]) -> Iterator[Node]:
        """Yield the named nodes around some code points, which are in order, the outer ones first.

        The others are passed over, so that this takes no longer than what is found is deep.
        """
        spots = [self.byte(at) for at in offsets]
        todo = [self.root]
        while todo:
            node = todo.pop()
            first = bisect_left(spots, node.start_byte)
            if first < len(spots) and spots[first] < node.end_byte:
                yield node
                todo += reversed(node.named_children)

    def in_text(self, offsets: list[int], prose: bool = False) -> list[int]:
        """Return those of some code points, in order, that are in a comment or in a string.

        With `prose` of strings only those in three quotes count, which are written for readers.
        """
        found: set[int] = set()
        for node in self.around(offsets):
            if node.type in TEXTS:
                start, stop = self.span(node)
                if (
                    prose
                    and "comment" not in node.type
                    and self.text[start - 3 : start] not in QUOTES
                ):
                    continue
                found.update(offsets[bisect_left(offsets, start) : bisect_left(offsets, stop)])
        return sorted(found)

    @cached_property
    def _offsets(self) -> list[int] | None:
        """The code point at each byte; None if they are equal."""
        if self.text.isascii():
            return None
        starts = (byte & 0xC0 != 0x80 for byte in _utf8(self.text))
        return list(accumulate(starts, initial=0))

    @cached_property
    def errors(self) -> int:
        """The number of places that do not follow the grammar.

        These are text that fits nowhere, and tokens that are missing, but for the end of the last
        line.
        """
        return sum(1 for _ in self.error_nodes())

    def error_nodes(self) -> Iterator[Node]:
        """Yield the outermost ERROR nodes and the MISSING tokens outside them, in order."""
        todo = [self.root]
        while todo:
            node = todo.pop()
            if node.is_error or node.is_missing:
                yield node
            elif node.has_error:
                todo += reversed(node.children)


def language_of(path: str) -> str | None:
    """Return the language of a file by its extension; None if there is no grammar for it."""
    return LANGUAGES.get(PurePath(path).suffix.lower())


def parse(path: str, text: str, parts: Sequence[tuple[int, int]] = ()) -> Tree | None:
    """Parse a file's text, or only parts of it, into its syntax tree, which may have errors.

    Returns None for a language without a grammar, for a text of more than MAX_PARSE_CHARS, for one
    that takes too long, and for one that repeats itself without end.
    """
    language = language_of(path)
    if language is None or len(text) > MAX_PARSE_CHARS:
        return None
    from tree_sitter import Parser

    data = memoryview(_utf8(text))
    if _is_repetitive(data):
        return None
    parser = Parser(_grammar(language), included_ranges=[_range(text, *part) for part in parts])
    end = thread_time() + MAX_PARSE_SECONDS + MAX_PARSE_SECONDS_PER_MIB * len(data) / (1 << 20)

    def read(offset: int, _: Point) -> memoryview:
        return data[offset : offset + 4096]

    def too_slow(offset: int, has_error: bool) -> bool:
        return thread_time() > end

    try:
        tree = parser.parse(read, progress_callback=too_slow)
    except ValueError:  # given up
        return None
    return Tree(language, text, tree.root_node)


def _range(text: str, start: int, stop: int) -> Range:
    """Return a part of a text as tree-sitter counts it."""
    from tree_sitter import Point, Range

    before, inside = _utf8(text[:start]), _utf8(text[:stop])
    first, last = (
        Point(each.count(b"\n"), len(each) - 1 - each.rfind(b"\n")) for each in (before, inside)
    )
    return Range(first, last, len(before), len(inside))


def _is_repetitive(data: memoryview) -> bool:
    """Return whether a part of a text repeats a few characters.

    Runs of one character, as in a line of "#", do no harm.
    """
    for start in range(0, len(data) - REPETITIVE_BYTES + 1, REPETITIVE_BYTES):
        part = bytes(data[start : start + REPETITIVE_BYTES])
        if len(compress(part, level=1)) < REPETITIVE_COMPRESSED_BYTES:
            without_runs = re.sub(rb"(.)\1+", rb"\1", part, flags=re.S)
            if len(without_runs) > REPETITIVE_COMPRESSED_BYTES:
                return True
    return False


def _utf8(text: str) -> bytes:
    """Encode the text, with "\\n" for a lone "\\r", which ends no line in the grammars."""
    return re.sub(r"\r(?!\n)", "\n", text).encode("utf-8", "replace")


@cache
def _grammar(language: str) -> Language:
    from tree_sitter import Language

    return Language(_grammar_pointer(language))


def _grammar_pointer(language: str) -> object:
    """Return the grammar's C structure; each is in a package of its own."""
    match language:
        case "python":
            import tree_sitter_python

            return tree_sitter_python.language()
        case "javascript":
            import tree_sitter_javascript

            return tree_sitter_javascript.language()
        case "typescript":
            import tree_sitter_typescript

            return tree_sitter_typescript.language_typescript()
        case "tsx":
            import tree_sitter_typescript

            return tree_sitter_typescript.language_tsx()
        case "go":
            import tree_sitter_go

            return tree_sitter_go.language()
        case "rust":
            import tree_sitter_rust

            return tree_sitter_rust.language()
        case "c":
            import tree_sitter_c

            return tree_sitter_c.language()
        case "cpp":
            import tree_sitter_cpp

            return tree_sitter_cpp.language()
        case "java":
            import tree_sitter_java

            return tree_sitter_java.language()
        case "json":
            import tree_sitter_json

            return tree_sitter_json.language()
        case _:
            import tree_sitter_bash

            return tree_sitter_bash.language()
