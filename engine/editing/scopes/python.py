"""Names of Python, after the language reference's "Naming and binding"."""

from __future__ import annotations

import builtins
import keyword
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import normalize

from engine.editing.edits import EditRefused
from engine.editing.scopes.names import Binding, Place, Scope, Unsure, Use, Visit, Walker

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
DYNAMIC = {"globals", "locals", "vars", "eval", "exec", "dir"}  # look names up by their text
MEMBER_ACCESS = {  # what may use a member by its text
    "attrgetter", "methodcaller", "vars", "__dict__", "__slots__", "__match_args__", "__getattr__",
    "__getattribute__", "__setattr__",
}  # fmt: skip
GETATTR = {"getattr", "setattr", "hasattr", "delattr"}
NEUTRAL_DECORATORS = {
    "staticmethod", "classmethod", "property", "cache", "lru_cache", "cached_property", "override",
    "contextmanager", "abstractmethod", "final", "wraps", "setter", "functools",
}  # fmt: skip
STRING_ANNOTATION = re.compile(r"[\w\s.\[\],|]*")
NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class Call:
    """A call, with the keyword arguments that it gives a name to."""

    node: Node
    callee: Node
    scope: Scope
    keywords: dict[str, Place]
    splat: bool  # has **


@dataclass(frozen=True, slots=True)
class Member:
    """`object.name`, or a name in a pattern that is an attribute."""

    place: Place
    name: str
    receiver: Node | None
    scope: Scope
    node: Node


