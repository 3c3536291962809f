"""The parts of code that checks compare: tokens, definitions, and names without a definition."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node

    from engine.editing.syntax import Tree

Span = tuple[int, int]  # code points
Kind = Literal["code", "string", "comment", "docstring", "import", "annotation", "block"]
WHOLE = ("string", "comment", "docstring")  # kinds of nodes that are one token
STRINGS = frozenset((
    "string", "template_string", "string_literal", "interpreted_string_literal",
    "raw_string_literal", "raw_string",
))  # fmt: skip
IMPORTS = frozenset((
    "import_statement", "import_from_statement", "future_import_statement", "import_declaration",
    "use_declaration", "preproc_include",
))  # fmt: skip
# (type, parent's type) of the token before a Python annotation.
ANNOTATES = frozenset((
    (":", "typed_parameter"), (":", "typed_default_parameter"), (":", "assignment"),
    ("->", "function_definition"),
))  # fmt: skip
DEFINITIONS = frozenset((
    "function_definition", "class_definition", "function_declaration", "class_declaration",
    "generator_function_declaration", "abstract_class_declaration", "method_definition",
    "interface_declaration", "type_alias_declaration", "enum_declaration", "method_declaration",
    "constructor_declaration", "record_declaration", "type_spec", "function_item", "struct_item",
    "enum_item", "union_item", "trait_item", "macro_definition", "mod_item", "type_item",
    "static_item", "const_item", "struct_specifier", "class_specifier", "enum_specifier",
))  # fmt: skip
FUNCTIONS = frozenset(("arrow_function", "function_expression", "class", "generator_function"))
WRAPPERS = ("decorated_definition", "export_statement", "type_declaration")
LOOSE = frozenset(
    ("expression_statement", "if_statement", "for_statement", "while_statement", "for_in_statement")
)
SCOPES = frozenset(("module", "program", "source_file", "translation_unit", "export_statement"))
# (parent's type, field; None for any) of a Python identifier that is read, not bound.
READS = frozenset((
    ("call", "function"), ("attribute", "object"), ("subscript", "value"), ("decorator", None),
    ("type", None), ("generic_type", None), ("return_statement", None),
    ("binary_operator", None), ("interpolation", None),
    ("comparison_operator", None), ("not_operator", None), ("boolean_operator", None),
    ("conditional_expression", None), ("argument_list", None), ("keyword_argument", "value"),
    ("assignment", "right"), ("if_statement", "condition"), ("while_statement", "condition"),
    ("for_statement", "right"), ("for_in_clause", "right"), ("raise_statement", None),
    ("unary_operator", None), ("subscript", "subscript"), ("expression_list", None),
    ("list", None), ("tuple", None), ("set", None), ("pair", "value"), ("if_clause", None),
    ("parenthesized_expression", None), ("assert_statement", None), ("yield", None),
    ("await", None), ("list_splat", None), ("dictionary_splat", None),
))  # fmt: skip
LABELS = {"attribute": "attribute", "keyword_argument": "name"}  # parent's type: field
BUILTINS = frozenset((*dir(builtins), "__file__", "__name__", "__doc__", "__class__", "__path__"))


class Token(NamedTuple):
    """A token of a text; comments and string literals are one token each.

    "{" and "}" of kind "block" stand for the indentation of Python's blocks.
    """

    kind: Kind
    text: str
    row: int


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, class, type, or a variable of a module or class.

    `scope` is the same for all that are defined side by side; `unique`: a second one next to it
    would be a mistake.
    """

    name: str
    inside: frozenset[str]  # names of the definitions around it
    scope: tuple[int, str]
    unique: bool
    documented: bool  # has a docstring
    is_variable: bool  # no function, class or type


@dataclass(frozen=True, slots=True)
class Body:
    """The code of a definition without that of those inside it."""

    code: tuple[str, ...]
    inside: frozenset[str]  # names of the definitions inside it
    around: frozenset[str]  # names of the definitions around it


def tokens(tree: Tree, span: Span) -> list[Token]:
    """Return the tokens of a part of the text, in order."""
    found: list[Token] = []
    todo: list[tuple[Node, Kind] | Token] = [(tree.root, "code")]
    while todo:
        item = todo.pop()
        if isinstance(item, Token):
            found.append(item)
            continue
        node, around = item
        start, stop = tree.span(node)
        if start >= span[1] or stop <= span[0] or start == stop:
            continue
        kind = _kind(node) if around == "code" else around
        if not node.child_count or kind in WHOLE:
            found.append(Token(kind, tree.text_of(node), node.start_point[0]))
            continue
        if node.type == "block" and tree.language == "python":
            found.append(Token("block", "{", node.start_point[0]))
            todo.append(Token("block", "}", node.end_point[0]))
        todo += [(child, kind) for child in reversed(node.children)]
    return found


