"""Merging of an update that consists of whole definitions of a file.

Each definition of the update replaces the one of its name in the file, and nothing else changes. A
new one goes next to its neighbour in the update, else to the end of its class or of the file's
definitions, and a new import among the file's imports. Of a class that the update shows in part,
only the shown members are replaced; of a function with marks in it, only the lines around these.
There is no such merge where a definition may stand for another one, or would lose a part.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from engine.editing.blocks import indent
from engine.editing.code_parts import (
    IMPORTS,
    definitions,
    imported_by,
    tokens,
)
from engine.editing.instruction import words
from engine.editing.placed_imports import (
    DOCSTRING,
    clash,
    with_imports,
)
from engine.editing.scopes.names import whole_word
from engine.editing.statements import (
    CODE,
    HOLDERS,
    MAIN,
    IsMark,
    Statement,
    body_of,
    children_of,
    is_empty,
    is_lone_method,
    is_mark_node,
    key_of,
    lines_of,
    members_of,
    needed_by,
    parts_of,
)
from engine.editing.syntax import Tree, language_of, parse

if TYPE_CHECKING:
    from tree_sitter import Node

MARK = "_MARK_"  # a mark as a statement of Python, which stands where a comment may not
COMMENTS = ("#", "//", "/*", "*")  # beginnings of lines that are comments
NOTHING = ("", "", "")  # what an import of a language but Python binds
MAX_PARTS = 200  # statements of an update
STANDS_FOR = re.compile(  # what a comment says that stands for code
    r"\b(?:as before|as is|same|exist\w*|keep|kept|rest|snip\w*|unchanged|no changes?|etc|previous"
    r"|original|above|do not change|omitted|elided|logic|implementation|code|body|here)\b"
    r"|\.\.\.|\u2026",
    re.I,
)
SAYS_GONE = re.compile(r"\b(?:remov|delet|dropp|no longer|not needed|unused|gone)", re.I)

Parts = Sequence[Statement]
Change = tuple[int, int, str]  # code points of the file, and what to write there


class Doubt(Exception):
    """A reason, in one line, why an update may be no list of whole definitions of a file."""


class Settled(Doubt):
    """A doubt about a definition that is shown; lines of the whole file would not solve it."""


class LineRules(NamedTuple):
    """The rules of `engine.editing.apply_snippet` for lines of an update."""

    is_mark: IsMark
    merge: Callable[[str, str], str]  # an update of lines into lines; raises Doubt


def merge_definitions(path: str, text: str, update: str, rules: LineRules) -> str:
    """Return a text with the definitions of an update.

    Raises Doubt if the update may be anything else; the reason is "" without a grammar.
    """
    old, new = parse(path, text), parse(path, _parsable(path, update, rules))
    if not old or not new or old.errors:
        raise Doubt
    if new.errors or len(new.root.children) > MAX_PARTS:
        raise Doubt("the update is no list of whole definitions, or has a syntax error")
    has_marks = any(map(rules.is_mark, new.text.split("\n")))
    own, given = parts_of(old, old.root, rules.is_mark), parts_of(new, new.root, rules.is_mark)
    known = {old.text_of(part.node).strip() for part in own}
    nodes = [part.node for part in given if part.node.type in IMPORTS]
    imports, had = [new.text_of(node).strip() for node in nodes], _imported(old)
    bound = [{*imported_by(new, node)} or {NOTHING} for node in nodes]
    added = [text for text, names in zip(imports, bound, strict=True)
             if text not in known and not names <= had]  # fmt: skip
    shown = [at for at, part in enumerate(own) if old.text_of(part.node).strip() in imports]
    if has_marks and added and shown and len(shown) <= shown[-1] - shown[0]:
        raise Doubt("an import between those that the update shows may be gone")
    others = [old.text_of(part.node) for part in own if part.node.type in IMPORTS]
    if any("\n" in one or any(clash(one, other) for other in others) for one in added):
        raise Doubt("a new import has several lines, or may replace another one")
    given = [part for part in given if part.node.type not in IMPORTS]
    merge = _Merge(old, new, rules)
    merge.check_comments(new.root, given)
    changes = [*merge.changes(own, given, new.root)] if given else []
    if not changes and not (added and has_marks):
        raise Doubt("the update shows no change: it may stand for a deletion")
    changes.sort(key=itemgetter(0, 1))  # those at one place stay in the update's order
    for start, stop, lines in reversed(changes):
        text = text[:start] + lines + text[stop:]
    text = with_imports(path, text, added)
    after = parse(path, text)
    if after is None or after.errors or text == old.text:
        raise Doubt("the update's definitions do not fit into the file's")
    if any(map(rules.is_mark, text.split("\n"))):
        raise Doubt("a new definition has a mark in it")
    return text


class _Merge(NamedTuple):
    """A file, an update of its definitions, and the rules for lines."""

    old: Tree
    new: Tree
    rules: LineRules

    def changes(self, own: Parts, given: Parts, parent: Node) -> Iterator[Change]:
        """Yield the changes of a module or class for the parts of the update. Raises Doubt.

        `parent`: the node of the update that has the parts.
        """
        known = {self.old.text_of(part.node).strip() for part in own}
        for part in given:
            if not part.name and (text := self.new.text_of(part.node).strip()) not in known:
                raise Doubt(f"nothing tells the place of `{text.split(chr(10))[0]}`")
        given = [part for part in given if part.name]
        places = [self._place(own, part) for part in given]
        is_open = any(
            is_mark_node(self.new, each, self.rules.is_mark)
            for each in children_of(self.new, parent)
        )
        if given and not any(places) and not is_open:
            raise Doubt(f"nothing tells the place of `{given[0].name}`")
        order = [own.index(each) for each in places if each in own]
        if len({*order}) < len(order):
            raise Doubt("the update has two definitions for one of the file")
        if is_open and order != sorted(order):
            raise Doubt("the update's definitions are not in the order of the file")
        for (one, two), part in zip(pairwise(places), given[1:], strict=True):
            is_run = is_open and not part.after_mark and one in own and two in own
            if is_run and any(each.name for each in own[own.index(one) + 1 : own.index(two)]):
                raise Doubt(f"what is above `{part.name}` may be gone")
        for at, (part, place) in enumerate(zip(given, places, strict=True)):
            if place:
                yield from self._replaced(part, place)
            elif at == 0 or places[at - 1]:
                yield from self._added(own, given, places, at, is_open)

    def _place(self, own: Parts, part: Statement) -> Statement | None:
        """Find the file's definition of a name; None for a new one. Raises Doubt."""
        named = [each for each in own if each.name == part.name]
        if not named and is_lone_method(self.new, part):
            named = [
                each
                for holder in own
                for each in members_of(self.old, holder, self.rules.is_mark)
                if each.name == part.name
            ]
            every = definitions(self.old, self.old.span(self.old.root))
            if not named or sum(each.name == part.name for each in every) > 1:
                raise Settled(f"nothing tells the class of `{part.name}`")
        if len(named) > 1 or (named and named[0].inner.type != part.inner.type):
            raise Settled(f"`{part.name}` is not one definition of the file")
        return named[0] if named else None

    def _replaced(self, part: Statement, place: Statement) -> Iterator[Change]:
        """Yield the changes that make a definition that of the update. Raises Doubt."""
        for tree, each in ((self.old, place), (self.new, part)):
            start, stop = tree.span(each.node)
            around = tree.text[each.start : start] + tree.text[stop : each.stop]
            if around.strip().strip(";,"):
                raise Doubt(f"other code is on the lines of `{part.name}`")
        own, given = (
            members_of(self.old, place, self.rules.is_mark),
            members_of(self.new, part, self.rules.is_mark),
        )
        shown = {key_of(self.new, each) for each in given}
        has_mark = any(map(self.rules.is_mark, self.new.text_of(part.node).split("\n")))
        if has_mark or (
            own and given and not shown.issuperset(key_of(self.old, each) for each in own)
        ):
            yield from self._replaced_in_part(part, place, has_mark)
            return
        self._check_bodies(place, part)
        self._check_end(place, part)
        inside = {each.name for each in definitions(self.new, self.new.span(part.inner))}
        inside -= {each.name for each in definitions(self.old, self.old.span(place.inner))}
        if inside and re.search(
            rf"\b(?:class|def|fn|func|function) {whole_word(*inside)}", self.old.text
        ):
            raise Doubt(f"`{part.name}` has another definition of the file in it")
        first = place.first if part.first < part.start else place.start
        attributes = re.findall(r"^\s*#!?\[.*", self.old.text[first : place.start], re.M)
        if not all(each.strip() in self.new.text[part.first : part.start] for each in attributes):
            raise Doubt(f"the attributes of `{part.name}` may be gone, or stay")
        if place.node != place.inner and part.node.type != place.node.type:
            if place.node.type == "decorated_definition":
                raise Doubt(f"the decorators of `{part.name}` may be gone, or stay")
            first = self.old.span(place.inner)[0]
            lines = self._lines_of((part.start, part.stop), place).lstrip()
        else:
            lines = self._lines_of((part.first, part.stop), place)
        if lines != self.old.text[first : place.stop]:
            yield first, place.stop, lines

    def _replaced_in_part(
        self, part: Statement, place: Statement, has_mark: bool
    ) -> Iterator[Change]:
        """Yield the changes of a definition that the update shows in part. Raises Doubt."""
        ours, theirs = _body_lines(self.old, place), _body_lines(self.new, part)
        docstring_stays = ours[0] < ours[1] and theirs[0] == theirs[1]
        stops = (ours[0], theirs[0]) if docstring_stays else (ours[1], theirs[1])
        heads = self.old.text[place.start : stops[0]], self.new.text[part.start : stops[1]]
        if " ".join(heads[0].split()) != " ".join(heads[1].split()):
            was, now = (words(head[: at[0] - each.start]) for head, at, each in
                        zip(heads, (ours, theirs), (place, part), strict=True))  # fmt: skip
            is_whole = was <= now or (part.inner.type not in HOLDERS and len(was) <= len(now))
            if not has_mark or place.node.type != part.node.type or not is_whole:
                raise Doubt(f"the head of `{part.name}` is not that of the file")
            yield place.start, stops[0], self._lines_of((part.start, stops[1]), place)
        body = body_of(part.inner)
        if body is None or part.inner.type not in HOLDERS:
            lines = self.old.text[ours[1] : ours[2]], self.new.text[theirs[1] : theirs[2]]
            if body is None and part.name != MAIN and not self._have_commas(*lines):
                raise Doubt(f"the lines of `{part.name}` do not end with commas")
            yield ours[1], ours[2], self.rules.merge(*lines)
            return
        own, given = (
            members_of(self.old, place, self.rules.is_mark),
            members_of(self.new, part, self.rules.is_mark),
        )
        given = [each for each in given if each.start >= theirs[1]]
        self.check_comments(body, given)
        yield from self.changes(own, given, body)

    def _have_commas(self, old: str, new: str) -> bool:
        """Return whether the lines next to marks, in brackets, end with commas, or semicolons."""
        lines = [line for line in new.split("\n") if line.strip()]
        above = [one for one, two in pairwise(lines) if self.rules.is_mark(two)]
        return all(
            line.rstrip().endswith((",", ";")) or self.rules.is_mark(line) for line in (old, *above)
        )

    def _check_bodies(self, place: Statement, part: Statement) -> None:
        """Raise Doubt if a stub or a comment may stand for code that the file has."""
        body = body_of(part.inner)
        is_cut = body is not None and body.type == "block" and not body.child_count
        if is_cut or (is_empty(part.inner) and not is_empty(place.inner)):
            raise Doubt(f"`{part.name}` has no code: it may be a stub")
        own = {
            key_of(self.old, each): each for each in members_of(self.old, place, self.rules.is_mark)
        }
        for each in members_of(self.new, part, self.rules.is_mark):
            if key_of(self.new, each) in own:
                self._check_bodies(own[key_of(self.new, each)], each)
        was, now = self.old.text_of(place.node), self.new.text_of(part.node)
        spans = ((self.old, self.old.span(place.node)), (self.new, self.new.span(part.node)))
        had, has = (
            [each.row for each in tokens(*one) if each.kind not in ("comment", "block")]
            for one in spans
        )
        lines = {line.strip() for line in now.split("\n")} | {""}
        lost = not lines.issuperset(line.strip() for line in was.split("\n"))
        comments = [each.text for each in tokens(*spans[1]) if each.kind == "comment"]
        added = [each for each in comments if each.strip() not in was]
        fewer = len({*has}) < len({*had})
        if lost and any(fewer or STANDS_FOR.search(each) for each in added):
            raise Doubt(f"a comment in `{part.name}` may stand for code")
        rows = [line.strip() for line in was.split("\n") if line.strip()]
        for row, below in pairwise([*rows, ""]):
            if row.startswith(COMMENTS) and row not in now and below in lines:
                raise Doubt(f"the comment `{row}` would be lost")

    def _check_end(self, place: Statement, part: Statement) -> None:
        """Raise Doubt if a mark below a definition, further out, may stand for its last lines.

        It does not where the update's last line is new, or the file's.
        """
        below = next(filter(str.strip, self.new.text[part.stop :].split("\n")), "")
        was, now = (
            [line.strip() for line in tree.text_of(each.node).split("\n") if line.strip()]
            for tree, each in ((self.old, place), (self.new, part))
        )
        if self.rules.is_mark(below) and now[-1] in was and now[-1] != was[-1]:
            raise Doubt(f"the mark below `{part.name}` may stand for its last lines")

    def check_comments(self, parent: Node, parts: Parts) -> None:
        """Raise Doubt if a comment between the parts of an update is not in the file, nor merged.

        It may say what is to be deleted.
        """
        for node in children_of(self.new, parent):
            text = self.new.text_of(node).strip()
            if "comment" not in node.type or self.rules.is_mark(text) or text in self.old.text:
                continue
            at = self.new.offset(node.start_byte)
            is_merged = any(part.first <= at < part.stop for part in parts)
            if not is_merged or SAYS_GONE.search(text):
                raise Doubt("a comment of the update may say what is to be deleted")

    def _added(
        self, own: Parts, given: Parts, places: Sequence[Statement | None], at: int, is_open: bool
    ) -> Iterator[Change]:
        """Yield the changes that add new definitions from the one at `at` on. Raises Doubt.

        `is_open`: a mark stands for others of their class or module.
        """
        end = next((n for n in range(at, len(given)) if places[n]), len(given))
        before = places[at - 1] if at and not given[at].after_mark else None
        after = places[end] if end < len(given) and not given[end].after_mark else None
        is_below, is_member = given[at].after_mark, given[at].node.parent != self.new.root
        for is_code, group in groupby(given[at:end], lambda part: part.inner.type in CODE):
            run = [*group]
            fellows = [each for each in own if each.name and (each.inner.type in CODE) == is_code]
            gap = "\n" * (1 + is_code + (self.old.language == "python" and not is_member))
            place: Statement | None = None
            if before in fellows and run[0] == given[at]:
                place, is_below, gap = (
                    before,
                    True,
                    self.new.text[given[at - 1].stop : run[0].first],
                )
            elif after in fellows and run[-1] == given[end - 1]:
                place, is_below, gap = after, False, self.new.text[run[-1].stop : given[end].first]
            elif not before and not after and is_open and (is_code or is_member):
                is_below = given[at].after_mark and end == len(given) and bool(fellows)
                fellows = fellows or [each for each in own if each.name]  # fields above methods
                behind = own[-1:] if is_code and is_member else fellows[-1:]
                place = next(iter(behind if is_below else places[end : end + 1] or fellows), None)
            if (
                not place
                or place not in own
                or any(part.after_mark for part in run[run[0] == given[at] :])
            ):
                raise Doubt(f"nothing tells the place of `{run[0].name}`")
            stop = self._end_of(place) if is_below else place.first
            self._check_order(own, run, stop)
            text = self._lines_of((run[0].first, run[-1].stop), place)
            yield stop, stop, gap + text if is_below else text + gap

    def _end_of(self, place: Statement) -> int:
        """Return where a definition ends, with comments below that are further in."""
        start = self.old.text[place.start : place.stop]
        margin = re.escape(start[: indent(start)])
        below = re.compile(rf"(?:\n+{margin}[ \t]+(?:#|//).*)*").match(self.old.text, place.stop)
        return below.end() if below else place.stop

    def _check_order(self, own: Parts, run: Parts, at: int) -> None:
        """Raise Doubt if a new definition would stand above a name that it needs when it is made.

        Those are the names of its decorators, bases and defaults.
        """
        below = {part.name for part in own if part.start >= at and part.name}
        for part in run:
            if below.intersection(re.findall(r"[\w$]+", needed_by(self.new, part))):
                raise Doubt(f"`{part.name}` needs a name that is defined further down")

    def _lines_of(self, span: tuple[int, int], place: Statement) -> str:
        """Return lines of the update, indented like a definition of the file. Raises Doubt."""
        lines = self.new.text[slice(*span)].split("\n")
        shown, wanted = (
            tree.text[at : at + len(tree.text[at:]) - len(tree.text[at:].lstrip(" \t"))]
            for tree, at in ((self.new, span[0]), (self.old, place.start))
        )
        if shown == wanted:
            return "\n".join(lines)
        if any(
            each.kind == "string" and "\n" in each.text for each in tokens(self.new, span)
        ) or any(line.strip() and not line.startswith(shown) for line in lines):
            raise Doubt("a definition of several indentations cannot be indented as the file's")
        return "\n".join(wanted + line[len(shown) :] if line.strip() else line for line in lines)


