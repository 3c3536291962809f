"""Names of C, C++, Go, Java, Rust and bash, by the functions and classes around them.

A function is one scope, whatever its blocks declare. That is enough to find what a name most
probably refers to, not to rename it for certain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.editing.scopes.names import Binding, Place, Scope, Visit, Walker

if TYPE_CHECKING:
    from tree_sitter import Node

    from engine.editing.syntax import Tree

# The ends of the types of nodes that define what they name.
DEFINING = (
    "declaration", "definition", "item", "spec", "parameter", "declarator", "signature", "elem",
    "for_expression", "range_clause", "for_range_loop", "enhanced_for_statement", "let_condition",
    "match_arm", "enum_variant", "enumerator", "enum_constant", "resource", "_assignment", "_def",
)  # fmt: skip
DEFINED = ("name", "declarator", "pattern", "left")  # fields of what they name
HOLDERS = (  # the ends of the types of nodes that stand for the names in them
    "pattern", "declarator", "expression_list", "closure_parameters", "inferred_parameters",
    "command_name", "shorthand_field_initializer",
)  # fmt: skip
NOT_DEFINED = ("type", "condition", "value", "size")  # fields of holders
READS = {"command_name": "called", "shorthand_field_initializer": "short"}
FUNCTIONS = frozenset((
    "function_definition", "function_declaration", "method_declaration", "func_literal",
    "function_item", "closure_expression", "constructor_declaration", "lambda_expression",
))  # fmt: skip
CLASSES = frozenset((
    "class_specifier", "struct_specifier", "union_specifier", "class_declaration",
    "interface_declaration", "enum_declaration", "record_declaration", "impl_item", "trait_item",
    "struct_item", "enum_item", "struct_type", "interface_type",
))  # fmt: skip
SEES_MEMBERS = {"cpp", "java"}  # languages whose methods name members without an object
ACCESS = {".", "->", "::"}


class OutlineNames(Walker):
    """The names of a text whose scopes are its functions and classes."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.members: list[tuple[str, Place]] = []

    def is_identifier(self, word: str) -> bool:
        return word.isidentifier()

    def member_uses(self) -> list[tuple[str, Place]]:
        return self.members

    def find(self, name: str, scope: Scope) -> Binding | None:
        for each in self.chain(scope if name in self.bound else None):
            is_seen = each.kind != "class" or each is scope or self.tree.language in SEES_MEMBERS
            if is_seen and name in each.bindings:
                return each.bindings[name]
        return None

    def visit(self, node: Node, scope: Scope, kind: str) -> list[Visit]:
        if not node.named_child_count:
            self._leaf(node, scope, kind)
            return []
        is_function, is_class = node.type in FUNCTIONS, node.type in CLASSES
        if is_function or is_class:
            scope = Scope("function" if is_function else "class", scope, node=node)
            kind = "own"
        elif node.type.endswith(DEFINING) and not (kind and node.type.endswith("declarator")):
            kind = "variable"
        kind = READS.get(node.type, kind)
        named = {one.id for field in DEFINED for one in node.children_by_field_name(field)}
        if node.type.endswith(HOLDERS):
            left_out = {
                each for field in NOT_DEFINED for each in node.children_by_field_name(field)
            }
            named |= {one.id for one in node.named_children if one not in left_out}
        parameters = node.child_by_field_name("parameters")
        visits: list[Visit] = []
        before = ""
        for each in node.children:
            if each.is_named:
                if before in ACCESS:
                    visits.append((each, scope, "member"))
                elif each == parameters:
                    visits.append((each, self._of_parameters(node, scope, kind), "parameter"))
                elif each.id in named:
                    visits.append((each, scope, kind))
                else:
                    visits.append((each, scope, ""))
            before = each.type
        return visits

    def _of_parameters(self, node: Node, scope: Scope, kind: str) -> Scope:
        """Return the scope of parameters: that of the function, or none else for a prototype."""
        return scope if kind == "own" else Scope("function", scope, node=node)

    def _leaf(self, node: Node, scope: Scope, kind: str) -> None:
        """Note a name. That of a function or class belongs to what is around it."""
        is_word = node.type == "word" and kind  # of bash
        if not is_word and not node.type.endswith(("identifier", "variable_name")):
            return
        owner = scope.parent if kind == "own" and scope.parent else scope
        is_field = node.type == "field_identifier" and not (kind and owner.kind == "class")
        if kind == "member" or is_field:
            self.members.append((self.tree.text_of(node), Place(*self.tree.span(node))))
            return
        is_short = kind == "short" or node.type == "shorthand_field_identifier"
        form = f"{self.tree.text_of(node)}: {{}}" if is_short else "{}"
        self.note(node, owner, "" if kind in READS.values() else kind, form)


def is_defined_at(tree: Tree, at: int) -> bool:
    """Return whether a code point is in a name that a definition or an assignment defines."""
    byte = tree.byte(at)
    node = tree.root.descendant_for_byte_range(byte, byte + 1)
    parent = node.parent if node else None
    if node is None or parent is None:
        return False
    around = parent.parent
    if around and "assignment" in around.type and around.child_by_field_name("left") == parent:
        return True
    return any(node in parent.children_by_field_name(each) for each in (*DEFINED, "property")) and (
        parent.type.endswith((*DEFINING, "assignment"))
    )
