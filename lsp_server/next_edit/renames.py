"""The meaning of a renamed identifier, and the other places that refer to the same thing.

The names of the text are read as if it had not been renamed yet. What a language without a grammar
means by a word is not known: there all whole words of the document are the same.
"""

from __future__ import annotations

import builtins
import keyword
import re
from contextlib import suppress
from itertools import islice
from pathlib import PurePosixPath
from typing import Literal, NamedTuple
from urllib.parse import unquote

from engine.editing.rename import WALKERS
from engine.editing.scopes.names import Place, Unsure, Use, Walker
from engine.editing.scopes.outline import OutlineNames, is_defined_at
from engine.editing.syntax import language_of
from lsp_server.next_edit.edit_history import RecentEdit, Replacement, changed_lines, replacements
from lsp_server.next_edit.source_text import SourceText

MAX_PLACES = 200  # places of one name in a document
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
FAMILIES = {"typescript": "javascript", "tsx": "javascript", "c": "cpp"}
MARKUP = frozenset({".html", ".htm", ".xhtml", ".xml", ".svg", ".vue", ".svelte"})
MODULE_FILES = frozenset({"__init__", "index", "mod", "lib"})  # named after their folder
Sources = dict[str, SourceText]


class Reference(NamedTuple):
    """What a name refers to in its own document."""

    kind: Literal["local", "member", "module", "word"]
    places: list[Place]  # the name's other places, in order
    span: tuple[int, int]  # the part of the text in which comments may speak of it


def is_identifier(source: SourceText, *words: str) -> bool:
    """Return whether these words may be names in a source."""
    if source.has_hyphens:
        words = tuple(word.lstrip("-").replace("-", "_") for word in words)
    return all(word not in KEYWORDS and word.replace("$", "_").isidentifier() for word in words)


def is_builtin(source: SourceText, name: str) -> bool:
    """Return whether the language itself defines the name."""
    return name in (BUILTINS if source.language == "python" else BUILTIN_TYPES)


def family(path: str) -> str:
    """Return the languages that may use each other's names with that of a file, as one."""
    language = language_of(path)
    return FAMILIES.get(language, language) if language else PurePosixPath(path).suffix.lower()


def module_name(home: str) -> str:
    """Return the name by which other files import the one at a URI."""
    path = PurePosixPath(unquote(home))
    return path.parent.name if path.stem in MODULE_FILES else path.name.split(".")[0]


def replaced(edit: RecentEdit) -> list[Replacement]:
    """Find the words that an edit replaced."""
    return [swap for line in changed_lines(edit) for swap in replacements(line)]


def renamed(source: SourceText, edits: list[RecentEdit], swap: Replacement) -> Reference | None:
    """Find what an edit renamed.

    None if it is no name or one of the language, or if the edit only made a use refer to another
    existing one.
    """
    old, new, at = swap
    if not is_identifier(source, old, new):
        return None
    mine = [edit for edit in edits if edit.uri == source.uri]
    places = frozenset(
        each.at for edit in mine for each in replaced(edit) if (each.old, each.new) == (old, new)
    )
    names = _read(source, old, new, places)
    if names is None:
        stood = any(
            not any(edit.start <= spot <= edit.stop for edit in mine)
            for spot in source.find_words(new)
        )
        is_tag = family(source.path) in MARKUP and re.search(
            "</?$", source.text[max(0, at - 2) : at]
        )
        spots = _other_end(source, old, at) if is_tag else source.find_words(old)
        whole = [Place(spot, spot + len(old)) for spot in spots]
        found = None if stood else Reference("word", whole, (0, len(source.text)))
    else:
        found = _reference(source, names, old, new, at, places)
    if found and found.kind != "local" and (len(old) == 1 or is_builtin(source, old)):
        return None
    return found


