"""Names of Python, after the language reference's "Naming and binding"."""

from __future__ import annotations

import builtins
import keyword
import re
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING
from unicodedata import normalize

from engine.editing.scopes.names import Binding, Place, Scope, Use, Visit, Walker, child, fields

if TYPE_CHECKING:
    from tree_sitter import Node

    from engine.editing.syntax import Tree

COMPREHENSIONS = {
    "list_comprehension",
    "set_comprehension",
    "dictionary_comprehension",
    "generator_expression",
}
TARGETS = {  # nodes whose names a statement binds as it binds the whole
    "pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern", "as_pattern_target",
    "tuple", "list", "list_splat", "parenthesized_expression", "expression_list",
    "dictionary_splat_pattern", "case_pattern", "union_pattern", "dict_pattern", "splat_pattern",
}  # fmt: skip
DYNAMIC = {"globals", "locals", "vars", "eval", "exec", "dir"}  # they find names by their text
ANNOTATIONS = {"type", "subscript", "generic_type", "type_parameter", "tuple"}
NOT_NAMES = re.compile(r"\s*(?:\w+\.)*(?:Literal|Annotated)\b")  # types whose strings are values
STRING_ANNOTATION = re.compile(r"[\w\s.\[\],|]*")
NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class KeywordCall:
    """A call, with the keyword arguments that it gives a name to."""

    node: Node
    callee: Node
    scope: Scope
    keywords: dict[str, Place]
    splat: bool  # has **


@dataclass(frozen=True, slots=True)
class Member:
    """A use of a member: `object.name`, or a name in a pattern that is an attribute."""

    place: Place
    name: str
    receiver: Node | None
    scope: Scope
    node: Node