def _imported(tree: Tree) -> set[tuple[str, str, str]]:
    """Return what a Python file imports outside of definitions, in `if` and `try` too."""
    found: set[tuple[str, str, str]] = set()
    todo = [tree.root] if tree.language == "python" else []
    while todo:
        node = todo.pop()
        if node.type in IMPORTS:
            found.update(imported_by(tree, node))
        elif node.type not in CODE:
            todo += node.named_children
    return found


def _parsable(path: str, update: str, rules: LineRules) -> str:
    """Return an update as a text in which marks belong to the block that they stand in.

    A comment of Python belongs to none; so marks are statements, but inside of brackets.
    """
    lines = textwrap.dedent(update).strip("\n").split("\n")
    plain = "\n".join(lines) + "\n"
    if language_of(path) != "python":
        return plain
    for at in reversed(range(len(lines))):
        if rules.is_mark(lines[at]):
            margin = lines[at][: indent(lines[at])]
            below = next((line for line in lines[at + 1 :] if line.strip()), "")
            above = next((line for line in reversed(lines[:at]) if line.strip()), "")
            if indent(below) > len(margin):
                margin = below[: indent(below)]
            elif above.rstrip().endswith(":") and len(margin) <= indent(above):
                margin = above[: indent(above)] + "    "
            lines[at] = margin + MARK
    tree = parse(path, text := "\n".join(lines) + "\n")
    return text if tree and not tree.errors else plain


def _body_lines(tree: Tree, part: Statement) -> tuple[int, int, int]:
    """Find the end of a definition's head, of its docstring, and of its body's lines.

    Raises Doubt if other code is on these lines.
    """
    inner, text = part.inner, tree.text
    body = body_of(inner) or inner.named_children[-1]
    opener, stop = tree.span(body)
    if text[opener] in "{[(":
        opener, stop = opener + 1, text.rfind("\n", 0, stop)
    else:
        colon = [each for each in inner.children if each.type == ":"]
        opener, stop = tree.span(colon[-1])[1] if colon else stop, part.stop
    head = text.find("\n", opener) + 1
    first = body.named_children[0] if body.named_children else body
    is_docstring = [first.type, *(each.type for each in first.children)] == DOCSTRING
    lines = lines_of(tree, first)[1] + 1 if is_docstring and tree.language == "python" else head
    if not head or text[opener:head].strip()[:1] not in ("", "#", "/") or lines > stop:
        raise Doubt(f"`{part.name}` has no lines that a mark may stand for")
    return head, lines, stop
