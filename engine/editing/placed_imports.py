"""New imports of a file, each in its place among those that the file has.

In Python the groups are isort's; elsewhere relative modules are a group of their own. In its group
a new import goes where the order is kept if there is one, else behind the others.
"""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from engine.editing.code_parts import IMPORTS, Span
from engine.editing.edits import LINE, LINE_END, commonest_end
from engine.editing.syntax import Tree, parse

if TYPE_CHECKING:
    from tree_sitter import Node

FUTURE = "future_import_statement"
# Nodes that stay above the imports, as docstrings do.
DOCSTRING = ["expression_statement", "string"]  # the types of a statement and its only child
HEAD = frozenset((
    "comment", "line_comment", "block_comment", "hash_bang_line", "package_clause",
    "package_declaration", "inner_attribute_item",
))  # fmt: skip
FROM = re.compile(r"from\s+([\w.]+)\s+import\s+([\w ,]+)")  # one line of Python, without comments
NAMED = re.compile(r"import \{ ?([\w, ]+?),? ?\} from ([\"'][^\"']+[\"'];?)")  # of JavaScript
# An import of one line.
IMPORT_LINE = re.compile(
    r"import [\w. ,*{}]+(?: from ([\"'])[^\"']+\1;?|;)?|import ([\"'])[^\"']+\2;?"
    r"|from [\w.]+ import [\w, ]+|(?:pub )?use [\w:{}, *]+;|#\s*include\s*[<\"].*"
)
QUOTED = re.compile(r"[\"'<]([^\"'>]+)[\"'>]")
MODULE = re.compile(r"(?:import|from|use)\s+(?:static\s+)?([\w.:]+)")
NOT_BOUND = re.compile(
    r"from\s+[\w.]+\s+import\b|^import\s(?:static\s)?(?:[\w.]+\.(?=\w+;))?|\bfrom\s+[\"'].*"
    r"|^(?:pub\s+)?use\s+(?:\w+::)*"
)
MAX_LINE_CHARS = 88  # characters; a longer line of imports is not made


def with_imports(path: str, text: str, imports: list[str]) -> str:
    """Return a text with these import statements, which it does not have."""
    for statement in imports:
        tree = parse(path, text)
        if tree is not None:
            text = _with_import(tree, text, statement)
    return text


def _with_import(tree: Tree, text: str, statement: str) -> str:
    head, last = places(tree)
    nodes = [each for each in tree.root.children if each.type in IMPORTS]
    nodes = [each for each in nodes if head <= tree.span(each)[0] < last]
    if not nodes:
        return inserted(text, head, [statement], True)
    for node in nodes:
        if joined := _joined(tree.text_of(node).strip(), statement):
            start, stop = tree.span(node)
            return text[:start] + joined + text[start + len(text[start:stop].rstrip()) :]
    own = _group(tree, statement)
    groups = [_group(tree, tree.text_of(each)) for each in nodes]
    fellows = [each for each, group in zip(nodes, groups, strict=True) if group == own]
    before = [each for each, group in zip(nodes, groups, strict=True) if group < own]
    if fellows:
        place = _place(tree, fellows, statement)
        return inserted(text, place, [statement], False)
    ends = zip(pairwise(nodes), pairwise(groups), strict=True)
    apart = all(_is_apart(tree, *pair) for pair, (one, two) in ends if one != two)
    apart = apart and tree.language == "python"
    if statement.startswith("from __future__"):  # above all that is no head
        return inserted(text, head, [statement], apart)
    if before:
        place = lines_of(text, tree.span(before[-1]), blank=False)[1]
        return inserted(text, place, ["", statement] if apart else [statement], False)
    place = lines_of(text, tree.span(nodes[0]), blank=False)[0]
    return inserted(text, place, [statement, ""] if apart else [statement], False)