class PythonNames(Walker):
    """The names of a Python text."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.calls: list[Call] = []
        self.members: list[Member] = []
        self.strings: set[str] = set()  # that look like a name
        self.functions: dict[Scope, Node] = {}
        self.classes: dict[int, Scope] = {}  # by the start of their name
        self.at: dict[int, tuple[Use, Binding | None]] = {}  # start -> use
        self.exported: set[int] = set()  # where the names in `__all__` end
        self.dynamic: list[tuple[str, Scope]] = []  # what looks names up by their text, and where
        self.has_star_import = False

    def read(self) -> None:
        super().read()
        self.at = {use.place.start: (use, binding) for use, binding in self.resolved}
        called = {self.tree.span(call.callee)[0]: call for call in self.calls}
        for use, binding in self.resolved:
            if binding is None and use.name in DYNAMIC:
                call = called.get(use.place.start)
                arguments = call and _child(call.node, "arguments").named_child_count
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
                owner = next(each for each in scope.chain() if each.kind != "comprehension")
                self.note(_child(node, "name"), owner, "variable")
                return self.fields(node, scope, "value")
            case "for_statement":
                left = [(each, scope, "variable") for each in _fields(node, "left")]
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
        receiver, name = _child(node, "object"), _child(node, "attribute")
        self._member(name, scope, receiver)
        return [(receiver, scope, "")]

    def _member(self, name: Node, scope: Scope, receiver: Node | None = None) -> None:
        place = Place(*self.tree.span(name))
        self.members.append(Member(place, self.tree.text_of(name), receiver, scope, name))

    def _call(self, node: Node, scope: Scope) -> list[Visit]:
        callee, arguments = _child(node, "function"), _child(node, "arguments")
        named = [each for each in arguments.named_children if each.type == "keyword_argument"]
        keywords = {}
        for each in named:
            name = _child(each, "name")
            keywords[self.tree.text_of(name)] = Place(*self.tree.span(name))
        splat = any(each.type == "dictionary_splat" for each in arguments.named_children)
        self.calls.append(Call(node, callee, scope, keywords, splat))
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
        for each in _fields(node, "parameters"):
            for parameter in each.named_children:
                visits += self._parameter(parameter, inside, outside)
        visits += self.fields(node, outside, "return_type")
        return visits + self.fields(node, inside, "body")

    def _parameter(self, node: Node, inside: Scope, outside: Scope) -> list[Visit]:
        match node.type:
            case "identifier" | "list_splat_pattern" | "dictionary_splat_pattern":
                return [(node, inside, "parameter")]
            case "default_parameter" | "typed_default_parameter":
                name = (_child(node, "name"), inside, "parameter")
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
        """The scope around a function or class: with type parameters, one of their own."""
        if node.child_by_field_name("type_parameters"):
            self.unsure = "type parameters are not understood"
        return scope

    def _class(self, node: Node, scope: Scope) -> list[Visit]:
        self.note(_child(node, "name"), scope, "class")
        outside = self._type_parameters(node, scope)
        inside = Scope("class", outside, node=node)
        self.classes[self.tree.span(_child(node, "name"))[0]] = inside
        return self.fields(node, outside, "superclasses") + self.fields(node, inside, "body")

    def _assignment(self, node: Node, scope: Scope) -> list[Visit]:
        left = _child(node, "left")
        if self.tree.text_of(left) == "__all__":
            self._exports(node)
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
        for each in _fields(node, "name"):
            if each.type == "aliased_import":
                self.note(_child(each, "alias"), scope, "alias")
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
                    (part, scope if is_first else inside, "") for part in _fields(each, "right")
                ]
                left = [(part, inside, "variable") for part in _fields(each, "left")]
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
        """`a.b.c` as an expression."""
        first, *rest = node.named_children
        for each in rest:
            self._member(each, scope)
        return [(first, scope, "")]

    def _string(self, node: Node, scope: Scope) -> list[Visit]:
        content = [each for each in node.named_children if each.type == "string_content"]
        text = self.tree.text_of(content[0]) if len(content) == 1 else ""
        if text.isidentifier():
            self.strings.add(text)
        if node.parent and node.parent.type in {
            "type",
            "subscript",
            "generic_type",
            "type_parameter",
        }:
            self._annotation(node, content, scope)
        return self.all(
            [each for each in node.named_children if each.type == "interpolation"], scope
        )

    def _annotation(self, node: Node, content: list[Node], scope: Scope) -> None:
        """Note the names in the string of an annotation."""
        around = node.parent
        while around and around.type in {
            "subscript",
            "generic_type",
            "type_parameter",
            "type",
            "tuple",
        }:
            if self.tree.text_of(around).lstrip().startswith(("Literal", "typing.Literal")):
                return
            last, around = around, around.parent
        if last.type != "type" or len(content) != 1:
            return
        start, stop = self.tree.span(content[0])
        text = self.tree.text[start:stop]
        if STRING_ANNOTATION.fullmatch(text):
            for found in NAME.finditer(text):
                place = Place(start + found.start(), start + found.end())
                self.uses.append(Use(place, found[0], scope, ""))

    # -- resolving -----------------------------------------------------------------------------

    def resolve(self) -> None:
        self.uses = [use._replace(name=normalize("NFKC", use.name)) for use in self.uses]
        self.uses.sort(key=lambda use: use.place.start)
        for use in sorted(self.uses, key=lambda use: use.name in use.scope.outer):  # locals first
            if use.kind:
                self.bind(use)
        self.look_up()

    def bind(self, use: Use) -> Binding:
        outer = use.scope.outer.get(use.name)
        if outer == "global":
            return super().bind(use._replace(scope=self.top))
        if outer == "nonlocal":
            for each in use.scope.chain()[1:]:
                if each.kind != "class" and use.name in each.bindings:
                    return each.bindings[use.name]
        return super().bind(use)

    def find(self, name: str, scope: Scope) -> Binding | None:
        for each in scope.chain():
            outer = each.outer.get(name)
            if outer == "global":
                return self.top.bindings.get(name)
            if outer == "nonlocal" or (each.kind == "class" and each is not scope):
                continue
            if name in each.bindings:
                return each.bindings[name]
        return None

    # -- certainty -----------------------------------------------------------------------------

    def _doubt(self, binding: Binding) -> None:
        """Say why a binding cannot be renamed for certain, if so."""
        name, scope = binding.name, binding.scope
        if name.startswith("__"):
            binding.unsure = f"`{name}` has a special meaning"
        elif "import" in binding.kinds:
            binding.unsure = f"`{name}` is the name of something in another module"
        elif scope.kind in {"module", "class"} and hasattr(builtins, name):
            binding.unsure = f"`{name}` may also be Python's own"
        elif scope.kind == "module" and self.has_star_import:
            binding.unsure = f"`{name}` may also come from `import *`"
        elif scope.kind == "class" and any(
            name in each.bindings for each in scope.chain()[1:] if each.kind != "class"
        ):
            binding.unsure = f"`{name}` is both in the class and around it"
        else:
            for function, where in self.dynamic:
                if self.sees(function, where, scope):
                    binding.unsure = f"`{function}` may use names by their text"

    def sees(self, function: str, where: Scope, scope: Scope) -> bool:
        """Whether what looks names up by their text may see those of a scope."""
        if function == "globals":
            return scope is self.top
        if function in {"eval", "exec"}:
            return scope in where.chain()
        return scope is next(each for each in where.chain() if each.kind != "comprehension")

    def places(self, binding: Binding, new: str) -> list[Place]:
        places = super().places(binding, new)
        if binding.scope.kind == "class":
            raise Unsure(f"`{binding.name}` is a member of a class")
        if new.startswith("__") or binding.name.startswith("__"):
            raise Unsure("names that start with two underscores are special")
        if "parameter" in binding.kinds:
            return places + self._keyword_places(binding, new)
        return places

    # -- members -------------------------------------------------------------------------------

    def classes_with(self, name: str) -> list[Scope]:
        """The classes that certainly have a member of this name."""
        found = {
            each.scope: None
            for each in self.bindings()
            if each.scope.kind == "class" and each.name == name
        }
        for member in self.members:
            if member.name == name and (scope := self._class_of(member)):
                found[scope] = None
        return list(found)

    def member_uses(self) -> list[tuple[str, Place]]:
        return [(member.name, member.place) for member in self.members]

    def member_places(self, name: str, scope: Scope, new: str) -> list[Place]:
        """The name in its class, and as `self.name`, `cls.name` and `Class.name`. Raises Unsure
        unless every `.name` of the text is one of these."""
        node = scope.node
        if name.startswith("__") or new.startswith("__"):
            raise Unsure("names that start with two underscores are special")
        if self._bases(scope):
            raise Unsure("the class has base classes that may know the name")
        if node and node.parent and node.parent.type == "decorated_definition":
            raise Unsure("the class has decorators that may use the name")
        if name in self.strings:
            raise Unsure(f'the string "{name}" may name it')
        used = {each.name for each in self.members} | {use.name for use in self.uses}
        if special := used & MEMBER_ACCESS:
            raise Unsure(f"`{min(special)}` may use the name by its text")
        for call in self.calls:
            if self.tree.text_of(call.callee) in GETATTR and not self._names_member(call):
                raise Unsure(f"`{self.tree.text_of(call.node)[:60]}` may use the name by its text")
        own = scope.bindings.get(name)
        if own and own.unsure:
            raise Unsure(own.unsure)
        places = list(own.places) if own else []
        for member in self.members:
            if member.name == new and self._class_of(member) in {scope, None}:
                raise EditRefused(f"`.{new}` is used already: choose another name")
            if member.name == name:
                if self._class_of(member) is not scope:
                    shown = self.tree.text_of(member.node.parent or member.node)[:60]
                    raise Unsure(f"what `{shown}` refers to is not certain")
                places.append(member.place)
        return places

    def _names_member(self, call: Call) -> bool:
        """Whether the second argument of `getattr` is a plain string."""
        arguments = _child(call.node, "arguments").named_children
        return len(arguments) > 1 and arguments[1].type == "string"

    def _class_of(self, member: Member) -> Scope | None:
        """The scope of the class whose member it certainly is."""
        if member.receiver is None or member.receiver.type != "identifier":
            return None
        _, binding = self.at.get(self.tree.span(member.receiver)[0], (None, None))
        if binding is None:
            return None
        if binding.kinds == {"class"}:
            return self._scope_of_class(binding)
        function = self.functions.get(binding.scope)
        owner = binding.scope.parent
        if function is None or owner is None or owner.kind != "class":
            return None
        if binding.kinds != {"parameter"} or "staticmethod" in self._decorators(function):
            return None
        first = _child(function, "parameters").named_children[0]
        start = self.tree.span(first)[0]
        return owner if binding.places and binding.places[0].start == start else None

    def _scope_of_class(self, binding: Binding) -> Scope | None:
        """The scope of the one class that a name is bound to."""
        starts = {place.start for place in binding.places}
        found = [scope for start, scope in self.classes.items() if start in starts]
        return found[0] if len(found) == 1 and binding.kinds == {"class"} else None

    # -- parameters ----------------------------------------------------------------------------

    def _keyword_places(self, binding: Binding, new: str) -> list[Place]:
        """The places where calls give a parameter by its name, and its docstring names it."""
        name, function = binding.name, self.functions[binding.scope]
        own = None
        if function.type != "lambda":
            own = self.at[self.tree.span(_child(function, "name"))[0]][1]
        odd = set(self._decorators(function)) - NEUTRAL_DECORATORS
        if odd:
            raise Unsure(f"the decorator `{min(odd)}` may use the parameter's name")
        if own and own.name.startswith("test"):
            raise Unsure("pytest may use the parameter's name")
        places = self._docstring_places(function, name)
        if self._by_keyword(function, name):
            escapes = own is None or self._escapes(own)
            for call in self.calls:
                if name in call.keywords or new in call.keywords or call.splat:
                    answer = self._calls(call, own, binding.scope.parent, escapes)
                    clear = name in call.keywords and new not in call.keywords and not call.splat
                    if answer == "maybe" or (answer == "yes" and not clear):
                        shown = self.tree.text_of(call.callee)[:60]
                        raise Unsure(f"`{shown}(...)` may give `{name}` to the function")
                    if answer == "yes":
                        places.append(call.keywords[name])
        return places

    def _calls(self, call: Call, own: Binding | None, around: Scope | None, escapes: bool) -> str:
        """Whether a call is one of a function: "yes", "no" or "maybe". `own`: what its name is
        bound to; `around`: the scope of its definition; `escapes`: it is not only called."""
        target = self._callee(call)
        arguments = self.tree.text_of(_child(call.node, "arguments"))
        if own and re.search(rf"(?<!\w){re.escape(own.name)}(?!\w)", arguments):
            return "maybe"
        if own and around and around.kind == "class":
            if own.name == "__init__":
                return self._makes_object(call, target, around)
            if call.callee.type == "attribute":
                name = _child(call.callee, "attribute")
                if self.tree.text_of(name) == own.name:
                    return self._calls_method(name, own, around)
        elif own and target is own:
            return "yes" if self._definitions(own) == 1 else "maybe"
        known = target is None or target.kinds <= {"function", "class", "import", "alias"}
        if not escapes or self._of_import(call.callee):
            return "no"
        return "no" if call.callee.type == "identifier" and known else "maybe"

    def _makes_object(self, call: Call, target: Binding | None, around: Scope) -> str:
        """Whether a call runs a class's `__init__`."""
        if self._of_import(call.callee):
            return "no"
        if call.callee.type != "identifier":
            return "maybe"
        if target is None or target.kinds == {"function"}:
            return "no"
        found = self._scope_of_class(target)
        if found is around:
            return "yes" if self._definitions(around.bindings["__init__"]) == 1 else "maybe"
        has_own = found is not None and "__init__" in found.bindings
        return "no" if has_own and found and not self._bases(found) else "maybe"

    def _calls_method(self, name: Node, own: Binding, around: Scope) -> str:
        """Whether `name` in `object.name(...)` is a class's method."""
        (member,) = [each for each in self.members if each.node == name]
        if self._of_import(member.receiver):
            return "no"
        same = [
            each for each in self.bindings() if each.name == own.name and each.scope.kind == "class"
        ]
        found = self._class_of(member)
        if found is around and len(same) == 1 and self._definitions(own) == 1:
            return "yes"
        certain = found is not None and found is not around and not self._bases(found)
        return "no" if certain else "maybe"

    def _bases(self, scope: Scope) -> bool:
        """Whether a class has base classes or other arguments."""
        return any(each.named_child_count for each in _fields(scope.node, "superclasses"))

    def _definitions(self, own: Binding) -> int:
        """How many functions define a name."""
        starts = {place.start for place in own.places}
        named = (_child(each, "name") for each in self.functions.values() if each.type != "lambda")
        return sum(1 for name in named if self.tree.span(name)[0] in starts)

    def _by_keyword(self, function: Node, name: str) -> bool:
        """Whether a call can name the parameter."""
        parameters = _child(function, "parameters").named_children
        after = False
        for each in reversed(parameters):
            if each.type == "positional_separator":
                after = True
            inner = each.named_children[0] if each.type == "typed_parameter" else each
            if inner.type in {"list_splat_pattern", "dictionary_splat_pattern"}:
                if self.tree.text_of(inner).lstrip("* ") == name:
                    return False
            elif not after:
                named = each.child_by_field_name("name") or inner
                if self.tree.text_of(named) == name:
                    return True
        return False

    def _escapes(self, own: Binding) -> bool:
        """Whether a function is used in any other way than by calling it."""
        called = {self.tree.span(call.callee)[1] for call in self.calls}
        if own.scope.kind == "class":
            uses = [each.place.stop for each in self.members if each.name == own.name]
        else:
            uses = [use.place.stop for use, found in self.resolved if found is own and not use.kind]
            uses = [stop for stop in uses if stop not in self.exported]
        return any(stop not in called for stop in uses)

    def _callee(self, call: Call) -> Binding | None:
        """The binding of a call's plain callee."""
        if call.callee.type != "identifier":
            return None
        return self.at[self.tree.span(call.callee)[0]][1]

    def _of_import(self, node: Node | None) -> bool:
        """Whether `a.b.c` starts with an imported name."""
        while node and node.type == "attribute":
            node = _child(node, "object")
        if node is None or node.type != "identifier":
            return False
        binding = self.at[self.tree.span(node)[0]][1]
        return binding is not None and binding.kinds <= {"import", "alias"}

    def _decorators(self, function: Node) -> list[str]:
        """The last names of a function's decorators."""
        around = function.parent
        if around is None or around.type != "decorated_definition":
            return []
        texts = [self.tree.text_of(each) for each in around.children if each.type == "decorator"]
        return [
            re.split(r"[(\s#]", text.lstrip("@ "), maxsplit=1)[0].split(".")[-1] for text in texts
        ]

    def _docstring_places(self, function: Node, name: str) -> list[Place]:
        """The parameter in the docstring's fields: `:param name:`, or `name:` below "Args:"."""
        body = _child(function, "body")
        first = body.named_children[0] if body.named_children else body
        string = first.named_children[0] if first.type == "expression_statement" else first
        if function.type == "lambda" or string.type != "string":
            return []
        start, stop = self.tree.span(string)
        text, word = self.tree.text[start:stop], re.escape(name)
        field = rf":(?:param|parameter|arg|argument|key|keyword|type)\s+(?:[^:\n]*\s)?({word})\s*:"
        entry = rf"^[ \t]+\*{{0,2}}({word})[ \t]*(?:\([^)\n]*\)[ \t]*)?:"
        found = [*re.finditer(field, text)]
        if re.search(r"^\s*(?:Args|Arguments|Parameters):\s*$", text, re.M):
            found += re.finditer(entry, text, re.M)
        return [Place(start + each.start(1), start + each.end(1)) for each in found]


def _child(node: Node, name: str) -> Node:
    """The node of a field that the grammar requires."""
    child = node.child_by_field_name(name)
    if child is None:
        raise Unsure(f"a {node.type.replace('_', ' ')} of this form is not understood")
    return child


def _fields(node: Node | None, name: str) -> list[Node]:
    return node.children_by_field_name(name) if node else []