def definitions(tree: Tree, span: Span, siblings: bool = False) -> list[Definition]:
    """Find what is defined in a part of the text, in order, and with `siblings` next to it."""
    found = []
    for node in _nodes(tree, span, siblings):
        name = name_of(node)
        if name is None or not (siblings or span[0] <= tree.offset(name.start_byte) < span[1]):
            continue
        around = node.parent
        wrapper = around.type if around is not None and around.type in WRAPPERS else ""
        around = around.parent if around is not None and wrapper else around
        receiver = node.child_by_field_name("receiver")
        scope = (around.id if around else 0, tree.text_of(receiver) if receiver else "")
        text = tree.text_of(name)
        unique = node.type in DEFINITIONS and wrapper != "decorated_definition" and text != "_"
        inside = frozenset(_names_around(tree, node))
        value = node.child_by_field_name("value")
        is_function = value is not None and value.type in FUNCTIONS
        is_variable = node.type not in DEFINITIONS and not is_function
        documented = _is_documented(node)
        found.append(Definition(text, inside, scope, unique, documented, is_variable))
    return found


def bodies(tree: Tree, span: Span) -> dict[str, Body]:
    """Return the definitions in a part of the text by name, without those that share a name."""
    code: dict[int, list[str]] = {}
    names: dict[int, str] = {}
    inside: dict[int, set[str]] = {}
    around: dict[int, tuple[int, ...]] = {}
    todo: list[tuple[Node, tuple[int, ...]]] = [(tree.root, ())]
    while todo:
        node, owners = todo.pop()
        start, stop = tree.span(node)
        if start >= span[1] or stop <= span[0] or _kind(node) in ("comment", "docstring"):
            continue
        defined = node
        if node.type in WRAPPERS:  # decorators belong to what they decorate
            defined = next((one for one in node.named_children if name_of(one)), node)
        name = name_of(defined)
        if name is not None and (not owners or owners[-1] != defined.id):
            for owner in owners:
                inside[owner].add(tree.text_of(name))
            around[defined.id] = owners
            names[defined.id], inside[defined.id] = tree.text_of(name), set()
            owners = (*owners, defined.id)
        if not node.child_count and owners:
            code.setdefault(owners[-1], []).append(tree.text_of(node))
        todo += [(child, owners) for child in reversed(node.children)]
    found = {}
    counts = Counter(names.values())
    for key, text in names.items():
        if counts[text] == 1:
            outer = frozenset(names[owner] for owner in around[key])
            found[text] = Body(tuple(code.get(key, ())), frozenset(inside[key]), outer)
    return found


def _names_around(tree: Tree, node: Node) -> Iterator[str]:
    around = node.parent
    while around is not None:
        if (name := name_of(around)) is not None:
            yield tree.text_of(name)
        around = around.parent


def imported_names(tree: Tree, span: Span) -> dict[str, str]:
    """Return the names that the imports in a part of a Python text define -> what they stand for.

    They stand for names such as "typing.Any".
    """
    found: dict[str, str] = {}
    for node in _nodes(tree, span) if tree.language == "python" else ():
        if node.type in IMPORTS and tree.offset(node.start_byte) >= span[0]:
            found |= {name: origin for name, origin, _ in imported_by(tree, node)}
    return found


def imported_by(tree: Tree, node: Node) -> list[tuple[str, str, str]]:
    """Return (name, what it stands for, its text in the import) of each name of a Python import."""
    module = node.child_by_field_name("module_name")
    inside = f"{tree.text_of(module)}." if module else ""
    found = []
    for child in node.children_by_field_name("name"):
        alias = child.child_by_field_name("alias")
        original = child.child_by_field_name("name") or child
        origin = tree.text_of(original)
        if not module and not alias:
            origin = origin.split(".")[0]
        name = tree.text_of(alias) if alias else origin
        found.append((name, inside + origin, tree.text_of(child)))
    return found


def loose_statements(tree: Tree, span: Span) -> list[str]:
    """Find statements of a part of the text that run when the file does.

    These are calls, loops and conditions outside of definitions.
    """
    return [
        tree.text_of(node)
        for node in tree.root.children
        if node.type in LOOSE
        and span[0] <= tree.offset(node.start_byte) < span[1]
        and not any(child.type in ("assignment", "string") for child in node.children)
    ]


def broken_rows(tree: Tree, span: Span) -> list[int]:
    """Return the rows, from 0, of syntax errors in the whole text.

    Errors that the grammar of Python allows count too: blocks without a statement in a part of the
    text, `return` outside of a function.
    """
    rows = [node.start_point[0] for node in tree.error_nodes()]
    if tree.language == "python":
        blocks = (node for node in _nodes(tree, span) if node.type == "block")
        rows += [node.start_point[0] for node in blocks if not node.named_child_count]
        outside = (node for node in tree.root.children if node.type == "return_statement")
        rows += [node.start_point[0] for node in outside]
    return rows


