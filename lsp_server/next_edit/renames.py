"""What a name that was replaced meant, and which other words mean the same thing.

By the text around it: a parameter, a variable, a member, something of the whole file. No imports
are followed; the files that are open are all there is.
"""

from __future__ import annotations

import builtins
import keyword
import re
from pathlib import PurePosixPath

from lsp_server.next_edit.edit_history import Edit
from lsp_server.next_edit.signatures import WORD, heads
from lsp_server.next_edit.source_text import HEAD, LONGEST, WIDE, Source

TYPES = frozenset({"string", "number", "boolean", "any", "char", "int", "double", "float", "long"})
BUILTINS = TYPES.union(dir(builtins))  # of Python
OTHER_KEYWORDS = """
this self cls super null undefined true false nil var let const function func fn struct enum
interface type switch case default do int void static public private new delete typeof throw
catch package range defer go map chan use mod pub impl match mut
"""
KEYWORDS = frozenset({*keyword.kwlist, *OTHER_KEYWORDS.split()})
DEFINING = (
    r"\b(?:def|function\*?|func|fn|fun|class|struct|interface|enum|trait|type|const|let|var|mod)"
    r"\s+(?:\([^()]*\)\s*)?(?:mut\s+|\*)?"
)
DEFINES = re.compile(f"{DEFINING}$")
OBJECT = re.compile(r"(?:([\w$]+)\s*)?(?:\.|->|::)\s*$")  # what a member's name comes after
Sources = dict[str, Source]


def is_name(*words: str) -> bool:
    return all(word not in KEYWORDS and re.fullmatch(WORD, word) for word in words)


def is_known(source: Source, name: str) -> bool:
    """Whether the language gives the name its meaning."""
    return name in (BUILTINS if source.python else TYPES)


def is_other_thing(source: Source, edits: list[Edit], old: str, new: str, at: int) -> bool:
    """Whether only a use was changed, from one thing to another that was there before."""
    start, stop = source.line(at)
    if DEFINES.search(source.text[start:at]) or binds(source, new, start, stop):
        return False
    if is_known(source, new):
        return True
    _, low, high = reach(source, old, new, at)
    mine = [(edit.start, edit.stop) for edit in edits if edit.uri == source.uri]
    stood = any(not any(a <= spot <= b for a, b in mine) for spot in source.words(new, low, high))
    return stood and (source.prose or binds(source, old, low, high))


def binds(source: Source, name: str, start: int, stop: int) -> bool:
    """Whether the name gets its meaning there: defined, assigned, imported or a parameter."""
    word = rf"(?<![\w$]){re.escape(name)}(?![\w$])"
    assigned = rf"{word}(?:\s*,\s*[\w$*]+)*[ \t]*(?::[^=\n(){{}}]+)?:?=(?![=>])"
    declared = rf"\b(?:let|const|var|for|as|mut|import|global)\s[^=\n;:]{{0,300}}?{word}"
    defined = rf"{DEFINING}{word}"
    if re.compile(f"{assigned}|{declared}|{defined}").search(source.text, start, stop):
        return True
    limit = min(stop, start + LONGEST)
    return any(
        next(source.words(name, head.opened, head.closed), None) is not None
        for head in heads(source, start, limit)
    )


def reach(source: Source, old: str, new: str, at: int) -> tuple[str, int, int]:
    """What was renamed at `at`, where `new` stands now, and where its other uses may be."""
    start, stop = source.line(at)
    left = source.text[start:at]
    everywhere = (0, len(source.text))
    if source.prose:
        return "prose", *everywhere
    if OBJECT.search(left):
        return "member", *everywhere
    if source.block(at) is not None and re.fullmatch(r"\s*(?:\w+\s+)*[*&#]*", left):
        return "member", *everywhere
    own = bool(DEFINES.search(left) and HEAD.search(source.text[start:stop]))
    for low, high in source.scopes(at, outer=own):
        if own or any(binds(source, name, low, high) for name in (old, new)):
            return "local", low, high
    return "module", *everywhere


def is_global(sources: Sources, old: str, new: str) -> bool:
    """Whether an open file defines it at its margin."""
    names = f"(?:{re.escape(old)}|{re.escape(new)})(?![\\w$])"
    defined = re.compile(
        rf"^(?:(?:export|default|pub|async|static|abstract|public)\s+)*(?:{DEFINING}"
        rf"{names}|{names}\s*(?::[^=\n]*)?=(?!=))",
        re.MULTILINE,
    )
    return any(defined.search(source.text) for source in sources.values() if not source.prose)


def is_same(source: Source, home: Source, kind: str, old: str, spot: int) -> bool:
    """Whether the word there may be the thing that was renamed, and not only called alike."""
    start, stop = source.line(spot)
    if stop - start > WIDE:
        return False
    left, right = source.left(spot), source.text[spot + len(old) : stop]
    found = OBJECT.search(left)
    if kind == "prose" or source.is_quiet(spot):
        return source.prose == (kind == "prose")
    if kind == "member":
        defined = re.fullmatch(r"\s*(?:\w+\s+)*[*&#]*", left) and source.block(spot) is not None
        return bool(found or defined)
    if found:
        return source is not home and found[1] == PurePosixPath(home.uri).stem
    keyword_argument = right[:1] == "=" and right[1:2] != "=" and re.search(r"[(,]\s*$", left)
    return not keyword_argument or _declares(left)


def _declares(left: str) -> bool:
    return bool(re.search(r"\b(?:def|function|func|fn|fun|const|let|var)\b", left))
