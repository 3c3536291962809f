"""Names of JavaScript and TypeScript.

Types and values share one table of names here; where that would mix them up, the name is left to
the model. Members of objects and classes are left to it, too: what they belong to is decided by
types, or at run time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.editing.scopes.names import Binding, Place, Scope, Use, Visit, Walker, child

if TYPE_CHECKING:
    from tree_sitter import Node

    from engine.editing.syntax import Tree

NAMED_FUNCTIONS = {
    "function_declaration", "generator_function_declaration", "function_signature",
}  # fmt: skip
FUNCTIONS = {  # nodes with a scope for their parameters
    "function_expression", "generator_function", "arrow_function", "method_definition",
    "method_signature", "abstract_method_signature", "call_signature", "construct_signature",
    "function_type", "constructor_type", "class_static_block",
}  # fmt: skip
CLASSES = {"class_declaration", "abstract_class_declaration", "class"}
BLOCKS = {
    "statement_block", "for_statement", "switch_body", "catch_clause", "conditional_type",
    "index_signature",
}  # fmt: skip
PATTERNS = {"object_pattern", "array_pattern", "rest_pattern", "formal_parameters"}
VALUES = {"variable", "parameter", "function"}  # kinds of names that define no type
SKIPPED = {"jsx_namespace_name", "namespace_export", "tuple_parameter", "optional_tuple_parameter"}
RESERVED = {
    "arguments", "await", "break", "case", "catch", "class", "const", "continue", "debugger",
    "default", "delete", "do", "else", "enum", "eval", "export", "extends", "false",
    "finally", "for", "function", "if", "implements", "import", "in", "instanceof",
    "interface", "let", "new", "null", "package", "private", "protected", "public", "return",
    "static", "super", "switch", "this", "throw", "true", "try", "typeof", "undefined", "var",
    "void", "while", "with", "yield", "any", "boolean", "never", "number", "object", "string",
    "symbol", "unknown", "bigint",
}  # fmt: skip
NAME = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")


class JavaScriptNames(Walker):
    """The names of a JavaScript or TypeScript text."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.properties: list[tuple[str, Place]] = []
        self.as_type: dict[int, bool] = {}  # start -> whether a name is used as a type

    def is_identifier(self, word: str) -> bool:
        return NAME.fullmatch(word) is not None and word not in RESERVED

    def member_uses(self) -> list[tuple[str, Place]]:
        return self.properties

    def visit(self, node: Node, scope: Scope, kind: str) -> list[Visit]:
        children = node.named_children
        match node.type:
            case "identifier" | "type_identifier":
                self._name(node, scope, kind)
                return []
            case "shorthand_property_identifier" | "shorthand_property_identifier_pattern":
                self._name(node, scope, kind, f"{self.tree.text_of(node)}: {{}}")
                return []
            case "property_identifier":
                self.properties.append((self.tree.text_of(node), Place(*self.tree.span(node))))
                return []
            case "import_statement" | "export_statement":
                return self._module(node, scope)
            case "lexical_declaration" | "variable_declaration":
                owner = scope if node.type == "lexical_declaration" else self._hoisted(scope)
                return [
                    visit for each in children for visit in self._declarator(each, scope, owner)
                ]
            case "for_in_statement":
                return self._for_in(node, scope)
            case "required_parameter" | "optional_parameter":
                return self._parameter(node, scope)
            case "assignment_pattern" | "object_assignment_pattern":
                return [(child(node, "left"), scope, kind), (child(node, "right"), scope, "")]
            case "pair_pattern":
                return [(child(node, "key"), scope, ""), (child(node, "value"), scope, kind)]
            case "type_parameter" | "mapped_type_clause":
                rest = [each for each in children if each != node.child_by_field_name("name")]
                return [(child(node, "name"), scope, "type"), *self.all(rest, scope)]
            case "infer_type":
                return [(children[0], scope, "type"), *self.all(children[1:], scope)]
            case "nested_type_identifier" | "nested_identifier":
                return self.all(children[:1], scope)
            case "enum_body":
                return self._enum(node, scope)
            case "with_statement":
                self.unsure = "`with` hides what names refer to"
                return []
            case "jsx_opening_element" | "jsx_closing_element" | "jsx_self_closing_element":
                return self._jsx(node, scope)
            case _ if node.type in SKIPPED:
                return self.fields(node, scope, "type")
            case _ if node.type in PATTERNS:
                return self.all(children, scope, kind)
            case _ if node.type in NAMED_FUNCTIONS | FUNCTIONS:
                return self._function(node, scope)
            case _ if node.type in CLASSES:
                return self._class(node, scope)
            case "interface_declaration" | "type_alias_declaration":
                self.note(child(node, "name"), scope, "type")
                return self._others(node, Scope("block", scope, node=node), "name")
            case "enum_declaration":
                self.note(child(node, "name"), scope, "class")
                return self._others(node, Scope("block", scope, node=node), "name")
            case "internal_module" | "module":
                return self._namespace(node, scope)
            case _ if node.type in BLOCKS:
                inside = Scope("block", scope, node=node)
                return self._block(node, inside)
            case _:
                return self.all(children, scope)

    def _name(self, node: Node, scope: Scope, kind: str, form: str = "{}") -> None:
        if not kind:
            self.as_type[self.tree.span(node)[0]] = node.type == "type_identifier"
        self.note(node, scope, kind, form)

    def _others(self, node: Node, scope: Scope, *left_out: str) -> list[Visit]:
        """Return visits of a node's children without some fields."""
        out = [child for name in left_out for child in node.children_by_field_name(name)]
        return self.all([each for each in node.named_children if each not in out], scope)

    def _hoisted(self, scope: Scope) -> Scope:
        """Return the scope of a `var`: that of the function, namespace or module."""
        return next(each for each in self.chain(scope) if each.kind != "block")

    def _block(self, node: Node, scope: Scope) -> list[Visit]:
        """Return visits inside a scope that a node has made."""
        kinds = {
            "catch_clause": ("parameter", "variable"),
            "index_signature": ("name", "parameter"),
        }
        field, kind = kinds.get(node.type, ("", ""))
        bound = node.child_by_field_name(field) if field else None
        return [(each, scope, kind if each == bound else "") for each in node.named_children]

    def _function(self, node: Node, scope: Scope) -> list[Visit]:
        inside = Scope("function", scope, node=node)
        visits: list[Visit] = []
        if name := node.child_by_field_name("name"):
            if node.type in NAMED_FUNCTIONS:
                self.note(name, scope, "function")
            elif name.type == "identifier":  # only a function expression sees its name
                inside = Scope("function", Scope("block", scope, node=node), node=node)
                self.note(name, inside.parent or scope, "function")
            else:
                visits.append((name, scope, ""))
        for index, each in enumerate(node.named_children):
            field = node.field_name_for_named_child(index)
            if field in {"parameters", "parameter"}:
                visits.append((each, inside, "parameter"))
            elif each.type == "statement_block":
                visits += self.all(each.named_children, inside)
            elif field != "name":
                visits.append((each, inside, ""))
        return visits

    def _class(self, node: Node, scope: Scope) -> list[Visit]:
        inside = Scope("block", scope, node=node)
        if name := node.child_by_field_name("name"):
            self.note(name, inside if node.type == "class" else scope, "class")
        return self._others(node, inside, "name")

    def _declarator(self, node: Node, scope: Scope, owner: Scope) -> list[Visit]:
        if node.type != "variable_declarator":
            return [(node, scope, "")]
        return [(child(node, "name"), owner, "variable"), *self._others(node, scope, "name")]

    def _for_in(self, node: Node, scope: Scope) -> list[Visit]:
        inside = Scope("block", scope, node=node)
        declared = node.child_by_field_name("kind")
        left = (child(node, "left"), inside, "variable" if declared else "")
        if declared and declared.type == "var":
            left = (left[0], self._hoisted(scope), "variable")
        return [left, *self._others(node, inside, "left", "kind")]

    def _parameter(self, node: Node, scope: Scope) -> list[Visit]:
        if node.child_by_field_name("name"):  # the name of a tuple's member is only for the reader
            return self._others(node, scope, "name")
        modifiers = {"accessibility_modifier", "readonly", "override_modifier"}
        is_member = any(each.type in modifiers for each in node.children)
        kind = "parameter property" if is_member else "parameter"
        return [(child(node, "pattern"), scope, kind), *self._others(node, scope, "pattern")]

    def _enum(self, node: Node, scope: Scope) -> list[Visit]:
        visits: list[Visit] = []
        for each in node.named_children:
            name = each.child_by_field_name("name") or each
            if name.type == "property_identifier":
                self.note(name, scope, "member")
                visits += self.fields(each, scope, "value")
            else:
                visits.append((each, scope, ""))
        return visits

    def _namespace(self, node: Node, scope: Scope) -> list[Visit]:
        name = child(node, "name")
        if name.type == "identifier":
            self.note(name, scope, "class")
        inside = Scope("namespace", scope, node=node)
        body = node.child_by_field_name("body")
        return self.all(body.named_children if body else [], inside)

    def _jsx(self, node: Node, scope: Scope) -> list[Visit]:
        name = node.child_by_field_name("name")
        if name is None or (name.type == "identifier" and self.tree.text_of(name)[0].islower()):
            return self._others(node, scope, "name")  # <div>, or <>
        return self.all(node.named_children, scope)

    def _module(self, node: Node, scope: Scope) -> list[Visit]:
        if node.type == "export_statement":
            if node.child_by_field_name("source"):
                return []
            visits: list[Visit] = []
            for each in node.named_children:
                if each.type == "export_clause":
                    for specifier in each.named_children:
                        if specifier.type == "export_specifier":
                            self.note(child(specifier, "name"), scope)
                elif each.type != "namespace_export":
                    visits.append((each, scope, ""))
            return visits
        todo = list(node.named_children)
        while todo:
            each = todo.pop()
            if each.type == "import_specifier":
                alias = each.child_by_field_name("alias")
                if alias:
                    self.note(alias, scope, "alias")
                elif child(each, "name").type == "identifier":
                    self.note(child(each, "name"), scope, "import")
            elif each.type == "identifier":
                self.note(each, scope, "alias")
            elif each.type in {
                "import_clause", "named_imports", "namespace_import", "import_require_clause",
            }:  # fmt: skip
                todo += each.named_children
        return []

    # -- certainty -----------------------------------------------------------------------------

    def resolve(self) -> None:
        self.uses.sort(key=lambda use: use.place.start)
        super().resolve()

    def read(self) -> None:
        super().read()
        doubtful: dict[str, str] = {}
        free = {use.name for use, binding in self.resolved if binding is None}
        if "eval" in free:
            self.unsure = "`eval` may use names by their text"
        for use, binding in self.resolved:
            if binding and self._mixes(use, binding):
                doubtful[use.name] = f"`{use.name}` is both a type and a value"
        for binding in self.bindings():
            name, kinds = binding.name, binding.kinds
            if name in doubtful:
                binding.unsure = doubtful[name]
            elif "import" in kinds:
                binding.unsure = f"`{name}` is the name of something in another module"
            elif kinds & {"member", "parameter property"}:
                binding.unsure = f"`{name}` is a member"
            elif binding.scope.kind == "namespace":
                binding.unsure = f"`{name}` is a member of a namespace"
            elif binding.scope.kind == "block" and "function" in kinds and name in free:
                binding.unsure = f"`{name}` may be visible outside its block"

    def _mixes(self, use: Use, binding: Binding) -> bool:
        """Return whether a use as a type refers to a value, or the reverse."""
        as_type = self.as_type.get(use.place.start)
        if as_type is None:
            return False
        return binding.kinds <= VALUES if as_type else binding.kinds == {"type"}