def _joined(old: str, new: str) -> str:
    """Return one import of what two of the same module import; "" if there is none in one line."""
    for pattern, module, names, form in (
        (FROM, 1, 2, "from {0} import {1}"),
        (NAMED, 2, 1, "import {{ {1} }} from {0}"),
    ):
        one, two = pattern.fullmatch(old), pattern.fullmatch(new)
        if one and two and one[module].rstrip(";") == two[module].rstrip(";"):
            own, more = ([part.strip() for part in each[names].split(",")] for each in (one, two))
            every = [*own, *(name for name in more if name not in own)]
            for key in (str, str.lower):
                if own == sorted(own, key=key):
                    every = sorted(every, key=key)
                    break
            line = form.format(one[module], ", ".join(every))
            return line if len(line) <= MAX_LINE_CHARS and all(every) else ""
    return ""


def clash(one: str, other: str) -> bool:
    """Return whether an import may stand in place of another one of Python or JavaScript.

    It may if it binds a name that the other binds to a thing of another module, or nothing new.
    """
    own, known = (set(re.findall(r"\w+", NOT_BOUND.sub("", each))) for each in (one, other))
    if _module(one) == _module(other):
        return own <= known
    return not (own & known) <= {"as", "type"}


def _module(statement: str) -> str:
    found = QUOTED.search(statement) or MODULE.search(statement)
    return found[1] if found else statement


def _group(tree: Tree, statement: str) -> int:
    """Return the number of an import's group; lower ones come first."""
    module = _module(statement)
    if module.startswith(".") or statement.startswith('#include "'):
        return 3
    if tree.language != "python":
        return 2
    top = module.split(".")[0]
    return 0 if top == "__future__" else 1 if top in sys.stdlib_module_names else 2


def _place(tree: Tree, fellows: list[Node], statement: str) -> int:
    """Return where a statement goes in its group: in order, else behind the last one."""

    def plain_first(text: str) -> Any:
        return text.startswith("from"), _module(text).lower()

    def by_module(text: str) -> Any:
        return _module(text).lower()

    texts = [tree.text_of(each).strip() for each in fellows]
    following = None
    for key in (plain_first, by_module, str.lower):
        keys = list(map(key, texts))
        if keys == sorted(keys):
            following = next((n for n, each in enumerate(keys) if each > key(statement)), None)
            break
    if following is None:
        return lines_of(tree.text, tree.span(fellows[-1]), blank=False)[1]
    return lines_of(tree.text, tree.span(fellows[following]), blank=False)[0]


def _is_apart(tree: Tree, one: Node, other: Node) -> bool:
    """Return whether a blank line is between two imports."""
    gap = tree.text[tree.span(one)[1] : tree.span(other)[0]]
    return len(LINE_END.findall(gap)) > 1


def places(tree: Tree) -> tuple[int, int]:
    """Return the offsets after the lines of the file's head, and after its first run of imports."""
    head = last = 0
    is_head = True
    for node in tree.root.children:
        is_docstring = [node.type, *(child.type for child in node.children)] == DOCSTRING
        stop = lines_of(tree.text, tree.span(node), blank=False)[1]
        is_head = is_head and (node.type in HEAD or is_docstring)
        if is_head:
            head = stop
        elif node.type in IMPORTS:
            last = stop
        elif last and node.type not in HEAD:
            break
    return head, max(head, last)


def lines_of(text: str, span: Span, blank: bool = True) -> Span:
    """Return the whole lines of a part of the text.

    `blank`: with the blank lines below, if there are some above, too, or nothing at all.
    """
    start, stop = span[0], span[0] + len(text[slice(*span)].rstrip())
    start = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
    line = LINE.match(text, stop)
    stop = line.end() if line else stop
    if (
        blank
        and not text[:start].rstrip(" \t").removesuffix("\n").endswith(("\n", ":", "{"))
        and start
    ):
        return start, stop
    while blank and (line := LINE.match(text, stop)) and not line[0].strip():
        stop = line.end()
    return start, stop


def inserted(text: str, place: int, lines: list[str], first: bool) -> str:
    """Insert lines into `text`; `first`: imports above all others, a blank line apart."""
    if not lines:
        return text
    end = commonest_end(text, "\n")
    block = "".join(line + end for line in lines)
    if first:
        block = end + block if place else block + end
    if place and text[place - 1] not in "\r\n":
        block = end + block
    return text[:place] + block + text[place:]
