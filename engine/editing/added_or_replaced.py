"""New definitions that an update may add, where its merge puts them in the place of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from engine.editing.code_parts import Span
from engine.editing.definition import all_definitions, bare, first_of, full_name, reach
from engine.editing.merge_ways import END, START
from engine.editing.syntax import parse
from engine.editing.update_chunk import File

if TYPE_CHECKING:
    from tree_sitter import Node

    from engine.editing.syntax import Tree

MAX_CHARS = 20_000_000  # of texts that are compared; of more it is not known what may be


class _Definition(NamedTuple):
    name: str
    top: int  # where the comments above it begin, also those above blank lines
    span: Span


class Both(NamedTuple):
    """Two definitions, and the lines of the text that has both; none if they are too many."""

    added: str
    replaced: str
    lines: list[str]


def added_or_replaced(path: str, old: str, new: str, chunks: Sequence[list[str]]) -> Both | None:
    """Find a definition of `new` that replaces one of `old` and may as well stand beside it.

    Definitions of one text only, between the same of both, replace each other. Those of `new` may
    be added if they are whole in the update, and its chunks fit the text that has all of them too.
    Chunks have no blank lines; START and END are among them. Of several the first are named.
    """
    before, after = _definitions(path, old), _definitions(path, new)
    counts, others = (Counter(one.name for one in every) for every in (before, after))
    gone, made = _runs(before, counts - others), _runs(after, others - counts)
    places, shown = sorted(gone.keys() & made.keys()), [File(chunk) for chunk in chunks]
    if len(places) * len(new) > MAX_CHARS:
        return Both(made[places[0]][0].name, gone[places[0]][0].name, [])
    for place in places:
        if all(_is_shown(new, one, shown) for one in made[place]):
            lost = "\n".join(old[one.top : one.span[1]].rstrip("\n") for one in gone[place])
            for at in (made[place][0].top, made[place][-1].span[1]):
                above, below = new[:at].rstrip("\n"), new[at:].lstrip("\n")
                gap = _gap(new, at) or _gap(old, gone[place][0].top)
                lines = gap.join(filter(None, (above, lost, below))).split("\n")
                if _fit(chunks, File([START, *lines, END])):
                    return Both(made[place][0].name, gone[place][0].name, lines)
    return None


def _definitions(path: str, text: str) -> list[_Definition]:
    """List the definitions of a text that have names, the outer ones first."""
    tree = parse(path, text)
    if tree is None:
        return []
    every = [(full_name(tree, node, bare(node)), node) for node in all_definitions(tree)]
    return [_Definition(name, _top(tree, node), reach(tree, node)) for name, node in every if name]


def _top(tree: Tree, node: Node) -> int:
    first = tree.offset(first_of(node, apart=True).start_byte)
    return tree.text.rfind("\n", 0, first) + 1


def _gap(text: str, at: int) -> str:
    """Return the line ends around a place of a text."""
    before = len(text[:at]) - len(text[:at].rstrip("\n"))
    after = len(text[at:]) - len(text[at:].lstrip("\n"))
    return "\n" * (before + after)


def _runs(every: Sequence[_Definition], names: Counter[str]) -> dict[int, list[_Definition]]:
    """Group the definitions of these names by how many others are above them.

    A definition in another one of them is a part of it.
    """
    found: dict[int, list[_Definition]] = {}
    others = end = 0
    for one in every:
        if not names[one.name]:
            others += 1
        elif one.span[0] >= end:
            found.setdefault(others, []).append(one)
            end = one.span[1]
    return found


def _is_shown(text: str, one: _Definition, chunks: Sequence[File]) -> bool:
    """Return whether a definition is whole in one of the update's chunks."""
    lines = File(text[slice(*one.span)].split("\n")).text
    return any(chunk.places_of(lines) for chunk in chunks)


def _fit(chunks: Sequence[list[str]], file: File) -> bool:
    """Return whether a file has the lines of every chunk, in their order."""
    at = 0
    for chunk in chunks:
        place = next((n for n in file.places_of(chunk) if n >= at), None)
        if place is None:
            return False
        at = place + len(chunk)
    return True
