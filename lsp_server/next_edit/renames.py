"""The meaning of a renamed identifier, and the other occurrences that refer to the same thing.

Judged from the surrounding text: a local, a class member, or a name of the whole module. Imports
are not resolved; only open documents are searched.
"""

from __future__ import annotations

import builtins
import keyword
import re
from pathlib import PurePosixPath

from engine.editing.scopes.names import whole_word
from lsp_server.next_edit.edit_history import RecentEdit
from lsp_server.next_edit.signatures import IDENTIFIER, find_signatures
from lsp_server.next_edit.source_text import (
    FUNCTION_HEAD,
    MAX_BRACKET_CHARS,
    MAX_CANDIDATE_CHARS,
    SourceText,
)

BUILTIN_TYPES = frozenset(
    {"string", "number", "boolean", "any", "char", "int", "double", "float", "long"}
)
BUILTINS = BUILTIN_TYPES.union(dir(builtins))  # names of Python
OTHER_KEYWORDS = """
this self cls super null undefined true false nil var let const function func fn struct enum
interface type switch case default do int void static public private new delete typeof throw
catch package range defer go map chan use mod pub impl match mut
"""
KEYWORDS = frozenset({*keyword.kwlist, *OTHER_KEYWORDS.split()})
DEFINITION = (
    r"\b(?:def|function\*?|func|fn|fun|class|struct|interface|enum|trait|type|const|let|var|mod)"
    r"\s+(?:\([^()]*\)\s*)?(?:mut\s+|\*)?"
)
DEFINITION_BEFORE = re.compile(f"{DEFINITION}$")
MEMBER_ACCESS = re.compile(r"(?:([\w$]+)\s*)?(?:\.|->|::)\s*$")  # what precedes a member's name
Sources = dict[str, SourceText]


def is_identifier(*words: str) -> bool:
    return all(word not in KEYWORDS and re.fullmatch(IDENTIFIER, word) for word in words)


def is_builtin(source: SourceText, name: str) -> bool:
    """Return whether the language itself defines the name."""
    return name in (BUILTINS if source.is_python else BUILTIN_TYPES)


def switches_reference(
    source: SourceText, edits: list[RecentEdit], old: str, new: str, at: int
) -> bool:
    """Return whether the edit only made a use refer to another existing name.

    It renamed none then.
    """
    start, stop = source.line_span(at)
    if DEFINITION_BEFORE.search(source.text[start:at]) or binds_name(source, new, start, stop):
        return False
    if is_builtin(source, new):
        return True
    _, low, high = rename_scope(source, old, new, at)
    mine = [(edit.start, edit.stop) for edit in edits if edit.uri == source.uri]
    stood = any(
        not any(a <= spot <= b for a, b in mine) for spot in source.find_words(new, low, high)
    )
    return stood and (source.is_prose or binds_name(source, old, low, high))


def binds_name(source: SourceText, name: str, start: int, stop: int) -> bool:
    """Return whether a span binds the name: by a definition, assignment, import or parameter."""
    word = whole_word(name)
    assigned = rf"{word}(?:\s*,\s*[\w$*]+)*[ \t]*(?::[^=\n(){{}}]+)?:?=(?![=>])"
    declared = rf"\b(?:let|const|var|for|as|mut|import|global)\s[^=\n;:]{{0,300}}?{word}"
    defined = rf"{DEFINITION}{word}"
    if re.compile(f"{assigned}|{declared}|{defined}").search(source.text, start, stop):
        return True
    limit = min(stop, start + MAX_BRACKET_CHARS)
    return any(
        next(source.find_words(name, head.open_at, head.close_at), None) is not None
        for head in find_signatures(source, start, limit)
    )


def rename_scope(source: SourceText, old: str, new: str, at: int) -> tuple[str, int, int]:
    """Find the kind of name renamed at `at`, and the span in which its other uses may be.

    The kind is "prose", "member", "local" or "module".
    """
    start, stop = source.line_span(at)
    left = source.text[start:at]
    everywhere = (0, len(source.text))
    if source.is_prose:
        return "prose", *everywhere
    if MEMBER_ACCESS.search(left):
        return "member", *everywhere
    if source.enclosing_class(at) is not None and re.fullmatch(r"\s*(?:\w+\s+)*[*&#]*", left):
        return "member", *everywhere
    own = bool(DEFINITION_BEFORE.search(left) and FUNCTION_HEAD.search(source.text[start:stop]))
    for low, high in source.enclosing_functions(at, outer=own):
        if own or any(binds_name(source, name, low, high) for name in (old, new)):
            return "local", low, high
    return "module", *everywhere


def is_module_level(sources: Sources, old: str, new: str) -> bool:
    """Return whether an open document defines the name at its top level."""
    names = f"(?:{re.escape(old)}|{re.escape(new)})(?![\\w$])"
    defined = re.compile(
        rf"^(?:(?:export|default|pub|async|static|abstract|public)\s+)*(?:{DEFINITION}"
        rf"{names}|{names}\s*(?::[^=\n]*)?=(?!=))",
        re.MULTILINE,
    )
    return any(defined.search(source.text) for source in sources.values() if not source.is_prose)


def may_be_renamed(source: SourceText, home: SourceText, kind: str, old: str, spot: int) -> bool:
    """Return whether the occurrence at `spot` may refer to what was renamed, by its context."""
    start, stop = source.line_span(spot)
    if stop - start > MAX_CANDIDATE_CHARS:
        return False
    left, right = source.line_prefix(spot), source.text[spot + len(old) : stop]
    found = MEMBER_ACCESS.search(left)
    if kind == "prose" or source.in_string_or_comment(spot):
        return source.is_prose == (kind == "prose")
    if kind == "member":
        starts_line = re.fullmatch(r"\s*(?:\w+\s+)*[*&#]*", left)
        return bool(found or (starts_line and source.enclosing_class(spot) is not None))
    if found:
        return source is not home and found[1] == PurePosixPath(home.uri).stem
    keyword_argument = right[:1] == "=" and right[1:2] != "=" and re.search(r"[(,]\s*$", left)
    return not keyword_argument or _is_declaration(left)


def _is_declaration(left: str) -> bool:
    return bool(re.search(r"\b(?:def|function|func|fn|fun|const|let|var)\b", left))