class PythonNames(Walker):
    """The names of a Python text."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.calls: list[KeywordCall] = []
        self.members: list[Member] = []
        self.strings: set[str] = set()  # strings that look like a name
        self.functions: dict[Scope, Node] = {}
        self.classes: dict[int, Scope] = {}  # start of the class's name -> its scope
        self.at: dict[int, tuple[Use, Binding | None]] = {}  # start -> use
        self.exported: set[int] = set()  # offsets where the names in `__all__` end
        self.dynamic: list[tuple[str, Scope]] = []  # what looks names up by their text, and where
        self.unclear: set[str] = set()  # words of annotations in quotes that are not understood
        self.quoted: set[int] = set()  # offsets of the names in such annotations
        self.assigned: dict[int, list[Scope]] = {}  # start of a `:=` name -> comprehensions around
        self.augmented: set[int] = set()  # starts of what `+=` and its like change
        self.read_in_class: set[str] = set()  # members of a class that its body itself reads
        self.has_star_import = False

    def read(self) -> None:
        super().read()
        self.at = {use.place.start: (use, binding) for use, binding in self.resolved}
        called = {self.tree.span(call.callee)[0]: call for call in self.calls}
        for use, binding in self.resolved:
            if binding is None and use.name in DYNAMIC:
                call = called.get(use.place.start)
                arguments = call and child(call.node, "arguments").named_child_count
                if not (arguments and use.name in {"vars", "dir"}):
                    self.dynamic.append((use.name, use.scope))
        for binding in self.bindings():
            self._doubt(binding)

    def is_identifier(self, word: str) -> bool:
        return word.isidentifier() and not keyword.iskeyword(word)

    # -- reading -------------------------------------------------------------------------------

    def visit(self, node: Node, scope: Scope, kind: str) -> list[Visit]:
        match node.type:
            case "identifier":
                self.note(node, scope, kind)
                return []
            case "attribute":
                return self._attribute(node, scope)
            case "call":
                return self._call(node, scope)
            case "keyword_argument":
                return self.fields(node, scope, "value")
            case "function_definition" | "lambda":
                return self._function(node, scope)
            case "class_definition":
                return self._class(node, scope)
            case "assignment" | "augmented_assignment":
                return self._assignment(node, scope)
            case "named_expression":
                around = list(
                    takewhile(lambda each: each.kind == "comprehension", self.chain(scope))
                )
                owner = around[-1].parent if around else scope
                assert owner is not None
                name = child(node, "name")
                self.note(name, owner, "variable")
                if around:
                    self.assigned[self.tree.span(name)[0]] = around
                return self.fields(node, scope, "value")
            case "for_statement":
                left = [(each, scope, "variable") for each in fields(node, "left")]
                return left + self.fields(node, scope, "right", "body", "alternative")
            case "delete_statement" | "global_statement" | "nonlocal_statement":
                return self._statement(node, scope)
            case "import_statement" | "import_from_statement" | "future_import_statement":
                return self._import(node, scope)
            case "string":
                return self._string(node, scope)
            case "type_alias_statement":
                self.unsure = "`type` statements are not understood"
                return []
            case "print_statement" | "exec_statement":
                self.unsure = "this is Python 2"
                return []
            case _ if node.type in COMPREHENSIONS:
                return self._comprehension(node, scope)
            case _ if node.type.endswith("_pattern") or node.type == "dotted_name":
                return self._pattern(node, scope, kind)
            case _:
                return self.all(node.named_children, scope, kind if node.type in TARGETS else "")

    def _attribute(self, node: Node, scope: Scope) -> list[Visit]:
        receiver, name = child(node, "object"), child(node, "attribute")
        self._member(name, scope, receiver)
        return [(receiver, scope, "")]

    def _member(self, name: Node, scope: Scope, receiver: Node | None = None) -> None:
        place = Place(*self.tree.span(name))
        self.members.append(Member(place, self.tree.text_of(name), receiver, scope, name))

    def _call(self, node: Node, scope: Scope) -> list[Visit]:
        callee, arguments = child(node, "function"), child(node, "arguments")
        named = [each for each in arguments.named_children if each.type == "keyword_argument"]
        keywords = {}
        for each in named:
            name = child(each, "name")
            keywords[self.tree.text_of(name)] = Place(*self.tree.span(name))
        splat = any(each.type == "dictionary_splat" for each in arguments.named_children)
        self.calls.append(KeywordCall(node, callee, scope, keywords, splat))
        if "__all__" in self.tree.text_of(callee).split("."):
            self._exports(arguments)
        return [(callee, scope, ""), (arguments, scope, "")]

    def _function(self, node: Node, scope: Scope) -> list[Visit]:
        if name := node.child_by_field_name("name"):
            self.note(name, scope, "method" if scope.kind == "class" else "function")
        outside = self._type_parameters(node, scope)
        inside = Scope("function", outside, node=node)
        self.functions[inside] = node
        visits: list[Visit] = []
        for each in fields(node, "parameters"):
            for parameter in each.named_children:
                visits += self._parameter(parameter, inside, outside)
        visits += self.fields(node, outside, "return_type")
        return visits + self.fields(node, inside, "body")

    def _parameter(self, node: Node, inside: Scope, outside: Scope) -> list[Visit]:
        match node.type:
            case "identifier" | "list_splat_pattern" | "dictionary_splat_pattern":
                return [(node, inside, "parameter")]
            case "default_parameter" | "typed_default_parameter":
                name = (child(node, "name"), inside, "parameter")
                return [name, *self.fields(node, outside, "type", "value")]
            case "typed_parameter":
                name = (node.named_children[0], inside, "parameter")
                return [name, *self.fields(node, outside, "type")]
            case "comment" | "keyword_separator" | "positional_separator":
                return []
            case _:
                self.unsure = "this is Python 2"
                return []

    def _type_parameters(self, node: Node, scope: Scope) -> Scope:
        """Return the scope around a function or class.

        Type parameters would have one of their own; they are not understood, which `unsure` says.
        """
        if node.child_by_field_name("type_parameters"):
            self.unsure = "type parameters are not understood"
        return scope

    def _class(self, node: Node, scope: Scope) -> list[Visit]:
        self.note(child(node, "name"), scope, "class")
        outside = self._type_parameters(node, scope)
        inside = Scope("class", outside, node=node)
        self.classes[self.tree.span(child(node, "name"))[0]] = inside
        return self.fields(node, outside, "superclasses") + self.fields(node, inside, "body")

    def _assignment(self, node: Node, scope: Scope) -> list[Visit]:
        left = child(node, "left")
        if self.tree.text_of(left) == "__all__":
            self._exports(node)
        if node.type == "augmented_assignment":
            self.augmented.add(self.tree.span(left)[0])
        return [(left, scope, "variable"), *self.fields(node, scope, "type", "right")]

    def _exports(self, node: Node) -> None:
        """Note the strings of `__all__` as uses of the module's names."""
        todo = [node]
        while todo:
            each = todo.pop()
            todo += reversed(each.named_children)
            if each.type == "string_content":
                self.note(each, self.top)
                self.exported.add(self.tree.span(each)[1])

    def _statement(self, node: Node, scope: Scope) -> list[Visit]:
        if node.type == "delete_statement":
            return self.all(node.named_children, scope, "variable")
        for each in node.named_children:
            scope.outer[self.tree.text_of(each)] = node.type.removesuffix("_statement")
            self.note(each, scope)
        return []

    def _import(self, node: Node, scope: Scope) -> list[Visit]:
        for each in fields(node, "name"):
            if each.type == "aliased_import":
                self.note(child(each, "alias"), scope, "alias")
            elif node.type != "future_import_statement":
                self.note(each.named_children[0], scope, "import")
        if any(each.type == "wildcard_import" for each in node.named_children):
            self.has_star_import = True
        return []

    def _comprehension(self, node: Node, scope: Scope) -> list[Visit]:
        inside = Scope("comprehension", scope, node=node)
        visits: list[Visit] = []
        is_first = True
        for each in node.named_children:
            if each.type == "for_in_clause":
                right = [
                    (part, scope if is_first else inside, "") for part in fields(each, "right")
                ]
                left = [(part, inside, "variable") for part in fields(each, "left")]
                visits += right + left
                is_first = False
            else:
                visits.append((each, inside, ""))
        return visits

    def _pattern(self, node: Node, scope: Scope, kind: str) -> list[Visit]:
        children = node.named_children
        match node.type:
            case "case_pattern":
                return self.all(children, scope, "variable")
            case "as_pattern" if alias := node.child_by_field_name("alias"):
                value = self.all([each for each in children if each != alias], scope)
                return [*value, (alias, scope, "variable")]
            case "as_pattern":
                return self.all(children, scope, "variable")
            case "class_pattern":
                first, *rest = children
                return self._dotted(first, scope) + self.all(rest, scope, "variable")
            case "keyword_pattern":
                self._member(children[0], scope)
                return self.all(children[1:], scope, "variable")
            case "dotted_name" if len(children) == 1:
                return self.all(children, scope, kind)
            case "dotted_name":
                return self._dotted(node, scope)
            case _:
                return self.all(children, scope, kind)

    def _dotted(self, node: Node, scope: Scope) -> list[Visit]:
        """Visit `a.b.c` as an expression."""
        first, *rest = node.named_children
        for each in rest:
            self._member(each, scope)
        return [(first, scope, "")]

    def _string(self, node: Node, scope: Scope) -> list[Visit]:
        content = [each for each in node.named_children if each.type == "string_content"]
        text = self.tree.text_of(content[0]) if len(content) == 1 else ""
        if text.isidentifier():
            self.strings.add(text)
        if node.parent and node.parent.type in ANNOTATIONS:
            self._annotation(node, content, scope)
        return self.all(
            [each for each in node.named_children if each.type == "interpolation"], scope
        )

    def _annotation(self, node: Node, content: list[Node], scope: Scope) -> None:
        """Note the names in the string of an annotation."""
        around = node.parent
        while around and around.type in ANNOTATIONS:
            if NOT_NAMES.match(self.tree.text_of(around)):
                return
            last, around = around, around.parent
        if last.type != "type" or len(content) != 1:
            return
        if scope.kind != "class":
            scope = self.top  # readers of annotations look there
        start, stop = self.tree.span(content[0])
        text = self.tree.text[start:stop]
        if not STRING_ANNOTATION.fullmatch(text):
            self.unclear.update(re.findall(r"\w+", text))
        else:
            for found in NAME.finditer(text):
                place = Place(start + found.start(), start + found.end())
                self.uses.append(Use(place, found[0], scope, ""))
                self.quoted.add(place.start)

    # -- resolving -----------------------------------------------------------------------------

    def resolve(self) -> None:
        self.uses = [use._replace(name=normalize("NFKC", use.name)) for use in self.uses]
        self.uses.sort(key=lambda use: use.place.start)
        for use in sorted(self.uses, key=lambda use: use.name in use.scope.outer):  # locals first
            if use.kind:
                self.bind(use)
        self.look_up()
        self.resolved = [
            (use, binding)
            for use, binding in self.resolved
            if binding or use.place.start not in self.quoted  # else it is no name of this text
        ]
        # Where such a member is not set yet, or no longer, the body reads the module's name.
        self.read_in_class = {
            use.name
            for use, binding in self.resolved
            if binding
            and binding.scope.kind == "class"
            and use.scope is binding.scope
            and (not use.kind or use.place.start in self.augmented)
        }

    def bind(self, use: Use) -> Binding:
        outer = use.scope.outer.get(use.name)
        if outer == "global":
            return super().bind(use._replace(scope=self.top))
        if outer == "nonlocal":
            for each in self.chain(use.scope.parent):
                if each.kind != "class" and use.name in each.bindings:
                    each.bindings[use.name].kinds.add(use.kind)
                    return each.bindings[use.name]
        return super().bind(use)

    def find(self, name: str, scope: Scope) -> Binding | None:
        for each in self.chain(scope if name in self.bound else None):
            if each.kind == "class" and each is not scope:
                continue  # neither its names nor its `global` hold inside its functions
            outer = each.outer.get(name)
            if outer == "global":
                return self.top.bindings.get(name)
            if outer == "nonlocal":
                continue
            if name in each.bindings:
                return each.bindings[name]
        return None

    # -- certainty -----------------------------------------------------------------------------

    def _doubt(self, binding: Binding) -> None:
        """Note why a binding cannot be renamed for certain, if so."""
        name, scope = binding.name, binding.scope
        if name.startswith("__"):
            binding.unsure = f"`{name}` has a special meaning"
        elif "import" in binding.kinds:
            binding.unsure = f"`{name}` is the name of something in another module"
        elif scope.kind in {"module", "class"} and hasattr(builtins, name):
            binding.unsure = f"`{name}` may also be Python's own"
        elif name in self.unclear and scope.kind in {"module", "class"}:
            binding.unsure = f"an annotation in quotes may use `{name}`"
        elif scope.kind == "module" and self.has_star_import:
            binding.unsure = f"`{name}` may also come from `import *`"
        elif scope.kind == "module" and name in self.read_in_class:
            binding.unsure = f"a class with a `{name}` of its own may read this one"
        elif scope.kind == "class" and any(
            name in each.bindings for each in self.chain(scope.parent) if each.kind != "class"
        ):
            binding.unsure = f"`{name}` is both in the class and around it"
        else:
            self.spend(len(self.dynamic))
            for function, where in self.dynamic:
                if self.sees(function, where, scope):
                    binding.unsure = f"`{function}` may use names by their text"

    def sees(self, function: str, where: Scope, scope: Scope) -> bool:
        """Return whether what looks names up by their text may see those of a scope."""
        if function == "globals":
            return scope is self.top
        if function in {"eval", "exec"}:
            return scope in self.chain(where)
        return scope is next(each for each in self.chain(where) if each.kind != "comprehension")