def _other_end(source: SourceText, name: str, at: int) -> list[int]:
    """Find the other tag of the element one of whose tags had a name, at an offset."""
    text = source.text
    is_last = text.startswith("</", at - 2)
    spots = [spot for spot in source.find_words(name) if (spot < at) == is_last]
    depth = 1
    for spot in reversed(spots) if is_last else spots:
        closes = text.startswith("</", spot - 2)
        if closes or (text[spot - 1] == "<" and not text.startswith("/", text.find(">", spot) - 1)):
            depth += 1 if closes == is_last else -1
        if not depth:
            return [spot]
    return []


def reference(source: SourceText, name: str, at: int) -> Reference | None:
    """Find what a name refers to; None if that is not known."""
    names = _read(source, name, "", frozenset())
    return _reference(source, names, name, "", at, frozenset()) if names else None


def _reference(
    source: SourceText, names: Walker, old: str, new: str, at: int, places: frozenset[int]
) -> Reference | None:
    """Find what a name refers to; `places`: where `new` stands for it already."""
    plain, members = names.named(old)
    everywhere = (0, len(source.text))
    if any(place.start == at for place in members):
        left = [place for place in members if place.start not in places]
        stood = islice(names.named(new)[1], 1) if new else ()
        if (
            any(stood)
            and not is_defined_at(names.tree, at)
            and any(is_defined_at(names.tree, each.start) for each in left[:MAX_PLACES])
        ):
            return None
        return Reference("member", sorted(left), everywhere)
    use, binding = next((each for each in plain if each[0].place.start == at), (None, None))
    if use is None:
        return None
    same = [each for each, found in plain if found is binding]
    left_uses = [each for each in same if each.place.start not in places]
    if new and _switches(source, names, use, left_uses, new):
        return None
    is_local = binding is not None and binding.scope is not names.top
    node = binding.scope.node if binding and is_local else None
    span = names.tree.span(node) if node else everywhere
    kind: Literal["local", "module"] = "local" if is_local else "module"
    return Reference(kind, sorted(each.place for each in left_uses), span)


def _switches(source: SourceText, names: Walker, use: Use, left: list[Use], new: str) -> bool:
    """Return whether a use was made to refer to another existing name."""
    if is_builtin(source, new):
        return not use.kind
    return names.find(new, use.scope) is not None and any(each.kind for each in left)


def _read(source: SourceText, old: str, new: str, places: frozenset[int]) -> Walker | None:
    """Read a name in a text, and another one, which stands for it at some places."""
    key = (old, new, places)
    if key not in source.names:
        words = {at: old if at in places else new for at in (source.find_words(new) if new else ())}
        words |= dict.fromkeys(source.find_words(old), old)
        source.names[key] = None
        if words and (tree := source.tree):
            names = WALKERS.get(tree.language, OutlineNames)(tree)
            with suppress(Unsure):
                names.read_words(words)
                source.names[key] = names
    return source.names[key]


def defines(source: SourceText, *names: str) -> bool:
    """Return whether a document defines one of these names at its top level."""
    for name in names:
        read = _read(source, name, "", frozenset())
        found = read and read.top.bindings.get(name)
        if found and found.kinds - {"import", "alias"}:
            return True
    return False


def places_elsewhere(source: SourceText, home: SourceText, kind: str, name: str) -> list[Place]:
    """Find the places that probably refer to a name of another document."""
    names = _read(source, name, "", frozenset())
    if names is None or family(source.path) != family(home.path):
        return []
    plain, members = names.named(name)
    if kind == "member":
        return sorted(members)
    qualified = [f"{module_name(home.uri)}{access}" for access in (".", "::")]
    found = [use.place for use, binding in plain if not binding or binding.scope is names.top]
    for place in members:
        if any(source.text.startswith(each, place.start - len(each)) for each in qualified):
            found.append(place)
    return sorted(found)


def mentions(source: SourceText, name: str, span: tuple[int, int]) -> list[Place]:
    """Find a name in the comments and the documentation of a part of a text.

    A word of another string may be a value that the program depends on.
    """
    spots = source.in_prose([*source.find_words(name, *span)])
    return [Place(spot, spot + len(name)) for spot in spots]