def idle_rows(tree: Tree, span: Span) -> list[int]:
    """Return the rows, from 0, of Python's loops and conditions that do nothing."""
    if tree.language != "python":
        return []
    return [
        node.start_point[0]
        for node in _nodes(tree, span)
        if node.type in ("for_statement", "while_statement", "if_statement")
        and (body := node.child_by_field_name("body") or node.child_by_field_name("consequence"))
        and [child.type for child in body.named_children if child.type != "comment"]
        == ["pass_statement"]
    ]


def variables(tree: Tree, span: Span) -> list[set[str]]:
    """Return the variables of each function in a part of the text, and those outside of functions.

    Those of functions inside a function are not among its own.
    """
    found: dict[int, set[str]] = {}
    for node in _nodes(tree, span):
        if node.type == "identifier" and not _is_label(node):
            around = node.parent
            while around is not None and around.type not in (*DEFINITIONS, *FUNCTIONS):
                around = around.parent
            found.setdefault(around.id if around else 0, set()).add(tree.text_of(node))
    return [*found.values()]


def undefined_names(tree: Tree, span: Span, known: set[str]) -> list[str]:
    """Find names that a part of a Python text reads although nothing defines them.

    They are neither bound in it nor `known`.
    """
    if tree.language != "python":
        return []
    read: dict[str, bool] = {}
    for node in _nodes(tree, span):
        if node.type == "wildcard_import":
            return []
        if node.type == "identifier" and not node.has_error:
            name = tree.text_of(node)
            if name not in known and name not in BUILTINS and not _is_label(node):
                read[name] = read.get(name, True) and _is_read(node)
    return [name for name, only_read in read.items() if only_read]


def _is_label(node: Node) -> bool:
    """Return whether a Python identifier names an attribute or a keyword argument."""
    parent = node.parent
    if parent is None or parent.type not in LABELS:
        return False
    return parent.child_by_field_name(LABELS[parent.type]) == node


def _is_read(node: Node) -> bool:
    """Return whether a Python identifier is certainly read, not bound."""
    parent = node.parent
    if parent is None:
        return False
    if (parent.type, None) in READS:
        return True
    fields = [field for kind, field in READS if kind == parent.type and field]
    return any(parent.child_by_field_name(field) == node for field in fields)


def _nodes(tree: Tree, span: Span, siblings: bool = False) -> Iterator[Node]:
    """Yield the nodes in a part of the text, in order, with `siblings` those next to them."""
    todo = [tree.root]
    while todo:
        node = todo.pop()
        start, stop = tree.span(node)
        inside = start < span[1] and stop > span[0]
        if inside or siblings:
            yield node
        if inside or (siblings and node.type in WRAPPERS):
            todo += reversed(node.children)


def _kind(node: Node) -> Kind:
    """Return the kind of a node that is not inside one of another kind than "code"."""
    if "comment" in node.type and node.is_named:
        return "comment"
    if node.type in IMPORTS:
        return "import"
    if node.type in ("type", "type_annotation"):
        return "annotation"
    is_string = node.type in STRINGS and node.is_named
    if not is_string and node.type not in (":", "->"):
        return "code"
    parent = node.parent  # found from the root: only where it is needed, or depth costs its square
    if parent is not None and (node.type, parent.type) in ANNOTATES:
        return "annotation"
    if not is_string:
        return "code"
    alone = parent is not None and parent.type == "expression_statement" and parent.child_count == 1
    return "docstring" if alone else "string"


def name_of(node: Node) -> Node | None:
    """Return the name of what a node defines; None if it is no definition."""
    if node.type in DEFINITIONS:
        if node.type.endswith("_specifier") and node.child_by_field_name("body") is None:
            return None
        name = node.child_by_field_name("name") or node.child_by_field_name("declarator")
        while name is not None and (inner := name.child_by_field_name("declarator")):
            name = inner
        return name
    if node.type not in ("variable_declarator", "assignment"):
        return None
    parent = node.parent
    if node.type == "variable_declarator" and parent is not None:
        value = node.child_by_field_name("value")
        outside = parent.parent is not None and parent.parent.type in SCOPES
        if outside or (value is not None and value.type in FUNCTIONS):
            return _plain(node.child_by_field_name("name"))
    if node.type == "assignment" and parent is not None and parent.type == "expression_statement":
        block = parent.parent
        owner = block.parent if block is not None and block.type == "block" else None
        in_class = owner is not None and owner.type == "class_definition"
        if block is not None and (block.type == "module" or in_class):
            return _plain(node.child_by_field_name("left"))
    return None


def _plain(name: Node | None) -> Node | None:
    return name if name is not None and name.type == "identifier" else None


def _is_documented(node: Node) -> bool:
    """Return whether a Python definition has a docstring."""
    body = node.child_by_field_name("body")
    first = next(iter(body.named_children), None) if body is not None else None
    return first is not None and any(_kind(each) == "docstring" for each in first.children)
