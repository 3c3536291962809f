"""Names of Rust.

Each `let` begins a scope for what follows it. Fields, methods and what is named by a path are left
to the model, and so are names inside macros, except those that only format or check values.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.editing.scopes.names import Binding, Place, Scope, Unsure, Use, Visit, Walker, child

if TYPE_CHECKING:
    from tree_sitter import Node

    from engine.editing.syntax import Tree

ITEMS = {  # node -> what it defines
    "function_item": "function", "function_signature_item": "function", "struct_item": "class",
    "enum_item": "class", "union_item": "class", "trait_item": "class", "type_item": "class",
    "const_item": "constant", "static_item": "constant", "mod_item": "module",
}  # fmt: skip
ITEM_KINDS = {*ITEMS.values(), "alias"}
LOCAL_KINDS = {"variable", "parameter"}
FORMAT_MACROS = {
    "print", "println", "eprint", "eprintln", "format", "format_args", "write", "writeln", "panic",
    "assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne",
    "todo", "unreachable", "unimplemented", "trace", "debug", "info", "warn", "error",
}  # fmt: skip
PLAIN_MACROS = {"vec", "dbg"}
PATTERNS = {
    "tuple_pattern", "slice_pattern", "or_pattern", "ref_pattern", "mut_pattern",
    "reference_pattern", "parenthesized_pattern", "closure_parameters",
}  # fmt: skip
KEYWORDS = {
    "as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum", "extern",
    "false", "fn", "for", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub",
    "ref", "return", "self", "Self", "static", "struct", "super", "trait", "true", "type", "unsafe",
    "use", "where", "while", "abstract", "become", "box", "do", "final", "gen", "macro", "override",
    "priv", "try", "typeof", "unsized", "virtual", "yield", "_",
}  # fmt: skip
CAPTURE = re.compile(r"(?<!\{)(?:\{\{)*(?<!\\u)\{([^\W\d]\w*)(?=[:}])")


class RustNames(Walker):
    """The names of a Rust text."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.properties: list[tuple[str, Place]] = []
        self.doubtful: dict[str, str] = {}
        self.types: set[int] = set()  # where names are used as types

    def is_identifier(self, word: str) -> bool:
        return re.fullmatch(r"[^\W\d]\w*", word) is not None and word not in KEYWORDS

    def member_uses(self) -> list[tuple[str, Place]]:
        return self.properties

    def visit(self, node: Node, scope: Scope, kind: str) -> list[Visit]:
        children = node.named_children
        match node.type:
            case "identifier":
                return self._identifier(node, scope, kind)
            case "type_identifier":
                self.types.add(self.tree.span(node)[0])
                self.note(node, scope, kind if kind == "type" else "")
                return []
            case "field_identifier":
                self._member(node)
                return []
            case "shorthand_field_initializer":
                name = children[-1]
                self.note(name, scope, "", f"{self.tree.text_of(name)}: {{}}")
                return []
            case "scoped_identifier" | "scoped_type_identifier":
                return self._path(node, scope)
            case "lifetime" | "label" | "attribute_item" | "inner_attribute_item":
                return self._unread(node, "an attribute")
            case "macro_definition":
                return self._unread(node, "a macro")
            case "macro_invocation":
                return self._macro(node, scope)
            case "use_declaration":
                return self._use(node, scope)
            case "block":
                return self._block(children, Scope("block", scope, node=node))
            case "source_file":
                return self._block(children, scope)
            case "impl_item":
                return self._impl(node, scope)
            case "enum_variant":
                self._member(child(node, "name"))
                return self.fields(node, scope, "body", "value")
            case "let_declaration" | "let_condition":
                raise Unsure("`let` in this place is not understood")
            case "if_expression" | "while_expression":
                return self._condition(node, scope)
            case "match_arm":
                return self._arm(node, scope)
            case "for_expression":
                inside = Scope("block", scope, node=node)
                visits = self.fields(node, scope, "value")
                visits.append((child(node, "pattern"), inside, "variable"))
                return visits + self.fields(node, inside, "body")
            case "closure_expression":
                inside = Scope("function", scope, node=node)
                parameters: Visit = (child(node, "parameters"), inside, "parameter")
                return [parameters, *self.fields(node, inside, "return_type", "body")]
            case "parameter":
                pattern: Visit = (child(node, "pattern"), scope, "parameter")
                return [pattern, *self.fields(node, scope, "type")]
            case "type_parameter" | "const_parameter":
                named = "type" if node.type == "type_parameter" else "parameter"
                self.note(child(node, "name"), scope, named)
                return self.fields(node, scope, "bounds", "type", "default_type", "value")
            case "tuple_struct_pattern" | "struct_pattern":
                kinds = child(node, "type")
                rest = self.all([each for each in children if each != kinds], scope, kind)
                return [(kinds, scope, ""), *rest]
            case "field_pattern":
                return self._field_pattern(node, scope, kind)
            case "captured_pattern":
                return self.all(children, scope, kind)
            case _ if node.type in ITEMS:
                return self._item(node, scope)
            case _ if node.type in PATTERNS:
                return self.all(children, scope, kind)
            case _:
                return self.all(children, scope)

    # -- reading -------------------------------------------------------------------------------

    def _identifier(self, node: Node, scope: Scope, kind: str) -> list[Visit]:
        name = self.tree.text_of(node)
        if kind in LOCAL_KINDS and not (name[0].islower() or name[0] == "_"):
            kind = ""  # a constant or a variant in a pattern
        self.note(node, scope, kind)
        return []

    def _member(self, node: Node) -> None:
        self.properties.append((self.tree.text_of(node), Place(*self.tree.span(node))))

    def _doubt(self, text: str, why: str) -> None:
        for name in set(re.findall(r"[^\W\d]\w*", text)):
            self.doubtful.setdefault(name, f"{why} may use `{name}`")

    def _unread(self, node: Node, why: str) -> list[Visit]:
        if node.type not in {"lifetime", "label"}:
            self._doubt(self.tree.text_of(node), why)
        return []

    def _path(self, node: Node, scope: Scope) -> list[Visit]:
        """`a::b::<T>`: no part of it is a local name."""
        visits: list[Visit] = []
        todo = [node]
        while todo:
            each = todo.pop()
            if each.type in {"identifier", "type_identifier"}:
                self.doubtful.setdefault(
                    f"::{self.tree.text_of(each)}", f"a path names `{self.tree.text_of(each)}`"
                )
            elif each.type in {"type_arguments", "bracketed_type"}:
                visits.append((each, scope, ""))
            else:
                todo += each.named_children
        return visits

    def _use(self, node: Node, scope: Scope) -> list[Visit]:
        todo = list(node.named_children)
        while todo:
            each = todo.pop()
            if each.type == "use_as_clause":
                alias = child(each, "alias")
                if self.tree.text_of(alias) != "_":
                    self.note(alias, scope, "alias")
                todo.append(child(each, "path"))
            elif each.type in {"identifier", "type_identifier"}:
                name = self.tree.text_of(each)
                self.doubtful.setdefault(f"::{name}", f"a path names `{name}`")
            else:
                todo += each.named_children
        return []

    def _block(self, children: list[Node], scope: Scope) -> list[Visit]:
        """Visits of statements; each `let` begins a scope for those after it."""
        visits: list[Visit] = []
        for each in children:
            if each.type == "let_declaration":
                visits += self.fields(each, scope, "type", "value", "alternative")
                scope = Scope("block", scope, node=scope.node)
                visits.append((child(each, "pattern"), scope, "variable"))
            else:
                visits.append((each, scope, ""))
        return visits

    def _item(self, node: Node, scope: Scope) -> list[Visit]:
        name = child(node, "name")
        owner = next(  # the block itself, before any `let`
            each
            for each in self.chain(scope)
            if each.kind != "block" or not each.parent or each.parent.node != each.node
        )
        if scope.kind == "impl":
            self._member(name)
        else:
            self.note(name, owner, ITEMS[node.type])
        if node.type == "mod_item":
            inside = Scope("mod", None, node=node)
            return [
                visit
                for body in node.children_by_field_name("body")
                for visit in self._block(body.named_children, inside)
            ]
        inside = Scope("impl" if node.type == "trait_item" else "item", owner, node=node)
        return self.all([each for each in node.named_children if each != name], inside)

    def _impl(self, node: Node, scope: Scope) -> list[Visit]:
        return self.all(node.named_children, Scope("impl", scope, node=node))

    def _condition(self, node: Node, scope: Scope) -> list[Visit]:
        visits, inside = self._chain(child(node, "condition"), scope, node)
        visits += self.fields(node, inside, "consequence", "body")
        return visits + self.fields(node, scope, "alternative")

    def _chain(self, node: Node, scope: Scope, around: Node) -> tuple[list[Visit], Scope]:
        """Visits of a condition that may have `let`, and the scope of what follows it."""
        if node.type == "let_condition":
            visits = self.fields(node, scope, "value")
            inside = Scope("block", scope, node=around)
            return [*visits, (child(node, "pattern"), inside, "variable")], inside
        is_and = any(each.type == "&&" for each in node.children)
        if node.type == "let_chain" or (node.type == "binary_expression" and is_and):
            visits = []
            for each in node.named_children:
                more, scope = self._chain(each, scope, around)
                visits += more
            return visits, scope
        return [(node, scope, "")], scope

    def _arm(self, node: Node, scope: Scope) -> list[Visit]:
        inside = Scope("block", scope, node=node)
        pattern = child(node, "pattern")
        guard = pattern.child_by_field_name("condition")
        visits = self.all([e for e in pattern.named_children if e != guard], inside, "variable")
        if guard:
            more, inside = self._chain(guard, inside, node)
            visits += more
        return visits + self.fields(node, inside, "value")

    def _field_pattern(self, node: Node, scope: Scope, kind: str) -> list[Visit]:
        name = child(node, "name")
        if name.type != "shorthand_field_identifier":
            self._member(name)
            return [(each, scope, kind) for each in node.children_by_field_name("pattern")]
        start, stop = self.tree.span(node)
        text = self.tree.text_of(name)
        before = self.tree.text[start : self.tree.span(name)[0]]  # "ref mut "
        place = Place(start, stop, f"{text}: {before}{{}}")
        self.uses.append(Use(place, text, scope, kind))
        return []

    # -- macros --------------------------------------------------------------------------------

    def _macro(self, node: Node, scope: Scope) -> list[Visit]:
        name = self.tree.text_of(child(node, "macro"))
        (tokens,) = [each for each in node.named_children if each.type == "token_tree"]
        text = self.tree.text_of(tokens)
        leaves = self._leaves(tokens)
        texts = [self.tree.text_of(leaf) for leaf in leaves]
        odd = {"|", "||", "=>", "let", "!", "{", "move", "if", "match", "#"}
        if name not in FORMAT_MACROS | PLAIN_MACROS or odd & set(texts):
            self._doubt(text, f"the macro `{name}!`")
            return []
        named: set[str] = set()
        for index, leaf in enumerate(leaves):
            before, after = texts[index - 1], texts[index + 1] if index + 1 < len(texts) else ""
            if leaf.type == "identifier" and after == "=":
                named.add(texts[index])
            elif leaf.type == "identifier" and "::" in {before, after}:
                self.doubtful.setdefault(f"::{texts[index]}", f"a path names `{texts[index]}`")
            elif leaf.type == "identifier" and before == ".":
                self._member(leaf)
            elif leaf.type == "identifier" and before not in {"'", "<"} and after not in {":", "<"}:
                self.note(leaf, scope)
            elif leaf.type == "identifier":
                self._doubt(texts[index], f"the macro `{name}!`")
        if name in FORMAT_MACROS:
            for leaf in leaves:
                if leaf.type == "string_content":
                    self._captures(leaf, scope, named)
        return []

    def _leaves(self, node: Node) -> list[Node]:
        leaves: list[Node] = []
        todo = [node]
        while todo:
            each = todo.pop()
            if each.child_count and each.type not in {"char_literal", "lifetime"}:
                todo += reversed(each.children)
            else:
                leaves.append(each)
        return leaves

    def _captures(self, node: Node, scope: Scope, named: set[str]) -> None:
        """The names in a format string, as `{name:?}`."""
        start, stop = self.tree.span(node)
        text = self.tree.text[start:stop]
        for width in re.findall(r"(\w+)\$", text):
            self._doubt(width, "a format string")
        for found in CAPTURE.finditer(text):
            if found[1] not in named:
                place = Place(start + found.start(1), start + found.end(1))
                self.uses.append(Use(place, found[1], scope, ""))

    # -- resolving -----------------------------------------------------------------------------

    def resolve(self) -> None:
        self.uses.sort(key=lambda use: use.place.start)
        super().resolve()

    def find(self, name: str, scope: Scope) -> Binding | None:
        items_only = False
        for each in self.chain(scope if name in self.bound else None):
            found = each.bindings.get(name)
            if found and (not items_only or found.kinds & ITEM_KINDS):
                return found
            items_only |= each.kind == "item" and (not each.parent or each.parent.kind != "impl")
        return None

    def read(self) -> None:
        super().read()
        free = {use.name for use, binding in self.resolved if binding is None}
        no_mangle = "no_mangle" in self.tree.text
        constants = {each.name for each in self.bindings() if "constant" in each.kinds}
        for use, binding in self.resolved:
            if binding and use.place.start in self.types and binding.kinds & LOCAL_KINDS:
                self.doubtful[use.name] = f"`{use.name}` is both a type and a value"
        for binding in self.bindings():
            name, is_item = binding.name, bool(binding.kinds & ITEM_KINDS)
            if name in self.doubtful:
                binding.unsure = self.doubtful[name]
            elif is_item and f"::{name}" in self.doubtful:
                binding.unsure = self.doubtful[f"::{name}"]
            elif is_item and (name in free or binding.scope.kind == "mod"):
                binding.unsure = f"`{name}` may be used in another module"
            elif is_item and (name == "main" or no_mangle):
                binding.unsure = f"`{name}` may be used by its text"
            elif is_item and binding.kinds & LOCAL_KINDS:
                binding.unsure = f"`{name}` may be a constant in a pattern"
            elif "module" in binding.kinds:
                binding.unsure = f"`{name}` is a module"
            elif name in constants and self._is_in_pattern(binding):
                binding.unsure = f"`{name}` may be a constant in a pattern"

    def _is_in_pattern(self, binding: Binding) -> bool:
        """Whether a constant of the same name would take the place of a local's definition."""
        if binding.kinds & ITEM_KINDS:
            return False
        around = (each.bindings.get(binding.name) for each in self.chain(binding.scope.parent))
        return any(found and "constant" in found.kinds for found in around)
