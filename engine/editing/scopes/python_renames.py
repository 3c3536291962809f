"""The places that a rename rewrites in Python apart from the names themselves.

These are members of classes, and where calls give a parameter by its name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from unicodedata import normalize

from engine.editing.edits import EditRefused
from engine.editing.scopes.names import Binding, Place, Scope, Unsure, Visit, child, fields
from engine.editing.scopes.python import KeywordCall, Member, PythonNames

if TYPE_CHECKING:
    from tree_sitter import Node

    from engine.editing.syntax import Tree

MEMBER_ACCESS = {  # names by which code may use a member by its text
    "attrgetter", "methodcaller", "vars", "__dict__", "__slots__", "__match_args__", "__getattr__",
    "__getattribute__", "__setattr__",
}  # fmt: skip
STEPS_PER_CALL = 50  # steps, as of MAX_STEPS, to see whether a call is one of a function
WORD = re.compile(r"\w+")
GETATTR = {"getattr", "setattr", "hasattr", "delattr"}
NEUTRAL_DECORATORS = {
    "staticmethod", "classmethod", "property", "cache", "lru_cache", "cached_property", "override",
    "contextmanager", "abstractmethod", "final", "wraps", "setter", "functools",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Callers:
    """Calls that give a parameter, all of them and by the words in what they call and give."""

    calls: list[KeywordCall]
    by_word: dict[str, dict[int, KeywordCall]]  # the calls by their nodes' ids


class PythonRenames(PythonNames):
    """The names of a Python text, with all places of each."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._decorated: dict[int, Node] = {}  # a definition's id -> the node with its decorators
        self._callers: dict[tuple[str, str], _Callers] = {}  # by its old and new name
        self._scopes: dict[Binding, Scope | None] = {}  # scope of the class it is bound to
        self._assigned: set[int] = set()  # starts of names that an assignment binds alone
        self._typed: dict[int, Node] = {}  # start of a name -> the class that its value is said of

    def visit(self, node: Node, scope: Scope, kind: str) -> list[Visit]:
        if node.type == "decorated_definition":
            self._decorated[child(node, "definition").id] = node
        elif node.type in ("assignment", "augmented_assignment"):
            value, left = node.child_by_field_name("right"), child(node, "left")
            if left.type == "identifier":
                self._assigned.add(self.tree.span(left)[0])
            if value and value.type == "call" and node.type == "assignment":
                self._typed[self.tree.span(left)[0]] = child(value, "function")
        return super().visit(node, scope, kind)

    def _parameter(self, node: Node, inside: Scope, outside: Scope) -> list[Visit]:
        written = node.child_by_field_name("type")
        if written and written.named_child_count:
            self._typed[self.tree.span(node)[0]] = written.named_children[0]
        return super()._parameter(node, inside, outside)

    def places(self, binding: Binding, new: str) -> list[Place]:
        places = super().places(binding, new)
        if binding.scope.kind == "class":
            raise Unsure(f"`{binding.name}` is a member of a class")
        if new.startswith("__") or binding.name.startswith("__"):
            raise Unsure("names that start with two underscores are special")
        starts = {place.start for place in places}
        for start, around in self.assigned.items():
            self.spend(len(around))
            clashes = start in starts and any(new in each.bindings for each in around)
            if clashes or (binding.scope in around and self.at[start][0].name == new):
                raise EditRefused(
                    f"`:=` cannot assign to a comprehension's `{new}`: choose another name"
                )
        if "parameter" in binding.kinds:
            return places + self._keyword_places(binding, new)
        return places

    # -- members -------------------------------------------------------------------------------

    def classes_with(self, name: str) -> list[Scope]:
        """Return the classes that certainly have a member of this name."""
        found = {
            each.scope: None
            for each in self.bindings()
            if each.scope.kind == "class" and each.name == name
        }
        for member in self.members:
            if member.name == name and (scope := self._class_of(member)):
                found[scope] = None
        return list(found)

    def class_name(self, member: Member) -> str:
        """Return the name of the class whose member it certainly is; "" if that is not known."""
        scope = self._class_of(member)
        name = scope.node.child_by_field_name("name") if scope and scope.node else None
        return self.tree.text_of(name) if name else ""

    @cached_property
    def decorated(self) -> set[int]:
        """The offsets where the names of functions with decorators begin."""
        functions = (each for each in self.functions.values() if each.id in self._decorated)
        return {self.tree.span(child(each, "name"))[0] for each in functions}

    def is_assigned(self, place: Place) -> bool:
        """Return whether a name is all that an assignment binds there."""
        return place.start in self._assigned

    def member_uses(self) -> list[tuple[str, Place]]:
        return [(member.name, member.place) for member in self.members]

    def member_places(self, name: str, scope: Scope, new: str) -> list[Place]:
        """Find the name in its class, and as `self.name`, `cls.name` and `Class.name`.

        Raises Unsure unless every `.name` of the text is one of these or that of another class, and
        EditRefused if the new name is used already.
        """
        if name.startswith("__") or new.startswith("__"):
            raise Unsure("names that start with two underscores are special")
        if self.has_bases(scope):
            raise Unsure("the class has base classes that may know the name")
        if scope.node and scope.node.id in self._decorated:
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
        others = {one for one in self.classes_with(name) if one is not scope}
        if any(self.has_bases(one) for one in others) or (others and self._has_heirs_of_several):
            raise Unsure(f"a class may inherit `{name}`")
        assigned = [each for each in self.members if each.name == name and _is_assigned(each)]
        own_names = {one for one in others if name in one.bindings}
        own_names |= {one for one in map(self._class_of, assigned) if one in others}
        places = list(own.places) if own else []
        for member in self.members:
            found = self._class_of(member)
            if member.name == new and found in {scope, None}:
                raise EditRefused(f"`.{new}` is used already: choose another name")
            if member.name == name and found is scope:
                places.append(member.place)
            elif member.name == name and found not in own_names:
                shown = self.tree.text_of(member.node.parent or member.node)[:60]
                raise Unsure(f"what `{shown}` refers to is not certain")
        return places

    @cached_property
    def _has_heirs_of_several(self) -> bool:
        """Whether a class has several base classes, which may then share a member."""
        return any(
            each.named_child_count > 1
            for scope in self.classes.values()
            for each in fields(scope.node, "superclasses")
        )

    def _names_member(self, call: KeywordCall) -> bool:
        """Return whether the second argument of `getattr` is a plain string."""
        arguments = child(call.node, "arguments").named_children
        return len(arguments) > 1 and arguments[1].type == "string"

    def _class_of(self, member: Member) -> Scope | None:
        """Return the scope of the class whose member it certainly is."""
        if member.receiver is None or member.receiver.type != "identifier":
            return None
        _, binding = self.at.get(self.tree.span(member.receiver)[0], (None, None))
        if binding is None:
            return None
        if binding.kinds == {"class"}:
            return self._scope_of_class(binding)
        if scope := self._scope_of_type(binding):
            return scope
        function = self.functions.get(binding.scope)
        owner = binding.scope.parent
        if function is None or owner is None or owner.kind != "class":
            return None
        if binding.kinds != {"parameter"} or "staticmethod" in self._decorators(function):
            return None
        first = child(function, "parameters").named_children[0]
        start = self.tree.span(first)[0]
        return owner if binding.places and binding.places[0].start == start else None

    def _scope_of_type(self, binding: Binding) -> Scope | None:
        """Return the scope of the class of a variable, bound once as `a = A()` or as `a: A`."""
        bound = [one.start for one in binding.places if self.at[one.start][0].kind]
        written = self._typed.get(bound[0]) if len(bound) == 1 else None
        if written is None or written.type != "identifier":
            return None
        _, found = self.at.get(self.tree.span(written)[0], (None, None))
        return self._scope_of_class(found) if found else None

    def _scope_of_class(self, binding: Binding) -> Scope | None:
        """Return the scope of the one class that a name is bound to."""
        if binding not in self._scopes:
            starts = dict.fromkeys(place.start for place in binding.places)
            found = [self.classes[start] for start in starts if start in self.classes]
            is_one = len(found) == 1 and binding.kinds == {"class"}
            self._scopes[binding] = found[0] if is_one else None
        return self._scopes[binding]

    # -- parameters ----------------------------------------------------------------------------

    def _keyword_places(self, binding: Binding, new: str) -> list[Place]:
        """Find where calls give a parameter by its name, and where its docstring names it.

        Raises Unsure.
        """
        name, function = binding.name, self.functions[binding.scope]
        own = None
        if function.type != "lambda":
            own = self.at[self.tree.span(child(function, "name"))[0]][1]
        odd = set(self._decorators(function)) - NEUTRAL_DECORATORS
        if odd:
            raise Unsure(f"the decorator `{min(odd)}` may use the parameter's name")
        if own and own.name.startswith("test"):
            raise Unsure("pytest may use the parameter's name")
        places = self._docstring_places(function, name)
        if self._by_keyword(function, name):
            escapes = own is None or self._escapes(own)
            for call in self._possible_calls(name, new, own, escapes):
                answer = self._calls(call, own, binding.scope.parent, escapes)
                clear = name in call.keywords and new not in call.keywords and not call.splat
                if answer == "maybe" or (answer == "yes" and not clear):
                    shown = self.tree.text_of(call.callee)[:60]
                    raise Unsure(f"`{shown}(...)` may give `{name}` to the function")
                if answer == "yes":
                    places.append(call.keywords[name])
        return places

    def _possible_calls(
        self, name: str, new: str, own: Binding | None, escapes: bool
    ) -> Collection[KeywordCall]:
        """Return the calls that give a parameter of such a name and may be of a function.

        These are all of them, or those that write the function's name.
        """
        if (name, new) not in self._callers:
            self._callers[name, new] = self._callers_of(name, new)
        callers = self._callers[name, new]
        if own is None or escapes or own.name == "__init__":
            self.spend(STEPS_PER_CALL * len(callers.calls))
            return callers.calls
        found = callers.by_word.get(own.name, {}).values()
        self.spend(STEPS_PER_CALL * len(found))
        return found

    def _callers_of(self, name: str, new: str) -> _Callers:
        callers = _Callers([], {})
        for call in self.calls:
            if name in call.keywords or new in call.keywords or call.splat:
                callers.calls.append(call)
                named = call.callee
                if named.type == "attribute":
                    named = child(named, "attribute")
                words = self._words(child(call.node, "arguments"))
                self.spend(len(words))
                for word in (*self._words(named), *words):
                    callers.by_word.setdefault(word, {})[call.node.id] = call
        return callers

    def _words(self, node: Node) -> list[str]:
        return WORD.findall(normalize("NFKC", self.tree.text_of(node)))

    def _calls(
        self, call: KeywordCall, own: Binding | None, around: Scope | None, escapes: bool
    ) -> str:
        """Return whether a call is one of a function: "yes", "no" or "maybe".

        `own`: what the function's name is bound to; `around`: the scope of its definition;
        `escapes`: it is not only called.
        """
        target = self._callee(call)
        if own and own.name in self._words(child(call.node, "arguments")):
            return "maybe"
        if own and around and around.kind == "class":
            if own.name == "__init__":
                return self._makes_object(call, target, around)
            if call.callee.type == "attribute":
                name = child(call.callee, "attribute")
                if self.tree.text_of(name) == own.name:
                    return self._calls_method(name, own, around)
        elif own and target is own:
            return "yes" if self._definitions(own) == 1 else "maybe"
        known = target is None or target.kinds <= {"function", "class", "import", "alias"}
        if not escapes or self._of_import(call.callee):
            return "no"
        return "no" if call.callee.type == "identifier" and known else "maybe"

    def _makes_object(self, call: KeywordCall, target: Binding | None, around: Scope) -> str:
        """Return whether a call runs a class's `__init__`: "yes", "no" or "maybe"."""
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
        return "no" if has_own and found and not self.has_bases(found) else "maybe"

    def _calls_method(self, name: Node, own: Binding, around: Scope) -> str:
        """Return whether `name` in `object.name(...)` is a class's method.

        The answer is "yes", "no" or "maybe".
        """
        member = self._member_at[self.tree.span(name)[0]]
        if self._of_import(member.receiver):
            return "no"
        found = self._class_of(member)
        if found is around and self._of_classes[own.name] == 1 and self._definitions(own) == 1:
            return "yes"
        certain = found is not None and found is not around and not self.has_bases(found)
        return "no" if certain else "maybe"

    def has_bases(self, scope: Scope) -> bool:
        """Return whether a class has base classes or other arguments."""
        return any(each.named_child_count for each in fields(scope.node, "superclasses"))

    def _definitions(self, own: Binding) -> int:
        """Count the functions that define a name."""
        return sum(place.start in self._function_names for place in own.places)

    def _by_keyword(self, function: Node, name: str) -> bool:
        """Return whether a call can name the parameter."""
        parameters = child(function, "parameters").named_children
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
        """Return whether a function is used in any other way than by calling it."""
        if own.scope.kind == "class":
            return own.name in self._escaping_members
        return own in self._escaping_names

    # What the look-ups above need of the whole text, each read once.

    @cached_property
    def _called(self) -> set[int]:
        """The offsets where the callees of calls end."""
        return {self.tree.span(call.callee)[1] for call in self.calls}

    @cached_property
    def _escaping_members(self) -> set[str]:
        return {each.name for each in self.members if each.place.stop not in self._called}

    @cached_property
    def _escaping_names(self) -> set[Binding]:
        known = self._called | self.exported
        return {
            found
            for use, found in self.resolved
            if found and not use.kind and use.place.stop not in known
        }

    @cached_property
    def _function_names(self) -> set[int]:
        """The offsets where the names of functions begin, as they are defined."""
        named = (child(each, "name") for each in self.functions.values() if each.type != "lambda")
        return {self.tree.span(name)[0] for name in named}

    @cached_property
    def _member_at(self) -> dict[int, Member]:
        return {each.place.start: each for each in self.members}

    @cached_property
    def _of_classes(self) -> Counter[str]:
        """The number of classes with a member of each name."""
        return Counter(each.name for each in self.bindings() if each.scope.kind == "class")

    def _callee(self, call: KeywordCall) -> Binding | None:
        """Return the binding of a call's plain callee."""
        if call.callee.type != "identifier":
            return None
        return self.at[self.tree.span(call.callee)[0]][1]

    def _of_import(self, node: Node | None) -> bool:
        """Return whether `a.b.c` starts with an imported name."""
        while node and node.type == "attribute":
            node = child(node, "object")
        if node is None or node.type != "identifier":
            return False
        binding = self.at[self.tree.span(node)[0]][1]
        return binding is not None and binding.kinds <= {"import", "alias"}

    def _decorators(self, function: Node) -> list[str]:
        """Return the last names of a function's decorators."""
        around = self._decorated.get(function.id)
        if around is None:
            return []
        texts = [self.tree.text_of(each) for each in around.children if each.type == "decorator"]
        return [
            re.split(r"[(\s#]", text.lstrip("@ "), maxsplit=1)[0].split(".")[-1] for text in texts
        ]

    def _docstring_places(self, function: Node, name: str) -> list[Place]:
        """Find the parameter in the docstring: as `:param name:`, or as `name:` below "Args:"."""
        body = child(function, "body")
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


def _is_assigned(member: Member) -> bool:
    """Return whether a member's use is `object.name = value`."""
    attribute = member.node.parent
    statement = attribute.parent if attribute else None
    if statement is None or statement.type != "assignment":
        return False
    return statement.child_by_field_name("left") == attribute
