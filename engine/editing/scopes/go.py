"""Names of Go. Fields and methods are left to the model: types decide what they belong to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.editing.scopes.names import OrderedWalker, Place, Scope, Use, Visit

if TYPE_CHECKING:
    from tree_sitter import Node

    from engine.editing.syntax import Tree

FUNCTIONS = {
    "function_declaration", "method_declaration", "func_literal", "function_type", "method_elem",
}  # fmt: skip
BLOCKS = {
    "block", "if_statement", "for_statement", "expression_switch_statement",
    "type_switch_statement", "expression_case", "type_case", "default_case", "communication_case",
}  # fmt: skip
SEQUENCES = {"slice_type", "array_type", "implicit_length_array_type", "map_type"}
KEYWORDS = {
    "break", "case", "chan", "const", "continue", "default", "defer", "else", "fallthrough", "for",
    "func", "go", "goto", "if", "import", "interface", "map", "package", "range", "return",
    "select", "struct", "switch", "type", "var", "nil", "true", "false", "iota", "_",
}  # fmt: skip
DIRECTIVE = re.compile(r"^//(?:go:|export )(.*)$", re.M)


class GoNames(OrderedWalker):
    """The names of a Go text."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.properties: list[tuple[str, Place]] = []
        self.structs: set[str] = set()  # types of this file that are structs
        self.keys: list[tuple[Use, str]] = []  # of literals, with the type
        self.doubtful: dict[str, str] = {}

    def is_identifier(self, word: str) -> bool:
        return re.fullmatch(r"[^\W\d]\w*", word) is not None and word not in KEYWORDS

    def member_uses(self) -> list[tuple[str, Place]]:
        return self.properties

    def visit(self, node: Node, scope: Scope, kind: str) -> list[Visit]:
        children = node.named_children
        match node.type:
            case "identifier" | "type_identifier" | "package_identifier":
                if self.tree.text_of(node) != "_":
                    self.note(node, scope, kind)
                return []
            case "field_identifier":
                self.properties.append((self.tree.text_of(node), Place(*self.tree.span(node))))
                return []
            case "package_clause" | "label_name":
                return []
            case "qualified_type":
                return self.all(children[:1], scope)
            case "import_spec":
                name = node.child_by_field_name("name")
                named = name is not None and name.type == "package_identifier"
                return [(name, scope, "alias")] if named and name else []
            case "var_spec" | "const_spec":
                names = [(each, scope, "variable") for each in node.children_by_field_name("name")]
                return self.fields(node, scope, "type", "value") + names
            case "short_var_declaration" | "range_clause" | "receive_statement":
                return self._assignment(node, scope)
            case "expression_list" | "literal_element":
                return self.all(children, scope, kind)
            case "type_spec" | "type_alias":
                return self._type(node, scope)
            case "type_switch_statement":
                inside = Scope("block", scope, node=node)
                alias = [
                    (each, inside, "variable") for each in node.children_by_field_name("alias")
                ]
                rest = [
                    each for each in children if each not in node.children_by_field_name("alias")
                ]
                first = self.fields(node, inside, "initializer", "value")
                done = {visit[0].id for visit in first}
                return first + alias + self.all([e for e in rest if e.id not in done], inside)
            case "field_declaration":
                return self._field(node, scope)
            case "keyed_element":
                return self._keyed(node, scope)
            case _ if node.type in FUNCTIONS:
                return self._function(node, scope)
            case _ if node.type in BLOCKS:
                return self.all(children, Scope("block", scope, node=node))
            case _:
                return self.all(children, scope)

    def _assignment(self, node: Node, scope: Scope) -> list[Visit]:
        """`a, b := c`, which defines what the scope does not have; or `a, b = c`."""
        defines = any(each.type == ":=" for each in node.children)
        left = node.children_by_field_name("left")
        kind = "variable" if defines else ""
        return self.fields(node, scope, "right") + [(each, scope, kind) for each in left]

    def _type(self, node: Node, scope: Scope) -> list[Visit]:
        name = node.children_by_field_name("name")[0]
        self.note(name, scope, "type")
        kind = node.child_by_field_name("type")
        if kind and kind.type == "struct_type" and scope is self.top:
            self.structs.add(self.tree.text_of(name))
        inside = Scope("block", scope, node=node)
        return self._type_parameters(node, inside) + self.fields(node, inside, "type")

    def _type_parameters(self, node: Node, scope: Scope) -> list[Visit]:
        visits: list[Visit] = []
        for each in node.children_by_field_name("type_parameters"):
            for declaration in each.named_children:
                for name in declaration.children_by_field_name("name"):
                    self.note(name, scope, "type")
                visits += self.fields(declaration, scope, "type")
        return visits

    def _function(self, node: Node, scope: Scope) -> list[Visit]:
        """The types of a function's parameters do not see their names."""
        name = node.child_by_field_name("name")
        visits: list[Visit] = []
        if name and node.type == "function_declaration":
            if self.tree.text_of(name) != "_":
                self.note(name, scope, "function")
        elif name:
            visits.append((name, scope, ""))
        inside = Scope("function", scope, node=node)
        visits += self._type_parameters(node, inside)
        names: list[Visit] = []
        for field in ("receiver", "parameters", "result"):
            for part in node.children_by_field_name(field):
                if part.type != "parameter_list":
                    visits.append((part, inside, ""))
                    continue
                for each in part.named_children:
                    if field == "receiver":
                        self._receiver(each, inside)
                    visits += self.fields(each, inside, "type")
                    names += [
                        (found, inside, "parameter")
                        for found in each.children_by_field_name("name")
                    ]
        for body in node.children_by_field_name("body"):
            names += self.all(body.named_children, inside)
        return visits + names

    def _receiver(self, node: Node, scope: Scope) -> None:
        """The type parameters that the receiver of a generic type names."""
        todo = node.children_by_field_name("type")
        while todo:
            each = todo.pop()
            if each.type == "type_arguments":
                for name in re.findall(r"\w+", self.tree.text_of(each)):
                    self.doubtful[name] = f"`{name}` is a type parameter of a method's receiver"
            todo += each.named_children

    def _field(self, node: Node, scope: Scope) -> list[Visit]:
        names = node.children_by_field_name("name")
        if not names:  # an embedded type, whose name is also that of the field
            for word in re.findall(r"\w+", self.tree.text_of(node)):
                self.doubtful[word] = f"`{word}` is embedded, so it is also a field"
        return self.all([*names, *node.children_by_field_name("type")], scope)

    def _keyed(self, node: Node, scope: Scope) -> list[Visit]:
        """`key: value` in a literal, where the key of a struct is a field."""
        key = node.named_children[0]
        name = key.named_children[0] if key.named_children else key
        if name.type != "identifier":
            return self.all(node.named_children, scope)
        kind = self._literal_type(node.parent)
        if kind and kind.type in SEQUENCES:
            return self.all(node.named_children, scope)
        use = Use(Place(*self.tree.span(name)), self.tree.text_of(name), scope, "")
        self.keys.append((use, self.tree.text_of(kind) if kind else ""))
        return self.all(node.named_children[1:], scope)

    def _literal_type(self, node: Node | None) -> Node | None:
        """The type of a literal's value `{...}`, given in it or by the literal around it."""
        depth = 0
        while node and node.parent and node.parent.type != "composite_literal":
            depth += node.type == "literal_value"
            node = node.parent
        kind = node.parent.child_by_field_name("type") if node and node.parent else None
        while depth and kind and kind.type in SEQUENCES:
            kind = kind.child_by_field_name("value") or kind.child_by_field_name("element")
            depth -= 1
        while kind and kind.type in {"pointer_type", "generic_type"}:
            kind = kind.named_children[0]
        return None if depth else kind

    def resolve(self) -> None:
        for use, kind in self.keys:
            if kind in self.structs:
                self.properties.append((use.name, use.place))
            else:
                self.doubtful[use.name] = f"`{use.name}` may be a field or a key of a map"
        super().resolve()

    def read(self) -> None:
        super().read()
        directives = {*re.findall(r"\w+", " ".join(DIRECTIVE.findall(self.tree.text)))}
        for binding in self.bindings():
            if binding.name in self.doubtful:
                binding.unsure = self.doubtful[binding.name]
            elif binding.scope is self.top and binding.name in {"main", "init"}:
                binding.unsure = f"`{binding.name}` has a special meaning"
            elif binding.name in directives:
                binding.unsure = f"a directive may name `{binding.name}`"
